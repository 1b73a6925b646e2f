#include "tests/sim/sim_network.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace macrame::agentd::sim {
namespace {

constexpr char kNetwork[] = "10.0.0.";
constexpr Us kDelayMin = 100;
constexpr double kStallChance = 0.01;
constexpr Us kStallMax = 2'500'000;
// What Linux and macOS wait for an acknowledgement, doubled each time.
constexpr Us kSentAgain = 200'000;
constexpr Us kSentAgainMax = 3'200'000;

// The answering side of a call; its handler is told nothing of a caller that goes away.
class SimCall final : public transport::ServerStream::Call {
 public:
  SimCall(SimServer::OnMessage on_message, SimServer::OnEnd on_end)
      : on_message_(std::move(on_message)), on_end_(std::move(on_end)) {}
  ~SimCall() override { Finish(absl::InternalError("the agent dropped the call")); }

  bool Write(const google::protobuf::MessageLite& message) override {
    if (on_end_ == nullptr) return false;
    on_message_(message.SerializeAsString());
    return true;
  }
  void Answer(const google::protobuf::MessageLite& message) override {
    if (Write(message)) Finish(absl::OkStatus());
  }
  void Finish(const absl::Status& status) override {
    if (on_end_ != nullptr) std::exchange(on_end_, nullptr)(status);
  }
  void OnCancel(std::function<void()>) override {}

 private:
  const SimServer::OnMessage on_message_;
  SimServer::OnEnd on_end_;
};

}  // namespace

std::string IpOf(int machine) { return absl::StrCat(kNetwork, machine + 1); }

int MachineAt(std::string_view ip) {
  absl::string_view rest(ip.data(), ip.size());
  int number = 0;
  if (!absl::ConsumePrefix(&rest, kNetwork)) return -1;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return read.ec == std::errc() ? number - 1 : -1;
}

// The asking side of a call: each message, then the end, once.
struct SimNetwork::ClientCall : std::enable_shared_from_this<ClientCall> {
  ClientCall(ProcessPtr process, std::weak_ptr<bool> channel,
             std::function<void(const std::string&)> on_message,
             std::function<void(const absl::Status&)> on_end)
      : process(std::move(process)),
        channel(std::move(channel)),
        on_message(std::move(on_message)),
        on_end(std::move(on_end)) {}

  ProcessPtr process;
  std::weak_ptr<bool> channel;
  std::function<void(const std::string&)> on_message;
  std::function<void(const absl::Status&)> on_end;
  Us arrived_at = 0;

  void Take(const std::string& message) {
    process->Do([this, self = shared_from_this(), message] {
      if (on_end != nullptr && !channel.expired()) on_message(message);
    });
  }
  void End(const absl::Status& status) {
    process->Do([this, self = shared_from_this(), status] { EndNow(status); });
  }
  // On its process' thread.
  void EndNow(const absl::Status& status) {
    if (on_end == nullptr) return;
    const auto told = std::exchange(on_end, nullptr);
    if (!channel.expired()) told(status);
  }
};

class SimNetwork::Channel final : public transport::PeerChannel {
 public:
  Channel(SimNetwork& network, ProcessPtr process, NodeId caller, NodeId callee,
          transport::Dispatcher& dispatcher)
      : network_(network),
        process_(std::move(process)),
        caller_(std::move(caller)),
        callee_(std::move(callee)),
        dispatcher_(dispatcher) {}

  void SetCredentials(std::shared_ptr<grpc::ChannelCredentials>) override {}
  void SetAddresses(std::vector<std::string> addresses) override {
    addresses_ = std::move(addresses);
  }
  const std::vector<std::string>& addresses() const override { return addresses_; }
  void EndCalls(const absl::Status& status) override {
    for (const std::weak_ptr<ClientCall>& one : std::exchange(calls_, {})) {
      if (const auto call = one.lock(); call != nullptr) call->EndNow(status);
    }
  }

