// Laws between plans of requests that mean the same, or of which one has more: what is left out is
// as if it were not there, what is added never hurts, and the choice is the one that is promised.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <regex>

#include "absl/strings/str_cat.h"
#include "planner/constraints.h"
#include "planner/plan_choice.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

struct Picker {
  std::mt19937_64 random;
  uint32_t operator()(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  }
};

// Up to six nodes, for which nothing is left out of the search, of engines that can do the same.
v1::PlanRequest RandomRequest(uint64_t seed) {
  Picker pick{std::mt19937_64(seed)};
  std::vector<v1::PlannerNode> nodes;
  const bool uneven = pick(0, 1) == 0;
  for (uint32_t i = pick(2, 5); i > 0; --i) {
    v1::PlannerNode node = Node(absl::StrCat("node-", i), pick(6, 48) * kGiB);
    node.set_chip(pick(0, 1) == 0 ? "Apple M4 Max" : "Apple M3 Ultra");
    if (pick(0, 4) == 0) node.set_gpu_cores(0);
    node.mutable_traits()->set_uneven_tensor(uneven);
    node.mutable_traits()->set_whole_experts(uneven);
    node.mutable_traits()->set_tensor_in_pipeline(true);
    nodes.push_back(std::move(node));
  }
  const uint64_t bytes = pick(3, 70) * kGiB;
  const uint32_t layers = pick(2, 14);
  v1::PlanRequest request = Request(
      pick(0, 1) == 0 ? LargeModel("m", bytes, layers) : MixtureModel("m", bytes, layers), nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = i + 1; j < nodes.size(); ++j) {
      if (pick(0, 1) == 0) continue;
      std::vector<std::string> backends;
      if (pick(0, 5) > 0) backends.emplace_back("ring");
      if (pick(0, 1) == 0) backends.emplace_back("jaccl");
      AddLink(nodes[i].node_id(), nodes[j].node_id(), backends,
              static_cast<v1::LinkMedium>(pick(1, 3)), &request);
    }
  }
  request.mutable_placement()->set_optimize(static_cast<v1::Optimize>(seed % 3));
  return request;
}

// Who holds what, by node; and how fast.
std::map<std::string, std::string> PartsOf(const v1::PlanResult& result) {
  std::map<std::string, std::string> parts;
  for (const v1::Assignment& part : result.plan().assignments()) {
    parts[part.node_id()] = absl::StrCat(part.layer_begin(), "..", part.layer_end(), " slices ",
                                         part.slice_begin(), "..", part.slice_end(), " rank ",
                                         part.rank(), " needs ", part.need().total_bytes());
  }
  return parts;
}

void Remove(int index, v1::PlanRequest* request) {
  request->mutable_nodes()->DeleteSubrange(index, 1);
}

TEST(PlanLaws, ANodeThatIsLeftOutIsAsIfItWereNotThere) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    const int out = static_cast<int>(seed / 3 % static_cast<uint64_t>(request.nodes_size()));
    v1::PlanRequest without = request, excluded = request, dead = request, named = request,
                    other = request, full = request;
    Remove(out, &without);
    excluded.mutable_placement()->add_excluded_node_ids(request.nodes(out).hostname());
    dead.mutable_nodes(out)->set_schedulable(false);
    other.mutable_nodes(out)->set_tenant("law");
    full.mutable_nodes(out)->set_memory_pressure(v1::MEMORY_PRESSURE_CRITICAL);
    for (const v1::PlannerNode& node : without.nodes()) {
      named.mutable_placement()->add_node_ids(node.node_id());
    }
    const v1::PlanResult plain = PlanModel(without);
    for (const v1::PlanRequest* one : {&excluded, &dead, &named, &other, &full}) {
      // Where memory is spared, processors are taken only when they are asked for.
      if (one == &named && request.placement().optimize() == v1::OPTIMIZE_MEMORY) continue;
      const v1::PlanResult result = PlanModel(*one);
      ASSERT_EQ(result.has_plan(), plain.has_plan()) << result.failure().message();
      EXPECT_EQ(PartsOf(result), PartsOf(plain));
      EXPECT_EQ(result.plan().prediction().ShortDebugString(),
                plain.plan().prediction().ShortDebugString());
    }
  }
}

