// A plan in force comes from a state that older agents wrote: whatever it says, the plan that comes
// out is whole, and fits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/plan_choice.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<v1::PlannerNode> Nodes(int count, uint64_t usable_bytes, bool uneven = true) {
  std::vector<v1::PlannerNode> nodes;
  for (int i = 0; i < count; ++i) {
    nodes.push_back(Node(absl::StrCat("node-", i), usable_bytes));
    nodes.back().mutable_traits()->set_uneven_tensor(uneven);
    nodes.back().mutable_traits()->set_whole_experts(uneven);
    nodes.back().mutable_traits()->set_tensor_in_pipeline(true);
  }
  return nodes;
}

// Each slice of each layer once, on nodes of the request, within their budgets.
void CheckWhole(const v1::PlanRequest& request, const v1::Plan& plan) {
  ASSERT_EQ(static_cast<uint64_t>(plan.assignments_size()), uint64_t{plan.tp()} * plan.pp());
  std::set<std::string> known, used;
  for (const v1::PlannerNode& node : request.nodes()) known.insert(node.node_id());
  std::map<uint32_t, double> shares;  // by layer
  uint32_t rank = 0;
  for (const v1::Assignment& part : plan.assignments()) {
    EXPECT_EQ(part.rank(), rank++);
    EXPECT_EQ(known.count(part.node_id()), 1u) << part.node_id();
    EXPECT_TRUE(used.insert(part.node_id()).second) << "two ranks on " << part.node_id();
    EXPECT_LE(part.need().total_bytes(), part.budget_bytes());
    const double share = part.slice_count() == 0
                             ? 1.0 / plan.tp()
                             : 1.0 * (part.slice_end() - part.slice_begin()) / part.slice_count();
    EXPECT_GT(share, 0);
    ASSERT_LE(part.layer_end(), request.model().layer_count());
    for (uint32_t layer = part.layer_begin(); layer < part.layer_end(); ++layer) {
      shares[layer] += share;
    }
  }
  EXPECT_EQ(shares.size(), request.model().layer_count());
  for (const auto& [layer, share] : shares) EXPECT_NEAR(share, 1, 1e-9) << "layer " << layer;
}

// One field of one part becomes some other number.
void Spoil(std::mt19937_64& random, v1::Plan* plan) {
  constexpr uint32_t kNumbers[] = {0, 1, 2, 3, 5, 7, 24, 1000, 1u << 31, ~0u};
  const uint32_t number = kNumbers[random() % std::size(kNumbers)];
  const int parts = plan->assignments_size();
  v1::Assignment unused;
  v1::Assignment& part =
      parts == 0 ? unused : *plan->mutable_assignments(static_cast<int>(random() % parts));
  switch (random() % 14) {
    case 0:
      return plan->set_tp(number);
    case 1:
      return plan->set_pp(number);
    case 2:
      return plan->set_backend(random() % 2 == 0 ? "jaccl" : "carrier pigeon");
    case 3:
      return plan->set_backend_topology(random() % 2 == 0 ? "ring" : "tree");
    case 4:
      return part.set_layer_begin(number);
    case 5:
      return part.set_layer_end(number);
    case 6:
      return part.set_slice_begin(number);
    case 7:
      return part.set_slice_end(number);
    case 8:
      return part.set_slice_count(number);
    case 9:
      return part.set_whole_experts(!part.whole_experts());
    case 10:
      return part.set_node_id(absl::StrCat("node-", number));
    case 11:
      return plan->add_assignments()->set_node_id("node-0");
    case 12:
      return parts == 0 ? void() : plan->mutable_assignments()->RemoveLast();
    default:
      if (parts > 1) plan->mutable_assignments()->SwapElements(0, parts - 1);
  }
}