 private:
  transport::CallHandle CallUnary(std::string_view method,
                                  const google::protobuf::MessageLite& request, MessagePtr response,
                                  Duration timeout,
                                  std::function<void(absl::Status)> done) override {
    auto is_there = std::make_shared<bool>(false);
    return Start(
        method, request, timeout, transport::HandOver::kOwnerThread,
        [response, is_there](const std::string& message) {
          *is_there = response->ParseFromString(message);
        },
        [is_there, done = std::move(done)](const absl::Status& status) {
          done(status.ok() && !*is_there ? absl::InternalError("no answer came") : status);
        });
  }
  transport::CallHandle CallStream(std::string_view method,
                                   const google::protobuf::MessageLite& request, MakeMessage make,
                                   Duration timeout, std::function<void(absl::Status)> done,
                                   transport::HandOver hand_over) override {
    return Start(
        method, request, timeout, hand_over,
        [make = std::move(make)](const std::string& bytes) {
          const auto [message, hand_on] = make();
          if (message->ParseFromString(bytes)) hand_on();
        },
        [done = std::move(done)](const absl::Status& status) { done(status); });
  }

  void CallSocket(const std::string& method, const std::string& bytes,
                  const std::shared_ptr<ClientCall>& call) {
    SimServer* const socket = network_.hosts_[process_->machine].socket;
    if (socket == nullptr) return call->End(absl::UnavailableError("no agent has this socket"));
    socket->Handle(
        {NodeId(), /*local=*/true, ""}, method, bytes,
        [call](const std::string& message) { call->Take(message); },
        [call](const absl::Status& status) { call->End(status); });
  }

  // The first address behind which somebody can be met; all are tried, as gRPC does.
  int Target() const {
    int first = -1;
    for (const std::string& address : addresses_) {
      const int machine = MachineAt(address.substr(0, address.rfind(':')));
      if (machine < 0 || machine >= static_cast<int>(network_.hosts_.size())) continue;
      if (first < 0) first = machine;
      const bool is_met = !network_.IsCut(process_->machine, machine) &&
                          network_.hosts_[machine].server != nullptr &&
                          !network_.hosts_[machine].refuses;
      if (is_met) return machine;
    }
    return first;
  }

  transport::CallHandle Start(std::string_view method, const google::protobuf::MessageLite& request,
                              Duration timeout, transport::HandOver hand_over,
                              std::function<void(const std::string&)> on_message,
                              std::function<void(const absl::Status&)> on_end) {
    auto call =
        std::make_shared<ClientCall>(process_, alive_, std::move(on_message), std::move(on_end));
    std::erase_if(calls_, [](const auto& one) { return one.expired(); });
    if (hand_over == transport::HandOver::kOwnerThread) calls_.push_back(call);
    const transport::CallHandle handle([call, &dispatcher = dispatcher_] {
      dispatcher.Post([call] { call->End(absl::CancelledError("the caller gave up")); });
    });
    if (callee_.value().empty()) {
      dispatcher_.PostAfter(timeout, [call] {
        call->End(absl::DeadlineExceededError("the agent did not answer in time"));
      });
      dispatcher_.Post([this, alive = std::weak_ptr<bool>(alive_), call,
                        method = std::string(method), bytes = request.SerializeAsString()] {
        if (!alive.expired()) CallSocket(method, bytes, call);
      });
      return handle;
    }
    const int to = Target();
    if (to < 0) {
      dispatcher_.Post(
          [call] { call->End(absl::UnavailableError("no address of the node is known")); });
      return handle;
    }
    dispatcher_.PostAfter(timeout, [call] {
      call->End(absl::DeadlineExceededError("the node did not answer in time"));
    });
    const Rpc rpc{process_->machine, to, method};
    std::string bytes = request.SerializeAsString();
    if (!process_->is_alive()) return handle;
    if (network_.on_request) network_.on_request(rpc, bytes);
    if (!process_->is_alive()) return handle;
    network_.Send(
        rpc.from, to,
        [&network = network_, rpc, caller = caller_, callee = callee_, bytes = std::move(bytes),
         call] { network.Deliver(rpc, caller, callee, bytes, call); });
    return handle;
  }

