// The search holds against trying everything: on small clusters made from seeds, no gang of any
// shape, set of nodes, order, layer ranges, slice widths, head's place or fabric is better than
// what it found.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "planner/gang_search.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kSeeds = 4000;
constexpr double kRounding = 1e-5;
// Of nodes unlike each other that hold whole experts the widths are found as if each had just its
// share to do; and of two ways to deal experts out that fill memory alike the faster is taken.
constexpr double kWholeExperts = 0.03;

uint64_t Pick(std::mt19937_64& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

struct Case {
  v1::PlanRequest request;
  bool whole_experts = false;  // the engines can
  v1::Optimize optimize = v1::OPTIMIZE_LATENCY;
  uint32_t users = 1;
};

v1::ModelDescription RandomModel(std::mt19937_64& random, uint32_t layers) {
  const uint64_t bytes = Pick(random, 4, 60) * kGiB;
  v1::ModelDescription model =
      Pick(random, 0, 1) == 0 ? LargeModel("m", bytes, layers) : MixtureModel("m", bytes, layers);
  model.set_kv_heads(Pick(random, 0, 1) == 0 ? 2 : 4);
  model.set_attention_heads(model.kv_heads() * 2);
  if (Pick(random, 0, 2) == 0) {  // a first layer unlike the rest
    model.set_layer_bytes(0, model.layer_bytes(0) * 2);
    model.set_layer_divisible_bytes(0, model.layer_divisible_bytes(0) * 2);
  }
  return model;
}

// Between most pairs a path or two, measured or not, a cable for RDMA among them or not; few pairs
// don't reach each other.
void AddRandomLinks(std::mt19937_64& random, const std::vector<v1::PlannerNode>& nodes,
                    v1::PlanRequest* request) {
  const uint64_t cabled = Pick(random, 0, 4);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = i + 1; j < nodes.size(); ++j) {
      for (uint64_t paths = Pick(random, 1, 3); paths > 1; --paths) {
        const bool rdma = Pick(random, 1, 4) <= cabled;
        const auto medium = static_cast<v1::LinkMedium>(Pick(random, 1, 3));
        std::vector<std::string> backends;
        if (Pick(random, 0, 15) > 0) backends.push_back("ring");
        if (rdma) backends.push_back("jaccl");
        AddLink(nodes[i].node_id(), nodes[j].node_id(), backends, medium, request);
        if (Pick(random, 0, 1) == 0) continue;
        for (int last = request->links_size() - 2; last < request->links_size(); ++last) {
          v1::PlannerLink& link = *request->mutable_links(last);
          link.set_rdma_round_trip_us(static_cast<double>(Pick(random, 8, 400)));
          link.set_rdma_bandwidth_bytes_per_second(static_cast<double>(Pick(random, 1, 8)) * 1e9);
          link.set_round_trip_us(static_cast<double>(Pick(random, 100, 4000)));
        }
      }
    }
  }
}

Case RandomCase(uint64_t seed, uint64_t nodes_max) {
  std::mt19937_64 random(seed);
  Case made;
  const uint64_t count = Pick(random, 1, nodes_max);
  const uint32_t layers = static_cast<uint32_t>(Pick(random, 2, count > 4 ? 5 : 7));
  std::vector<v1::PlannerNode> nodes;
  const bool uneven = Pick(random, 0, 1) == 0;
  const bool mixes = Pick(random, 0, 1) == 0;
  for (uint64_t i = 0; i < count; ++i) {
    v1::PlannerNode node = Node("node-" + std::to_string(i), Pick(random, 4, 64) * kGiB);
    node.set_chip(Pick(random, 0, 1) == 0 ? "Apple M4 Max" : "Apple M3 Ultra");
    node.set_gpu_cores(Pick(random, 0, 1) == 0 ? 32 : 80);
    node.mutable_traits()->set_uneven_tensor(uneven);
    node.mutable_traits()->set_tensor_in_pipeline(mixes);
    nodes.push_back(node);
  }
  made.whole_experts = uneven && seed % 3 == 0;
  for (v1::PlannerNode& node : nodes) {
    node.mutable_traits()->set_whole_experts(made.whole_experts);
  }
  made.request = Request(RandomModel(random, layers), nodes);
  AddRandomLinks(random, nodes, &made.request);
  made.optimize = static_cast<v1::Optimize>(Pick(random, 0, 2));
  // Enough users to keep every stage busy: what the throughput of a search promises.
  made.users =
      made.optimize == v1::OPTIMIZE_THROUGHPUT ? 6 * static_cast<uint32_t>(Pick(random, 1, 3)) : 1;
  return made;
}

