#include "agentd/node/node_trust.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/log_text.h"
#include "proto/reasons.h"

namespace macrame::agentd {

NodeTrust::NodeTrust(transport::Dispatcher& dispatcher, NodeId self, std::string secret_path,
                     PeerChannels& channels, MemberMonitor& members, OnRenewed on_renewed)
    : dispatcher_(dispatcher),
      self_(std::move(self)),
      secret_path_(std::move(secret_path)),
      on_renewed_(std::move(on_renewed)),
      asker_(dispatcher, channels, members) {}

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
  cluster_name_ = trust.cluster_name;
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

bool NodeTrust::ClockWasSet(MonotonicTime now) {
  const int64_t steady_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const int64_t offset_ms = static_cast<int64_t>(dispatcher_.UnixMs()) - steady_ms;
  const int64_t before_ms = std::exchange(clock_offset_ms_, offset_ms).value_or(offset_ms);
  return std::chrono::milliseconds(std::llabs(offset_ms - before_ms)) > kClockSet;
}

void NodeTrust::Tick() {
  const MonotonicTime now = dispatcher_.Now();
  if (!loaded()) return;
  const bool clock_was_set = ClockWasSet(now);
  if (clock_was_set) {
    spdlog::warn("this machine's clock was set: it says {} now", DateText(NowS()));
    renew_from_ = now;
  }
  if (!clock_was_set && now - looked_at_ < kDatesLookedAt) return;
  looked_at_ = now;
  asker_.Tick();
  if (IsRenewalDue(dates_->own, NowS()) && now >= renew_from_ && !asker_.is_asking()) Renew();
}

void NodeTrust::Renew() {
  if (keeper_) return MakeAnew();
  asker_.Begin(
      {},
      [this](const NodeId& keeper, const std::string& certificate_pem, const std::string& key_pem) {
        return TakeSigned(keeper, certificate_pem, key_pem);
      },
      [this] {
        renew_from_ = dispatcher_.Now() + kRenewPause;
        spdlog::warn("this node's certificate, valid until {}, is not renewed: {}",
                     DateText(dates_->own.not_after_s), asker_.failure());
      });
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

absl::Status NodeTrust::CheckFresh(const NodeId& keeper, const std::string& certificate_pem) const {
  const auto fresh = transport::DatesOf(certificate_pem);
  if (!fresh.ok()) return fresh.status();
  if (IsBetter(*fresh, dates_->own, NowS())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", ShortId(keeper), " signed a certificate that is valid from ",
                   DateText(fresh->not_before_s), " until ", DateText(fresh->not_after_s),
                   ", no better than the present one: set its clock and this one's"));
}

absl::Status NodeTrust::TakeSigned(const NodeId& keeper, const std::string& certificate_pem,
                                   const std::string& key_pem) {
  const std::string path = transport::NodeMembershipPath(secret_path_);
  absl::StatusOr<transport::NodeMembership> membership = transport::ReadNodeMembership(path);
  absl::Status status = membership.status();
  if (status.ok()) status = CheckFresh(keeper, certificate_pem);
  if (status.ok()) {
    membership->node.certificate_pem = certificate_pem;
    membership->node.key_pem = key_pem;
    status = Take(*membership);
  }
  if (!status.ok()) return status;
  renew_from_ = dispatcher_.Now() + kRenewedAtMost;
  spdlog::info("this node's certificate was renewed, valid until {}",
               DateText(dates_->own.not_after_s));
  return absl::OkStatus();
}

std::vector<v1::Reason> NodeTrust::Problems() const {
  if (!loaded()) return {};
  return DateProblems(*dates_, NowS(), self_, keeper_ ? renew_failure_ : asker_.failure());
}

}  // namespace macrame::agentd
