// What one more cable or path would change: said only when it was tried, and only of machines that
// can use it.

#include "planner/cable_advice.h"

#include <gtest/gtest.h>

#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

v1::PlannerNode Mac(const std::string& name, const std::string& chip, uint64_t usable_gib) {
  v1::PlannerNode node = Node(name, usable_gib * kGiB);
  node.set_hostname(name);
  node.set_chip(chip);
  node.set_gpu_cores(60);
  return node;
}

v1::PlanRequest Macs(uint32_t count, const std::string& chip, uint64_t usable_gib,
                     const v1::ModelDescription& model) {
  std::vector<v1::PlannerNode> nodes;
  for (uint32_t i = 1; i <= count; ++i) {
    nodes.push_back(Mac("mac-" + std::to_string(i), chip, usable_gib));
  }
  return Request(model, nodes);
}

// Nodes [0, count) can't reach each other.
void Part(v1::PlanRequest* request) {
  for (int i = 0; i < request->nodes_size(); ++i) {
    for (int j = i + 1; j < request->nodes_size(); ++j) {
      AddLink(request->nodes(i).node_id(), request->nodes(j).node_id(), {},
              v1::LINK_MEDIUM_ETHERNET, request);
    }
  }
}

std::string CableHint(const v1::PlanResult& result) {
  for (const v1::Reason& reason : result.plan().reasons()) {
    if (reason.message().find("RDMA over") == 0) return reason.message();
  }
  return "";
}

// ---- Nothing fits.

TEST(CableAdvice, APathBetweenTwoNodesIsNamedWhenItMakesTheModelFit) {
  v1::PlanRequest request = Macs(2, "Apple M4 Pro", 40, LargeModel("model", 60 * kGiB, 60));
  EXPECT_TRUE(PlanModel(request).has_plan());
  Part(&request);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_NE(result.failure().remedy().find("a cable or network path between mac-1 and mac-2"),
            std::string::npos)
      << result.failure().remedy();
  // It is as said.
  AddLink("mac-1", "mac-2", {"ring"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  EXPECT_TRUE(PlanModel(request).has_plan());
}

TEST(CableAdvice, ThePairIsNamedThatWouldDo) {
  v1::PlanRequest request = Macs(4, "Apple M4 Pro", 24, LargeModel("model", 60 * kGiB, 60));
  // 1, 2 and 3 reach each other, 4 is cut off from 3 alone: with it there would be four.
  AddLink("mac-3", "mac-4", {}, v1::LINK_MEDIUM_ETHERNET, &request);
  *request.mutable_model() = LargeModel("model", 80 * kGiB, 60);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_NE(result.failure().remedy().find("path between mac-3 and mac-4"), std::string::npos)
      << result.failure().remedy();
}

TEST(CableAdvice, NoPathIsPromisedWhereItWouldNotDo) {
  v1::PlanRequest request = Macs(3, "Apple M4 Pro", 24, LargeModel("model", 60 * kGiB, 60));
  Part(&request);  // three are needed: one path is not enough
  EXPECT_EQ(PlanModel(request).failure().remedy().find("path between"), std::string::npos)
      << PlanModel(request).failure().remedy();
  request = Macs(2, "Apple M4 Pro", 24, LargeModel("model", 60 * kGiB, 60));
  EXPECT_EQ(PlanModel(request).failure().remedy().find("path between"), std::string::npos)
      << "they reach each other";
}

TEST(CableAdvice, RanksThatCannotMeetAreRefusedForThatAndNotForMemory) {
  v1::PlanRequest request = Macs(2, "Apple M4 Pro", 40, SmallModel());
  Part(&request);
  request.mutable_placement()->set_world_size(2);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), "TRANSPORT_UNAVAILABLE");
  EXPECT_NE(result.failure().message().find("no path between mac-1 and mac-2"), std::string::npos)
      << result.failure().message();
  EXPECT_NE(result.failure().remedy().find("path between mac-1 and mac-2"), std::string::npos)
      << result.failure().remedy();
}

TEST(CableAdvice, ARequestForRdmaIsToldWhichCableItLacks) {
  v1::PlanRequest request = Macs(2, "Apple M4 Pro", 40, LargeModel("model", 60 * kGiB, 60));
  request.mutable_placement()->set_transport("jaccl");
  EXPECT_NE(
      PlanModel(request).failure().remedy().find("a Thunderbolt 5 cable between mac-1 and mac-2"),
      std::string::npos)
      << PlanModel(request).failure().remedy();
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.set_chip("Apple M3 Max");
  EXPECT_EQ(PlanModel(request).failure().remedy().find("Thunderbolt 5"), std::string::npos);
}

TEST(CableAdvice, WhatFitsOnAnIsolatedPartIsAdvised) {
  // The largest reaches nobody; the other two together hold an 8-bit copy.
  v1::PlanRequest request = Macs(3, "Apple M4 Pro", 40, LargeModel("model", 120 * kGiB, 60));
  request.mutable_nodes(0)->set_memory_usable_bytes(41 * kGiB);
  request.mutable_nodes(0)->set_memory_available_bytes(41 * kGiB);
  AddLink("mac-1", "mac-2", {}, v1::LINK_MEDIUM_ETHERNET, &request);
  AddLink("mac-1", "mac-3", {}, v1::LINK_MEDIUM_ETHERNET, &request);
  EXPECT_NE(PlanModel(request).failure().remedy().find("8-bit copy"), std::string::npos)
      << PlanModel(request).failure().remedy();
}

