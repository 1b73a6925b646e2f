#include "agentd/services/enrolment_service.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/https_names.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::EnrolmentListener;
using transport::RpcServer;

constexpr size_t kHostnameBytesMax = 255;
constexpr size_t kNodeNameBytesMax = 255;

absl::Status TokenRefused() {
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kTokenRefused,
                      "the token is unknown here, or expired");
}

std::string DigestOf(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return std::string(reinterpret_cast<const char*>(digest), sizeof(digest));
}

bool IsUnsaid(const std::string& ip) {
  return absl::StartsWith(ip, "fe80:") || ip == "0.0.0.0" || ip == "::";
}

}  // namespace

void EnrolmentService::Stop() {
  stopping_ = true;
  listener_.reset();
  worker_.reset();
}

void EnrolmentService::RegisterLocal(RpcServer& server) {
  server.HandleUnary(kCreateJoinToken, [this](const Caller&, v1::CreateJoinTokenRequest request,
                                              Reply<v1::CreateJoinTokenResponse> reply) {
    reply(CreateToken(request));
  });
  server.HandleUnary(kJoinCluster, [this](const Caller&, v1::JoinClusterRequest request,
                                          Reply<v1::JoinClusterResponse> reply) {
    Join(request, std::move(reply));
  });
  server.HandleUnary(kApproveNode, [this](const Caller&, v1::ApproveNodeRequest request,
                                          Reply<v1::ApproveNodeResponse> reply) {
    const auto asker =
        tokens_.Approve(request.node().substr(0, kNodeNameBytesMax), parts_.dispatcher.Now());
    if (!asker.ok()) return reply(asker.status());
    spdlog::info("node {} ({}) is approved", asker->hostname, ShortId(asker->node));
    v1::ApproveNodeResponse response;
    response.set_node_id(asker->node.value());
    response.set_hostname(asker->hostname);
    reply(std::move(response));
  });
  server.HandleUnary(kGetAuthority,
                     [this](const Caller&, v1::GetAuthorityRequest,
                            Reply<v1::GetAuthorityResponse> reply) { reply(Authority()); });
  server.HandleUnary(kRevokeNode,
                     [this](const Caller&, v1::RevokeNodeRequest request,
                            Reply<v1::RevokeNodeResponse> reply) { reply(Revoke(request)); });
}

void EnrolmentService::RegisterAgent(RpcServer& server) {
  server.HandleUnary(
      kRenewCertificate,
      [this](const Caller& caller, v1::RenewCertificateRequest request,
             Reply<v1::RenewCertificateResponse> reply) { reply(Renew(caller, request)); });
  server.HandleUnary(kTakeRevocations, [this](const Caller&, v1::TakeRevocationsRequest request,
                                              Reply<v1::TakeRevocationsResponse> reply) {
    parts_.revocations.Take(request.revoked());
    reply(v1::TakeRevocationsResponse());
  });
}

absl::Status EnrolmentService::OpenPort(const transport::ClusterSecret& secret) {
  if (listener_ != nullptr) return absl::OkStatus();
  const auto node = transport::MakeNodeCredentials(
      secret, parts_.own.id(), static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000));
  if (!node.ok()) return node.status();
  auto listener = EnrolmentListener::Start(
      parts_.bind_address, parts_.port, *node,
      [this, weak = std::weak_ptr<bool>(alive_)](EnrolmentListener::Question question,
                                                 EnrolmentListener::Answer answer) {
        parts_.dispatcher.Post([this, weak, question = std::move(question), answer] {
          if (!weak.expired()) answer(OnQuestion(question));
        });
      });
  if (!listener.ok()) return listener.status();
  listener_ = std::move(*listener);
  spdlog::info("the join port {} is open while a token is valid", listener_->port());
  return absl::OkStatus();
}

