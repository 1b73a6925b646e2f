// The best chain of stages against trying every chain there is, on made costs.

#include "planner/stage_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace macrame::planner {
namespace {

using Combine = StageSearch::Combine;
using Costs = std::vector<std::vector<double>>;

// What groups of nodes cost, by made numbers: longer ranges cost more, and from some length on they
// do not fit.
struct Made {
  uint32_t layers = 0;
  std::vector<StageGroup> groups;
  Costs per_layer;              // [group][layer]
  std::vector<uint32_t> holds;  // layers that fit, by group
  Costs hops;                   // [from][to]; kNever: they are no neighbours

  double Cost(size_t group, uint32_t begin, uint32_t end) const {
    if (end - begin > holds[group]) return kNever;
    double sum = 0;
    for (uint32_t layer = begin; layer < end; ++layer) sum += per_layer[group][layer];
    return sum;
  }
};

StageGroup GroupOf(const std::vector<size_t>& nodes) {
  StageGroup group{nodes, 0, 0};
  for (const size_t node : nodes) group.mask |= 1u << node;
  return group;
}

Made MakeCase(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  Made made;
  made.layers = static_cast<uint32_t>(pick(1, 7));
  const size_t nodes = pick(1, 5);
  const bool pairs = nodes > 1 && pick(0, 2) == 0;
  for (size_t a = 0; a < nodes; ++a) {
    if (!pairs) made.groups.push_back(GroupOf({a}));
    for (size_t b = a + 1; pairs && b < nodes; ++b) made.groups.push_back(GroupOf({a, b}));
  }
  for (size_t group = 0; group < made.groups.size(); ++group) {
    std::vector<double>& costs = made.per_layer.emplace_back();
    for (uint32_t i = 0; i < made.layers; ++i) costs.push_back(static_cast<double>(pick(1, 9)));
    made.holds.push_back(static_cast<uint32_t>(pick(1, made.layers + 1)));
    std::vector<double>& hops = made.hops.emplace_back();
    for (size_t to = 0; to < made.groups.size(); ++to) {
      hops.push_back(pick(0, 4) == 0 ? kNever : static_cast<double>(pick(0, 5)));
    }
  }
  return made;
}

double Combined(Combine combine, double before, double stage) {
  return combine == Combine::kSum ? before + stage : std::max(before, stage);
}

// Every chain that goes on from here.
struct Everything {
  const Made& made;
  Combine combine;
  uint32_t stages;
  std::function<bool(size_t)> may_end;
  double best = kNever;

