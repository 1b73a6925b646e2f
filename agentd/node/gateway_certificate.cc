#include "agentd/node/gateway_certificate.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/base/log_text.h"
#include "agentd/cores/certificate_watch.h"
#include "agentd/cores/https_names.h"
#include "proto/reasons.h"
#include "transport/private_file.h"

namespace macrame::agentd {
namespace {

constexpr char kFileKind[] = "certificate for HTTPS";

}  // namespace

GatewayCertificate::GatewayCertificate(Parts parts, const std::string& state_folder,
                                       std::vector<std::string> names)
    : parts_(parts),
      certificate_path_(absl::StrCat(state_folder, "/https.crt")),
      key_path_(absl::StrCat(state_folder, "/https.key")),
      more_names_(std::move(names)),
      asker_(parts.dispatcher, parts.channels, parts.members) {}

void GatewayCertificate::LookAtFiles() {
  looked_at_authority_ = parts_.trust.authority_pem();
  present_.reset();
  const auto certificate = transport::ReadPrivateFile(certificate_path_, kFileKind);
  auto key = transport::ReadPrivateFile(key_path_, kFileKind);
  if (!certificate.ok() || !key.ok()) return;
  const auto described =
      transport::DescribeHttpsCertificate(*certificate, *key, looked_at_authority_);
  transport::Wipe(*key);
  if (described.ok()) present_ = *described;
}

bool GatewayCertificate::IsNeeded(const std::vector<std::string>& wanted) const {
  if (!present_.has_value() || IsRenewalDue(present_->dates, NowS())) return true;
  return present_->names != wanted;
}

void GatewayCertificate::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (!parts_.trust.loaded() || now - looked_at_ < kGatewayCertificateLookedAt) return;
  looked_at_ = now;
  if (looked_at_authority_ != parts_.trust.authority_pem()) {
    LookAtFiles();
    renew_from_ = now;
  }
  asker_.Tick();
  if (asker_.is_asking() || now < renew_from_) return;
  const std::vector<std::string> wanted = WantedHttpsNames(parts_.own.identity(), more_names_);
  if (IsNeeded(wanted)) Make(wanted);
}

void GatewayCertificate::Make(const std::vector<std::string>& names) {
  if (parts_.trust.keeper()) {
    const auto secret = parts_.trust.ReadSecret();
    if (secret.ok()) return SignHere(*secret, names);
  }
  asker_.Begin(
      names,
      [this](const NodeId& signer, const std::string& certificate_pem, const std::string& key_pem) {
        return Take(signer, certificate_pem, key_pem);
      },
      [this] { NoteFailure(asker_.failure()); });
}

void GatewayCertificate::SignHere(const transport::ClusterSecret& secret,
                                  const std::vector<std::string>& names) {
  const transport::CertificateRequest request = transport::MakeCertificateRequest();
  const auto certificate = transport::SignHttpsRequest(secret, names, request.request_der, NowS());
  const absl::Status status = certificate.ok()
                                  ? Take(parts_.own.id(), *certificate, request.key_pem)
                                  : certificate.status();
  if (!status.ok()) NoteFailure(std::string(status.message()));
}

absl::Status GatewayCertificate::CheckDates(const NodeId& signer,
                                            const transport::CertificateDates& dates) const {
  if (dates.not_before_s <= NowS() && dates.not_after_s > NowS()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", ShortId(signer), " signed a certificate that is valid from ",
                   DateText(dates.not_before_s), " until ", DateText(dates.not_after_s),
                   ": set its clock and this one's"));
}

absl::Status GatewayCertificate::Take(const NodeId& signer, const std::string& certificate_pem,
                                      const std::string& key_pem) {
  const auto described =
      transport::DescribeHttpsCertificate(certificate_pem, key_pem, parts_.trust.authority_pem());
  absl::Status status = described.ok() ? CheckDates(signer, described->dates) : described.status();
  if (status.ok()) status = transport::ReplacePrivateFile(key_path_, key_pem);
  if (status.ok()) status = transport::ReplacePrivateFile(certificate_path_, certificate_pem);
  if (!status.ok()) return status;
  failure_.clear();
  present_ = *described;
  renew_from_ = parts_.dispatcher.Now() + kHttpsRenewedAtMost;
  spdlog::info("the gateway's certificate is made, valid until {}, for {}",
               DateText(present_->dates.not_after_s), absl::StrJoin(present_->names, ", "));
  return absl::OkStatus();
}

void GatewayCertificate::NoteFailure(const std::string& why) {
  failure_ = why;
  renew_from_ = parts_.dispatcher.Now() + kHttpsPause;
  spdlog::warn("the gateway's certificate is not made: {}", failure_);
}

std::optional<v1::Reason> GatewayCertificate::Problem() const {
  if (present_.has_value() && present_->dates.not_after_s > NowS()) return std::nullopt;
  return MakeReason(reasons::kHttpsNotReady,
                    absl::StrCat("the HTTP API of ", parts_.own.identity().hostname(),
                                 " has no certificate yet, so other machines are not served",
                                 failure_.empty() ? "" : ": ", failure_),
                    parts_.own.id().value());
}

}  // namespace macrame::agentd
