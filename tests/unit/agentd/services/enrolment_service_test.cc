// Tokens, approval and revocation, on clusters of agents with a real secret: the first is its
// keeper, the others have memberships.

#include "agentd/services/enrolment_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/sim/asked_agents.h"
#include "tests/unit/agentd/node/signed_membership.h"
#include "tests/unit/fresh_folder.h"
#include "transport/join_token.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kStart = 1'790'000'000;  // of simulated machines' clocks

class EnrolmentServiceTest : public sim::AskedAgents {
 protected:
  void SetUp() override {
    folder_ = FreshFolder() + "/new";
    secret_ = *transport::CreateClusterSecret("home", kStart - 1000);
  }

  void BeginWithSecret(int nodes, Consistency consistency = Consistency::kAvailable) {
    for (int at = 0; at < nodes; ++at) Enrol(static_cast<char>('a' + at), at == 0);
    Begin(nodes, [&](sim::SimOptions& options) {
      options.consistency = consistency;
      options.configure = [this](Config& config) {
        config.insecure_dev = false;
        config.cluster_secret_file = PathOf(config.node_name);
        config.join_port = 0;
        config.control_bind = "127.0.0.1";
      };
    });
  }
  std::string PathOf(const std::string& node_name) const {
    return absl::StrCat(folder_, "/", node_name, "/cluster.secret");
  }
  void Enrol(char letter, bool is_keeper) {
    const std::string path = PathOf(std::string("node-") + letter);
    if (is_keeper) {
      ASSERT_TRUE(transport::WriteClusterSecret(secret_, path).ok());
      return;
    }
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const NodeId node(std::string(32, letter));
    const auto membership = tests::SignedMembership(secret_, node, kStart - 100);
    ASSERT_TRUE(
        transport::WriteNodeMembership(membership, transport::NodeMembershipPath(path)).ok());
  }
  absl::StatusOr<v1::CreateJoinTokenResponse> Token(int at, uint32_t valid_for_s, uint32_t uses) {
    v1::CreateJoinTokenRequest request;
    request.set_valid_for_s(valid_for_s);
    request.set_uses(uses);
    return Ask(at, kCreateJoinToken, request);
  }
  absl::StatusOr<v1::RevokeNodeResponse> Revoke(int at, const std::string& node) {
    v1::RevokeNodeRequest request;
    request.set_node_id(node);
    request.set_hostname("its name");
    return Ask(at, kRevokeNode, request);
  }

  std::string folder_;
  transport::ClusterSecret secret_;
};

// --- tokens --------------------------------------------------------------------------------------

TEST_F(EnrolmentServiceTest, ATokenSaysWhereToJoinAndWhomToBelieve) {
  BeginWithSecret(2);
  const auto made = Token(0, 0, 0);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->uses(), 1u);
  EXPECT_EQ(made->expires_unix_ms(),
            parts(0).dispatcher.UnixMs() + uint64_t{kJoinValidDefaultS} * 1000);
  const auto token = transport::ParseJoinToken(made->token());
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_THAT(token->ips, ElementsAre("127.0.0.1")) << "where it is bound to";
  EXPECT_GT(token->port, 0);
  EXPECT_EQ(token->authority_digest,
            *transport::CertificateDigest(secret_.authority_certificate_pem));
  const auto other = transport::ParseJoinToken(Token(0, 60, 3)->token());
  EXPECT_NE(other->secret, token->secret);
  EXPECT_EQ(other->port, token->port) << "one port for all";
}

TEST_F(EnrolmentServiceTest, ATokenHasABoundInTimeAndUses) {
  BeginWithSecret(1);
  EXPECT_TRUE(Token(0, 24 * 3600, kJoinUsesMax).ok());
  EXPECT_EQ(CodeOf(Token(0, 24 * 3600 + 1, 1)), reasons::kBadRequest);
  EXPECT_EQ(CodeOf(Token(0, ~0u, 1)), reasons::kBadRequest);
  EXPECT_EQ(CodeOf(Token(0, 60, kJoinUsesMax + 1)), reasons::kBadRequest);
}

TEST_F(EnrolmentServiceTest, OnlyAKeeperMakesTokens) {
  BeginWithSecret(2);
  EXPECT_EQ(CodeOf(Token(1, 60, 1)), reasons::kNotKeeper);
  EXPECT_EQ(CodeOf(Revoke(1, std::string(32, 'f'))), reasons::kNotKeeper);
}

