#pragma once

// A network between agents of one process: PeerChannels whose calls are lost, late, or refused as
// the test says, everything drawn from one seed. Time is the dispatcher's, which outlives this;
// this outlives the channels. One thread.
//
// A message to or from a node that is cut off is lost, and its caller waits until its call's
// timeout. A node that is down refuses at once, as a machine does on which no agent runs.

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ids.h"
#include "proto/rpc_method.h"
#include "transport/dispatcher.h"
#include "transport/peer_channel.h"

namespace macrame::agentd::sim {

struct Weather {
  double loss = 0;  // of each message, from 0 to 1
  Duration delay_min = std::chrono::microseconds(100);
  Duration delay_max = std::chrono::milliseconds(2);
};

class FakeNetwork {
 public:
  template <typename Response>
  using Reply = std::function<void(absl::StatusOr<Response>)>;

  FakeNetwork(transport::Dispatcher& dispatcher, uint64_t seed)
      : dispatcher_(dispatcher), random_(seed) {}

  // What `node` answers to a method from now on, until it is down.
  template <typename Request, typename Response>
  void Handle(
      const NodeId& node, const Method<Request, Response>& method,
      std::type_identity_t<std::function<void(const NodeId& from, const Request&, Reply<Response>)>>
          handler) {
    handlers_[node][std::string(method.path)] =
        [handler = std::move(handler)](const NodeId& from, const std::string& bytes, Done done) {
          Request request;
          if (!request.ParseFromString(bytes)) {
            return done(absl::InvalidArgumentError("the request can't be parsed"));
          }
          handler(from, request, [done](absl::StatusOr<Response> response) {
            if (!response.ok()) return done(response.status());
            done(response->SerializeAsString());
          });
        };
  }
  // No process of this node runs any more.
  void Down(const NodeId& node) { handlers_.erase(node); }
  // Nothing passes from `from` to `to`, or does again.
  void Cut(const NodeId& from, const NodeId& to, bool cut);
  bool IsCut(const NodeId& from, const NodeId& to) const { return cut_.contains({from, to}); }
  void SetWeather(Weather weather) { weather_ = weather; }
  uint64_t lost() const { return lost_; }

  // For PeerChannels; of the process that runs as `from`.
  std::unique_ptr<transport::PeerChannel> Connect(const NodeId& from, const NodeId& to);

 private:
  class Channel;
  using Done = std::function<void(absl::StatusOr<std::string>)>;
  using Handler = std::function<void(const NodeId&, const std::string&, Done)>;

  void Call(const NodeId& from, const NodeId& to, std::string_view method, std::string request,
            Done done);
  void Send(const NodeId& from, const NodeId& to, std::function<void()> deliver);

  transport::Dispatcher& dispatcher_;
  std::mt19937_64 random_;
  Weather weather_;
  std::set<std::pair<NodeId, NodeId>> cut_;
  std::map<NodeId, std::map<std::string, Handler, std::less<>>> handlers_;
  uint64_t lost_ = 0;
};

}  // namespace macrame::agentd::sim