  void From(uint32_t begin, uint32_t used, uint32_t count, std::optional<size_t> last,
            double value) {
    if (begin == made.layers && count == stages && may_end(*last)) best = std::min(best, value);
    if (begin == made.layers || count == stages) return;
    for (size_t next = 0; next < made.groups.size(); ++next) {
      if ((made.groups[next].mask & used) != 0) continue;
      const double hop = last.has_value() ? made.hops[*last][next] : 0;
      if (hop == kNever) continue;
      for (uint32_t end = begin + 1; end <= made.layers; ++end) {
        const double cost = made.Cost(next, begin, end);
        if (cost == kNever) break;
        From(end, used | made.groups[next].mask, count + 1, next,
             Combined(combine, value, hop + cost));
      }
    }
  }
};

StageSearch Search(const Made& made, Combine combine, uint32_t stages_max,
                   std::optional<size_t> first = {}) {
  std::vector<std::shared_ptr<const StageTable>> tables;
  for (size_t group = 0; group < made.groups.size(); ++group) {
    tables.push_back(std::make_shared<StageTable>(
        made.layers, 1, stages_max,
        [&, group](uint32_t begin, uint32_t end) { return made.Cost(group, begin, end); }));
  }
  const auto hop = [&](size_t from, size_t to) { return made.hops[from][to]; };
  return StageSearch(made.groups, std::move(tables), combine, hop, stages_max, first);
}

// Is it a chain at all, and worth what it says?
void CheckChain(const Made& made, Combine combine, uint32_t stages, const StageChain& chain) {
  ASSERT_EQ(chain.stages.size(), stages);
  uint32_t next = 0, used = 0;
  double value = 0;
  for (size_t i = 0; i < chain.stages.size(); ++i) {
    const StageRange& stage = chain.stages[i];
    EXPECT_EQ(stage.begin, next) << "each layer once, in order";
    EXPECT_LT(stage.begin, stage.end);
    EXPECT_EQ(made.groups[stage.group].mask & used, 0u) << "a node is in two stages";
    used |= made.groups[stage.group].mask;
    next = stage.end;
    const double hop = i == 0 ? 0 : made.hops[chain.stages[i - 1].group][stage.group];
    value = Combined(combine, value, hop + made.Cost(stage.group, stage.begin, stage.end));
  }
  EXPECT_EQ(next, made.layers);
  EXPECT_NEAR(chain.value, value, 1e-9);
}

TEST(StageSearch, FindsWhatTryingEveryChainFinds) {
  uint32_t found = 0, none = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made = MakeCase(seed);
    const Combine combine = seed % 2 == 0 ? Combine::kSum : Combine::kLargest;
    const uint32_t most = 1 + static_cast<uint32_t>(seed % 5);
    const StageSearch search = Search(made, combine, most);
    for (uint32_t stages = 1; stages <= most; ++stages) {
      Everything everything{made, combine, stages, [](size_t) { return true; }};
      everything.From(0, 0, 0, {}, 0);
      const auto chain = search.Best(stages, {});
      ASSERT_EQ(chain.has_value(), everything.best != kNever) << stages << " stages";
      if (!chain.has_value()) {
        ++none;
        continue;
      }
      ++found;
      EXPECT_NEAR(chain->value, everything.best, 1e-9) << stages << " stages";
      CheckChain(made, combine, stages, *chain);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(found, 1000u) << "the cases fit too rarely";
  EXPECT_GT(none, 1000u) << "the cases fit too often";
}

TEST(StageSearch, KeepsToTheFirstAndTheLastGroupsThatAreAllowed) {
  uint32_t found = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made = MakeCase(seed);
    const size_t first = seed % made.groups.size();
    const auto may_end = [&](size_t group) { return group % 2 == seed % 2; };
    const StageSearch search = Search(made, Combine::kSum, 4, first);
    for (uint32_t stages = 1; stages <= 4; ++stages) {
      Everything everything{made, Combine::kSum, stages, may_end};
      for (uint32_t end = 1; end <= made.layers; ++end) {
        const double cost = made.Cost(first, 0, end);
        if (cost == kNever) break;
        everything.From(end, made.groups[first].mask, 1, first, cost);
      }
      const auto chain = search.Best(stages, may_end);
      ASSERT_EQ(chain.has_value(), everything.best != kNever) << stages << " stages";
      if (!chain.has_value()) continue;
      ++found;
      EXPECT_NEAR(chain->value, everything.best, 1e-9);
      EXPECT_EQ(chain->stages.front().group, first);
      EXPECT_TRUE(may_end(chain->stages.back().group));
    }
  }
  EXPECT_GT(found, 300u);
}

// Four nodes alike: each after the one before it.
Made FourAlike() {
  Made made;
  made.layers = 8;
  for (size_t node = 0; node < 4; ++node) {
    made.groups.push_back(GroupOf({node}));
    if (node > 0) made.groups.back().after = 1u << (node - 1);
    made.per_layer.emplace_back(8, 1.0);
    made.holds.push_back(4);
    made.hops.emplace_back(4, 2.0);
  }
  return made;
}

TEST(StageSearch, OfNodesThatAreAlikeTheEarlierOnesAreUsed) {
  const Made made = FourAlike();
  const StageSearch search = Search(made, Combine::kSum, 4);
  EXPECT_FALSE(search.Best(1, {}).has_value()) << "8 layers on a node that holds 4";
  const auto two = search.Best(2, {});
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->stages, (std::vector<StageRange>{{0, 0, 4}, {1, 4, 8}}));
  EXPECT_EQ(two->value, 10) << "8 layers and one hop";
  const auto four = search.Best(4, {});
  ASSERT_TRUE(four.has_value());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(four->stages[i].group, i);
}

TEST(StageSearch, NodesThatAreAlikeSaveMostOfTheWork) {
  const std::vector<StageGroup> alike = FourAlike().groups;
  std::vector<StageGroup> unlike = alike;
  for (StageGroup& group : unlike) group.after = 0;
  // In a row: 3 hops. In any order: 4·3 + 4·3·2 hops reach each (set, last) once from each before.
  EXPECT_EQ(StageSearch::CountHops(alike, 4), 3u);
  EXPECT_EQ(StageSearch::CountHops(unlike, 2), 12u);
  EXPECT_GT(StageSearch::CountHops(unlike, 4), 8 * StageSearch::CountHops(alike, 4));
  EXPECT_EQ(StageSearch::CountHops(unlike, 1), 0u) << "one stage follows on none";
}

TEST(StageSearch, StagesBeginAtTheStepsThatTheTableHas) {
  std::vector<std::pair<uint32_t, uint32_t>> asked;
  const auto cost = [&](uint32_t begin, uint32_t end) {
    asked.emplace_back(begin, end);
    return end - begin > 6 ? kNever : static_cast<double>(end - begin);
  };
  const StageTable table(10, 4, 3, cost);
  for (const auto& [begin, end] : asked) {
    EXPECT_EQ(begin % 4, 0u) << begin;
    EXPECT_TRUE(end % 4 == 0 || end == 10) << end;
  }
  const size_t before = asked.size();
  // What does not fit does not fit when it is longer either: [0, 8) is asked for, [0, 10) is not.
  EXPECT_EQ(std::count(asked.begin(), asked.end(), std::pair(0u, 8u)), 1);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), std::pair(0u, 10u)), 0);
  // Of chains of one stage only all layers matter.
  asked.clear();
  StageTable(10, 4, 1, cost);
  EXPECT_EQ(asked, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 10}}));
  EXPECT_GT(before, asked.size());
}

TEST(StageSearch, WithoutGroupsThereIsNoChain) {
  const StageSearch search(
      {}, {}, Combine::kSum, [](size_t, size_t) { return 0.0; }, 3);
  EXPECT_FALSE(search.Best(1, {}).has_value());
}

}  // namespace
}  // namespace macrame::planner
