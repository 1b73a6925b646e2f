#include "agentd/node/node_trust.h"

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "macrame/v1/enrolment.pb.h"
#include "proto/reasons.h"

namespace macrame::agentd {

NodeTrust::NodeTrust(transport::Dispatcher& dispatcher, NodeId self, std::string secret_path,
                     PeerChannels& channels, MemberMonitor& members, OnRenewed on_renewed)
    : dispatcher_(dispatcher),
      self_(std::move(self)),
      secret_path_(std::move(secret_path)),
      channels_(channels),
      members_(members),
      on_renewed_(std::move(on_renewed)) {}

absl::Status NodeTrust::Note(const transport::NodeCredentials& node) {
  const auto own = transport::DatesOf(node.certificate_pem);
  const auto authority = transport::DatesOf(node.authority_certificate_pem);
  if (!own.ok()) return own.status();
  if (!authority.ok()) return authority.status();
  dates_ = TrustDates{*own, *authority};
  authority_pem_ = node.authority_certificate_pem;
  return absl::OkStatus();
}

absl::StatusOr<ClusterTrust> NodeTrust::Load() {
  ClusterTrust trust;
  absl::StatusOr<transport::ClusterSecret> secret = transport::ReadClusterSecret(secret_path_);
  if (!secret.ok() && !absl::IsNotFound(secret.status())) return secret.status();
  keeper_ = secret.ok();
  if (keeper_) {
    auto node = transport::MakeNodeCredentials(*secret, self_, NowS());
    if (!node.ok()) return node.status();
    trust = {secret->cluster_id, secret->cluster_name, secret->beacon_key, *node};
  } else {
    const std::string path = transport::NodeMembershipPath(secret_path_);
    auto membership = transport::ReadNodeMembership(path);
    // The secret file is what people are told that they lack.
    if (absl::IsNotFound(membership.status())) return secret.status();
    if (!membership.ok()) return membership.status();
    if (membership->node.node_id != self_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the node membership ", path, " is that of node ",
                       ShortId(membership->node.node_id), ", this one is ", ShortId(self_),
                       ". Remove it and join again with 'clusterctl cluster join'"));
    }
    trust = {membership->cluster_id, membership->cluster_name, membership->beacon_key,
             membership->node};
  }
  const absl::Status noted = Note(trust.node);
  if (!noted.ok()) return noted;
  cluster_id_ = trust.cluster_id;
  looked_at_ = MonotonicTime();
  return trust;
}

absl::StatusOr<transport::ClusterSecret> NodeTrust::ReadSecret() const {
  absl::StatusOr<transport::ClusterSecret> secret = transport::ReadClusterSecret(secret_path_);
  if (absl::IsNotFound(secret.status())) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kNotKeeper,
                        "this node does not have the cluster's secret file", self_.value());
  }
  if (secret.ok() && secret->cluster_id != cluster_id_) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kNotKeeper,
                        absl::StrCat(secret_path_,
                                     " is the secret of another cluster than the one "
                                     "that this node is in"),
                        self_.value());
  }
  return secret;
}

absl::Status NodeTrust::Take(const transport::NodeMembership& membership) {
  const absl::Status whole = transport::CheckNodeCredentials(membership.node);
  if (!whole.ok()) return whole;
  const absl::Status written =
      transport::WriteNodeMembership(membership, transport::NodeMembershipPath(secret_path_));
  if (!written.ok() || !loaded()) return written;
  const absl::Status noted = Note(membership.node);
  if (noted.ok()) on_renewed_(membership.node);
  return noted;
}

void NodeTrust::Tick() {
  const MonotonicTime now = dispatcher_.Now();
  if (!loaded() || now - looked_at_ < kDatesLookedAt) return;
  looked_at_ = now;
  // Of a node that was revoked or forgotten meanwhile no answer comes.
  if (request_.has_value() && now - asked_at_ > 2 * kRenewTimeout) AskNext();
  if (IsRenewalDue(dates_->own, NowS()) && now >= renew_from_ && !request_.has_value()) Renew();
}