absl::StatusOr<v1::CreateJoinTokenResponse> EnrolmentService::CreateToken(
    const v1::CreateJoinTokenRequest& request) {
  const auto secret = parts_.trust.ReadSecret();
  if (!secret.ok()) return secret.status();
  const auto digest = transport::CertificateDigest(secret->authority_certificate_pem);
  if (!digest.ok()) return digest.status();
  const uint32_t valid_for_s =
      request.valid_for_s() == 0 ? kJoinValidDefaultS : request.valid_for_s();
  if (std::chrono::seconds(valid_for_s) > kJoinValidMax || request.uses() > kJoinUsesMax) {
    return ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
        absl::StrCat("a token is valid for 24 h and ", kJoinUsesMax, " nodes at the most"));
  }
  transport::JoinToken token;
  for (const v1::NodeAddress& address : parts_.own.identity().addresses()) {
    if (token.ips.size() < transport::kJoinAddressesMax && !IsUnsaid(address.ip())) {
      token.ips.push_back(address.ip());
    }
  }
  if (token.ips.empty()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kNoInterface,
                        "this node has no address that another could join at",
                        parts_.own.id().value());
  }
  const absl::Status open = OpenPort(*secret);
  if (!open.ok()) return open;
  const MonotonicTime now = parts_.dispatcher.Now();
  token.id = transport::HexEncode(transport::RandomBytes(transport::kJoinTokenIdBytes));
  token.secret = transport::RandomBytes(transport::kJoinTokenSecretBytes);
  token.authority_digest = *digest;
  token.port = listener_->port();
  JoinPass pass;
  pass.id = token.id;
  pass.secret = token.secret;
  pass.expires = now + std::chrono::seconds(valid_for_s);
  pass.uses_left = std::max(1u, request.uses());
  pass.approve = request.approve();
  v1::CreateJoinTokenResponse response;
  response.set_uses(pass.uses_left);
  response.set_expires_unix_ms(parts_.dispatcher.UnixMs() + uint64_t{valid_for_s} * 1000);
  const absl::Status added = tokens_.Add(pass, now);
  if (!added.ok()) return added;
  response.set_token(transport::FormatJoinToken(token));
  transport::Wipe(token.secret);
  spdlog::info("join token {} is valid for {} s and {} nodes", token.id, valid_for_s,
               response.uses());
  return response;
}

v1::EnrolResponse EnrolmentService::OnQuestion(const EnrolmentListener::Question& question) {
  absl::StatusOr<v1::EnrolResponse> response = Admit(question);
  if (response.ok()) return *std::move(response);
  spdlog::warn("a node at {} was not let in: {}", question.address, LogText(response.status()));
  v1::EnrolResponse refusal;
  *refusal.mutable_refusal() = ReasonOf(response.status());
  return refusal;
}

absl::StatusOr<v1::EnrolResponse> EnrolmentService::Admit(
    const EnrolmentListener::Question& question) {
  const v1::EnrolRequest& request = question.request;
  const MonotonicTime now = parts_.dispatcher.Now();
  const JoinPass* pass = tokens_.Find(request.token_id(), now);
  const NodeId node(request.node_id());
  // As much work for a token that is not there.
  const std::string proof = transport::JoinProof(
      pass == nullptr ? std::string(transport::kJoinTokenSecretBytes, '\0') : pass->secret,
      question.exported, request.token_id(), node, request.certificate_request());
  const bool proven = request.proof().size() == proof.size() &&
                      CRYPTO_memcmp(request.proof().data(), proof.data(), proof.size()) == 0 &&
                      pass != nullptr && IsValidNodeId(request.node_id());
  if (!proven) {
    // Whoever has the token is let in, however many others try without.
    const absl::Status may = tokens_.MayTry(question.address, now);
    if (!may.ok()) return may;
    tokens_.NoteFailure(question.address, now);
    return TokenRefused();
  }
  if (parts_.revocations.Has(node)) {
    return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNodeRevoked,
                        "this node id was taken out of the cluster for good", node.value());
  }
  // A token is good for a new member, not for the name of one that is there.
  if (node == parts_.own.id() || parts_.members.Live().contains(node)) {
    return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNodeIdClash,
                        "a node with the id of the one that asks is a member already, and alive",
                        node.value());
  }
  const absl::StatusOr<transport::ClusterSecret> secret = parts_.trust.ReadSecret();
  if (!secret.ok()) return secret.status();
  // Before a use is counted: a request that can't be signed takes none.
  absl::StatusOr<std::string> certificate =
      transport::SignCertificateRequest(*secret, node, request.certificate_request(),
                                        static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000));
  if (!certificate.ok()) return certificate.status();
  const std::string hostname = request.hostname().substr(0, kHostnameBytesMax);
  const auto verdict = tokens_.Take(
      request.token_id(),
      {node, hostname, question.address, DigestOf(request.certificate_request())}, now);
  if (!verdict.ok()) return verdict.status();
  v1::EnrolResponse response;
  if (*verdict == JoinVerdict::kWait) {
    response.set_waits_for_approval(true);
    return response;
  }
  response.set_cluster_id(secret->cluster_id);
  response.set_cluster_name(secret->cluster_name);
  response.set_beacon_key(secret->beacon_key);
  response.set_authority_certificate(secret->authority_certificate_pem);
  response.set_certificate(*certificate);
  spdlog::info("node {} ({}) at {} joins with token {}", hostname, ShortId(node), question.address,
               request.token_id());
  return response;
}

