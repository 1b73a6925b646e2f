#include "agentd/cores/certificate_watch.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using transport::kSecondsPerDay;

const NodeId kSelf("0123456789abcdef0123456789abcdef");
constexpr int64_t kNow = 1'763'900'000;  // 2025-11-23 12:13 UTC

// A certificate that a clock at `made_s` made.
transport::CertificateDates MadeAt(int64_t made_s) {
  const auto secret = transport::CreateClusterSecret("home", made_s);
  const auto node = transport::MakeNodeCredentials(*secret, kSelf, made_s);
  return *transport::DatesOf(node->certificate_pem);
}

TrustDates Dates(int64_t made_s) {
  return {MadeAt(made_s), {kNow - 100 * kSecondsPerDay, kNow + 5000 * kSecondsPerDay}};
}

std::string Code(const TrustDates& dates, int64_t now_s, const std::string& failure = "") {
  const auto problems = DateProblems(dates, now_s, kSelf, failure);
  return problems.empty() ? "" : problems.front().code();
}

TEST(CertificateWatchTest, AFreshOneIsLeftAloneAndRenewedThreeDaysBeforeItsEnd) {
  const auto own = MadeAt(kNow);
  EXPECT_EQ(own.not_after_s - kNow, 7 * kSecondsPerDay);
  EXPECT_FALSE(IsRenewalDue(own, kNow));
  EXPECT_FALSE(IsRenewalDue(own, kNow + 4 * kSecondsPerDay));
  EXPECT_TRUE(IsRenewalDue(own, kNow + 4 * kSecondsPerDay + 1));
}

TEST(CertificateWatchTest, OnlyABetterOneTakesThePlaceOfThePresentOne) {
  const auto own = MadeAt(kNow - 5 * kSecondsPerDay);
  EXPECT_TRUE(IsBetter(MadeAt(kNow), own, kNow));
  // The keeper's clock is 20 days behind, or as far ahead.
  EXPECT_FALSE(IsBetter(MadeAt(kNow - 20 * kSecondsPerDay), own, kNow));
  EXPECT_FALSE(IsBetter(MadeAt(kNow + 20 * kSecondsPerDay), own, kNow));
  EXPECT_FALSE(IsBetter(MadeAt(kNow - 6 * kSecondsPerDay), own, kNow)) << "it ends sooner";
  // Nothing is lost with one that is not valid any more.
  EXPECT_TRUE(IsBetter(MadeAt(kNow), MadeAt(kNow + 800 * kSecondsPerDay), kNow));
}

TEST(CertificateWatchTest, OneOfAClockYearsOffIsMadeAnewOnceTheClockIsRight) {
  EXPECT_TRUE(IsRenewalDue(MadeAt(kNow + 800 * kSecondsPerDay), kNow));
  EXPECT_TRUE(IsRenewalDue(MadeAt(kNow - 800 * kSecondsPerDay), kNow));
  EXPECT_TRUE(IsRenewalDue(MadeAt(kNow + kSecondsPerDay + 60), kNow));
  EXPECT_FALSE(IsRenewalDue(MadeAt(kNow + kSecondsPerDay - 60), kNow));
}

TEST(CertificateWatchTest, WhatIsWrongIsSaidWithDates) {
  EXPECT_EQ(Code(Dates(kNow), kNow), "");
  EXPECT_EQ(Code(Dates(kNow), kNow + 5 * kSecondsPerDay), "");
  EXPECT_EQ(Code(Dates(kNow), kNow + 5 * kSecondsPerDay + 1), "CERT_EXPIRING");
  EXPECT_EQ(Code(Dates(kNow), kNow + 8 * kSecondsPerDay), "CERT_EXPIRED");
  EXPECT_EQ(Code(Dates(kNow), kNow - 3 * kSecondsPerDay), "CLOCK_WRONG");
  EXPECT_EQ(Code(Dates(kNow), kNow - 101 * kSecondsPerDay), "CLOCK_WRONG");
  EXPECT_EQ(Code(Dates(kNow), kNow + 5001 * kSecondsPerDay), "CERT_EXPIRED");
  const auto problems = DateProblems(Dates(kNow), kNow + 8 * kSecondsPerDay, kSelf, "no keeper");
  EXPECT_NE(problems[0].message().find("to 2025-11-30 12:13 UTC"), std::string::npos)
      << problems[0].message();
  EXPECT_NE(problems[0].message().find("clock says 2025-12-01 12:13 UTC"), std::string::npos);
  EXPECT_NE(problems[0].message().find("no keeper"), std::string::npos);
  EXPECT_EQ(problems[0].node_id(), kSelf.value());
}

TEST(CertificateWatchTest, ARefusedPeerIsShownWithBothClocks) {
  RefusedPeer peer{NodeId(std::string(32, 'b')), "bess", "Ssl handshake failed", kNow - 60};
  v1::Reason reason = ReasonOfRefusedPeer(peer, kNow);
  EXPECT_EQ(reason.code(), "PEER_REFUSED");
  EXPECT_NE(reason.message().find("bess"), std::string::npos);
  EXPECT_EQ(reason.evidence(), "Ssl handshake failed");
  peer.peer_unix_s = kNow - 400 * kSecondsPerDay;
  reason = ReasonOfRefusedPeer(peer, kNow);
  EXPECT_EQ(reason.code(), "CLOCK_WRONG");
  EXPECT_NE(reason.message().find("its clock says 2024-10-19"), std::string::npos)
      << reason.message();
  EXPECT_NE(reason.message().find("this machine's 2025-11-23"), std::string::npos);
}

}  // namespace
}  // namespace macrame::agentd
