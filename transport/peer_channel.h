#pragma once

// Calls to one other agent (or to any gRPC server): asynchronous, each with a deadline, answers on
// the owner thread. No gRPC header is needed to use it: methods are named by their path, messages
// are the generated ones.
//
//   channel.Call(kHeartbeat, request, std::chrono::seconds(1),
//       [this](absl::StatusOr<v1::HeartbeatResponse> response) { … });

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ids.h"
#include "proto/rpc_method.h"
#include "transport/dispatcher.h"

namespace google::protobuf {
class MessageLite;
}
namespace grpc {
class ChannelCredentials;
}

namespace macrame::transport {

inline constexpr int kReconnectBackoffInitialMs = 100;
inline constexpr int kReconnectBackoffMaxMs = 1000;
inline constexpr int kMessageBytesMax = 8 * 1024 * 1024;
// A connection over TCP whose other end says nothing for so long during a call is asked, and is
// closed when that is not answered.
inline constexpr int kKeepaliveMs = 20'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
// What a stream may send ahead of its reader. It is fixed: to find one by itself gRPC sends pings
// on each connection that is used at all, and these wake both ends of an idle cluster.
inline constexpr int kStreamWindowBytes = 1024 * 1024;

// A call under way. Cancel() ends it: `done` is still called once, with CANCELLED, unless the call
// had ended already. Dropping the handle changes nothing. Any thread.
class CallHandle {
 public:
  CallHandle() = default;
  explicit CallHandle(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  void Cancel() const {
    if (cancel_) cancel_();
  }

 private:
  std::function<void()> cancel_;
};

// Where the messages of a stream are handed over: on the owner thread, or on the channel's own
// threads, one at a time and in their order, for those that nothing is decided by and that must not
// wait for the owner thread. The latter may come until `done` begins, and until a moment after the
// channel is destroyed.
enum class HandOver { kOwnerThread, kChannelThread };

// What agents call each other through; GrpcChannel (grpc_channel.h) in real processes, a simulated
// network's in tests. Owner thread only. May be destroyed with calls under way: they are cancelled,
// and their callbacks do not run any more.
class PeerChannel {
 public:
  virtual ~PeerChannel() = default;

  // The next connection is made with these, and it is made now; calls under way go on on the old
  // one.
  virtual void SetCredentials(std::shared_ptr<grpc::ChannelCredentials> credentials) = 0;

  // "ip:port", best first; all are tried. Or one "unix:/path". The same list again changes nothing;
  // a new one makes a new connection, calls under way on the old one go on.
  virtual void SetAddresses(std::vector<std::string> addresses) = 0;
  virtual const std::vector<std::string>& addresses() const = 0;

  // Before it is destroyed while those who wait for its answers go on: calls under way end with
  // `status`, here and now, and are cancelled. But for those whose messages are handed over on the
  // channel's thread: they end without a word when the channel does.
  virtual void EndCalls(const absl::Status& status) = 0;

  // `done` runs once, on the owner thread. Fails at once with UNAVAILABLE without an address.
  template <typename Request, typename Response>
  CallHandle Call(const Method<Request, Response>& method,
                  const std::type_identity_t<Request>& request, Duration timeout,
                  std::type_identity_t<std::function<void(absl::StatusOr<Response>)>> done) {
    auto response = std::make_shared<Response>();
    return CallUnary(method.path, request, response, timeout,
                     [response, done = std::move(done)](absl::Status status) {
                       if (status.ok()) {
                         done(std::move(*response));
                       } else {
                         done(std::move(status));
                       }
                     });
  }

  // A server stream: `on_message` for each message, where `hand_over` says, then `done` once on the
  // owner thread.
  template <typename Request, typename Message>
  CallHandle Stream(const StreamMethod<Request, Message>& method,
                    const std::type_identity_t<Request>& request, Duration timeout,
                    std::type_identity_t<std::function<void(Message)>> on_message,
                    std::function<void(absl::Status)> done,
                    HandOver hand_over = HandOver::kOwnerThread) {
    auto make = [on_message = std::move(on_message)]() {
      auto message = std::make_shared<Message>();
      return std::make_pair(
          std::static_pointer_cast<google::protobuf::MessageLite>(message),
          std::function<void()>([message, on_message] { on_message(std::move(*message)); }));
    };
    return CallStream(method.path, request, std::move(make), timeout, std::move(done), hand_over);
  }

 protected:
  using MessagePtr = std::shared_ptr<google::protobuf::MessageLite>;
  // A fresh message to parse into, and what hands it on.
  using MakeMessage = std::function<std::pair<MessagePtr, std::function<void()>>()>;

  // `method`: its path. `response` is filled before `done` runs with OK. `done` once, never from
  // within the call.
  virtual CallHandle CallUnary(std::string_view method,
                               const google::protobuf::MessageLite& request, MessagePtr response,
                               Duration timeout, std::function<void(absl::Status)> done) = 0;
  virtual CallHandle CallStream(std::string_view method,
                                const google::protobuf::MessageLite& request, MakeMessage make,
                                Duration timeout, std::function<void(absl::Status)> done,
                                HandOver hand_over) = 0;
};

}  // namespace macrame::transport
