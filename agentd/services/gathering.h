#pragma once

// One question to several nodes at once. Owner thread.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agentd/node/peer_channels.h"
#include "proto/ids.h"
#include "proto/reasons.h"

namespace macrame::agentd {

// What this node answers itself, without a call.
template <typename Response>
struct OwnAnswer {
  NodeId self;
  std::function<void(std::function<void(absl::StatusOr<Response>)>)> ask;
};

template <typename Response>
using TakeAnswer = std::function<void(const NodeId&, absl::StatusOr<Response>)>;

// Of a node that can't be called.
inline absl::Status Unreached(const NodeId& node) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEntryUnreachable,
                      absl::StrCat("node ", ShortId(node), " can't be reached"), node.value());
}

// Asks each of `nodes` and gives `take` its answer, or why there is none, once for each; then
// `done` once, for no nodes at once. `own` answers where this node is among them.
template <typename Request, typename Response>
void AskEach(PeerChannels& channels, const std::set<NodeId>& nodes,
             const Method<Request, Response>& method, const std::type_identity_t<Request>& request,
             Duration timeout, std::type_identity_t<TakeAnswer<Response>> take,
             std::function<void()> done,
             const std::type_identity_t<std::optional<OwnAnswer<Response>>>& own = {}) {
  if (nodes.empty()) return done();
  struct Gathering {
    size_t awaited;
    TakeAnswer<Response> take;
    std::function<void()> done;
  };
  const auto gathering =
      std::make_shared<Gathering>(Gathering{nodes.size(), std::move(take), std::move(done)});
  for (const NodeId& node : nodes) {
    const auto answered = [gathering, node](absl::StatusOr<Response> answer) {
      gathering->take(node, std::move(answer));
      if (--gathering->awaited == 0) std::exchange(gathering->done, nullptr)();
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

}  // namespace macrame::agentd
