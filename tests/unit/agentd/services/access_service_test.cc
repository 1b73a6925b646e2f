#include "agentd/services/access_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/cores/state_keys.h"
#include "agentd/gateway/access/api_key.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::CreateKeyRequest NewKey(const std::string& name, const std::string& scope = "infer") {
  v1::CreateKeyRequest request;
  request.mutable_key()->set_name(name);
  request.mutable_key()->add_scopes(scope);
  return request;
}

class AccessServiceTest : public sim::AskedAgents {
 protected:
  v1::CreateKeyResponse Create(const std::string& name, int at = 0) {
    const auto created = Ask(at, kCreateKey, NewKey(name));
    EXPECT_TRUE(created.ok()) << created.status();
    return created.value_or(v1::CreateKeyResponse());
  }
  absl::StatusOr<v1::RevokeKeyResponse> Revoke(int at, const std::string& key) {
    v1::RevokeKeyRequest request;
    request.set_key(key);
    return Ask(at, kRevokeKey, request);
  }
  absl::StatusOr<v1::RotateKeyResponse> Rotate(int at, const std::string& key) {
    v1::RotateKeyRequest request;
    request.set_key(key);
    return Ask(at, kRotateKey, request);
  }
  absl::StatusOr<v1::SetTenantResponse> Limit(int at, const std::string& name, uint32_t requests) {
    v1::SetTenantRequest request;
    request.set_name(name);
    request.set_requests_per_minute(requests);
    return Ask(at, kSetTenant, request);
  }
  // Whom each node's gateway would let in with this secret.
  int NodesThatKnow(const std::string& secret_key, int nodes) {
    int known = 0;
    for (int at = 0; at < nodes; ++at) {
      const KeyTable keys(desired(at).api_keys());
      const v1::ApiKey* key = keys.Find(secret_key);
      known += key != nullptr && key->revoked_unix_ms() == 0;
    }
    return known;
  }
};

TEST_F(AccessServiceTest, AKeyThatIsMadeAnywhereIsGoodEverywhere) {
  Begin(3);
  for (const int at : LeaderAndFollower()) {
    const v1::CreateKeyResponse created = Create(absl::StrCat("key ", at), at);
    EXPECT_EQ(created.key().id().size(), 2 * kKeyIdBytes);
    EXPECT_TRUE(created.key().secret_digest().empty());
    EXPECT_GT(created.key().created_unix_ms(), 0u);
    sim().RunFor(2000);
    EXPECT_EQ(NodesThatKnow(created.secret_key(), 3), 3);
  }
}

TEST_F(AccessServiceTest, NobodyIsToldDigestsOrSecretsAgain) {
  Begin(2);
  const v1::CreateKeyResponse created = Create("ci");
  for (const int at : LeaderAndFollower()) {
    const auto listed = Ask(at, kListKeys, v1::ListKeysRequest());
    ASSERT_TRUE(listed.ok()) << listed.status();
    ASSERT_EQ(listed->keys_size(), 1);
    EXPECT_EQ(listed->keys(0).id(), created.key().id());
    EXPECT_EQ(listed->keys(0).name(), "ci");
    EXPECT_TRUE(listed->keys(0).secret_digest().empty());
  }
}

// What a program sends along can't make a key that has an id, a digest or an end of its own choice.
TEST_F(AccessServiceTest, IdDigestAndTimesAreTheCoordinators) {
  Begin(1);
  v1::CreateKeyRequest request = NewKey("ci");
  request.mutable_key()->set_id("aaaaaaaaaaaa");
  request.mutable_key()->set_secret_digest(KeyDigest("known"));
  request.mutable_key()->set_created_unix_ms(1);
  request.mutable_key()->set_revoked_unix_ms(1);
  const auto created = Ask(0, kCreateKey, request);
  ASSERT_TRUE(created.ok());
  EXPECT_NE(created->key().id(), "aaaaaaaaaaaa");
  EXPECT_GT(created->key().created_unix_ms(), 1u);
  EXPECT_EQ(created->key().revoked_unix_ms(), 0u);
  const v1::ApiKey& kept = desired(0).api_keys().at(created->key().id());
  EXPECT_NE(kept.secret_digest(), KeyDigest("known"));
  EXPECT_EQ(NodesThatKnow(created->secret_key(), 1), 1);
}

