#pragma once

// Other nodes as a test plays them: it sees each call that goes out to them and says how it ends.

#include <google/protobuf/message_lite.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agentd/node/peer_channels.h"
#include "macrame/v1/node.pb.h"
#include "transport/peer_channel.h"

namespace macrame::tests {

// One call that went out. It stays open until the test ends it or its channel goes.
struct PeerCall {
  NodeId node;
  std::string path;
  std::string request;
  Duration timeout{};
  bool cancelled = false;  // by who called

  template <typename Request>
  Request As() const {
    Request parsed;
    parsed.ParseFromString(request);
    return parsed;
  }
  bool IsOpen() const { return done != nullptr; }
  void Answer(const google::protobuf::MessageLite& response) {
    if (!IsOpen()) return;
    answer->ParseFromString(response.SerializeAsString());
    End(absl::OkStatus());
  }
  // Of a stream.
  void Send(const google::protobuf::MessageLite& message) {
    if (!IsOpen()) return;
    const auto [parsed, hand_on] = make();
    parsed->ParseFromString(message.SerializeAsString());
    hand_on();
  }
  void End(const absl::Status& status) {
    if (IsOpen()) std::exchange(done, nullptr)(status);
  }

  std::shared_ptr<google::protobuf::MessageLite> answer;
  std::function<std::pair<std::shared_ptr<google::protobuf::MessageLite>, std::function<void()>>()>
      make;
  std::function<void(absl::Status)> done;
};

class FakePeers {
 public:
  using Calls = std::vector<std::shared_ptr<PeerCall>>;

  agentd::PeerChannels::MakeChannel Maker() {
    return [calls = calls_](const NodeId& node, std::shared_ptr<grpc::ChannelCredentials>,
                            std::string) { return std::make_unique<Channel>(calls, node); };
  }
  // All that ever went out, in order.
  const Calls& calls() const { return *calls_; }
  PeerCall& last() const { return *calls_->back(); }
  PeerCall& at(size_t index) const { return *calls_->at(index); }
  Calls Open() const {
    Calls open;
    for (const auto& call : *calls_) {
      if (call->IsOpen()) open.push_back(call);
    }
    return open;
  }
  Calls To(const NodeId& node) const {
    Calls to;
    for (const auto& call : *calls_) {
      if (call->node == node) to.push_back(call);
    }
    return to;
  }

 private:
  class Channel final : public transport::PeerChannel {
   public:
    Channel(std::shared_ptr<Calls> calls, NodeId node)
        : calls_(std::move(calls)), node_(std::move(node)) {}
    // Callbacks of calls under way do not run any more.
    ~Channel() override {
      for (const auto& call : own_) call->done = nullptr;
    }
    void SetCredentials(std::shared_ptr<grpc::ChannelCredentials>) override {}
    void SetAddresses(std::vector<std::string> addresses) override {
      addresses_ = std::move(addresses);
    }
    const std::vector<std::string>& addresses() const override { return addresses_; }
    void EndCalls(const absl::Status& status) override {
      for (const auto& call : Calls(own_)) call->End(status);
    }

   protected:
    transport::CallHandle CallUnary(std::string_view method,
                                    const google::protobuf::MessageLite& request,
                                    MessagePtr response, Duration timeout,
                                    std::function<void(absl::Status)> done) override {
      auto call = Note(method, request, timeout, std::move(done));
      call->answer = std::move(response);
      return transport::CallHandle([call] { call->cancelled = true; });
    }
    transport::CallHandle CallStream(std::string_view method,
                                     const google::protobuf::MessageLite& request, MakeMessage make,
                                     Duration timeout, std::function<void(absl::Status)> done,
                                     transport::HandOver) override {
      auto call = Note(method, request, timeout, std::move(done));
      call->make = std::move(make);
      return transport::CallHandle([call] { call->cancelled = true; });
    }

   private:
    std::shared_ptr<PeerCall> Note(std::string_view method,
                                   const google::protobuf::MessageLite& request, Duration timeout,
                                   std::function<void(absl::Status)> done) {
      auto call = std::make_shared<PeerCall>();
      call->node = node_;
      call->path = std::string(method);
      call->request = request.SerializeAsString();
      call->timeout = timeout;
      call->done = std::move(done);
      calls_->push_back(call);
      own_.push_back(call);
      return call;
    }

    const std::shared_ptr<Calls> calls_;
    const NodeId node_;
    std::vector<std::string> addresses_;
    Calls own_;
  };

  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
};

inline NodeId IdOf(char digit) { return NodeId(std::string(32, digit)); }

// A node as others hear of it: "host-b" at 10.0.0.1.
inline v1::NodeIdentity IdentityOf(const NodeId& node, const std::string& ip = "10.0.0.1") {
  v1::NodeIdentity identity;
  identity.set_node_id(node.value());
  identity.set_incarnation(1);
  identity.set_hostname("host-" + node.value().substr(0, 1));
  identity.set_control_port(4711);
  v1::NodeAddress& address = *identity.add_addresses();
  address.set_ip(ip);
  address.set_interface_kind(v1::INTERFACE_KIND_ETHERNET);
  return identity;
}

}  // namespace macrame::tests