// ---- It fits and could be faster.

TEST(CableAdvice, ACableThatMakesATcpPlanFasterIsNamedWithItsFigure) {
  v1::PlanRequest request =
      Macs(2, "Apple M3 Ultra", 384, MixtureModel("model", 600'000'000'000, 61));
  const v1::PlanResult before = PlanModel(request);
  ASSERT_EQ(before.plan().backend(), "ring");
  const std::string hint = CableHint(before);
  EXPECT_NE(hint.find("a Thunderbolt 5 cable between mac-1 and mac-2"), std::string::npos) << hint;
  // The figure is what the plan with the cable then says.
  AddMesh({"mac-1", "mac-2"}, &request);
  const v1::PlanResult after = PlanModel(request);
  const double promised = std::stod(hint.substr(hint.find("would give ") + 11));
  EXPECT_NEAR(after.plan().prediction().tokens_per_second(), promised, 0.05);
  EXPECT_GE(after.plan().prediction().tokens_per_second(),
            before.plan().prediction().tokens_per_second() * (1 + kWorthACable));
  EXPECT_EQ(CableHint(after), "");
}

TEST(CableAdvice, ACableThatIsThereWithoutRdmaIsNotAskedForAgain) {
  v1::PlanRequest request =
      Macs(2, "Apple M3 Ultra", 384, MixtureModel("model", 600'000'000'000, 61));
  AddLink("mac-1", "mac-2", {"ring"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  const std::string hint = CableHint(PlanModel(request));
  EXPECT_EQ(hint.find("RDMA over the Thunderbolt cable between mac-1 and mac-2"), 0u) << hint;
}

TEST(CableAdvice, Thunderbolt4IsNeverPromisedRdma) {
  for (const char* chip : {"Apple M1 Ultra", "Apple M2 Ultra", "Apple M3 Max", "Apple M4"}) {
    v1::PlanRequest request = Macs(2, chip, 384, MixtureModel("model", 600'000'000'000, 61));
    EXPECT_EQ(CableHint(PlanModel(request)), "") << chip;
    *request.mutable_nodes(0) = Mac("mac-1", "Apple M3 Ultra", 384);
    EXPECT_EQ(CableHint(PlanModel(request)), "") << "nor when the other end could: " << chip;
  }
}

TEST(CableAdvice, AnUnknownChipIsBelievedWhenItDoesRdmaAlready) {
  v1::PlanRequest request =
      Macs(3, "Apple M9 Ultra", 384, MixtureModel("model", 900'000'000'000, 61));
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.mutable_traits()->set_uneven_tensor(true);
  }
  EXPECT_EQ(CableHint(PlanModel(request)), "");
  AddMesh({"mac-1", "mac-2"}, &request);
  AddMesh({"mac-2", "mac-3"}, &request);
  const std::string hint = CableHint(PlanModel(request));
  EXPECT_NE(hint.find("between mac-1 and mac-3"), std::string::npos) << hint;
}

TEST(CableAdvice, ANodeWhoseSocketsAreTakenGetsNoFurtherCable) {
  v1::PlanRequest request =
      Macs(5, "Apple M3 Ultra", 384, MixtureModel("model", 600'000'000'000, 61));
  AddMesh({"mac-1", "mac-2", "mac-3", "mac-4"}, &request);
  EXPECT_EQ(CableHint(PlanModel(request)), "") << "a mesh of four is as large as it gets";
}

TEST(CableAdvice, APlanOverWifiSaysSo) {
  v1::PlanRequest request = Macs(3, "Apple M2", 5, LargeModel("model", 8 * kGiB, 32));
  const auto warning = [&] {
    const v1::PlanResult result = PlanModel(request);
    EXPECT_TRUE(result.has_plan()) << result.failure().message();
    for (const v1::Reason& reason : result.plan().reasons()) {
      if (reason.message().find("Wi-Fi") != std::string::npos) return reason.message();
    }
    return std::string();
  };
  EXPECT_EQ(warning(), "");
  for (const auto& [a, b] : {std::pair("mac-1", "mac-2"), {"mac-1", "mac-3"}, {"mac-2", "mac-3"}}) {
    AddLink(a, b, {"ring"}, v1::LINK_MEDIUM_WIFI, &request);
  }
  const std::string said = warning();
  EXPECT_NE(said.find("between mac-1 and mac-2"), std::string::npos) << said;
  const double promised = std::stod(said.substr(said.find("would give ") + 11));
  AddLink("mac-1", "mac-2", {"ring"}, v1::LINK_MEDIUM_ETHERNET, &request);
  EXPECT_EQ(warning(), "") << "the wire is the better of the two";
  EXPECT_NEAR(PlanModel(request).plan().prediction().tokens_per_second(), promised, 0.06);
}

TEST(CableAdvice, WhatWasNotAskedForIsNotPraised) {
  v1::PlanRequest request =
      Macs(2, "Apple M3 Ultra", 384, MixtureModel("model", 600'000'000'000, 61));
  request.mutable_placement()->set_transport("ring");
  EXPECT_EQ(CableHint(PlanModel(request)), "");
  request.mutable_placement()->clear_transport();
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_MEMORY);
  EXPECT_EQ(CableHint(PlanModel(request)), "");
  request.mutable_placement()->clear_optimize();
  request.set_brief(true);
  EXPECT_EQ(CableHint(PlanModel(request)), "");
}

}  // namespace
}  // namespace macrame::planner
