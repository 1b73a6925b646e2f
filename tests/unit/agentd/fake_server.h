#pragma once

// A server whose calls a test makes itself: what services register is called by path, and what they
// answer is kept.

#include <google/protobuf/message_lite.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/rpc_server.h"

namespace macrame::tests {

// What came back of one call so far.
template <typename Message>
struct Heard {
  std::vector<Message> messages;
  std::optional<absl::Status> end;
  std::function<void()> on_cancel;
  bool gone = false;

  // The caller goes away.
  void Leave() {
    gone = true;
    if (on_cancel) std::exchange(on_cancel, nullptr)();
  }
};

class FakeServer final : public transport::RpcServer {
 public:
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  std::shared_ptr<Heard<Message>> Call(const transport::Caller& caller,
                                       const Rpc<Request, Message>& rpc, const Request& request) {
    auto heard = std::make_shared<Heard<Message>>();
    const auto& [make, handler] = methods_.at(std::string(rpc.path));
    MessagePtr parsed = make();
    parsed->ParseFromString(request.SerializeAsString());
    handler(caller, parsed, transport::ServerStream(std::make_shared<Kept<Message>>(heard)));
    return heard;
  }
  bool Has(std::string_view path) const { return methods_.contains(std::string(path)); }

  void SetObserver(Observer) override {}
  void SetMemberCheck(std::function<bool(const NodeId&)>) override {}
  void SetPersonCheck(PersonCheck) override {}
  void RecheckPersons() override {}
  absl::StatusOr<int> StartTcp(const std::string&, int, std::shared_ptr<grpc::ServerCredentials>,
                               bool) override {
    return absl::UnimplementedError("a test calls it itself");
  }
  absl::Status UseCredentials(std::shared_ptr<grpc::ServerCredentials>) override {
    return absl::OkStatus();
  }
  void SetRevoked(std::set<NodeId>) override {}
  void SetKnownAddresses(std::set<std::string>) override {}
  std::string ListenerTrouble() const override { return ""; }
  absl::Status StartUnix(const std::string&) override { return absl::OkStatus(); }
  void Stop(Duration) override {}

 private:
  template <typename Message>
  class Kept final : public transport::ServerStream::Call {
   public:
    explicit Kept(std::shared_ptr<Heard<Message>> heard) : heard_(std::move(heard)) {}
    bool Write(const google::protobuf::MessageLite& message) override {
      if (heard_->gone || heard_->end.has_value()) return false;
      heard_->messages.emplace_back().ParseFromString(message.SerializeAsString());
      return true;
    }
    void Answer(const google::protobuf::MessageLite& message) override {
      Write(message);
      Finish(absl::OkStatus());
    }
    void Finish(const absl::Status& status) override {
      if (!heard_->end.has_value()) heard_->end = status;
    }
    void OnCancel(std::function<void()> on_cancel) override {
      if (heard_->gone) return on_cancel();
      heard_->on_cancel = std::move(on_cancel);
    }

   private:
    const std::shared_ptr<Heard<Message>> heard_;
  };

  void HandleAny(std::string_view method, Access, Remote, std::function<MessagePtr()> make,
                 AnyHandler handler) override {
    methods_[std::string(method)] = {std::move(make), std::move(handler)};
  }

  std::map<std::string, std::pair<std::function<MessagePtr()>, AnyHandler>> methods_;
};

}  // namespace macrame::tests
