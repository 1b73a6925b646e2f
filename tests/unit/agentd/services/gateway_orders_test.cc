#include "agentd/services/gateway_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What the page of the dashboard orders, at the agent whose page it is.
class GatewayOrdersTest : public sim::AskedAgents {
 protected:
  OrderAnswer Give(int at, const ClusterOrder& order, const Orderer& who) {
    auto told = std::make_shared<std::optional<OrderAnswer>>();
    parts(at).gateway_orders.Give(who, order, [told](OrderAnswer answer) {
      EXPECT_FALSE(told->has_value()) << "answered twice";
      *told = std::move(answer);
    });
    RunUntil([&] { return told->has_value(); }, 60'000);
    return told->has_value() ? **told : OrderAnswer(absl::DeadlineExceededError("no answer"));
  }
  static Orderer Page() {
    Orderer who;
    who.address = "127.0.0.1";
    return who;
  }
  static Orderer WithKey(const std::string& key_id) {
    Orderer who;
    who.key_id = key_id;
    who.address = "10.0.0.77";
    return who;
  }
  std::vector<std::string> Audited(int at) {
    const auto read = Ask(at, kReadAudit, v1::ReadAuditRequest());
    return {read->lines().begin(), read->lines().end()};
  }
};

TEST_F(GatewayOrdersTest, AnOrderOfAnyPageReachesTheCoordinatorAndIsAuditedAsThatPages) {
  Begin(2);
  const int at = Follower();
  v1::SetCordonRequest cordon;
  cordon.set_node_id(id(Leader()).value());
  cordon.set_order(v1::CORDON_ORDER_CORDON);
  const OrderAnswer answer = Give(at, cordon, WithKey("0123456789ab"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_NE(desired(Leader()).FindCordon(id(Leader()).value()), nullptr);
  bool is_named = false;
  for (const std::string& line : Audited(at)) {
    is_named = is_named || (line.find("key 0123456789ab") != std::string::npos &&
                            line.find("10.0.0.77") != std::string::npos &&
                            line.find("\"ok\"") != std::string::npos);
  }
  EXPECT_TRUE(is_named);
}

TEST_F(GatewayOrdersTest, WhatIsRefusedIsToldAndAuditedWithItsCode) {
  Begin(2);
  const int at = Follower();
  v1::UnloadModelRequest unload;
  unload.set_name("m1");
  const OrderAnswer answer = Give(at, unload, Page());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(ReasonOf(answer.status()).code(), reasons::kModelNotLoaded);
  bool is_named = false;
  for (const std::string& line : Audited(at)) {
    is_named = is_named || (line.find("own page") != std::string::npos &&
                            line.find(std::string(reasons::kModelNotLoaded)) != std::string::npos);
  }
  EXPECT_TRUE(is_named);
}

// The page is answered at the first word of a load; the audit log at its end.
TEST_F(GatewayOrdersTest, ALoadIsAnsweredAtItsFirstWordAndAuditedAtItsEnd) {
  Begin(2);
  const int at = Follower();
  v1::LoadModelRequest load;
  load.set_name_or_path("m1");
  const OrderAnswer answer = Give(at, load, Page());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(sim().IsReady("m1"));
  const auto has_line = [&] {
    for (const std::string& line : Audited(at)) {
      if (line.find("own page") != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_FALSE(has_line());
  ASSERT_TRUE(RunUntil([&] { return sim().IsReady("m1"); }, 10'000));
  sim().RunFor(1000);
  EXPECT_TRUE(has_line());
  load.set_name_or_path("m9");
  EXPECT_EQ(ReasonOf(Give(at, load, Page()).status()).code(), reasons::kModelNotFound);
}

TEST_F(GatewayOrdersTest, SoManyLoadsAreFollowedAndNoMore) {
  Begin(2);
  v1::LoadModelRequest load;
  load.set_name_or_path("m1");
  load.mutable_placement()->set_world_size(1);
  const int at = Follower();
  std::vector<std::shared_ptr<std::optional<OrderAnswer>>> answers;
  for (size_t i = 0; i <= kFollowedLoadsMax; ++i) {
    auto told = std::make_shared<std::optional<OrderAnswer>>();
    load.set_deployment_name(absl::StrCat("chat", i));
    parts(at).gateway_orders.Give(Page(), load,
                                  [told](OrderAnswer answer) { *told = std::move(answer); });
    answers.push_back(told);
  }
  ASSERT_TRUE(answers.back()->has_value()) << "refused at once";
  EXPECT_EQ(ReasonOf((*answers.back())->status()).code(), reasons::kNotReady);
  EXPECT_FALSE(answers.front()->has_value());
  sim().RunFor(20'000);
  for (const auto& told : answers) EXPECT_TRUE(told->has_value());
}

TEST_F(GatewayOrdersTest, WhatOnlyReadsHasNoLine) {
  Begin(1);
  v1::PlanModelRequest plan;
  plan.set_name_or_path("m0");
  ASSERT_TRUE(Give(0, plan, Page()).ok());
  ASSERT_TRUE(Give(0, v1::ListKeysRequest(), Page()).ok());
  ASSERT_TRUE(Give(0, v1::ReadAuditRequest(), Page()).ok());
  for (const std::string& line : Audited(0)) EXPECT_THAT(line, Not(HasSubstr("own page")));
}

}  // namespace
}  // namespace macrame::agentd
