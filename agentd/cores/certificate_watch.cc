#include "agentd/cores/certificate_watch.h"

#include <cstdlib>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

std::string Span(const transport::CertificateDates& dates) {
  return absl::StrCat("valid from ", DateText(dates.not_before_s), " to ",
                      DateText(dates.not_after_s));
}

}  // namespace

std::string DateText(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[64] = "";
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

bool IsRenewalDue(const transport::CertificateDates& own, int64_t now_s) {
  return own.not_after_s - now_s < kRenewBeforeS || now_s - own.not_before_s < kBegunAtLeastS;
}

bool IsBetter(const transport::CertificateDates& fresh, const transport::CertificateDates& own,
              int64_t now_s) {
  const auto is_valid = [now_s](const transport::CertificateDates& dates) {
    return dates.not_before_s <= now_s && now_s < dates.not_after_s;
  };
  return is_valid(fresh) && (!is_valid(own) || fresh.not_after_s > own.not_after_s);
}

std::vector<v1::Reason> DateProblems(const TrustDates& dates, int64_t now_s, const NodeId& self,
                                     const std::string& renew_failure) {
  const std::string clock = absl::StrCat("this machine's clock says ", DateText(now_s));
  const std::string failure =
      renew_failure.empty() ? "" : absl::StrCat("; no new one came: ", renew_failure);
  if (now_s < dates.authority.not_before_s) {
    return {MakeReason(reasons::kClockWrong,
                       absl::StrCat(clock, ", before the cluster was made (",
                                    DateText(dates.authority.not_before_s), ")"),
                       self.value())};
  }
  if (now_s > dates.authority.not_after_s) {
    return {MakeReason(
        reasons::kCertExpired,
        absl::StrCat("the cluster's own certificate is ", Span(dates.authority), "; ", clock),
        self.value())};
  }
  if (now_s < dates.own.not_before_s) {
    return {MakeReason(reasons::kClockWrong,
                       absl::StrCat("this node's certificate is ", Span(dates.own), "; ", clock),
                       self.value())};
  }
  if (now_s > dates.own.not_after_s) {
    return {MakeReason(
        reasons::kCertExpired,
        absl::StrCat("this node's certificate is ", Span(dates.own), "; ", clock, failure),
        self.value())};
  }
  if (dates.own.not_after_s - now_s < kExpiringBeforeS) {
    return {MakeReason(
        reasons::kCertExpiring,
        absl::StrCat("this node's certificate ends at ", DateText(dates.own.not_after_s), failure),
        self.value())};
  }
  return {};
}

v1::Reason ReasonOfRefusedPeer(const RefusedPeer& peer, int64_t now_s) {
  const std::string clocks = absl::StrCat("its clock says ", DateText(peer.peer_unix_s),
                                          ", this machine's ", DateText(now_s));
  const bool apart = std::llabs(peer.peer_unix_s - now_s) > kClocksApartS;
  v1::Reason reason =
      apart ? MakeReason(
                  reasons::kClockWrong,
                  absl::StrCat(peer.name, " is heard, but no connection comes about: ", clocks),
                  peer.node.value())
            : MakeReason(reasons::kPeerRefused,
                         absl::StrCat(peer.name,
                                      " is heard, but its certificate or this node's is "
                                      "refused (",
                                      clocks, ")"),
                         peer.node.value());
  reason.set_evidence(peer.why.substr(0, 300));
  return reason;
}

}  // namespace macrame::agentd
