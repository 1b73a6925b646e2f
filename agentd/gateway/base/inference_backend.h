#pragma once

// All that the HTTP gateway knows of the agent: it asks for text and for the list of what is
// loaded.
//
// The agent implements this interface; tests implement it with a script. Every method may be called
// from any thread (the gateway calls from its own io thread) and returns at once: what takes time
// is done elsewhere and told through the callbacks.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// A deployment that requests can name. One that is being recovered stays in the list: its requests
// are answered with UNAVAILABLE, not with "no such model".
struct ServedModel {
  std::string id;                    // the deployment's name
  int64_t created_unix_seconds = 0;  // when it was asked for
  uint32_t context_length = 0;       // tokens, prompt and answer together
  std::string tenant{};              // whose alone it is; empty: everybody's
  bool is_stopped = false;           // it is loaded when the cluster is started
  uint64_t weight_bytes = 0;         // on all its ranks; 0: not known
};

// Null: none of that name.
inline const ServedModel* FindModel(const std::vector<ServedModel>& models, std::string_view name) {
  for (const ServedModel& model : models) {
    if (model.id == name) return &model;
  }
  return nullptr;
}

// Where a request that is traced (GenerateRequest.timings) was sent, and what came of it, in order.
struct CallRoute {
  struct Step {
    std::chrono::steady_clock::time_point at;
    bool is_sent = false;    // to an entry rank; or else that failed, and it is tried again:
    std::string node_id{};   // of the entry rank; empty: none was found
    std::string replica{};   // the deployment, or one of its replicas
    uint64_t epoch = 0;      // of the gang
    std::string code{};      // why it failed: a reason's
    uint32_t repetitions{};  // that failed alike right behind it, and stand nowhere else
  };
  std::vector<Step> steps;  // at most kRouteStepsMax: the first, and the latest
  uint32_t dropped = 0;     // that stood between these
};
inline constexpr size_t kRouteStepsMax = 16;

// One request under way. Dropping it changes nothing; only Cancel() ends it early.
class GenerateCall {
 public:
  virtual ~GenerateCall() = default;
  // Any thread, any number of times, also after the end. on_done still comes (CANCELLED), within 5
  // s.
  virtual void Cancel() = 0;
  // What is known so far of a request that is traced. Any thread, also after the end.
  virtual CallRoute Route() const { return {}; }
};

// Takes the chunks of an answer, and perhaps the word that the answer begins again: its gang was
// lost, another one is asked, and what came so far is dropped. A client that was sent some of the
// answer can't take it again: such a callback is made of chunks alone. Neither comes while the
// other is under way.
class ChunkCallback {
 public:
  ChunkCallback() = default;
  ChunkCallback(std::nullptr_t) {}
  template <typename Take>
  requires(!std::same_as<std::remove_cvref_t<Take>, ChunkCallback> &&
           std::invocable<Take&, const v1::GenerateChunk&>)
      ChunkCallback(Take take, std::function<void()> begin_again = nullptr)
      : take_(std::move(take)), begin_again_(std::move(begin_again)) {}

  void operator()(const v1::GenerateChunk& chunk) const { take_(chunk); }
  explicit operator bool() const { return static_cast<bool>(take_); }
  bool can_begin_again() const { return static_cast<bool>(begin_again_); }
  void BeginAgain() const { begin_again_(); }

  // `take` in front of this one, to which it passes chunks on by itself. It can begin again if this
  // one can, and is told so first.
  template <typename Take>
  ChunkCallback Behind(Take take, std::function<void()> begin_again = nullptr) const {
    if (!can_begin_again()) return ChunkCallback(std::move(take));
    return ChunkCallback(std::move(take), [first = std::move(begin_again), then = begin_again_] {
      if (first) first();
      then();
    });
  }

 private:
  std::function<void(const v1::GenerateChunk& chunk)> take_;
  std::function<void()> begin_again_;
};

class InferenceBackend {
 public:
  using ChunkCallback = agentd::ChunkCallback;
  using DoneCallback = std::function<void(absl::Status status)>;

  virtual ~InferenceBackend() = default;

  // Starts an answer. The callbacks come from any thread, never two at once, and possibly before
  // StartGenerate has returned: on_chunk for each piece in order, then on_done exactly once. Chunks
  // of `progress` come before and between the pieces, and are none. A callback that can begin again
  // may be told so before on_done: the pieces then come from the first one on.
  //
  // Errors carry a Reason (proto/reasons.h) and are told through on_done:
  //   NOT_FOUND           MODEL_NOT_LOADED: no deployment of this name
  //   INVALID_ARGUMENT    PROMPT_TOO_LONG, TEMPLATE_REFUSED, STRUCTURE_REFUSED, BAD_REQUEST
  //   RESOURCE_EXHAUSTED  QUEUE_FULL, QUEUE_TIMEOUT
  //   UNAVAILABLE         NOT_READY, ENTRY_UNREACHABLE: worth trying again
  //   CANCELLED           after Cancel()
  // Neither callback is called after the gateway has been told on_done. The caller keeps what the
  // callbacks use alive; the backend drops both callbacks after on_done.
  virtual std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request,
                                                      ChunkCallback on_chunk,
                                                      DoneCallback on_done) = 0;

  // Every deployment that is asked for, in the order of their names.
  virtual std::vector<ServedModel> ListModels() = 0;

  // Other names of models, loaded or not, that the whole cluster knows: alias to model.
  virtual std::map<std::string, std::string> Aliases() { return {}; }

  // This node is still looking through its model folders: a model that nobody knows may be there.
  virtual bool IsLooking() { return false; }
};

}  // namespace macrame::agentd
