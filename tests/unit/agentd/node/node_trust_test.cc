#include "agentd/node/node_trust.h"

#include <gtest/gtest.h>

#include "agentd/node/grpc_channels.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/node/signed_membership.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using transport::kSecondsPerDay;

const NodeId kSelf("0123456789abcdef0123456789abcdef");
constexpr int64_t kNow = 1'763'900'000;

class NodeTrustTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder() + "/new";
    path_ = folder_ + "/cluster.secret";
    secret_ = *transport::CreateClusterSecret("home", kNow - 30 * kSecondsPerDay);
    trust_.emplace(clock_, kSelf, path_, channels_, members_,
                   [this](const transport::NodeCredentials& node) {
                     renewed_.push_back(*transport::DatesOf(node.certificate_pem));
                   });
  }

  transport::NodeMembership Membership(int64_t signed_s) {
    return tests::SignedMembership(secret_, kSelf, signed_s);
  }
  std::string Problem() const {
    const auto problems = trust_->Problems();
    return problems.empty() ? "" : problems.front().code();
  }
  // A minute passes; the wall clock goes its own way.
  void Look() {
    clock_.AdvanceBy(kDatesLookedAt);
    trust_->Tick();
  }

  std::string folder_, path_;
  tests::SetClock clock_{kNow};
  PeerChannels channels_{GrpcChannels(clock_, kSelf)};
  MemberMonitor members_{clock_, v1::NodeIdentity(), discovery::FailureLimits(), {}};
  transport::ClusterSecret secret_;
  std::vector<transport::CertificateDates> renewed_;
  std::optional<NodeTrust> trust_;
};

TEST_F(NodeTrustTest, AKeeperWhoseClockWasYearsOffHasAGoodCertificateOnceItIsRight) {
  ASSERT_TRUE(transport::WriteClusterSecret(secret_, path_).ok());
  for (const int64_t off : {800, -800}) {
    renewed_.clear();
    clock_.unix_s = kNow + off * kSecondsPerDay;
    ASSERT_TRUE(trust_->Load().ok());
    EXPECT_TRUE(trust_->keeper());
    EXPECT_EQ(Problem(), off > 0 ? "" : "CLOCK_WRONG");  // before the cluster was made
    Look();
    EXPECT_TRUE(renewed_.empty());
    clock_.unix_s = kNow;
    EXPECT_EQ(Problem(), off > 0 ? "CLOCK_WRONG" : "CERT_EXPIRED");
    clock_.AdvanceBy(kRenewPause);
    Look();
    ASSERT_EQ(renewed_.size(), 1u);
    EXPECT_LT(renewed_[0].not_before_s, kNow);
    EXPECT_EQ(renewed_[0].not_after_s, kNow + 7 * kSecondsPerDay);
    EXPECT_EQ(Problem(), "");
  }
}

// Not at the next look a minute later, nor when a failed try may be repeated.
TEST_F(NodeTrustTest, AClockThatIsSetRightHasTheCertificateMadeAnewAtOnce) {
  ASSERT_TRUE(transport::WriteClusterSecret(secret_, path_).ok());
  for (const int64_t off : {400, -9000}) {
    renewed_.clear();
    clock_.unix_s = kNow + off * kSecondsPerDay;
    ASSERT_TRUE(trust_->Load().ok());
    Look();
    clock_.AdvanceBy(std::chrono::milliseconds(100));
    trust_->Tick();
    renewed_.clear();
    clock_.unix_s = kNow;
    clock_.AdvanceBy(std::chrono::milliseconds(100));
    trust_->Tick();
    ASSERT_EQ(renewed_.size(), 1u) << off;
    EXPECT_EQ(renewed_[0].not_after_s, kNow + 7 * kSecondsPerDay);
    EXPECT_EQ(Problem(), "");
    clock_.AdvanceBy(std::chrono::milliseconds(100));
    trust_->Tick();
    EXPECT_EQ(renewed_.size(), 1u) << "once";
  }
}

TEST_F(NodeTrustTest, AKeeperMakesANewOneBeforeTheOldOneEnds) {
  ASSERT_TRUE(transport::WriteClusterSecret(secret_, path_).ok());
  ASSERT_TRUE(trust_->Load().ok());
  clock_.unix_s = kNow + 4 * kSecondsPerDay - 1;
  Look();
  EXPECT_TRUE(renewed_.empty());
  clock_.unix_s = kNow + 4 * kSecondsPerDay + 1;
  Look();
  EXPECT_EQ(renewed_.size(), 1u);
  Look();
  EXPECT_EQ(renewed_.size(), 1u);
}

TEST_F(NodeTrustTest, AMemberWithoutAKeeperIsToldBeforeAndAfterTheEnd) {
  ASSERT_TRUE(
      transport::WriteNodeMembership(Membership(kNow), transport::NodeMembershipPath(path_)).ok());
  const auto loaded = trust_->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(trust_->keeper());
  EXPECT_EQ(loaded->cluster_id, secret_.cluster_id);
  EXPECT_EQ(ReasonOf(trust_->ReadSecret().status()).code(), "NOT_KEEPER");
  clock_.unix_s = kNow + 5 * kSecondsPerDay + 60;
  Look();
  EXPECT_EQ(Problem(), "CERT_EXPIRING");
  EXPECT_NE(trust_->Problems()[0].message().find("no member"), std::string::npos);
  clock_.unix_s = kNow + 8 * kSecondsPerDay;
  EXPECT_EQ(Problem(), "CERT_EXPIRED");
  // Joined again: taken at once, and on disk.
  const transport::NodeMembership fresh = Membership(clock_.unix_s);
  ASSERT_TRUE(trust_->Take(fresh).ok());
  EXPECT_EQ(renewed_.size(), 1u);
  EXPECT_EQ(Problem(), "");
  EXPECT_EQ(transport::ReadNodeMembership(transport::NodeMembershipPath(path_))->node.key_pem,
            fresh.node.key_pem);
}

TEST_F(NodeTrustTest, AnotherNodesMembershipIsRefused) {
  transport::NodeMembership other = Membership(kNow);
  other.node.node_id = NodeId(std::string(32, 'b'));
  const transport::CertificateRequest request = transport::MakeCertificateRequest();
  other.node.key_pem = request.key_pem;
  other.node.certificate_pem =
      *transport::SignCertificateRequest(secret_, other.node.node_id, request.request_der, kNow);
  ASSERT_TRUE(transport::WriteNodeMembership(other, transport::NodeMembershipPath(path_)).ok());
  EXPECT_EQ(trust_->Load().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NodeTrustTest, WithNeitherFileTheSecretIsWhatIsMissing) {
  const absl::Status status = trust_->Load().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find(path_), absl::string_view::npos);
}

}  // namespace
}  // namespace macrame::agentd
