#pragma once

// All that the HTTP gateway knows of the agent: it asks for text and for the list of what is
// loaded.
//
// The agent implements this interface; tests implement it with a script. Every method may be called
// from any thread (the gateway calls from its own io thread) and returns at once: what takes time
// is done elsewhere and told through the callbacks.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
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

class InferenceBackend {
 public:
  using ChunkCallback = std::function<void(const v1::GenerateChunk& chunk)>;
  using DoneCallback = std::function<void(absl::Status status)>;

  virtual ~InferenceBackend() = default;

  // Starts an answer. The callbacks come from any thread, never two at once, and possibly before
  // StartGenerate has returned: on_chunk for each piece in order, then on_done exactly once. Chunks
  // of `progress` come before and between the pieces, and are none.
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
