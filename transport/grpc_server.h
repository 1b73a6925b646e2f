#pragma once

// RpcServer over gRPC.
//
// Limits: a message may have kMessageBytesMax (peer_channel.h); how many calls each kind of caller
// may have open and how many bytes their messages may have is bounded (call_places.h), more are
// refused with RESOURCE_EXHAUSTED; a stream whose reader falls kStreamBacklogBytesMax behind is
// ended. Over TCP a caller without the right to a call is refused before its message is read, and a
// message that has not come whole within kMessageLimit ends its call. Who does not finish the
// handshake in kHandshakeLimit is closed; how many may be at it is bounded (connection_gate.h).

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "proto/monotonic_time.h"
#include "transport/rpc_server.h"

namespace macrame::transport {

inline constexpr size_t kStreamBacklogBytesMax = 4 * 1024 * 1024;
inline constexpr Duration kMessageLimit = std::chrono::seconds(10);

class GrpcServer final : public RpcServer {
 public:
  explicit GrpcServer(Dispatcher& dispatcher, Duration message_limit = kMessageLimit);
  // Stops.
  ~GrpcServer() override;
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  void SetObserver(Observer observer) override;
  void SetMemberCheck(std::function<bool(const NodeId&)> is_member) override;
  void SetPersonCheck(PersonCheck check) override;
  void RecheckPersons() override;
  absl::StatusOr<int> StartTcp(const std::string& ip, int port,
                               std::shared_ptr<grpc::ServerCredentials> credentials,
                               bool plain = false) override;
  absl::Status UseCredentials(std::shared_ptr<grpc::ServerCredentials> credentials) override;
  void SetRevoked(std::set<NodeId> nodes) override;
  void SetKnownAddresses(std::set<std::string> addresses) override;
  std::string ListenerTrouble() const override;
  absl::Status StartUnix(const std::string& path) override;
  void Stop(Duration grace) override;

 private:
  void HandleAny(std::string_view method, Access access, Remote remote,
                 std::function<MessagePtr()> make, AnyHandler handler) override;

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace macrame::transport
