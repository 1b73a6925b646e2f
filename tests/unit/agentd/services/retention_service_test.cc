// Tenants' answers that are erased, and what keys took of the energy: what one agent asks the
// gateways of all for.

#include "agentd/services/retention_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/base/tenant.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RetentionServiceTest : public sim::AskedAgents {
 protected:
  StoredAnswers& Answers(int at) { return parts(at).access->answers(); }
  void Store(int at, const std::string& tenant, int count) {
    for (int answer = 0; answer < count; ++answer) {
      Answers(at).Put(absl::StrCat(tenant, answer),
                      {OwnerOfTenant(tenant), Text(std::string(100, 'b')), Text("[]")},
                      Answers(at).Begin(), GatewayUnixMs());
    }
  }
  static ResponseStore::Text Text(const std::string& text) {
    return std::make_shared<const std::string>(text);
  }
  absl::StatusOr<v1::EraseTenantResponse> Erase(int at, const std::string& tenant) {
    v1::EraseTenantRequest request;
    request.set_name(tenant);
    return Ask(at, kEraseTenant, request);
  }
};

TEST_F(RetentionServiceTest, ATenantsAnswersGoOnEveryNodeAndOthersStay) {
  Begin(3);
  for (int at = 0; at < 3; ++at) {
    Store(at, "gone", at);
    Store(at, "stays", 2);
  }
  const auto erased = Erase(Follower(), "gone");
  ASSERT_TRUE(erased.ok()) << erased.status();
  EXPECT_EQ(erased->name(), "gone");
  ASSERT_THAT(erased->nodes(), SizeIs(3));
  std::string before;
  for (const v1::ErasedAnswers& node : erased->nodes()) {
    EXPECT_FALSE(node.has_failure()) << node.failure().message();
    EXPECT_GE(node.hostname(), before) << "by their names";
    before = node.hostname();
    for (int at = 0; at < 3; ++at) {
      if (node.node_id() != id(at).value()) continue;
      EXPECT_EQ(node.answers(), static_cast<uint32_t>(at));
      EXPECT_EQ(node.bytes() > 0, at > 0);
      EXPECT_EQ(Answers(at).turns(), 2u);
    }
  }
  const auto again = Erase(Leader(), "gone");
  ASSERT_TRUE(again.ok()) << again.status();
  for (const v1::ErasedAnswers& node : again->nodes()) {
    EXPECT_EQ(node.answers(), 0u) << "there is nothing left";
  }
}

// Somebody has to erase there by hand: it must not look as if all were gone.
TEST_F(RetentionServiceTest, WhereAnswersMayBeLeftTheNodeIsNamed) {
  Begin(3);
  const int dead = Follower();
  Store(Leader(), "t", 1);
  sim().Crash(dead);
  sim().RunFor(8000);
  const auto erased = Erase(Leader(), "t");
  ASSERT_TRUE(erased.ok()) << erased.status();
  ASSERT_THAT(erased->nodes(), SizeIs(3));
  for (const v1::ErasedAnswers& node : erased->nodes()) {
    EXPECT_FALSE(node.hostname().empty());
    EXPECT_EQ(node.has_failure(), node.node_id() == id(dead).value());
    if (!node.has_failure()) continue;
    EXPECT_EQ(node.failure().code(), reasons::kNodeDead);
    EXPECT_EQ(node.failure().node_id(), id(dead).value());
  }
}

TEST_F(RetentionServiceTest, ANodeThatHangsIsNamedAndTheOthersErase) {
  Begin(3);
  const int hangs = Follower();
  for (int at = 0; at < 3; ++at) Store(at, "t", 1);
  sim().Pause(hangs);
  const auto erased = Erase(Leader(), "t");
  ASSERT_TRUE(erased.ok()) << erased.status();
  for (const v1::ErasedAnswers& node : erased->nodes()) {
    const bool is_it = node.node_id() == id(hangs).value();
    EXPECT_EQ(node.has_failure(), is_it);
    EXPECT_EQ(node.answers(), is_it ? 0u : 1u);
  }
  sim().Resume(hangs);
  sim().RunFor(3000);
}