TEST_F(AccessServiceTest, WhatNoKeyCanBeIsRefusedAndNothingIsWritten) {
  Begin(1);
  std::vector<v1::CreateKeyRequest> bad(5, NewKey("ci"));
  bad[0].mutable_key()->clear_scopes();
  bad[1].mutable_key()->set_scopes(0, "root");
  bad[2].mutable_key()->set_name(std::string(kKeyNameBytesMax + 1, 'a'));
  bad[3].mutable_key()->set_expires_unix_ms(1);
  bad[4].mutable_key()->set_tokens_per_minute(kKeyLimitMax + 1);
  for (const v1::CreateKeyRequest& request : bad) {
    const auto refused = Ask(0, kCreateKey, request);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument)
        << request.ShortDebugString();
    EXPECT_EQ(CodeOf(refused), reasons::kBadRequest);
  }
  EXPECT_THAT(desired(0).api_keys(), IsEmpty());
}

TEST_F(AccessServiceTest, ARevokedKeyOpensNothingOnAnyNodeAndStaysInTheList) {
  Begin(3);
  const v1::CreateKeyResponse created = Create("ci");
  const auto revoked = Revoke(Follower(), "ci");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_GT(revoked->key().revoked_unix_ms(), 0u);
  EXPECT_TRUE(revoked->key().secret_digest().empty());
  sim().RunFor(2000);
  EXPECT_EQ(NodesThatKnow(created.secret_key(), 3), 0);
  const auto listed = Ask(Follower(), kListKeys, v1::ListKeysRequest());
  ASSERT_EQ(listed->keys_size(), 1);
  EXPECT_EQ(listed->keys(0).revoked_unix_ms(), revoked->key().revoked_unix_ms());
}

TEST_F(AccessServiceTest, WhenAKeyWasRevokedStaysTrue) {
  Begin(1);
  const std::string key_id = Create("ci").key().id();
  const auto first = Revoke(0, key_id);
  sim().RunFor(5000);
  const auto again = Revoke(0, key_id);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(again->key().revoked_unix_ms(), first->key().revoked_unix_ms());
}

TEST_F(AccessServiceTest, ANewSecretEndsTheOldOne) {
  Begin(2);
  const v1::CreateKeyResponse created = Create("ci");
  const auto rotated = Rotate(Follower(), "ci");
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  EXPECT_EQ(rotated->key().id(), created.key().id());
  EXPECT_NE(rotated->secret_key(), created.secret_key());
  EXPECT_TRUE(rotated->key().secret_digest().empty());
  sim().RunFor(2000);
  EXPECT_EQ(NodesThatKnow(created.secret_key(), 2), 0);
  EXPECT_EQ(NodesThatKnow(rotated->secret_key(), 2), 2);
}

TEST_F(AccessServiceTest, ANameThatSeveralKeysHaveNamesNone) {
  Begin(1);
  const v1::CreateKeyResponse one = Create("ci"), other = Create("ci");
  for (const auto& refused : {Revoke(0, "ci").status(), Rotate(0, "ci").status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(refused).code(), reasons::kKeyNotFound);
    EXPECT_THAT(ReasonOf(refused).message(), HasSubstr("by its id"));
  }
  EXPECT_EQ(NodesThatKnow(one.secret_key(), 1) + NodesThatKnow(other.secret_key(), 1), 2);
  // Once the other has ended, one alone has the name.
  ASSERT_TRUE(Revoke(0, one.key().id()).ok());
  ASSERT_TRUE(Revoke(0, "ci").ok());
  EXPECT_EQ(NodesThatKnow(other.secret_key(), 1), 0);
}

