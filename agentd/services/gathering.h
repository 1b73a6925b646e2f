#pragma once

// Questions to several nodes at once: who has not answered yet, and the end when all have or are
// gone. With a node that is forgotten or revoked its channel goes, and a call that waits for it is
// never answered (transport/peer_channel.h). Owner thread.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agentd/node/peer_channels.h"
#include "proto/ids.h"
#include "proto/reasons.h"

namespace macrame::agentd {

class Gathering {
 public:
  using OnGone = std::function<void(const NodeId&)>;

  Gathering(std::set<NodeId> awaited, OnGone on_gone, std::function<void()> done)
      : awaited_(std::move(awaited)), on_gone_(std::move(on_gone)), done_(std::move(done)) {}

  bool Awaits(const NodeId& node) const { return awaited_.contains(node); }
  // It has answered, or won't; only the first word counts.
  void Through(const NodeId& node) {
    if (awaited_.erase(node) > 0 && awaited_.empty()) std::exchange(done_, nullptr)();
  }
  void NoteGone(const NodeId& node) {
    if (!Awaits(node)) return;
    if (on_gone_) on_gone_(node);
    Through(node);
  }

 private:
  std::set<NodeId> awaited_;
  OnGone on_gone_;
  std::function<void()> done_;
};

// Of a node that can't be called, or whose channel went.
inline absl::Status Unreached(const NodeId& node) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEntryUnreachable,
                      absl::StrCat("node ", ShortId(node), " can't be reached"), node.value());
}

// What this node answers itself, without a call.
template <typename Response>
struct OwnAnswer {
  NodeId self;
  std::function<void(std::function<void(absl::StatusOr<Response>)>)> ask;
};

// Those that are under way: each lives with the calls that it waits for.
class Gatherings {
 public:
  // `on_gone` (may be empty) for each node that is gone before it answered; then `done` once, when
  // none of `awaited`, which are some, is awaited any more.
  std::shared_ptr<Gathering> Begin(std::set<NodeId> awaited, Gathering::OnGone on_gone,
                                   std::function<void()> done) {
    std::erase_if(open_, [](const auto& one) { return one.expired(); });
    auto gathering =
        std::make_shared<Gathering>(std::move(awaited), std::move(on_gone), std::move(done));
    open_.push_back(gathering);
    return gathering;
  }
  // Before its channel goes.
  void NoteGone(const NodeId& node) {
    // What ends may begin another.
    for (const std::weak_ptr<Gathering>& one : std::vector(open_)) {
      if (const auto gathering = one.lock()) gathering->NoteGone(node);
    }
  }

  // Asks each of `nodes` and gives `take` its answer, or why there is none, once for each; then
  // `done` once, for no nodes at once. `own` answers where this node is among them.
  template <typename Request, typename Response>
  void Ask(PeerChannels& channels, const std::set<NodeId>& nodes,
           const Method<Request, Response>& method, const std::type_identity_t<Request>& request,
           Duration timeout,
           std::type_identity_t<std::function<void(const NodeId&, absl::StatusOr<Response>)>> take,
           std::function<void()> done,
           const std::type_identity_t<std::optional<OwnAnswer<Response>>>& own = {}) {
    if (nodes.empty()) return done();
    const auto gathering = Begin(
        nodes, [take](const NodeId& node) { take(node, Unreached(node)); }, std::move(done));
    for (const NodeId& node : nodes) {
      const auto answered = [gathering, take, node](absl::StatusOr<Response> answer) {
        if (gathering->Awaits(node)) take(node, std::move(answer));
        gathering->Through(node);
      };
      if (own.has_value() && node == own->self) {
        own->ask(answered);
        continue;
      }
      transport::PeerChannel* channel = channels.For(node);
      if (channel == nullptr) {
        answered(Unreached(node));
      } else {
        channel->Call(method, request, timeout, answered);
      }
    }
  }

 private:
  std::vector<std::weak_ptr<Gathering>> open_;
};

}  // namespace macrame::agentd