void EnrolmentService::Join(const v1::JoinClusterRequest& request,
                            Reply<v1::JoinClusterResponse> reply) {
  absl::StatusOr<transport::JoinToken> token = transport::ParseJoinToken(request.token());
  if (!token.ok()) return reply(token.status());
  if (parts_.trust.loaded()) {
    const auto digest = transport::CertificateDigest(parts_.trust.authority_pem());
    const bool same = digest.ok() && *digest == token->authority_digest;
    if (!same) {
      return reply(
          ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kMemberAlready,
                       absl::StrCat("this node is in cluster '", parts_.trust.cluster_name(),
                                    "', another one than the token is of"),
                       parts_.own.id().value()));
    }
    // A certificate that is good needs no other one; one that is not is renewed by joining again.
    const bool is_renewed = !parts_.trust.keeper() && !parts_.trust.Problems().empty();
    const bool is_taken_out =
        !parts_.heartbeats.own_refusal().code().empty() || parts_.revocations.Has(parts_.own.id());
    if (!is_renewed && !is_taken_out) {
      v1::Reason member = MakeReason(
          reasons::kMemberAlready,
          absl::StrCat("this machine is a member of cluster '", parts_.trust.cluster_name(),
                       "' already: nothing was changed, and the token keeps its uses"),
          parts_.own.id().value());
      member.set_remedy("no action needed");
      return reply(ReasonStatus(absl::StatusCode::kAlreadyExists, member));
    }
  }
  if (joining_) {
    return reply(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kJoinLimited,
                              "this node is joining already"));
  }
  joining_ = true;
  if (!request_.has_value()) request_ = transport::MakeCertificateRequest();
  if (worker_ == nullptr) worker_ = std::make_unique<transport::WorkerThread>();
  worker_->Add([this, weak = std::weak_ptr<bool>(alive_), token = *std::move(token),
                id = parts_.own.id(), hostname = parts_.own.identity().hostname(),
                der = request_->request_der,
                now_s = static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000), reply] {
    auto response = transport::Enrol(token, id, hostname, der, now_s, &stopping_);
    parts_.dispatcher.Post([this, weak, digest = token.authority_digest,
                            response = std::move(response), reply]() mutable {
      if (weak.expired()) return;
      joining_ = false;
      reply(OnEnrolled(digest, std::move(response)));
    });
  });
}

absl::StatusOr<v1::JoinClusterResponse> EnrolmentService::OnEnrolled(
    const std::string& authority_digest, absl::StatusOr<v1::EnrolResponse> response) {
  if (!response.ok()) return response.status();
  v1::JoinClusterResponse joined;
  if (response->waits_for_approval()) {
    joined.set_waits_for_approval(true);
    return joined;
  }
  // Any member could have answered; only the authority that the token names is believed.
  const auto digest = transport::CertificateDigest(response->authority_certificate());
  if (!digest.ok() || *digest != authority_digest) {
    return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kWrongCluster,
                        "who answered handed out a certificate authority that is not the token's");
  }
  transport::NodeMembership membership;
  membership.cluster_id = response->cluster_id();
  membership.cluster_name = response->cluster_name();
  membership.beacon_key = response->beacon_key();
  membership.node.node_id = parts_.own.id();
  membership.node.certificate_pem = response->certificate();
  membership.node.key_pem = request_->key_pem;
  membership.node.authority_certificate_pem = response->authority_certificate();
  if (membership.beacon_key.size() != transport::kBeaconKeyBytes ||
      !IsValidNodeId(membership.cluster_id) || membership.cluster_name.empty()) {
    return absl::InternalError("the keeper's answer lacks the cluster's id, name or beacon key");
  }
  const absl::Status taken = parts_.trust.Take(membership);
  if (!taken.ok()) return taken;
  request_.reset();
  joined.set_cluster_id(membership.cluster_id);
  joined.set_cluster_name(membership.cluster_name);
  return joined;
}