  SimNetwork& network_;
  const ProcessPtr process_;
  const NodeId caller_;
  const NodeId callee_;
  transport::Dispatcher& dispatcher_;
  std::vector<std::string> addresses_;
  std::vector<std::weak_ptr<ClientCall>> calls_;  // that may be under way
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

void SimNetwork::Cut(int from, int to, bool cut) {
  if (cut) {
    cut_.insert({from, to});
  } else {
    cut_.erase({from, to});
  }
}

Us SimNetwork::Delay() {
  const Us delay = dice_.Between(kDelayMin, weather_.delay_max);
  return weather_.stalls && dice_.Chance(kStallChance) ? delay + dice_.Between(0, kStallMax)
                                                       : delay;
}

void SimNetwork::DeliverAfter(Us delay, int from, int to, std::function<void()> deliver) {
  scheduler_.After(delay, [this, from, to, deliver = std::move(deliver)] {
    if (!IsCut(from, to)) deliver();
  });
}

void SimNetwork::SendDatagram(int from, int to, std::function<void()> deliver) {
  if (IsCut(from, to) || dice_.Chance(weather_.loss)) return;
  DeliverAfter(Delay(), from, to, std::move(deliver));
}

void SimNetwork::Send(int from, int to, std::function<void()> deliver, Us* arrived_at) {
  if (IsCut(from, to)) return;
  Us delay = Delay();
  for (Us again = kSentAgain; dice_.Chance(weather_.loss) && again <= kSentAgainMax; again *= 2) {
    delay += again;
  }
  if (arrived_at != nullptr) {
    delay = std::max(delay, *arrived_at - scheduler_.now());
    *arrived_at = scheduler_.now() + delay;
  }
  DeliverAfter(delay, from, to, std::move(deliver));
}

void SimNetwork::Deliver(const Rpc& rpc, const NodeId& caller, const NodeId& callee,
                         std::string request, std::shared_ptr<ClientCall> call) {
  const Host& host = hosts_[rpc.to];
  if (host.is_off) return;
  SimServer* const server = host.server;
  if (server == nullptr || host.refuses) {
    return Send(rpc.to, rpc.from,
                [call] { call->End(absl::UnavailableError("Connection refused")); });
  }
  if (server->self_ != callee) {
    return Send(rpc.to, rpc.from, [call] {
      call->End(absl::UnavailableError("the certificate is another node's: handshake failed"));
    });
  }
  server->process_->Do([this, server, rpc, caller, request, call] {
    // Another process may have come while this one was paused; then its connections are gone.
    if (hosts_[rpc.to].server != server) return;
    std::string taken = request;
    transport::Caller from{caller, false, IpOf(rpc.from)};
    if (on_arrival) on_arrival(rpc, &taken, &from.node_id);
    const std::optional<Rpc> before = std::exchange(at_hand_, rpc);
    server->Handle(
        from, rpc.path, taken,
        [this, rpc, call, request, process = server->process_](const std::string& message) {
          if (!process->is_alive()) return;
          std::string answer = message;
          if (on_answer) on_answer(rpc, request, &answer);
          Send(
              rpc.to, rpc.from, [call, answer] { call->Take(answer); }, &call->arrived_at);
        },
        [this, rpc, call, process = server->process_](const absl::Status& status) {
          if (!process->is_alive()) return;
          Send(
              rpc.to, rpc.from, [call, status] { call->End(status); }, &call->arrived_at);
        });
    at_hand_ = before;
  });
}

std::unique_ptr<transport::RpcServer> SimNetwork::MakeServer(ProcessPtr process, NodeId self) {
  return std::make_unique<SimServer>(*this, std::move(process), std::move(self));
}

std::unique_ptr<transport::PeerChannel> SimNetwork::Connect(ProcessPtr process, NodeId caller,
                                                            NodeId callee,
                                                            transport::Dispatcher& dispatcher) {
  return std::make_unique<Channel>(*this, std::move(process), std::move(caller), std::move(callee),
                                   dispatcher);
}

std::unique_ptr<transport::PeerChannel> SimNetwork::ConnectToSelf(
    ProcessPtr process, transport::Dispatcher& dispatcher) {
  return std::make_unique<Channel>(*this, std::move(process), NodeId(), NodeId(), dispatcher);
}

void SimNetwork::Listen(ProcessPtr process, Hear hear) {
  Host& host = hosts_[process->machine];
  host.listener = std::move(process);
  host.hear = std::move(hear);
}

void SimNetwork::Broadcast(int from, const SimBeacon& beacon) {
  for (int to = 0; to < static_cast<int>(hosts_.size()); ++to) {
    if (to != from) SendBeacon(from, to, beacon, /*to_everybody=*/true);
  }
}

void SimNetwork::SendBeacon(int from, int to, const SimBeacon& beacon, bool to_everybody) {
  const int copies = dice_.Chance(weather_.duplicate) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    SendDatagram(from, to, [this, to, beacon, to_everybody] {
      const ProcessPtr listener = hosts_[to].listener;
      if (listener == nullptr) return;
      listener->Do([this, to, listener, beacon, to_everybody] {
        if (hosts_[to].listener == listener) hosts_[to].hear(beacon, to_everybody);
      });
    });
  }
}