TEST_F(AccessServiceTest, AKeyThatIsNotThereIsNamed) {
  Begin(1);
  ASSERT_TRUE(Ask(0, kCreateKey, NewKey("")).ok());
  for (const std::string& name : {std::string("nobody"), std::string()}) {
    for (const auto& refused : {Revoke(0, name).status(), Rotate(0, name).status()}) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
      EXPECT_EQ(ReasonOf(refused).code(), reasons::kKeyNotFound);
      EXPECT_THAT(ReasonOf(refused).message(), HasSubstr(absl::StrCat("'", name, "'")));
    }
  }
}

TEST_F(AccessServiceTest, AKeyThatHasEndedGetsNoNewSecret) {
  Begin(1);
  const std::string revoked = Create("ci").key().id();
  ASSERT_TRUE(Revoke(0, revoked).ok());
  v1::CreateKeyRequest soon_over = NewKey("short");
  soon_over.mutable_key()->set_expires_unix_ms(parts(0).dispatcher.UnixMs() + 1000);
  const auto expired = Ask(0, kCreateKey, soon_over);
  ASSERT_TRUE(expired.ok()) << expired.status();
  sim().RunFor(2000);
  for (const std::string& key_id : {revoked, expired->key().id()}) {
    const auto refused = Rotate(0, key_id);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr(key_id));
  }
}

// Ended keys go for new ones, the oldest first; keys in use never do.
TEST_F(AccessServiceTest, AFullTableMakesRoomOfWhatHasEnded) {
  Begin(1);
  std::vector<std::string> ids;
  for (size_t i = 0; i < kKeysMax; ++i) {
    v1::ApiKey key = NewKey(absl::StrCat("key ", i)).key();
    ids.push_back(absl::StrCat("00000000", 1000 + i));
    key.set_id(ids.back());
    key.set_created_unix_ms(1000 + i);
    parts(0).replicator.Write(absl::StrCat(kApiKeyPrefix, key.id()), key.SerializeAsString(),
                              [](const absl::Status& status) { ASSERT_TRUE(status.ok()); });
  }
  const auto refused = Ask(0, kCreateKey, NewKey("late"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("revoke one first"));
  ASSERT_TRUE(Revoke(0, ids[9]).ok());
  ASSERT_TRUE(Revoke(0, ids[5]).ok());
  ASSERT_TRUE(Ask(0, kCreateKey, NewKey("late")).ok());
  EXPECT_EQ(desired(0).api_keys().size(), kKeysMax);
  EXPECT_FALSE(desired(0).api_keys().contains(ids[5]));
  EXPECT_TRUE(desired(0).api_keys().contains(ids[9]));
}

TEST_F(AccessServiceTest, LimitsOfATenantAreToldEverywhereAndGo) {
  Begin(3);
  const auto set = Limit(Follower(), "ads", 60);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_TRUE(set->changed());
  EXPECT_FALSE(Limit(Leader(), "ads", 60)->changed());
  sim().RunFor(2000);
  for (int at = 0; at < 3; ++at) {
    EXPECT_EQ(desired(at).tenants().at("ads").requests_per_minute(), 60u);
    const auto listed = Ask(at, kListTenants, v1::ListTenantsRequest());
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->tenants_size(), 1);
  }
  v1::SetTenantRequest clear;
  clear.set_name("ads");
  clear.set_clear(true);
  EXPECT_TRUE(Ask(Follower(), kSetTenant, clear)->changed());
  EXPECT_FALSE(Ask(Leader(), kSetTenant, clear)->changed());
  EXPECT_EQ(Ask(Leader(), kListTenants, v1::ListTenantsRequest())->tenants_size(), 0);
  EXPECT_EQ(CodeOf(Limit(Leader(), "", 60)), reasons::kBadRequest);
}