absl::StatusOr<v1::RevokeNodeResponse> EnrolmentService::Revoke(
    const v1::RevokeNodeRequest& request) {
  const NodeId node(request.node_id());
  if (!IsValidNodeId(request.node_id())) {
    return ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kNodeNotFound,
        absl::StrCat("'", request.node_id().substr(0, 64), "' is no node id of 32 hex digits"));
  }
  if (node == parts_.own.id()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        "a node can't revoke itself; run this on another one with the secret file");
  }
  v1::RevokeNodeResponse response;
  if (const v1::Revocation* before = parts_.revocations.Find(node)) {
    *response.mutable_revocation() = *before;
    return response;
  }
  const auto secret = parts_.trust.ReadSecret();
  if (!secret.ok()) return secret.status();
  if (parts_.revocations.full()) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kBadRequest,
                        absl::StrCat("more than ", kRevokedMax,
                                     " nodes can't be revoked: make a new cluster secret"));
  }
  v1::Revocation& revocation = *response.mutable_revocation();
  revocation.set_node_id(node.value());
  revocation.set_hostname(request.hostname().substr(0, kHostnameBytesMax));
  revocation.set_revoked_unix_ms(parts_.dispatcher.UnixMs());
  const auto signature = transport::SignRevocation(*secret, node, revocation.revoked_unix_ms());
  if (!signature.ok()) return signature.status();
  revocation.set_signature(*signature);
  parts_.revocations.Announce(revocation);
  return response;
}

absl::StatusOr<v1::GetAuthorityResponse> EnrolmentService::Authority() const {
  if (!parts_.trust.loaded()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kNoSecret,
                        "this node has no cluster, and so no authority", parts_.own.id().value());
  }
  v1::GetAuthorityResponse response;
  response.set_certificate(parts_.trust.authority_pem());
  response.set_cluster_name(parts_.trust.cluster_name());
  const auto digest = transport::CertificateDigest(parts_.trust.authority_pem());
  if (!digest.ok()) return digest.status();
  response.set_fingerprint(transport::HexEncode(*digest));
  return response;
}

absl::StatusOr<std::string> EnrolmentService::SignHttps(
    const Caller& caller, const transport::ClusterSecret& secret,
    const v1::RenewCertificateRequest& request) const {
  const std::vector<std::string> names(request.https_names().begin(), request.https_names().end());
  std::vector<v1::NodeIdentity> members = {parts_.own.identity()};
  for (const discovery::Member* member : parts_.members.table().Members()) {
    members.push_back(member->identity);
  }
  const absl::Status theirs = CheckHttpsNames(names, caller.node_id.value(), members);
  if (!theirs.ok()) return theirs;
  return transport::SignHttpsRequest(secret, names, request.certificate_request(),
                                     static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000));
}

absl::StatusOr<v1::RenewCertificateResponse> EnrolmentService::Renew(
    const Caller& caller, const v1::RenewCertificateRequest& request) {
  // A revoked caller does not get here: the server refuses it (RpcServer::SetRevoked).
  const absl::StatusOr<transport::ClusterSecret> secret = parts_.trust.ReadSecret();
  if (!secret.ok()) return secret.status();
  const bool is_https = request.https_names_size() > 0;
  absl::StatusOr<std::string> certificate =
      is_https ? SignHttps(caller, *secret, request)
               : transport::SignCertificateRequest(
                     *secret, caller.node_id, request.certificate_request(),
                     static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000));
  if (!certificate.ok()) return certificate.status();
  spdlog::info("node {} has a new certificate{}", ShortId(caller.node_id),
               is_https ? " for HTTPS" : "");
  v1::RenewCertificateResponse response;
  response.set_certificate(*std::move(certificate));
  return response;
}

void EnrolmentService::Tick() {
  if (listener_ == nullptr || tokens_.Expects(parts_.dispatcher.Now())) return;
  listener_.reset();
  spdlog::info("the join port is closed: no token is valid");
}

std::vector<v1::Reason> EnrolmentService::Problems() const {
  std::vector<v1::Reason> problems;
  for (const JoinAsker& asker : tokens_.Waiting(parts_.dispatcher.Now())) {
    problems.push_back(
        MakeReason(reasons::kJoinPending,
                   absl::StrCat(asker.hostname, " (", ShortId(asker.node), ") at ", asker.address,
                                " shows a token and waits to be approved"),
                   asker.node.value()));
  }
  return problems;
}

}  // namespace macrame::agentd