TEST_F(EnrolmentServiceTest, NobodyIsApprovedWhoDoesNotAsk) {
  BeginWithSecret(1);
  v1::ApproveNodeRequest request;
  for (const std::string& name : {std::string("nobody"), std::string(), std::string(5000, 'a')}) {
    request.set_node(name);
    const auto refused = Ask(0, kApproveNode, request);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(CodeOf(refused), reasons::kInternal) << refused.status();
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("waiting are: none"));
    EXPECT_THAT(ReasonOf(refused.status()).remedy(), HasSubstr("cluster join"));
  }
}

TEST_F(EnrolmentServiceTest, AMemberThatJoinsAgainIsToldSoAndATokenIsOne) {
  BeginWithSecret(2);
  v1::JoinClusterRequest request;
  request.set_token(Token(0, 60, 1)->token());
  for (const int at : {0, 1}) {  // the keeper, and a node with a membership
    const auto again = Ask(at, kJoinCluster, request);
    EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists) << again.status();
    EXPECT_EQ(CodeOf(again), reasons::kMemberAlready);
    EXPECT_THAT(ReasonOf(again.status()).message(), HasSubstr("member of cluster 'home'"));
  }
  for (const std::string& text :
       {std::string(), std::string("hello"), request.token().substr(0, request.token().size() / 2),
        std::string(100'000, 'a')}) {
    request.set_token(text);
    EXPECT_EQ(CodeOf(Ask(1, kJoinCluster, request)), reasons::kTokenMalformed);
  }
}

TEST_F(EnrolmentServiceTest, AKeeperSignsForTheIdOfTheCallersOwnCertificate) {
  BeginWithSecret(2);
  v1::RenewCertificateRequest request;
  request.set_certificate_request(transport::MakeCertificateRequest().request_der);
  const auto renewed = AskAs(1, 0, kRenewCertificate, request);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_THAT(renewed->certificate(), HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_EQ(CodeOf(AskAs(0, 1, kRenewCertificate, request)), reasons::kNotKeeper);
  request.set_certificate_request("no request");
  EXPECT_FALSE(AskAs(1, 0, kRenewCertificate, request).ok());
}

// --- revocation ----------------------------------------------------------------------------------

TEST_F(EnrolmentServiceTest, ARevokedNodeIsNobodysMemberAndStaysOut) {
  BeginWithSecret(4);
  const int out = Leader() == 3 ? 2 : 3;
  const auto revoked = Revoke(0, id(out).value());
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(revoked->revocation().node_id(), id(out).value());
  sim().RunFor(6000);
  for (int at = 0; at < 4; ++at) {
    if (at == out) continue;
    EXPECT_TRUE(parts(at).revocations.Has(id(out))) << at;
    EXPECT_FALSE(parts(at).members.IsMember(id(out))) << at;
    EXPECT_FALSE(parts(at).member_writer.listed().contains(id(out))) << at;
    EXPECT_EQ(parts(at).channels.For(id(out)), nullptr) << at;
  }
  // Twice is as once.
  const auto again = Revoke(0, id(out).value());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->revocation().SerializeAsString(), revoked->revocation().SerializeAsString());
  // A node that is started again knows it from its disk.
  const int restarted = Leader() == 1 ? 2 : 1;
  sim().Crash(restarted);
  sim().Start(restarted);
  EXPECT_TRUE(parts(restarted).revocations.Has(id(out)));
  sim().RunFor(6000);
  EXPECT_FALSE(parts(restarted).members.IsMember(id(out)));
}

TEST_F(EnrolmentServiceTest, ANodeThatWasAwayHearsOfIt) {
  BeginWithSecret(4);
  const int away = Leader() == 2 ? 1 : 2;
  const int out = Leader() == 3 ? (away == 1 ? 2 : 1) : 3;
  sim().Crash(away);
  sim().RunFor(4000);
  ASSERT_TRUE(Revoke(0, id(out).value()).ok());
  sim().RunFor(4000);
  sim().Start(away);
  sim().RunFor(8000);
  EXPECT_TRUE(parts(away).revocations.Has(id(out)));
  EXPECT_FALSE(parts(away).members.IsMember(id(out)));
}

TEST_F(EnrolmentServiceTest, ARevokedCoordinatorIsFollowedByAnother) {
  BeginWithSecret(4);
  // The keeper can't revoke itself: another one is to lead.
  if (Leader() == 0) {
    sim().Crash(0);
    sim().RunFor(5000);
    sim().Start(0);
    sim().RunFor(5000);
  }
  const int out = Leader();
  ASSERT_GT(out, 0);
  ASSERT_TRUE(Revoke(0, id(out).value()).ok());
  sim().RunFor(10'000);
  const auto obeyed = parts(0).election.Coordinator(parts(0).dispatcher.Now());
  ASSERT_TRUE(obeyed.has_value());
  EXPECT_NE(obeyed->coordinator, id(out));
}

TEST_F(EnrolmentServiceTest, WhoIsNoNodeOrTheKeeperItselfIsNotRevoked) {
  BeginWithSecret(2);
  EXPECT_EQ(CodeOf(Revoke(0, "node-b")), reasons::kNodeNotFound);
  EXPECT_EQ(CodeOf(Revoke(0, "")), reasons::kNodeNotFound);
  const auto itself = Revoke(0, id(0).value());
  EXPECT_EQ(CodeOf(itself), reasons::kBadRequest);
  EXPECT_THAT(ReasonOf(itself.status()).message(), HasSubstr("on another one"));
}

// Anybody may bring a revocation; only the authority's signature makes it one.
TEST_F(EnrolmentServiceTest, WhatIsNotSignedRevokesNobody) {
  BeginWithSecret(3);
  v1::TakeRevocationsRequest request;
  v1::Revocation& forged = *request.mutable_revoked()->add_revocations();
  forged.set_node_id(id(1).value());
  forged.set_revoked_unix_ms(kStart * 1000);
  forged.set_signature(std::string(64, 's'));
  const auto other = transport::CreateClusterSecret("home", kStart - 1000);
  v1::Revocation& foreign = *request.mutable_revoked()->add_revocations();
  foreign = forged;
  foreign.set_signature(*transport::SignRevocation(*other, id(1), kStart * 1000));
  ASSERT_TRUE(AskAs(2, 0, kTakeRevocations, request).ok());
  sim().RunFor(3000);
  for (int at = 0; at < 3; ++at) EXPECT_FALSE(parts(at).revocations.Has(id(1))) << at;
  EXPECT_TRUE(parts(0).members.IsMember(id(1)));
  // Signed by the cluster's own, it counts, whoever brought it.
  foreign.set_signature(*transport::SignRevocation(secret_, id(1), kStart * 1000));
  ASSERT_TRUE(AskAs(2, 0, kTakeRevocations, request).ok());
  sim().RunFor(100);
  EXPECT_TRUE(parts(0).revocations.Has(id(1)));
}

// Somebody who asks several nodes at the moment in which one is revoked is answered.
TEST_F(EnrolmentServiceTest, WhoWaitsForARevokedNodeIsAnswered) {
  BeginWithSecret(4);
  const int out = Leader() == 3 ? 2 : 3;
  const int at = Leader() == 1 ? 0 : 1;
  sim().Pause(out);
  const auto events = Start(at, kListEvents, v1::ListEventsRequest());
  const auto recheck = Start(Leader(), kRecheckLinks, v1::RecheckLinksRequest());
  const auto bench = Start(at, kBenchLinks, v1::BenchLinksRequest());
  v1::VerifyModelRequest verify;
  verify.set_name_or_path("m0");
  const auto verified = Start(at, kVerifyModel, verify);
  const auto energy = Start(at, kGetKeyEnergy, v1::GetKeyEnergyRequest());
  v1::EraseTenantRequest erase;
  erase.set_name("law");
  const auto erased = Start(at, kEraseTenant, erase);
  sim().RunFor(200);
  ASSERT_TRUE(Revoke(0, id(out).value()).ok());
  sim().RunFor(70'000);
  ASSERT_TRUE(energy->end.has_value()) << "whoever asked what keys took hangs";
  ASSERT_TRUE(energy->end->ok()) << *energy->end;
  ASSERT_THAT(energy->messages[0].missing(), SizeIs(1));
  EXPECT_EQ(energy->messages[0].missing(0).node_id(), id(out).value());
  ASSERT_TRUE(erased->end.has_value()) << "whoever had answers erased hangs";
  ASSERT_TRUE(erased->end->ok()) << *erased->end;
  ASSERT_THAT(erased->messages[0].nodes(), SizeIs(4));
  for (const v1::ErasedAnswers& node : erased->messages[0].nodes()) {
    EXPECT_EQ(node.has_failure(), node.node_id() == id(out).value()) << node.DebugString();
  }
  ASSERT_TRUE(events->end.has_value()) << "whoever asked for events hangs";
  EXPECT_TRUE(events->end->ok()) << *events->end;
  ASSERT_TRUE(recheck->end.has_value()) << "whoever asked for a recheck hangs";
  EXPECT_TRUE(recheck->end->ok()) << *recheck->end;
  ASSERT_TRUE(bench->end.has_value()) << "whoever asked for a bench hangs";
  EXPECT_TRUE(bench->end->ok()) << *bench->end;
  ASSERT_TRUE(verified->end.has_value()) << "whoever asked to verify hangs";
  EXPECT_TRUE(verified->end->ok()) << *verified->end;
  sim().Crash(out);
}

}  // namespace
}  // namespace macrame::agentd
