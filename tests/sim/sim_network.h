#pragma once

// The network between the machines of a simulation: RPCs and datagrams that are lost, late or
// refused, as the weather and the cuts say.
//
// A message of a call that is lost is sent again, ever later, as TCP does. On a cut way it is lost
// for good, and so is its call, which ends by its timeout. A machine that is on and on which no
// agent listens refuses connections; one that is off says nothing. Messages of one stream arrive in
// their order. Only datagrams may arrive twice.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/node.pb.h"
#include "tests/sim/scheduler.h"
#include "transport/peer_channel.h"
#include "transport/rpc_server.h"

namespace macrame::agentd::sim {

struct Weather {
  double loss = 0;       // of each message, from 0 to 1
  double duplicate = 0;  // of each datagram
  Us delay_max = 2'000;
  bool stalls = false;  // some messages take seconds
};

inline constexpr uint32_t kControlPort = 4711;

// Where a machine is reached.
std::string IpOf(int machine);
// -1: no machine's.
int MachineAt(std::string_view ip);

// An RPC that was answered with OK, or is about to be handed over.
struct Rpc {
  int from = 0;
  int to = 0;
  std::string_view path;
};

class SimServer;

// A beacon; who sent it is told by its identity's address.
struct SimBeacon {
  v1::NodeIdentity identity;
  uint64_t sequence = 0;
  uint64_t news = 0;
  uint64_t sent_unix_ms = 0;
  bool reply_wanted = false;
};

class SimNetwork {
 public:
  SimNetwork(Scheduler& scheduler, Dice& dice, int machines)
      : scheduler_(scheduler), dice_(dice), hosts_(machines) {}

  Weather& weather() { return weather_; }
  void Cut(int from, int to, bool cut);
  bool IsCut(int from, int to) const { return cut_.contains({from, to}); }
  void HealCuts() { cut_.clear(); }
  // The machine itself, and not its agent's process alone.
  void SetOff(int machine, bool is_off) { hosts_[machine].is_off = is_off; }
  // A firewall: nobody can call it; what it sends gets out.
  void SetRefuses(int machine, bool refuses) { hosts_[machine].refuses = refuses; }

  // Whose call it is that is handled now, over the wire: empty between calls and within those of a
  // machine to itself.
  const std::optional<Rpc>& at_hand() const { return at_hand_; }
  // Each may be empty. A request as it leaves; as it is about to be handled, when it may still be
  // changed, with who sent it; and an answer with OK, likewise.
  std::function<void(const Rpc&, const std::string& request)> on_request;
  std::function<void(const Rpc&, std::string* request, NodeId* caller)> on_arrival;
  std::function<void(const Rpc&, const std::string& request, std::string* answer)> on_answer;

  // `self`: whom its certificate names; who means to call another node does not get through.
  std::unique_ptr<transport::RpcServer> MakeServer(ProcessPtr process, NodeId self);
  std::unique_ptr<transport::PeerChannel> Connect(ProcessPtr process, NodeId caller, NodeId callee,
                                                  transport::Dispatcher& dispatcher);

  // To the agent of this very machine, over its socket.
  std::unique_ptr<transport::PeerChannel> ConnectToSelf(ProcessPtr process,
                                                        transport::Dispatcher& dispatcher);

  // Hears what is sent to everybody, and what is sent to this machine, while `process` lives.
  using Hear = std::function<void(const SimBeacon&, bool to_everybody)>;
  void Listen(ProcessPtr process, Hear hear);
  void Broadcast(int from, const SimBeacon& beacon);
  void SendBeacon(int from, int to, const SimBeacon& beacon, bool to_everybody);

  // `deliver` after a while, or never. Of one stream `arrived_at` is when its last message arrives.
  void Send(int from, int to, std::function<void()> deliver, Us* arrived_at = nullptr);
  void SendDatagram(int from, int to, std::function<void()> deliver);