TEST(PlanInForce, HoweverItIsSpoiltThePlanIsWholeAndFits) {
  int plans = 0;
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const v1::ModelDescription model =
        seed % 2 == 0 ? LargeModel("m", 20 * kGiB, 24) : MixtureModel("m", 20 * kGiB, 24);
    v1::PlanRequest request = Request(model, Nodes(3, 24 * kGiB, seed % 3 > 0));
    if (seed % 5 == 0) AddMesh({"node-0", "node-1", "node-2"}, &request);
    request.set_brief(true);
    request.mutable_placement()->set_world_size(static_cast<uint32_t>(1 + random() % 3));
    const v1::PlanResult before = PlanModel(request);
    if (!before.has_plan()) continue;
    *request.mutable_current() = before.plan();
    for (uint64_t times = random() % 4; times > 0; --times) {
      Spoil(random, request.mutable_current());
    }
    const v1::PlanResult result = PlanModel(request);
    ASSERT_TRUE(result.has_plan()) << "it fits, whatever is in force";
    EXPECT_EQ(result.plan().world_size(), request.placement().world_size());
    CheckWhole(request, result.plan());
    if (HasFatalFailure()) return;
    ++plans;
  }
  EXPECT_GT(plans, 900);
}

TEST(PlanInForce, IsKeptByteForByteInItsRanksWhileItIsAsGoodAsAny) {
  for (const uint32_t ranks : {1u, 2u, 3u}) {
    v1::PlanRequest request = Request(LargeModel("m", 20 * kGiB, 24), Nodes(3, 24 * kGiB));
    request.mutable_placement()->set_world_size(ranks);
    *request.mutable_current() = PlanModel(request).plan();
    // Where a fresh plan would take the nodes in another order.
    for (v1::PlannerNode& node : *request.mutable_nodes()) {
      if (node.node_id() != "node-2") continue;
      node.set_memory_usable_bytes(26 * kGiB);
      node.set_memory_available_bytes(26 * kGiB);
    }
    const v1::PlanResult again = PlanModel(request);
    ASSERT_TRUE(again.has_plan());
    ASSERT_EQ(again.plan().assignments_size(), request.current().assignments_size());
    for (int i = 0; i < again.plan().assignments_size(); ++i) {
      EXPECT_EQ(again.plan().assignments(i).node_id(), request.current().assignments(i).node_id());
      EXPECT_EQ(again.plan().assignments(i).layer_end(),
                request.current().assignments(i).layer_end());
    }
    EXPECT_THAT(again.plan().reasons(0).message(), HasSubstr("it is where it runs now"));
  }
}

TEST(PlanInForce, IsLeftForWhatTheOptionsAskNow) {
  v1::PlanRequest request = Request(LargeModel("m", 20 * kGiB, 24), Nodes(3, 24 * kGiB));
  request.mutable_placement()->set_world_size(2);
  *request.mutable_current() = PlanModel(request).plan();
  const auto nodes_now = [&] {
    std::set<std::string> ids;
    const v1::PlanResult result = PlanModel(request);
    for (const v1::Assignment& part : result.plan().assignments()) ids.insert(part.node_id());
    return ids;
  };
  const std::string entry = request.current().assignments(0).node_id();
  request.mutable_placement()->add_excluded_node_ids(entry);
  EXPECT_EQ(nodes_now().count(entry), 0u) << "excluded";
  EXPECT_EQ(nodes_now().size(), 2u);
  request.mutable_placement()->clear_excluded_node_ids();
  request.mutable_placement()->set_world_size(3);
  EXPECT_EQ(nodes_now().size(), 3u) << "another number of ranks";
}

// ---- The words.

std::string AllReasons(const v1::PlanResult& result) {
  std::string all;
  for (const v1::Reason& reason : result.plan().reasons()) {
    absl::StrAppend(&all, reason.message(), " | ");
  }
  return all;
}

TEST(PlanWords, SayWhyThisManyRanks) {
  struct Case {
    int nodes;
    uint64_t model_gib;
    uint32_t asked;
    v1::Optimize optimize;
    const char* says;
  };
  const Case cases[] = {
      {3, 20, 1, v1::OPTIMIZE_LATENCY, "1 rank was asked for"},
      {3, 20, 3, v1::OPTIMIZE_LATENCY, "3 ranks were asked for"},
      {2, 40, 0, v1::OPTIMIZE_LATENCY, "2 is the fewest ranks that fit"},
      {3, 20, 0, v1::OPTIMIZE_MEMORY, "3 ranks leave the fullest node the most memory"},
      {3, 4, 0, v1::OPTIMIZE_LATENCY, "it fits on one node, and more nodes would not make a token"},
  };
  for (const Case& each : cases) {
    v1::PlanRequest request =
        Request(LargeModel("m", each.model_gib * kGiB, 24), Nodes(each.nodes, 24 * kGiB));
    request.mutable_placement()->set_world_size(each.asked);
    request.mutable_placement()->set_optimize(each.optimize);
    const v1::PlanResult result = PlanModel(request);
    ASSERT_TRUE(result.has_plan()) << each.says;
    EXPECT_THAT(AllReasons(result), HasSubstr(each.says));
    EXPECT_THAT(AllReasons(result), HasSubstr("of what it can give"));
  }
}

