// The context that a deployment gets when it names none.

#include "agentd/cores/default_context.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace macrame::agentd {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

class DefaultContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    request_.mutable_model()->set_context_length_max(131072);
    v1::PlannerNode& node = *request_.add_nodes();
    node.set_node_id("a");
    node.set_memory_usable_bytes(64 * kGiB);
    node.set_memory_available_bytes(64 * kGiB);
    plain_ = Plan(request_);
  }
  // 4096 positions take 1 GiB, the rest 10 GiB.
  v1::PlanResult Plan(const v1::PlanRequest& request) {
    ++asked_;
    v1::PlanResult result;
    const uint32_t named = request.placement().context_length();
    v1::Plan& plan = *result.mutable_plan();
    plan.set_world_size(named > longest_on_one_ ? 2 : 1);
    plan.set_context_length(named == 0 ? 4096 : named);
    v1::Assignment& one = *plan.add_assignments();
    one.set_node_id("a");
    one.mutable_need()->set_kv_cache_bytes(plan.context_length() / 4096 * kGiB);
    one.mutable_need()->set_total_bytes(one.need().kv_cache_bytes() + 10 * kGiB);
    return result;
  }
  uint32_t Context() {
    return PlanWithLongerContext(request_, plain_,
                                 [this](const v1::PlanRequest& request) { return Plan(request); })
        .plan()
        .context_length();
  }

  v1::PlanRequest request_;
  v1::PlanResult plain_;
  uint32_t longest_on_one_ = ~0u;
  int asked_ = 0;
};

TEST_F(DefaultContextTest, MemoryThatIsFreeIsUsedUpToAQuarter) { EXPECT_EQ(Context(), 65536u); }

TEST_F(DefaultContextTest, TheModelsOwnContextIsTheMost) {
  request_.mutable_model()->set_context_length_max(16384);
  EXPECT_EQ(Context(), 16384u);
  request_.mutable_model()->set_context_length_max(2048);
  EXPECT_EQ(Context(), 4096u) << "as planned";
  request_.mutable_model()->set_context_length_max(0);
  EXPECT_EQ(Context(), 4096u) << "not known";
}

TEST_F(DefaultContextTest, WhatOthersHoldIsNotTaken) {
  request_.mutable_nodes(0)->set_memory_reserved_bytes(48 * kGiB);
  EXPECT_EQ(Context(), 16384u);
  request_.mutable_nodes(0)->set_memory_reserved_bytes(52 * kGiB);
  EXPECT_EQ(Context(), 8192u);
  request_.mutable_nodes(0)->set_memory_reserved_bytes(80 * kGiB);
  EXPECT_EQ(Context(), 4096u);
}

TEST_F(DefaultContextTest, NoFurtherRankIsTakenForIt) {
  longest_on_one_ = 20000;
  EXPECT_EQ(Context(), 16384u);
}

TEST_F(DefaultContextTest, AContextThatIsNamedStays) {
  request_.mutable_placement()->set_context_length(4096);
  asked_ = 0;
  EXPECT_EQ(Context(), 4096u);
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace macrame::agentd