absl::StatusOr<int> SimServer::StartTcp(const std::string&, int,
                                        std::shared_ptr<grpc::ServerCredentials>, bool) {
  network_.hosts_[process_->machine].server = this;
  return static_cast<int>(kControlPort);
}

absl::Status SimServer::StartUnix(const std::string&) {
  network_.hosts_[process_->machine].socket = this;
  return absl::OkStatus();
}

void SimServer::Stop(Duration) {
  SimNetwork::Host& host = network_.hosts_[process_->machine];
  if (host.socket == this) host.socket = nullptr;
  if (host.server == this) host.server = nullptr;
}

void SimServer::Handle(const transport::Caller& caller, std::string_view path,
                       const std::string& request, OnMessage on_message, OnEnd on_end) {
  auto observed = std::make_shared<OnEnded>();
  const transport::ServerStream stream(std::make_shared<SimCall>(
      std::move(on_message), [observed, process = process_, on_end](const absl::Status& status) {
        // What a dead process holds may end later than its parts.
        if (*observed && process->is_alive()) (*observed)(status);
        on_end(status);
      }));
  const auto found = methods_.find(path);
  if (found == methods_.end()) {
    return stream.Finish(absl::UnimplementedError(
        absl::StrCat("this agent does not know ", absl::string_view(path.data(), path.size()))));
  }
  const Registered& method = found->second;
  const MessagePtr message = method.make();
  if (!message->ParseFromString(request)) {
    return stream.Finish(absl::InvalidArgumentError("the request can't be parsed"));
  }
  // The key of an access file, which simulated callers have as soon as they name one.
  const bool is_person = !caller.key_id.empty();
  const bool may_person = is_person && method.remote != Remote::kNobody;
  const bool may_node =
      !is_person &&
      (method.access == Access::kCertificate ||
       (method.access == Access::kMember && is_member_ && is_member_(caller.node_id)));
  const bool is_refused = !caller.local && !may_person && !may_node;
  if (is_refused) {
    return stream.Finish(absl::FailedPreconditionError("must send a heartbeat first"));
  }
  if (observer_) *observed = observer_(caller, path, *message);
  method.handler(caller, message, stream);
}

}  // namespace macrame::agentd::sim