void NodeTrust::Renew() {
  if (keeper_) return MakeAnew();
  request_ = transport::MakeCertificateRequest();
  to_ask_.clear();
  for (const NodeId& node : members_.Live()) to_ask_.push_back(node);
  renew_failure_ = "no member that answers has the cluster's secret file";
  AskNext();
}

void NodeTrust::MakeAnew() {
  renew_from_ = dispatcher_.Now() + kRenewPause;
  absl::StatusOr<transport::ClusterSecret> secret = ReadSecret();
  absl::StatusOr<transport::NodeCredentials> node =
      secret.ok() ? transport::MakeNodeCredentials(*secret, self_, NowS())
                  : absl::StatusOr<transport::NodeCredentials>(secret.status());
  const absl::Status noted = node.ok() ? Note(*node) : node.status();
  renew_failure_ = noted.ok() ? "" : std::string(noted.message());
  if (!noted.ok()) {
    spdlog::error("no new certificate: {}", LogText(noted));
    return;
  }
  spdlog::info("this node made itself a new certificate, valid until {}",
               DateText(dates_->own.not_after_s));
  on_renewed_(*node);
}

void NodeTrust::AskNext() {
  while (!to_ask_.empty()) {
    const NodeId node = to_ask_.back();
    to_ask_.pop_back();
    transport::PeerChannel* channel = channels_.For(node);
    if (channel == nullptr) continue;
    asked_at_ = dispatcher_.Now();
    v1::RenewCertificateRequest request;
    request.set_certificate_request(request_->request_der);
    channel->Call(kRenewCertificate, request, kRenewTimeout,
                  [this, node](absl::StatusOr<v1::RenewCertificateResponse> response) {
                    if (!request_.has_value()) return;
                    if (response.ok()) return OnSigned(node, response->certificate());
                    if (ReasonOf(response.status()).code() != reasons::kNotKeeper) {
                      renew_failure_ =
                          absl::StrCat("node ", ShortId(node), ": ", response.status().message());
                    }
                    AskNext();
                  });
    return;
  }
  request_.reset();
  renew_from_ = dispatcher_.Now() + kRenewPause;
  spdlog::warn("this node's certificate, valid until {}, is not renewed: {}",
               DateText(dates_->own.not_after_s), renew_failure_);
}

absl::Status NodeTrust::CheckFresh(const NodeId& keeper, const std::string& certificate_pem) const {
  const auto fresh = transport::DatesOf(certificate_pem);
  if (!fresh.ok()) return fresh.status();
  if (IsBetter(*fresh, dates_->own, NowS())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", ShortId(keeper), " signed a certificate that is valid from ",
                   DateText(fresh->not_before_s), " until ", DateText(fresh->not_after_s),
                   ", no better than the present one: set its clock and this one's"));
}

void NodeTrust::OnSigned(const NodeId& keeper, const std::string& certificate_pem) {
  const std::string path = transport::NodeMembershipPath(secret_path_);
  absl::StatusOr<transport::NodeMembership> membership = transport::ReadNodeMembership(path);
  absl::Status status = membership.status();
  if (status.ok()) status = CheckFresh(keeper, certificate_pem);
  if (status.ok()) {
    membership->node.certificate_pem = certificate_pem;
    membership->node.key_pem = request_->key_pem;
    status = Take(*membership);
  }
  if (!status.ok()) {
    renew_failure_ = std::string(status.message());
    return AskNext();
  }
  request_.reset();
  to_ask_.clear();
  renew_failure_.clear();
  renew_from_ = dispatcher_.Now() + kRenewedAtMost;
  spdlog::info("this node's certificate was renewed, valid until {}",
               DateText(dates_->own.not_after_s));
}

std::vector<v1::Reason> NodeTrust::Problems() const {
  if (!loaded()) return {};
  return DateProblems(*dates_, NowS(), self_, renew_failure_);
}

}  // namespace macrame::agentd