TEST_F(RetentionServiceTest, WhatNoTenantIsCalledIsRefusedAndNothingGoes) {
  Begin(2);
  Store(0, "t", 1);
  for (const std::string& name : {std::string(), std::string(4096, 't'), std::string("a\nb")}) {
    for (int at = 0; at < 2; ++at) {
      const auto refused = Erase(at, name);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << name.substr(0, 9);
      v1::DropAnswersRequest drop;
      drop.set_tenant(name);
      EXPECT_FALSE(AskAs(1 - at, at, kDropAnswers, drop).ok());
    }
  }
  EXPECT_EQ(Answers(0).turns(), 1u);
  v1::DropAnswersRequest drop;
  drop.set_tenant("t");
  const auto unknown =
      Wait(StartAs({NodeId(std::string(32, '9')), false, "10.9.9.9"}, 0, kDropAnswers, drop));
  EXPECT_FALSE(unknown.ok());
  EXPECT_EQ(Answers(0).turns(), 1u);
}

TEST_F(RetentionServiceTest, WhatIsTooOldGoesWithoutAnybodysAsking) {
  Begin(1);
  parts(0).access->SetKeys({}, {});
  Answers(0).Put("old", {OwnerOfTenant("t"), Text("body"), Text("[]"), 1}, Answers(0).Begin(), 1);
  ASSERT_EQ(Answers(0).turns(), 1u);
  v1::TenantLimits limits;
  limits.set_name("t");
  limits.set_retention_s(60);
  parts(0).access->SetKeys({}, {{"t", limits}});
  sim().RunFor(2000);
  EXPECT_EQ(Answers(0).turns(), 0u);
}

// --- energy --------------------------------------------------------------------------------------

class EnergyServiceTest : public sim::AskedAgents {
 protected:
  absl::StatusOr<v1::GetKeyEnergyResponse> Keys(int at) {
    return Ask(at, kGetKeyEnergy, v1::GetKeyEnergyRequest());
  }
};

TEST_F(EnergyServiceTest, WhoseGatewayCantBeAskedIsNamed) {
  Begin(3);
  const auto all = Keys(Follower());
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->missing(), IsEmpty());
  EXPECT_THAT(all->keys(), IsEmpty()) << "nothing was answered yet";
  const int hangs = Follower();
  sim().Pause(hangs);
  const auto told = Keys(Leader());
  ASSERT_TRUE(told.ok()) << told.status();
  ASSERT_THAT(told->missing(), SizeIs(1));
  EXPECT_EQ(told->missing(0).node_id(), id(hangs).value());
  sim().Resume(hangs);
  sim().RunFor(3000);
}

TEST_F(EnergyServiceTest, AMembersQuestionIsNotPassedOn) {
  Begin(3);
  const int hangs = Follower();
  sim().Pause(hangs);
  int other = 0;
  while (other == hangs || other == Leader()) ++other;
  const auto told = AskAs(Leader(), other, kGetKeyEnergy, v1::GetKeyEnergyRequest());
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(told->missing(), IsEmpty()) << "it told of itself alone";
  sim().Resume(hangs);
  sim().RunFor(3000);
}

// Machines without a power meter have no figures: none are made up, however much is answered.
TEST_F(EnergyServiceTest, WithoutAPowerMeterNothingIsCharged) {
  Begin(1);
  LoadAndWait("m0");
  EnergyService& energy = parts(0).energy;
  for (int request = 0; request < 3000; ++request) {
    energy.Note(
        {absl::StrCat("digest", request, "/user"), "m0", {1000, 1000}, parts(0).dispatcher.Now()});
  }
  sim().RunFor(200'000);
  const auto told = Keys(0);
  ASSERT_TRUE(told.ok());
  for (const v1::KeyEnergy& key : told->keys()) EXPECT_EQ(key.joules(), 0) << key.key_id();
  EXPECT_EQ(energy.Find("m0", sim().EpochOf("m0")), nullptr);
}

}  // namespace
}  // namespace macrame::agentd
