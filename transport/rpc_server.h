#pragma once

// What answers calls: methods are registered by their path, with generated messages, and their
// handlers run on the owner thread. GrpcServer (grpc_server.h) in real processes, a simulated
// network's in tests. No gRPC header is needed to use it.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ids.h"
#include "proto/rpc_method.h"
#include "transport/dispatcher.h"

namespace google::protobuf {
class MessageLite;
}
namespace grpc {
class ServerCredentials;
}

namespace macrame::transport {

// Who calls. Over TLS the ids are those in the caller's certificate.
struct Caller {
  NodeId node_id;        // empty for a person; of a local one what it says: its agent's own calls
  bool local = false;    // came over the unix socket
  std::string address;   // the ip that it came from; empty for a local one
  std::string key_id{};  // of the access file that was shown (access_file.h); else empty

  // Somebody's clusterctl, and no other agent: what it asks may be passed on to another node.
  bool IsPerson() const { return local || !key_id.empty(); }
};

// The answering side of a server stream. Any thread. When the last copy goes without Finish, the
// stream ends with INTERNAL.
class ServerStream {
 public:
  // What a server makes of a call; its end is the end of the last copy. Any thread.
  class Call {
   public:
    virtual ~Call() = default;
    virtual bool Write(const google::protobuf::MessageLite& message) = 0;
    virtual void Answer(const google::protobuf::MessageLite& message) = 0;
    virtual void Finish(const absl::Status& status) = 0;
    virtual void OnCancel(std::function<void()> on_cancel) = 0;
  };
  ServerStream() = default;
  explicit ServerStream(std::shared_ptr<Call> call) : call_(std::move(call)) {}

  // False when nobody reads any more: cancelled, finished, or too far behind.
  bool Write(const google::protobuf::MessageLite& message) const {
    return call_ != nullptr && call_->Write(message);
  }
  // Writes `message` and finishes with OK, in one packet. Not after Write.
  void Answer(const google::protobuf::MessageLite& message) const {
    if (call_ != nullptr) call_->Answer(message);
  }
  // The first one counts.
  void Finish(const absl::Status& status) const {
    if (call_ != nullptr) call_->Finish(status);
  }
  // `on_cancel` runs once on the owner thread if the caller goes away (also when it has already).
  void OnCancel(std::function<void()> on_cancel) const {
    if (call_ != nullptr) call_->OnCancel(std::move(on_cancel));
  }

 private:
  std::shared_ptr<Call> call_;
};

// Register, Start, Stop from the owner thread.
class RpcServer {
 public:
  // Any thread, at most once; when all copies go without a call, the answer is INTERNAL.
  template <typename Response>
  using Reply = std::function<void(absl::StatusOr<Response>)>;

  virtual ~RpcServer() = default;

  // Before Start. `handler` runs on the owner thread.
  template <typename Request, typename Response>
  void HandleUnary(
      const Method<Request, Response>& method,
      std::type_identity_t<std::function<void(const Caller&, Request, Reply<Response>)>> handler) {
    HandleAny(
        method.path, method.access, method.remote, [] { return std::make_shared<Request>(); },
        [handler = std::move(handler)](const Caller& caller, MessagePtr message,
                                       ServerStream stream) {
          Reply<Response> reply = [stream](absl::StatusOr<Response> response) {
            if (!response.ok()) return stream.Finish(response.status());
            stream.Answer(*response);
          };
          handler(caller, std::move(*std::static_pointer_cast<Request>(message)), std::move(reply));
        });
  }

  template <typename Request, typename Message>
  void HandleStream(
      const StreamMethod<Request, Message>& method,
      std::type_identity_t<std::function<void(const Caller&, Request, ServerStream)>> handler) {
    HandleAny(
        method.path, method.access, method.remote, [] { return std::make_shared<Request>(); },
        [handler = std::move(handler)](const Caller& caller, MessagePtr message,
                                       ServerStream stream) {
          handler(caller, std::move(*std::static_pointer_cast<Request>(message)),
                  std::move(stream));
        });
  }

  // Told of each call that reaches its handler, on the owner thread and before it, and of those of
  // known methods that the next two checks refuse, with an empty request: theirs is not read. What
  // it gives back (null: nothing) is called on the owner thread with how the call ended. Before
  // Start.
  using OnEnded = std::function<void(const absl::Status&)>;
  using Observer = std::function<OnEnded(const Caller&, std::string_view method,
                                         const google::protobuf::MessageLite& request)>;
  virtual void SetObserver(Observer observer) = 0;
  // Who is a member; asked on the owner thread for each call of another node, before its request is
  // read: only members may call an Access::kMember method, and they have places of their own.
  // Without it nobody is: FAILED_PRECONDITION with NOT_READY, which names the caller.
  virtual void SetMemberCheck(std::function<bool(const NodeId&)> is_member) = 0;
  // Whether the key of an access file may do what asks for `needed`, which is never kNobody; asked
  // on the owner thread, before the request is read. Without it none may. Before Start.
  using PersonCheck = std::function<absl::Status(const std::string& key_id, Remote needed)>;
  virtual void SetPersonCheck(PersonCheck check) = 0;
  // Calls under way whose key may not do so any more end with what the check says.
  virtual void RecheckPersons() = 0;
  // Serves TCP at `ip` (port 0: any free one) and returns the port. UNAVAILABLE with PORT_TAKEN
  // when another program has it. `plain`: the credentials are PlainServerCredentials
  // (--insecure-dev), and a caller is believed who it says it is.
  virtual absl::StatusOr<int> StartTcp(const std::string& ip, int port,
                                       std::shared_ptr<grpc::ServerCredentials> credentials,
                                       bool plain = false) = 0;
  // New connections are met with these from now on; those that are there go on, for as long as no
  // third credentials are given. After StartTcp. INTERNAL when gRPC does not take them.
  virtual absl::Status UseCredentials(std::shared_ptr<grpc::ServerCredentials> credentials) = 0;
  // Nodes that are not answered any more, whatever certificate they show: new calls are refused
  // with NODE_REVOKED, and those under way end.
  virtual void SetRevoked(std::set<NodeId> nodes) = 0;
  // Where members are met (transport/connection_gate.h): their connections to the TCP port are let
  // in whatever others do.
  virtual void SetKnownAddresses(std::set<std::string> addresses) = 0;
  // Why nobody can connect to the TCP port now; empty: they can. It is tried again by itself.
  virtual std::string ListenerTrouble() const = 0;
  // Serves plain gRPC on a unix socket, mode 0600; see transport/unix_socket.h for the errors.
  virtual absl::Status StartUnix(const std::string& path) = 0;

  // Refuses new calls, gives those under way `grace`, then cancels them. Returns when all have
  // ended.
  virtual void Stop(Duration grace) = 0;

 protected:
  using MessagePtr = std::shared_ptr<google::protobuf::MessageLite>;
  using AnyHandler = std::function<void(const Caller&, MessagePtr, ServerStream)>;
  // `make`: an empty request to parse into.
  virtual void HandleAny(std::string_view method, Access access, Remote remote,
                         std::function<MessagePtr()> make, AnyHandler handler) = 0;
};

}  // namespace macrame::transport