// Alone of two, with a majority a must: it waits for others first, then says what is missing.
TEST_F(AccessServiceTest, WithoutACoordinatorNothingIsMadeOrTold) {
  Begin(3, [](auto& options) { options.consistency = Consistency::kQuorum; });
  const int left = Follower();
  for (int other = 0; other < 3; ++other) {
    if (other != left) sim().Crash(other);
  }
  sim().RunFor(4000);
  const auto begun = parts(left).dispatcher.Now();
  for (const std::string& code :
       {CodeOf(Ask(left, kCreateKey, NewKey("ci"))),
        CodeOf(Ask(left, kListKeys, v1::ListKeysRequest())), CodeOf(Revoke(left, "ci")),
        CodeOf(Rotate(left, "ci")), CodeOf(Limit(left, "ads", 1)),
        CodeOf(Ask(left, kListTenants, v1::ListTenantsRequest()))}) {
    EXPECT_EQ(code, reasons::kNoCoordinator);
  }
  EXPECT_GE(parts(left).dispatcher.Now() - begun, 6 * kCoordinatorWait);
  EXPECT_THAT(desired(left).api_keys(), IsEmpty());
}

// Whoever asks while one coordinator goes and the next comes is served by the next.
TEST_F(AccessServiceTest, AnOrderWaitsForTheNextCoordinator) {
  Begin(3);
  sim().Crash(Leader());
  const int at = Follower();
  ASSERT_TRUE(RunUntil(
      [&] { return !parts(at).election.Coordinator(parts(at).dispatcher.Now()).has_value(); },
      5000));
  const auto created = Ask(at, kCreateKey, NewKey("ci"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_NE(Leader(), -1);
  EXPECT_TRUE(desired(Leader()).api_keys().contains(created->key().id()));
}

TEST_F(AccessServiceTest, MembersMayPassOrdersOnAndOthersMayNot) {
  Begin(2);
  EXPECT_TRUE(AskAs(Follower(), Leader(), kCreateKey, NewKey("ci")).ok());
  const auto refused = Wait(StartAs({NodeId(std::string(32, 'f')), false, "10.0.0.9"}, Leader(),
                                    kCreateKey, NewKey("theirs")));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  // What came over the wire is not passed on again.
  EXPECT_EQ(CodeOf(AskAs(Leader(), Follower(), kCreateKey, NewKey("ci"))), reasons::kNoCoordinator);
}

// --- the audit log -------------------------------------------------------------------------------

TEST_F(AccessServiceTest, OrdersStandInTheLogOfTheNodeThatWasAskedWithTheirOutcome) {
  Begin(2);
  const int at = Follower();
  ASSERT_TRUE(Ask(at, kCreateKey, NewKey("ci")).ok());
  EXPECT_FALSE(Revoke(at, "nobody").ok());
  ASSERT_TRUE(Ask(at, kListKeys, v1::ListKeysRequest()).ok());
  const auto read = Ask(at, kReadAudit, v1::ReadAuditRequest());
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->lines_size(), 2) << "what only reads has no line";
  EXPECT_THAT(read->lines(0), HasSubstr("CreateKey"));
  EXPECT_THAT(read->lines(0), HasSubstr("ci"));
  EXPECT_THAT(read->lines(0), HasSubstr("local"));
  EXPECT_THAT(read->lines(0), HasSubstr("\"ok\""));
  EXPECT_THAT(read->lines(1), HasSubstr("RevokeKey"));
  EXPECT_THAT(read->lines(1), HasSubstr(std::string(reasons::kKeyNotFound)));
  const auto verified = Ask(at, kVerifyAudit, v1::VerifyAuditRequest());
  ASSERT_TRUE(verified.ok());
  EXPECT_EQ(verified->entries(), 2u);
  EXPECT_EQ(verified->broken_at(), "");
}

// Whether an order has a line, and what it says; secrets never do.
TEST(AuditedOrder, SaysWhatWasDoneToWhom) {
  const auto told = [](const auto& rpc, const auto& request) {
    const std::optional<AuditEntry> entry = AuditedOrder(rpc.path, request);
    return entry.has_value() ? absl::StrCat(entry->what, ": ", entry->target) : "";
  };
  v1::LoadModelRequest load;
  load.set_name_or_path("/m/llama");
  EXPECT_EQ(told(kLoadModel, load), "LoadModel: /m/llama");
  load.set_deployment_name("chat");
  load.mutable_placement()->set_tenant("ads");
  EXPECT_EQ(told(kLoadModel, load), "LoadModel: /m/llama as chat for ads");
  v1::SetCordonRequest cordon;
  cordon.set_node_id("n1");
  cordon.set_order(v1::CORDON_ORDER_CORDON);
  EXPECT_EQ(told(kSetCordon, cordon), "SetCordon: cordon n1");
  cordon.set_order(v1::CORDON_ORDER_DRAIN);
  EXPECT_EQ(told(kSetCordon, cordon), "SetCordon: drain n1");
  cordon.set_order(v1::CORDON_ORDER_UNCORDON);
  EXPECT_EQ(told(kSetCordon, cordon), "SetCordon: uncordon n1");
  v1::MarkNodeRequest marks;
  marks.set_node_id("n1");
  marks.set_tenant("");
  v1::NodeLabel& label = *marks.add_labels();
  label.set_key("rack");
  label.set_value("2");
  marks.add_removed("old");
  EXPECT_EQ(told(kMarkNode, marks), "MarkNode: n1, tenant '', rack=2, without old");
  v1::PauseClusterRequest pause;
  for (const auto& [order, word] :
       {std::pair(v1::PAUSE_ORDER_DRAIN, "drain"), std::pair(v1::PAUSE_ORDER_STOP, "stop"),
        std::pair(v1::PAUSE_ORDER_START, "start")}) {
    pause.set_order(order);
    EXPECT_EQ(told(kPauseCluster, pause), absl::StrCat("PauseCluster: ", word));
  }
  v1::SetTenantRequest tenant;
  tenant.set_name("ads");
  tenant.set_clear(true);
  tenant.set_requests_per_minute(5);
  tenant.set_tokens_per_minute(6);
  tenant.set_concurrent_requests(7);
  EXPECT_EQ(told(kSetTenant, tenant),
            "SetTenant: ads, limits cleared, 5 requests/min, 6 tokens/min, 7 at once");
  v1::CreateJoinTokenRequest token;
  token.set_approve(true);
  EXPECT_EQ(told(kCreateJoinToken, token), "CreateJoinToken: 1 uses, to be approved");
  v1::ChangeProfileRequest profile;
  profile.mutable_set()->set_model("m");
  profile.mutable_set()->add_aliases("gpt");
  profile.mutable_set()->set_pinned(true);
  profile.mutable_set()->set_idle_unload_s(0);
  profile.add_cleared("top_p");
  EXPECT_EQ(told(kChangeProfile, profile),
            "ChangeProfile: m, without top_p, alias gpt, pinned, unloaded after 0 s");
}

TEST(AuditedOrder, WhatOnlyReadsHasNoLine) {
  EXPECT_FALSE(AuditedOrder(kListKeys.path, v1::ListKeysRequest()).has_value());
  EXPECT_FALSE(AuditedOrder(kGetStatus.path, v1::GetStatusRequest()).has_value());
  EXPECT_FALSE(AuditedOrder(kReadAudit.path, v1::ReadAuditRequest()).has_value());
}

TEST(AuditName, TellsWhoCalled) {
  EXPECT_EQ(AuditName({NodeId(), true, ""}), "local");
  const NodeId node("0123456789abcdef0123456789abcdef");
  EXPECT_EQ(AuditName({node, false, "10.0.0.2"}), absl::StrCat("node ", ShortId(node)));
}

}  // namespace
}  // namespace macrame::agentd
