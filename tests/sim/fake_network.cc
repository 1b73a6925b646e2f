#include "tests/sim/fake_network.h"

#include <google/protobuf/message_lite.h>

#include <vector>

#include "absl/strings/str_cat.h"

namespace macrame::agentd::sim {

class FakeNetwork::Channel final : public transport::PeerChannel {
 public:
  Channel(FakeNetwork& network, NodeId from, NodeId to)
      : network_(network), from_(std::move(from)), to_(std::move(to)) {}

  void SetCredentials(std::shared_ptr<grpc::ChannelCredentials>) override {}
  void SetAddresses(std::vector<std::string> addresses) override {
    addresses_ = std::move(addresses);
  }
  const std::vector<std::string>& addresses() const override { return addresses_; }

 private:
  // What ends a call once, however many answers and timeouts come.
  struct Ending {
    std::function<void(absl::Status)> done;
    std::weak_ptr<bool> alive;
    void End(const absl::Status& status) {
      if (!done || alive.expired()) return;
      std::exchange(done, nullptr)(status);
    }
  };

  transport::CallHandle CallUnary(std::string_view method,
                                  const google::protobuf::MessageLite& request, MessagePtr response,
                                  Duration timeout,
                                  std::function<void(absl::Status)> done) override {
    auto ending = std::make_shared<Ending>(Ending{std::move(done), alive_});
    transport::Dispatcher& dispatcher = network_.dispatcher_;
    if (addresses_.empty()) {
      dispatcher.Post(
          [ending] { ending->End(absl::UnavailableError("no address of the node is known")); });
      return {};
    }
    dispatcher.PostAfter(timeout, [ending] {
      ending->End(absl::DeadlineExceededError("the node did not answer in time"));
    });
    network_.Call(from_, to_, method, request.SerializeAsString(),
                  [ending, response](absl::StatusOr<std::string> answer) {
                    if (!answer.ok()) return ending->End(answer.status());
                    if (ending->done && response->ParseFromString(*answer)) {
                      ending->End(absl::OkStatus());
                    }
                  });
    return transport::CallHandle([ending, &dispatcher] {
      dispatcher.Post([ending] { ending->End(absl::CancelledError("the caller gave up")); });
    });
  }

  transport::CallHandle CallStream(std::string_view method, const google::protobuf::MessageLite&,
                                   MakeMessage, Duration,
                                   std::function<void(absl::Status)> done) override {
    auto ending = std::make_shared<Ending>(Ending{std::move(done), alive_});
    network_.dispatcher_.Post([ending, path = std::string(method)] {
      ending->End(absl::UnimplementedError(
          absl::StrCat("the simulated network carries no streams, and ", path, " is one")));
    });
    return {};
  }

  FakeNetwork& network_;
  const NodeId from_;
  const NodeId to_;
  std::vector<std::string> addresses_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

std::unique_ptr<transport::PeerChannel> FakeNetwork::Connect(const NodeId& from, const NodeId& to) {
  return std::make_unique<Channel>(*this, from, to);
}

void FakeNetwork::Cut(const NodeId& from, const NodeId& to, bool cut) {
  if (cut) {
    cut_.insert({from, to});
  } else {
    cut_.erase({from, to});
  }
}

void FakeNetwork::Send(const NodeId& from, const NodeId& to, std::function<void()> deliver) {
  const auto range = static_cast<uint64_t>((weather_.delay_max - weather_.delay_min).count()) + 1;
  const bool is_lost = static_cast<double>(random_() % 1'000'000) < weather_.loss * 1'000'000;
  const Duration delay = weather_.delay_min + Duration(random_() % range);
  if (is_lost || IsCut(from, to)) {
    ++lost_;
    return;
  }
  dispatcher_.PostAfter(delay, [this, from, to, deliver = std::move(deliver)] {
    if (IsCut(from, to)) {
      ++lost_;
    } else {
      deliver();
    }
  });
}

void FakeNetwork::Call(const NodeId& from, const NodeId& to, std::string_view method,
                       std::string request, Done done) {
  const Done answer = [this, from, to, done = std::move(done)](absl::StatusOr<std::string> result) {
    Send(to, from, [done, result = std::move(result)] { done(result); });
  };
  Send(from, to,
       [this, from, to, path = std::string(method), request = std::move(request), answer] {
         const auto node = handlers_.find(to);
         if (node == handlers_.end()) {
           return answer(absl::UnavailableError("the connection is refused"));
         }
         const auto handler = node->second.find(path);
         if (handler == node->second.end()) {
           return answer(absl::UnimplementedError(absl::StrCat("no handler for ", path)));
         }
         handler->second(from, request, answer);
       });
}

}  // namespace macrame::agentd::sim
