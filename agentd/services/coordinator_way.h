#pragma once

// The way of a call to the coordinator: carried out here when this node leads, else passed on to
// the node that does. Owner thread.

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "agentd/cores/election.h"
#include "agentd/node/own_node.h"
#include "agentd/node/peer_channels.h"
#include "transport/dispatcher.h"
#include "transport/peer_channel.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// A call that needs a coordinator waits so long for one to be agreed on.
inline constexpr Duration kCoordinatorWait = std::chrono::seconds(5);

// What answers a call with `response` once what it tells of is written, or says why it is not.
template <typename Response>
std::function<void(const absl::Status&)> AnswerWhenWritten(
    std::type_identity_t<transport::RpcServer::Reply<Response>> reply, Response response) {
  return [reply = std::move(reply), response = std::move(response)](const absl::Status& status) {
    if (!status.ok()) return reply(status);
    reply(response);
  };
}

class CoordinatorWay {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    PeerChannels& channels;
    const OwnNode& own;
  };
  explicit CoordinatorWay(Parts parts) : parts_(parts) {}

  // Runs `here` when this node leads, `there` with the channel to the coordinator otherwise
  // (persons only: what another node asks is not passed on again), `fail` when
  // there is none.
  void At(const transport::Caller& caller, std::function<void()> here,
          std::function<void(transport::PeerChannel&, const NodeId& coordinator)> there,
          std::function<void(const absl::Status&)> fail,
          std::optional<MonotonicTime> since = std::nullopt);

  template <typename Response, typename Request>
  void Unary(const Method<Request, Response>& method, const transport::Caller& caller,
             const std::type_identity_t<Request>& request, Duration timeout,
             std::type_identity_t<transport::RpcServer::Reply<Response>> reply,
             std::function<void()> here) {
    At(
        caller, std::move(here),
        [method, request, timeout, reply](transport::PeerChannel& channel,
                                          const NodeId& coordinator) {
          channel.Call(method, request, timeout,
                       [reply, coordinator](absl::StatusOr<Response> response) {
                         if (response.ok()) return reply(std::move(response));
                         reply(Told(coordinator, response.status()));
                       });
        },
        [reply](const absl::Status& status) { reply(status); });
  }

  static absl::Status NoCoordinator();
  // Of a call that was passed on and failed: as it is, but where the coordinator did not answer
  // (`status` has no Reason) with NO_COORDINATOR, which names it.
  static absl::Status Told(const NodeId& coordinator, const absl::Status& status);

 private:
  const Parts parts_;
};

}  // namespace macrame::agentd
