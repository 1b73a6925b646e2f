#pragma once

// What a certificate's dates and this machine's clock ask for: a new certificate, a word to the
// people, both or nothing.
//
// A certificate begins two days before it was made and ends seven after. So one that begins less
// than a day ago was made by a clock that was more than a day ahead of the present one: it is made
// anew, as one is that ends within kRenewBeforeS.
//
// Contract: pure. Times are Unix seconds.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/common.pb.h"
#include "proto/ids.h"
#include "transport/trust.h"

namespace macrame::agentd {

inline constexpr int64_t kRenewBeforeS = 3 * transport::kSecondsPerDay;
inline constexpr int64_t kExpiringBeforeS = 2 * transport::kSecondsPerDay;
inline constexpr int64_t kBegunAtLeastS = transport::kSecondsPerDay;
// Clocks that differ by more make certificates useless.
inline constexpr int64_t kClocksApartS = transport::kSecondsPerDay;

struct TrustDates {
  transport::CertificateDates own;
  transport::CertificateDates authority;
};

bool IsRenewalDue(const transport::CertificateDates& own, int64_t now_s);
// Whether `fresh` may take the place of `own`: it is valid now, and `own` is not or ends sooner.
bool IsBetter(const transport::CertificateDates& fresh, const transport::CertificateDates& own,
              int64_t now_s);
// CLOCK_WRONG, CERT_EXPIRED, CERT_EXPIRING, with dates. `renew_failure`: why the last try to get a
// new one failed; empty when none did.
std::vector<v1::Reason> DateProblems(const TrustDates& dates, int64_t now_s, const NodeId& self,
                                     const std::string& renew_failure);

// A peer whose beacons are good and whose connections fail at the handshake: PEER_REFUSED, or
// CLOCK_WRONG when the clocks are too far apart.
struct RefusedPeer {
  NodeId node;
  std::string name;
  std::string why;  // the connection's own message
  int64_t peer_unix_s = 0;
};
v1::Reason ReasonOfRefusedPeer(const RefusedPeer& peer, int64_t now_s);

// "2026-11-23 15:30 UTC".
std::string DateText(int64_t unix_s);

}  // namespace macrame::agentd