// Tries everything.
class Everything {
 public:
  Everything(GangJudge& judge, GangSearch& search, const v1::PlanRequest& request)
      : judge_(judge), search_(search), model_(request.model()) {
    gang_.stages.reserve(request.model().layer_count() +
                         1);  // stages are referred to while growing
    for (const Fabric& fabric : {Fabric{}, Fabric{Backend::kJaccl, Topology::kMesh},
                                 Fabric{Backend::kJaccl, Topology::kRing}}) {
      gang_.fabric = fabric;
      const uint32_t nodes = static_cast<uint32_t>(judge_.candidates().size());
      for (uint32_t tp = 1; tp <= nodes; ++tp) {
        for (const bool whole : {false, true}) {
          const Candidate& first = judge_.candidates()[0];
          if (whole && (tp == 1 || !DealsOutExperts(model_, first))) continue;
          whole_experts_ = whole;
          Stages(tp, 0);
        }
      }
    }
  }
  // The best value of each (tp, pp).
  std::map<std::pair<uint32_t, uint32_t>, double> best;
  uint64_t tried = 0;

 private:
  void Stages(uint32_t tp, uint32_t begin) {
    const uint32_t layers = judge_.model().layer_count();
    if (begin == layers) return Judge();
    const bool mixes =
        judge_.candidates()[0].traits.tensor_in_pipeline() && AllowsStagesOfGroups(gang_.fabric);
    if (!gang_.stages.empty() && tp > 1 && !mixes) return;
    for (uint32_t end = begin + 1; end <= layers; ++end) {
      GangStage stage;
      stage.begin = begin;
      stage.end = end;
      const bool uneven = judge_.candidates()[0].traits.uneven_tensor();
      stage.slice_count = SlicesFor(model_, tp, uneven);
      stage.whole_experts = whole_experts_;
      if (stage.slice_count == 0) continue;
      gang_.stages.push_back(stage);
      NodesOfStage(tp, end);
      gang_.stages.pop_back();
    }
  }
  void NodesOfStage(uint32_t tp, uint32_t end) {
    GangStage& stage = gang_.stages.back();
    if (stage.nodes.size() == tp) {
      WidthsOfStage(tp, end, stage.slice_count);
      return;
    }
    for (size_t node = 0; node < judge_.candidates().size(); ++node) {
      if (used_ >> node & 1) continue;
      // The order within a stage matters to rings and to where the head is.
      const bool ordered =
          gang_.fabric.is_ring() || stage.nodes.size() < 2 || node > stage.nodes.back();
      if (!ordered) continue;
      used_ |= 1u << node;
      stage.nodes.push_back(node);
      NodesOfStage(tp, end);
      gang_.stages.back().nodes.pop_back();
      used_ &= ~(1u << node);
    }
  }
  void WidthsOfStage(uint32_t tp, uint32_t end, uint32_t left) {
    GangStage& stage = gang_.stages.back();
    const uint32_t missing = tp - static_cast<uint32_t>(stage.widths.size());
    if (missing == 0) {
      if (left == 0) Stages(tp, end);
      return;
    }
    const bool uneven = judge_.candidates()[0].traits.uneven_tensor();
    for (uint32_t width = 1; width <= left; ++width) {
      if (missing == 1 && width != left) continue;
      if (!uneven && width * tp != stage.slice_count) continue;
      gang_.stages.back().widths.push_back(width);
      WidthsOfStage(tp, end, left - width);
      gang_.stages.back().widths.pop_back();
    }
  }
  void Judge() {
    std::vector<size_t> nodes;
    for (const GangStage& stage : gang_.stages) {
      nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
    }
    if (nodes.size() > 1 && !judge_.links().Allows(gang_.fabric, nodes)) return;
    if (judge_.WorstFill(gang_) > 1) return;
    // A ring of cables carries a pipeline or a tensor group, not a mixture.
    if (gang_.fabric.is_ring() && gang_.tp() > 1 && gang_.pp() > 1) return;
    ++tried;
    const double value = search_.ValueOf(gang_);
    const auto key = std::pair(gang_.tp(), gang_.pp());
    const auto found = best.find(key);
    if (found == best.end() || value < found->second) best[key] = value;
  }

  GangJudge& judge_;
  GangSearch& search_;
  const v1::ModelDescription& model_;
  Gang gang_;
  bool whole_experts_ = false;
  uint32_t used_ = 0;
};