TEST(PlanLaws, OnlyWhatANodeCanGiveCountsAndNotWhyItIsNoMore) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    v1::PlanRequest reserved = request, busy = request, silent = request;
    for (int i = 0; i < request.nodes_size(); ++i) {
      const uint64_t usable = request.nodes(i).memory_usable_bytes();
      reserved.mutable_nodes(i)->set_memory_usable_bytes(usable + 5 * kGiB);
      reserved.mutable_nodes(i)->set_memory_available_bytes(usable + 9 * kGiB);
      reserved.mutable_nodes(i)->set_memory_reserved_bytes(5 * kGiB);
      busy.mutable_nodes(i)->set_memory_usable_bytes(usable + 7 * kGiB);
      silent.mutable_nodes(i)->set_memory_available_bytes(0);
    }
    const v1::PlanResult plain = PlanModel(request);
    for (const v1::PlanRequest* one : {&reserved, &busy, &silent}) {
      EXPECT_EQ(PartsOf(PlanModel(*one)), PartsOf(plain));
    }
  }
}

TEST(PlanLaws, WhatIsBestDoesNotDecideWhetherItFits) {
  int fit = 0, none = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = RandomRequest(seed);
    const bool fits = PlanModel(request).has_plan();
    ++(fits ? fit : none);
    for (const v1::Optimize goal :
         {v1::OPTIMIZE_LATENCY, v1::OPTIMIZE_THROUGHPUT, v1::OPTIMIZE_MEMORY}) {
      request.mutable_placement()->set_optimize(goal);
      EXPECT_EQ(PlanModel(request).has_plan(), fits) << v1::Optimize_Name(goal);
    }
    // Nor does what is left for estimates, beyond its own order.
    request.mutable_placement()->set_strictness(v1::STRICTNESS_TIGHT);
    EXPECT_GE(PlanModel(request).has_plan(), fits) << "tight";
    request.mutable_placement()->set_strictness(v1::STRICTNESS_SAFE);
    EXPECT_LE(PlanModel(request).has_plan(), fits) << "safe";
  }
  EXPECT_GT(fit, 150);
  EXPECT_GT(none, 40);
}

TEST(PlanLaws, AFurtherNodeOrCableNeverTurnsAFitIntoNone) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    if (!PlanModel(request).has_plan()) continue;
    v1::PlanRequest more = request;
    v1::PlannerNode& added = *more.add_nodes();
    added = Node("added", (1 + seed % 40) * kGiB);
    *added.mutable_traits() = request.nodes(0).traits();
    EXPECT_TRUE(PlanModel(more).has_plan()) << "a node more";
    v1::PlanRequest cabled = request;
    AddLink(request.nodes(0).node_id(), request.nodes(1).node_id(), {"ring", "jaccl"},
            v1::LINK_MEDIUM_THUNDERBOLT, &cabled);
    EXPECT_TRUE(PlanModel(cabled).has_plan()) << "a cable more";
  }
}

// Of an older engine, say: the others cut as unevenly as before.
TEST(PlanLaws, AFurtherNodeThatCanDoLessTakesNothingFromTheOthers) {
  int split = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = RandomRequest(seed);
    request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
    request.mutable_placement()->set_world_size(static_cast<uint32_t>(2 + seed % 3));
    const v1::PlanResult before = PlanModel(request);
    if (!before.has_plan()) continue;
    ++split;
    v1::PlannerNode& added = *request.add_nodes();
    added = Node("added", (1 + seed % 40) * kGiB);
    const v1::PlanResult after = PlanModel(request);
    ASSERT_TRUE(after.has_plan()) << after.failure().message();
    if (request.placement().optimize() != v1::OPTIMIZE_LATENCY) continue;
    EXPECT_GE(after.plan().prediction().tokens_per_second(),
              before.plan().prediction().tokens_per_second() * (1 - 1e-4));
  }
  EXPECT_GT(split, 60);
}

TEST(PlanLaws, TheOrderOfNodesMakesNothingFasterOrSlower) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    v1::PlanRequest shuffled = request;
    std::mt19937_64 random(seed);
    for (int i = shuffled.nodes_size() - 1; i > 0; --i) {
      shuffled.mutable_nodes()->SwapElements(i, static_cast<int>(random() % (i + 1)));
    }
    for (int i = shuffled.links_size() - 1; i > 0; --i) {
      shuffled.mutable_links()->SwapElements(i, static_cast<int>(random() % (i + 1)));
    }
    const v1::PlanResult before = PlanModel(request), after = PlanModel(shuffled);
    ASSERT_EQ(before.has_plan(), after.has_plan());
    if (!before.has_plan()) continue;
    EXPECT_EQ(before.plan().tp(), after.plan().tp());
    EXPECT_EQ(before.plan().pp(), after.plan().pp());
    EXPECT_EQ(before.plan().backend(), after.plan().backend());
    if (request.placement().optimize() != v1::OPTIMIZE_LATENCY) continue;
    EXPECT_NEAR(before.plan().prediction().tokens_per_second(),
                after.plan().prediction().tokens_per_second(),
                1e-4 * before.plan().prediction().tokens_per_second());
  }
}

