#pragma once

// EnrolmentService: tokens, joining, renewal, approval and revocation, as clusterctl asks for them
// on the unix socket and other agents over mutual TLS; and the join port, which is open only while
// a token of this node is valid. Owner thread.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cores/join_token_table.h"
#include "agentd/node/heartbeat_sender.h"
#include "agentd/node/node_trust.h"
#include "agentd/node/own_node.h"
#include "agentd/state/revocations.h"
#include "macrame/v1/enrolment.pb.h"
#include "transport/enrolment.h"
#include "transport/rpc_server.h"
#include "transport/worker_thread.h"

namespace macrame::agentd {

inline constexpr uint32_t kJoinValidDefaultS = 3600;

class EnrolmentService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const OwnNode& own;
    NodeTrust& trust;
    Revocations& revocations;
    MemberMonitor& members;
    const HeartbeatSender& heartbeats;
    std::string bind_address;  // of the join port
    int port = 0;              // 0: any free one
  };

  explicit EnrolmentService(Parts parts) : parts_(std::move(parts)) {}
  // It was taken out of the cluster for good: the token that it came with is void.
  void NoteRevoked(const NodeId& node) { tokens_.ForgetTokensOf(node); }
  // Ends what is under way.
  void Stop();

  // What clusterctl asks.
  void RegisterLocal(transport::RpcServer& server);
  // What other agents ask.
  void RegisterAgent(transport::RpcServer& server);

  // Closes the join port when no token is valid. Each 100 ms or so.
  void Tick();
  // JOIN_PENDING for each node that waits to be approved.
  std::vector<v1::Reason> Problems() const;

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  absl::StatusOr<v1::CreateJoinTokenResponse> CreateToken(
      const v1::CreateJoinTokenRequest& request);
  absl::Status OpenPort(const transport::ClusterSecret& secret);
  v1::EnrolResponse OnQuestion(const transport::EnrolmentListener::Question& question);
  absl::StatusOr<v1::EnrolResponse> Admit(const transport::EnrolmentListener::Question& question);
  void Join(const v1::JoinClusterRequest& request, Reply<v1::JoinClusterResponse> reply);
  absl::StatusOr<v1::JoinClusterResponse> OnEnrolled(const std::string& authority_digest,
                                                     absl::StatusOr<v1::EnrolResponse> response);
  absl::StatusOr<v1::GetAuthorityResponse> Authority() const;
  absl::StatusOr<std::string> SignHttps(const transport::Caller& caller,
                                        const transport::ClusterSecret& secret,
                                        const v1::RenewCertificateRequest& request) const;
  absl::StatusOr<v1::RevokeNodeResponse> Revoke(const v1::RevokeNodeRequest& request);
  absl::StatusOr<v1::RenewCertificateResponse> Renew(const transport::Caller& caller,
                                                     const v1::RenewCertificateRequest& request);

  Parts parts_;
  JoinTokenTable tokens_;
  std::unique_ptr<transport::EnrolmentListener> listener_;
  // This node as one that joins: the same key for one who asks again until it is approved.
  std::optional<transport::CertificateRequest> request_;
  bool joining_ = false;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<transport::WorkerThread> worker_;
  // Gone with this object: what is still on its way to the owner thread does nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace macrame::agentd