void CompareWithEverything(uint64_t seed, uint64_t nodes_max, uint64_t* tried) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Case made = RandomCase(seed, nodes_max);
  std::vector<Candidate> candidates;
  for (const v1::PlannerNode& node : made.request.nodes()) candidates.push_back(CandidateOf(node));
  const LinkCosts links(made.request, candidates);
  GangJudge judge(made.request.model(), candidates, links, {4096, 1}, CostParameters());
  GangSearch search(judge, {made.optimize, made.users, ""});
  const Everything everything(judge, search, made.request);
  *tried += everything.tried;
  std::map<std::pair<uint32_t, uint32_t>, double> found;
  for (const GangOption& option : search.Options()) {
    found[{option.gang.tp(), option.gang.pp()}] = option.value;
    EXPECT_LE(judge.WorstFill(option.gang), 1);
  }
  for (const auto& [shape, value] : everything.best) {
    ASSERT_EQ(found.count(shape), 1u)
        << "tp " << shape.first << " pp " << shape.second << " is missing";
    const double bound = made.whole_experts ? kWholeExperts : kRounding;
    EXPECT_LE(found[shape], value * (1 + bound)) << "tp " << shape.first << " pp " << shape.second;
    EXPECT_GE(found[shape], value * (1 - kRounding)) << "everything was not tried";
  }
  EXPECT_EQ(found.size(), everything.best.size());
}

TEST(PlannerOptimal, NothingIsBetterThanWhatTheSearchFinds) {
  uint64_t tried = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    CompareWithEverything(seed, 4, &tried);
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, 100'000u);
}

TEST(PlannerOptimal, NorOnFiveAndSixNodes) {
  uint64_t tried = 0;
  for (uint64_t seed = 0; seed < kSeeds / 10; ++seed) {
    CompareWithEverything(1000 + seed, 6, &tried);
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, 100'000u);
}

// Nodes are dealt to parts of up to five that don't reach each other; a part of that size is
// searched exactly by itself.
TEST(PlannerOptimal, NothingIsBetterInAPartOfALargerClusterThatIsCutOff) {
  uint32_t compared = 0;
  for (uint64_t seed = 0; seed < kSeeds / 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed + 5000);
    Case made = RandomCase(seed, 4);
    v1::PlanRequest whole = Request(made.request.model(), {});
    std::vector<v1::PlanRequest> parts;
    for (uint64_t part = 0, count = Pick(random, 2, 3); part < count; ++part) {
      v1::PlanRequest one = RandomCase(seed * 3 + part, 5).request;
      *one.mutable_model() = whole.model();
      std::vector<std::string> before;
      for (const v1::PlannerNode& node : whole.nodes()) before.push_back(node.node_id());
      const std::string prefix = "part-" + std::to_string(part) + "-";
      for (v1::PlannerNode& node : *one.mutable_nodes()) {
        *node.mutable_traits() = v1::EngineTraits();
        node.set_node_id(prefix + node.node_id());
        for (const std::string& other : before) {
          AddLink(node.node_id(), other, {}, v1::LINK_MEDIUM_ETHERNET, &whole);
        }
      }
      for (v1::PlannerLink& link : *one.mutable_links()) {
        link.set_from_node_id(prefix + link.from_node_id());
        link.set_to_node_id(prefix + link.to_node_id());
        link.clear_backends();
        link.add_backends("ring");
      }
      whole.mutable_nodes()->MergeFrom(one.nodes());
      whole.mutable_links()->MergeFrom(one.links());
      parts.push_back(std::move(one));
    }
    if (static_cast<size_t>(whole.nodes_size()) <= kExactNodesMax) continue;
    const auto values = [&](const v1::PlanRequest& request) {
      std::vector<Candidate> candidates;
      for (const v1::PlannerNode& node : request.nodes()) candidates.push_back(CandidateOf(node));
      std::stable_sort(
          candidates.begin(), candidates.end(),
          [](const Candidate& a, const Candidate& b) { return a.budget_bytes > b.budget_bytes; });
      const LinkCosts links(request, candidates);
      GangJudge judge(request.model(), candidates, links, {4096, 1}, CostParameters());
      GangSearch search(judge, {made.optimize, made.users, ""});
      std::map<std::pair<uint32_t, uint32_t>, double> best;
      for (const GangOption& option : search.Options()) {
        best[{option.gang.tp(), option.gang.pp()}] = option.value;
      }
      return best;
    };
    const auto found = values(whole);
    for (const v1::PlanRequest& part : parts) {
      for (const auto& [shape, value] : values(part)) {
        ++compared;
        ASSERT_EQ(found.count(shape), 1u) << "tp " << shape.first << " pp " << shape.second;
        EXPECT_LE(found.at(shape), value * (1 + kRounding))
            << "tp " << shape.first << " pp " << shape.second;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, 1000u);
}

}  // namespace
}  // namespace macrame::planner
