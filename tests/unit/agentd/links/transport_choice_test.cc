#include "agentd/links/transport_choice.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

v1::PlanResult PlanOver(const std::vector<std::string>& nodes) {
  v1::PlanResult result;
  v1::Plan& plan = *result.mutable_plan();
  plan.set_world_size(static_cast<uint32_t>(nodes.size()));
  for (const std::string& node : nodes) plan.add_assignments()->set_node_id(node);
  return result;
}

v1::BackendChoice& Add(v1::GroupVerdict& group, const std::string& backend,
                       const std::string& topology, bool usable) {
  v1::BackendChoice& choice = *group.add_choices();
  choice.set_backend(backend);
  choice.set_topology(topology);
  choice.set_usable(usable);
  if (!usable) choice.add_reasons()->set_code("LINK_40G");
  return choice;
}

TEST(TransportChoice, TheFirstThatWorksIsTaken) {
  v1::GroupVerdict group;
  for (const char* node : {"a", "b"}) group.add_node_ids(node);
  Add(group, "jaccl", "mesh", false);
  Add(group, "ring", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b"});
  ChooseTransport(group, "auto", &result);
  EXPECT_EQ(result.plan().backend(), "ring");
  ASSERT_EQ(result.plan().rejections_size(), 1);
  EXPECT_EQ(result.plan().rejections(0).reason().code(), "LINK_40G");
  group.mutable_choices(0)->set_usable(true);
  result = PlanOver({"a", "b"});
  ChooseTransport(group, "", &result);
  EXPECT_EQ(result.plan().backend(), "jaccl");
}

TEST(TransportChoice, ATransportThatCantBeHadIsRefusedWithTheReasons) {
  v1::GroupVerdict group;
  Add(group, "jaccl", "mesh", false);
  Add(group, "ring", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b"});
  ChooseTransport(group, "jaccl", &result);
  EXPECT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), "TRANSPORT_UNAVAILABLE");
  EXPECT_NE(result.failure().message().find("LINK_40G"), std::string::npos);
}

// Groups over verbs are rankd's own.
TEST(TransportChoice, TheSecondEngineHasNoVerbs) {
  v1::GroupVerdict group;
  Add(group, "verbs", "mesh", true);
  Add(group, "ring", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b"});
  result.mutable_plan()->set_engine("mlx-lm");
  ChooseTransport(group, "auto", &result);
  EXPECT_EQ(result.plan().backend(), "ring");
  ASSERT_EQ(result.plan().rejections_size(), 1);
  EXPECT_EQ(result.plan().rejections(0).reason().code(), "ENGINE_LIMIT");
  result.mutable_plan()->clear_rejections();
  ChooseTransport(group, "verbs", &result);
  EXPECT_FALSE(result.has_plan());
  EXPECT_NE(result.failure().message().find("groups of mlx-lm are MLX's"), std::string::npos)
      << result.failure().message();
}

std::vector<std::string> NodesOf(const v1::Plan& plan) {
  std::vector<std::string> nodes;
  for (const v1::Assignment& one : plan.assignments()) nodes.push_back(one.node_id());
  return nodes;
}

TEST(TransportChoice, JacclMeetsAtTheNodeWhoseAddressAllReach) {
  v1::GroupVerdict group;
  for (const char* node : {"b", "a", "c"}) group.add_node_ids(node);
  Add(group, "jaccl", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b", "c"});
  ChooseTransport(group, "", &result);
  EXPECT_EQ(result.plan().backend(), "jaccl");
  EXPECT_EQ(NodesOf(result.plan()), (std::vector<std::string>{"b", "a", "c"}));
}

TEST(TransportChoice, NodesChangePlacesOnlyWithinTheirBudgets) {
  v1::GroupVerdict group;
  for (const char* node : {"a", "c", "b", "d"}) group.add_node_ids(node);
  Add(group, "verbs", "ring", true);
  Add(group, "ring", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b", "c", "d"});
  for (v1::Assignment& one : *result.mutable_plan()->mutable_assignments()) {
    one.mutable_need()->set_total_bytes(10);
    one.set_budget_bytes(one.node_id() == "c" ? 10 : 100);
  }
  result.mutable_plan()->mutable_assignments(0)->mutable_need()->set_total_bytes(50);
  v1::PlanResult second = result;
  ChooseTransport(group, "", &result);
  EXPECT_EQ(result.plan().backend(), "verbs");
  EXPECT_NE(NodesOf(result.plan())[0], "c") << "it could not hold 50 bytes";
  for (v1::Assignment& one : *second.mutable_plan()->mutable_assignments()) {
    one.mutable_need()->set_total_bytes(one.budget_bytes());
  }
  second.mutable_plan()->mutable_assignments(3)->set_budget_bytes(20);
  second.mutable_plan()->mutable_assignments(3)->mutable_need()->set_total_bytes(20);
  ChooseTransport(group, "", &second);
  EXPECT_EQ(second.plan().backend(), "ring");
  EXPECT_EQ(NodesOf(second.plan()), (std::vector<std::string>{"a", "b", "c", "d"}));
}

TEST(TransportChoice, ARingOfCablesPutsTheRanksInItsOrder) {
  v1::GroupVerdict group;
  for (const char* node : {"a", "c", "b"}) group.add_node_ids(node);
  Add(group, "jaccl", "ring", true);
  Add(group, "ring", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b", "c"});
  ChooseTransport(group, "ring", &result);
  EXPECT_EQ(NodesOf(result.plan()), (std::vector<std::string>{"a", "b", "c"}));
  result = PlanOver({"b", "a", "c"});
  ChooseTransport(group, "", &result);
  EXPECT_EQ(NodesOf(result.plan())[0], "a") << "jaccl meets at the first of the ring";
  EXPECT_EQ(result.plan().backend(), "jaccl");
  EXPECT_EQ(result.plan().backend_topology(), "ring");
}

TEST(TransportChoice, OneRankNeedsNone) {
  v1::PlanResult result = PlanOver({"a"});
  ChooseTransport(v1::GroupVerdict(), "jaccl", &result);
  EXPECT_EQ(result.plan().backend(), "single");
}

TEST(TransportChoice, BeforeAnyLinkIsKnownTheRingIsThere) {
  v1::PlanResult result = PlanOver({"a", "b"});
  ChooseTransport(v1::GroupVerdict(), "auto", &result);
  EXPECT_EQ(result.plan().backend(), "ring");
}

TEST(TransportChoice, StagesOfTensorGroupsGoWhereAGroupCanBeDivided) {
  v1::GroupVerdict group;
  for (const char* node : {"d", "c", "b", "a"}) group.add_node_ids(node);
  Add(group, "jaccl", "mesh", true);
  Add(group, "verbs", "ring", true);
  Add(group, "ring", "mesh", true);
  v1::PlanResult result = PlanOver({"a", "b", "c", "d"});
  result.mutable_plan()->set_tp(2);
  result.mutable_plan()->set_pp(2);
  ChooseTransport(group, "", &result);
  EXPECT_EQ(result.plan().backend(), "ring");
  EXPECT_EQ(NodesOf(result.plan()), (std::vector<std::string>{"a", "b", "c", "d"}))
      << "no node changes its stage";
}

}  // namespace
}  // namespace macrame::agentd