 private:
  friend class SimServer;
  class Channel;
  struct ClientCall;

  struct Host {
    bool is_off = false;
    bool refuses = false;
    SimServer* server = nullptr;
    SimServer* socket = nullptr;  // what its own machine calls
    ProcessPtr listener;
    Hear hear;
  };

  void DeliverAfter(Us delay, int from, int to, std::function<void()> deliver);
  Us Delay();
  void Deliver(const Rpc& rpc, const NodeId& caller, const NodeId& callee, std::string request,
               std::shared_ptr<ClientCall> call);

  Scheduler& scheduler_;
  Dice& dice_;
  Weather weather_;
  std::set<std::pair<int, int>> cut_;
  std::vector<Host> hosts_;
  std::optional<Rpc> at_hand_;
};

// Of one process: over the wire, and from its own machine.
class SimServer final : public transport::RpcServer {
 public:
  SimServer(SimNetwork& network, ProcessPtr process, NodeId self)
      : network_(network), process_(std::move(process)), self_(std::move(self)) {}
  ~SimServer() override { Stop(Duration::zero()); }

  void SetObserver(Observer observer) override { observer_ = std::move(observer); }
  void SetMemberCheck(std::function<bool(const NodeId&)> is_member) override {
    is_member_ = std::move(is_member);
  }
  void SetPersonCheck(PersonCheck) override {}
  void RecheckPersons() override {}
  absl::StatusOr<int> StartTcp(const std::string& ip, int port,
                               std::shared_ptr<grpc::ServerCredentials> credentials,
                               bool plain) override;
  absl::Status UseCredentials(std::shared_ptr<grpc::ServerCredentials>) override {
    return absl::OkStatus();
  }
  void SetRevoked(std::set<NodeId>) override {}
  void SetKnownAddresses(std::set<std::string>) override {}
  std::string ListenerTrouble() const override { return ""; }
  absl::Status StartUnix(const std::string&) override;
  void Stop(Duration grace) override;

  using OnMessage = std::function<void(const std::string&)>;
  using OnEnd = std::function<void(const absl::Status&)>;
  // What somebody at this machine asks.
  template <typename Request, typename Response>
  void CallLocally(const StreamMethod<Request, Response>& method, const Request& request,
                   OnMessage on_message, OnEnd on_end) {
    Handle({NodeId(), /*local=*/true, "", ""}, method.path, request.SerializeAsString(),
           std::move(on_message), std::move(on_end));
  }
  template <typename Request, typename Response>
  void CallLocally(const Method<Request, Response>& method, const Request& request,
                   OnMessage on_message, OnEnd on_end) {
    Handle({NodeId(), /*local=*/true, "", ""}, method.path, request.SerializeAsString(),
           std::move(on_message), std::move(on_end));
  }
  // What `caller` asks, wherever it is; what it is refused for is as of any call.
  template <typename Rpc, typename Request>
  void CallAs(const transport::Caller& caller, const Rpc& method, const Request& request,
              OnMessage on_message, OnEnd on_end) {
    Handle(caller, method.path, request.SerializeAsString(), std::move(on_message),
           std::move(on_end));
  }

 private:
  friend class SimNetwork;
  struct Registered {
    Access access;
    Remote remote;
    std::function<MessagePtr()> make;
    AnyHandler handler;
  };

  void HandleAny(std::string_view method, Access access, Remote remote,
                 std::function<MessagePtr()> make, AnyHandler handler) override {
    methods_[std::string(method)] = {access, remote, std::move(make), std::move(handler)};
  }
  void Handle(const transport::Caller& caller, std::string_view path, const std::string& request,
              OnMessage on_message, OnEnd on_end);

  SimNetwork& network_;
  const ProcessPtr process_;
  const NodeId self_;
  std::map<std::string, Registered, std::less<>> methods_;
  std::function<bool(const NodeId&)> is_member_;
  Observer observer_;
};

}  // namespace macrame::agentd::sim