TEST(PlanWords, ARecoveringDeploymentSaysWhatItWasAskedForAndHas) {
  v1::PlanRequest request = Request(LargeModel("m", 20 * kGiB, 24), Nodes(1, 24 * kGiB));
  request.mutable_placement()->set_world_size(2);
  EXPECT_FALSE(PlanModel(request).has_plan());
  request.set_recovering(true);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan());
  EXPECT_THAT(AllReasons(result),
              HasSubstr("2 ranks were asked for, which are not to be had on the 1 node there now; "
                        "1 serves instead"));
}

TEST(PlanWords, EveryShapeUpToEightRanksIsTakenOrExplained) {
  for (const int count : {1, 2, 4, 7, 9}) {
    const v1::PlanResult result =
        PlanModel(Request(LargeModel("m", 20 * kGiB, 24), Nodes(count, 24 * kGiB)));
    ASSERT_TRUE(result.has_plan());
    std::set<std::string> told;
    for (const v1::Rejection& rejection : result.rejections()) {
      EXPECT_TRUE(told.insert(rejection.subject()).second) << rejection.subject() << " twice";
      EXPECT_FALSE(rejection.reason().message().empty());
    }
    const v1::Plan& plan = result.plan();
    told.insert(ShapeName({plan.tp(), plan.pp()}));
    for (uint32_t ranks = 1; ranks <= std::min<uint32_t>(8, static_cast<uint32_t>(count));
         ++ranks) {
      EXPECT_EQ(told.count(ShapeName({1, ranks})), 1u) << ShapeName({1, ranks});
      EXPECT_EQ(told.count(ShapeName({ranks, 1})), 1u) << ShapeName({ranks, 1});
    }
  }
}

TEST(PlanWords, ABriefPlanIsTheSamePlanWithoutWhatWasNotTaken) {
  for (uint64_t gib = 5; gib <= 65; gib += 15) {
    v1::PlanRequest request = Request(LargeModel("m", gib * kGiB, 24), Nodes(3, 24 * kGiB));
    const v1::PlanResult whole = PlanModel(request);
    request.set_brief(true);
    const v1::PlanResult brief = PlanModel(request);
    ASSERT_EQ(whole.has_plan(), brief.has_plan()) << gib;
    EXPECT_EQ(brief.plan().rejections_size(), 0);
    EXPECT_EQ(brief.failure().message(), whole.failure().message());
    ASSERT_EQ(brief.plan().assignments_size(), whole.plan().assignments_size());
    for (int i = 0; i < brief.plan().assignments_size(); ++i) {
      EXPECT_EQ(brief.plan().assignments(i).SerializeAsString(),
                whole.plan().assignments(i).SerializeAsString());
    }
    EXPECT_EQ(brief.plan().prediction().SerializeAsString(),
              whole.plan().prediction().SerializeAsString());
  }
}

TEST(PlanWords, ALongContextSaysWhatIsLeftOfTheSpeedAtItsEnd) {
  v1::PlanRequest request = Request(LargeModel("m", 10 * kGiB, 24), Nodes(1, 24 * kGiB));
  request.mutable_placement()->set_context_length(8191);
  EXPECT_THAT(AllReasons(PlanModel(request)), Not(HasSubstr("full, one user would get")));
  request.mutable_placement()->set_context_length(8192);
  EXPECT_THAT(AllReasons(PlanModel(request)),
              HasSubstr("with its context of 8192 full, one user would get"));
}

}  // namespace
}  // namespace macrame::planner