// What can be as it was asked for is so; what can't be is served where it can be at all.
TEST(PlanLaws, RecoveringChangesNoPlanThatIsToBeHad) {
  int same = 0, softened = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = RandomRequest(seed);
    request.mutable_placement()->set_world_size(static_cast<uint32_t>(1 + seed / 3 % 4));
    request.mutable_placement()->set_parallelism(seed % 2 == 0 ? v1::PARALLELISM_TENSOR
                                                               : v1::PARALLELISM_PIPELINE);
    const v1::PlanResult asked = PlanModel(request);
    v1::PlanRequest free = request;
    free.mutable_placement()->clear_world_size();
    free.mutable_placement()->clear_parallelism();
    request.set_recovering(true);
    const v1::PlanResult recovered = PlanModel(request);
    if (asked.has_plan()) {
      ++same;
      EXPECT_EQ(PartsOf(recovered), PartsOf(asked));
      continue;
    }
    EXPECT_EQ(recovered.has_plan(), PlanModel(free).has_plan());
    softened += recovered.has_plan() ? 1 : 0;
  }
  EXPECT_GT(same, 60);
  EXPECT_GT(softened, 30);
}

TEST(PlanLaws, ALaptopIsSparedWhereThatCostsLittleAndNeverKeepsAModelOut) {
  int spared = 0;
  for (uint64_t seed = 0; seed < 900; seed += 3) {  // one user's speed
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    v1::PlanRequest carried = request;
    for (int i = 0; i < request.nodes_size(); i += 2)
      carried.mutable_nodes(i)->set_is_portable(true);
    const v1::PlanResult desk = PlanModel(request), lap = PlanModel(carried);
    ASSERT_EQ(lap.has_plan(), desk.has_plan());
    if (!lap.has_plan()) continue;
    const double before = desk.plan().prediction().tokens_per_second();
    EXPECT_GE(lap.plan().prediction().tokens_per_second(), before * 0.9 * (1 - 1e-9));
    if (PartsOf(lap) == PartsOf(desk)) continue;
    ++spared;
    for (const v1::Assignment& part : lap.plan().assignments()) {
      for (const v1::PlannerNode& node : carried.nodes()) {
        if (node.node_id() != part.node_id() || !node.is_portable()) continue;
        EXPECT_LE(part.need().total_bytes(), FullEnoughBytes(node, BudgetBytes(node)));
      }
    }
  }
  EXPECT_GT(spared, 5);
}

// "tensor parallel over 2 in each of 3 stages" are six.
uint32_t RanksOf(const std::string& subject) {
  if (subject == "one rank") return 1;
  uint32_t ranks = 1;
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(subject.begin(), subject.end(), number), end; it != end; ++it) {
    ranks *= static_cast<uint32_t>(std::stoul(it->str()));
  }
  return ranks;
}

// As plan_choice.h says: within what predictions err of the fastest, and no more ranks than that.
TEST(PlanLaws, NotMoreRanksAreTakenThanFewerWouldDo) {
  int chosen_slower = 0, several = 0;
  for (uint64_t seed = 0; seed < 900; seed += 3) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    const v1::PlanResult result = PlanModel(request);
    if (!result.has_plan()) continue;
    const double taken = result.plan().prediction().tokens_per_second();
    double fastest = taken;
    for (const v1::Rejection& rejection : result.rejections()) {
      fastest = std::max(fastest, rejection.prediction().tokens_per_second());
    }
    EXPECT_GE(taken * (1 + kWorthwhileGain) * (1 + 1e-9), fastest);
    chosen_slower += taken < fastest ? 1 : 0;
    several += result.plan().world_size() > 1 ? 1 : 0;
    for (const v1::Rejection& rejection : result.rejections()) {
      if (!rejection.has_prediction()) continue;
      const double speed = rejection.prediction().tokens_per_second();
      const uint32_t ranks = RanksOf(rejection.subject());
      if (ranks < result.plan().world_size()) {
        EXPECT_LT(speed * (1 + kWorthwhileGain), fastest * (1 + 1e-9))
            << rejection.subject() << " does as well";
      } else if (ranks == result.plan().world_size()) {
        EXPECT_LE(speed, taken * (1 + 1e-9)) << rejection.subject() << " is faster";
      }
    }
  }
  EXPECT_GT(chosen_slower, 5);
  EXPECT_GT(several, 50);
}

}  // namespace
}  // namespace macrame::planner
