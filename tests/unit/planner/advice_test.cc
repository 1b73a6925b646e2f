// What a refusal advises is carried out here, and then there is a plan.

#include "planner/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <regex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "planner/chip_table.h"
#include "planner/cost_model.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = 1ULL << 20;

uint64_t Number(const std::string& text) {
  uint64_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

v1::PlannerNode* Called(const std::string& hostname, v1::PlanRequest* request) {
  for (v1::PlannerNode& node : *request->mutable_nodes()) {
    if (node.hostname() == hostname) return &node;
  }
  ADD_FAILURE() << "no node is called " << hostname;
  return request->mutable_nodes(0);
}

void Give(uint64_t usable, v1::PlannerNode* node) {
  node->set_memory_usable_bytes(usable);
  if (node->memory_available_bytes() > 0) node->set_memory_available_bytes(usable);
}

// A copy of the model with so many bits, in groups of 64.
void Quantise(uint32_t bits, v1::ModelDescription* model) {
  const double factor = BytesPerWeight(bits, 64) / BytesPerWeightOf(*model);
  const auto scaled = [&](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) * factor);
  };
  model->set_embedding_bytes(scaled(model->embedding_bytes()));
  model->set_head_bytes(scaled(model->head_bytes()));
  for (auto* sizes : {model->mutable_layer_bytes(), model->mutable_layer_divisible_bytes()}) {
    for (uint64_t& bytes : *sizes) bytes = scaled(bytes);
  }
  model->mutable_quantization()->set_bits(bits);
  model->mutable_quantization()->set_group_size(64);
}

void FreeMemory(const std::smatch& found, v1::PlanRequest* request) {
  double amount = 0;
  ASSERT_TRUE(absl::SimpleAtod(found[1].str(), &amount));
  const uint64_t unit = found[2].str() == "GiB" ? kGiB : kMiB;
  v1::PlannerNode* node = Called(found[3].str(), request);
  // The figure is rounded to a tenth.
  Give(node->memory_usable_bytes() +
           static_cast<uint64_t>((amount + 0.05) * static_cast<double>(unit)),
       node);
}

void ReplaceMachine(const std::smatch& found, v1::PlanRequest* request) {
  v1::PlannerNode* node = Called(found[2].str(), request);
  node->set_memory_total_bytes(Number(found[1].str()) * kGiB);
  node->set_memory_reserved_bytes(0);  // nothing runs on it yet
  Give(node->gpu_cores() > 0 ? GpuUsableBytes(node->memory_total_bytes())
                             : node->memory_total_bytes(),
       node);
}

// Does what the words say; false: the words are not known.
bool Follow(const std::string& advice, v1::PlanRequest* request) {
  std::smatch found;
  const auto says = [&](const char* words) {
    return std::regex_search(advice, found, std::regex(words));
  };
  v1::PlacementOptions* placement = request->mutable_placement();
  if (says("an? ([0-9]+)-bit copy of the model")) {
    Quantise(static_cast<uint32_t>(Number(found[1].str())), request->mutable_model());
  } else if (says("^a context of ([0-9]+) instead of")) {
    placement->set_context_length(static_cast<uint32_t>(Number(found[1].str())));
  } else if (says("^([0-9]+) sequences at once instead of")) {
    placement->set_concurrent_sequences(static_cast<uint32_t>(Number(found[1].str())));
  } else if (says("^a KV cache of 8 bits")) {
    placement->set_kv_bits(8);
  } else if (says("^([0-9.]+) (GiB|MiB) more free memory on ([^ ]+)")) {
    FreeMemory(found, request);
  } else if (says("^a machine of at least ([0-9]+) GiB in place of ([^ ]+)")) {
    ReplaceMachine(found, request);
  } else if (says("of ([^ ]+) \\([^ ]+\\) \\(.*(iogpu.wired_limit_mb=|max_mib: )([0-9]+)")) {
    Give(Number(found[3].str()) * kMiB, Called(found[1].str(), request));
  } else if (says("^a cable or network path between ([^ ]+) \\([^ ]+\\) and ([^ ]+) ")) {
    AddLink(Called(found[1].str(), request)->node_id(), Called(found[2].str(), request)->node_id(),
            {"ring"}, v1::LINK_MEDIUM_ETHERNET, request);
  } else if (says("^leave out --(ranks|parallelism)$")) {
    found[1].str() == "ranks" ? placement->clear_world_size() : placement->clear_parallelism();
  } else if (says("--strictness tight")) {
    placement->set_strictness(v1::STRICTNESS_TIGHT);
  } else {
    return false;
  }
  return true;
}

std::vector<std::string> AdviceIn(std::string remedy) {
  for (const char* words : {"any one of these would make it fit: ", " would make it fit"}) {
    const size_t at = remedy.find(words);
    if (at != std::string::npos) remedy.erase(at, std::string(words).size());
  }
  std::vector<std::string> ways;
  for (const absl::string_view way : absl::StrSplit(remedy, "; ")) {
    ways.emplace_back(way);
    if (ways.back().rfind("or ", 0) == 0) ways.back().erase(0, 3);
  }
  return ways;
}

// Machines that a model is likely a little too large for, in one way or another.
v1::PlanRequest RandomMisfit(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  std::vector<v1::PlannerNode> nodes;
  const bool gpus = pick(0, 2) > 0;
  const bool uneven = pick(0, 1) == 0;
  uint64_t sum = 0;
  for (const char* id : {"aaaa", "bbbb", "cccc", "dddd"}) {
    if (!nodes.empty() && pick(0, 3) == 0) break;
    const uint64_t total = pick(12, 60) * kGiB;
    v1::PlannerNode node = Node(id, gpus ? GpuUsableBytes(total) : total);
    if (pick(0, 1) == 0) node.set_memory_total_bytes(total);
    if (pick(0, 3) == 0) node.set_memory_reserved_bytes(pick(1, 8) * kGiB);
    if (pick(0, 5) == 0) node.set_memory_available_bytes(0);  // not known
    if (!gpus) node.set_gpu_cores(0);
    node.mutable_traits()->set_uneven_tensor(uneven);
    node.mutable_traits()->set_narrow_kv(true);
    sum += BudgetBytes(node);
    nodes.push_back(std::move(node));
  }
  const uint64_t bytes = sum / 100 * pick(60, 180);
  v1::PlanRequest request =
      Request(LargeModel("big", bytes, static_cast<uint32_t>(pick(4, 40))), nodes);
  v1::PlacementOptions& placement = *request.mutable_placement();
  placement.set_context_length(static_cast<uint32_t>(1u << pick(9, 16)));
  placement.set_concurrent_sequences(static_cast<uint32_t>(pick(1, 12)));
  placement.set_parallelism(static_cast<v1::Parallelism>(pick(0, 5) % 3 * pick(0, 1)));
  if (pick(0, 3) == 0) placement.set_world_size(static_cast<uint32_t>(pick(1, nodes.size())));
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = i + 1; j < nodes.size(); ++j) {
      if (pick(0, 2) > 0) continue;
      AddLink(nodes[i].node_id(), nodes[j].node_id(), {}, v1::LINK_MEDIUM_ETHERNET, &request);
    }
  }
  return request;
}

TEST(Advice, WhateverIsAdvisedMakesItFit) {
  std::map<std::string, int> followed;  // by the advice's first words
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomMisfit(seed);
    const v1::PlanResult result = PlanModel(request);
    if (result.has_plan()) continue;
    const std::string& remedy = result.failure().remedy();
    if (remedy == "use a smaller quantisation, a shorter context or more nodes") continue;
    for (const std::string& advice : AdviceIn(remedy)) {
      v1::PlanRequest changed = request;
      if (!Follow(advice, &changed)) continue;
      ++followed[advice.substr(0, advice.find_first_of("0123456789("))];
      EXPECT_TRUE(PlanModel(changed).has_plan())
          << advice << "\n  of: " << result.failure().message()
          << "\n  after it: " << PlanModel(changed).failure().message();
    }
  }
  int all = 0;
  for (const auto& [words, times] : followed) all += times;
  EXPECT_GT(all, 1500);
  EXPECT_GE(followed.size(), 9u) << "few kinds of advice came about";
}

v1::PlanResult Refused(const v1::PlanRequest& request) {
  v1::PlanResult result = PlanModel(request);
  EXPECT_FALSE(result.has_plan());
  return result;
}

v1::PlannerNode Processor(const std::string& id, uint64_t bytes) {
  v1::PlannerNode node = Node(id, bytes);
  node.set_gpu_cores(0);
  node.set_has_draft_files(true);
  return node;
}

// A draft model's bytes are a part of what has to be freed.
TEST(Advice, CountsTheDraftModel) {
  v1::PlanRequest request =
      Request(LargeModel("big", 12 * kGiB, 24), {Processor("aaaa", 15 * kGiB)});
  ASSERT_TRUE(PlanModel(request).has_plan()) << "without a draft model it fits";
  *request.mutable_draft_model() = LargeModel("small", 4 * kGiB, 12);
  request.mutable_draft_model()->set_context_length_max(1024);
  const v1::PlanResult result = Refused(request);
  EXPECT_EQ(result.failure().code(), "MEMORY_SHORT");
  int followed = 0;
  for (const std::string& advice : AdviceIn(result.failure().remedy())) {
    v1::PlanRequest changed = request;
    if (!Follow(advice, &changed)) continue;
    ++followed;
    EXPECT_TRUE(PlanModel(changed).has_plan()) << advice;
  }
  EXPECT_GT(followed, 0) << result.failure().remedy();
}

// "One rank needs 13 GiB; the most that a node can give is 15 GiB" would be no reason.
TEST(Advice, WhatIsSaidToBeNeededIsMoreThanThereIs) {
  v1::PlanRequest request =
      Request(LargeModel("big", 12 * kGiB, 24), {Processor("aaaa", 15 * kGiB)});
  *request.mutable_draft_model() = LargeModel("small", 4 * kGiB, 12);
  const std::string message = Refused(request).failure().message();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      message, found, std::regex("one rank needs ([0-9.]+) GiB; .* give is ([0-9.]+) GiB")))
      << message;
  double needs = 0, gives = 0;
  ASSERT_TRUE(absl::SimpleAtod(found[1].str(), &needs));
  ASSERT_TRUE(absl::SimpleAtod(found[2].str(), &gives));
  EXPECT_GT(needs, gives) << message;
}

v1::PlannerNode Mac(uint64_t total_gib, uint64_t usable_gib) {
  v1::PlannerNode node = Node("mac", usable_gib * kGiB);
  node.set_chip("Apple M4 Max");
  node.set_memory_total_bytes(total_gib * kGiB);
  return node;
}

// One that is just too large for the node, by about so much.
v1::ModelDescription TooLargeFor(const v1::PlannerNode& node, uint64_t by_bytes) {
  v1::ModelDescription model = LargeModel("big", 8 * kGiB, 16);
  v1::PlannerNode roomy = node;
  roomy.set_memory_total_bytes(1024 * kGiB);
  Give(1024 * kGiB, &roomy);
  const v1::MemoryNeed need = PlanModel(Request(model, {roomy})).plan().assignments(0).need();
  const uint64_t rest = need.total_bytes() - need.headroom_bytes() - 8 * kGiB;
  const uint64_t wanted = BudgetBytes(node) + by_bytes;
  return LargeModel("big", static_cast<uint64_t>(static_cast<double>(wanted) / 1.05) - rest, 16);
}

// The system's own limit on the GPU is in the way too, though the agent's is the first.
TEST(Advice, ALimitOfBothAgentAndSystemIsRaisedInBoth) {
  struct Case {
    uint64_t total_gib, usable_gib;
    bool both;
  };
  // Of 36 GiB the GPU takes 24, of 64 GiB 48.
  for (const Case& each : {Case{36, 23, true}, Case{64, 47, true}, Case{64, 40, false}}) {
    SCOPED_TRACE(testing::Message() << each.total_gib << " GiB, " << each.usable_gib);
    v1::PlannerNode node = Mac(each.total_gib, each.usable_gib);
    node.set_memory_limit_is_configured(true);
    const v1::ModelDescription model = TooLargeFor(node, 2 * kGiB);
    const std::string remedy = Refused(Request(model, {node})).failure().remedy();
    EXPECT_THAT(remedy, HasSubstr("models_memory_max_mib: "));
    if (each.both) {
      EXPECT_THAT(remedy, HasSubstr("iogpu.wired_limit_mb="));
    } else {
      EXPECT_THAT(remedy, Not(HasSubstr("iogpu.wired_limit_mb=")));
    }
  }
}

TEST(Advice, AMacThatDoesNotTellItsFreeMemoryCanHaveItsLimitRaised) {
  v1::PlannerNode node = Mac(64, 48);
  node.set_memory_available_bytes(0);
  const v1::ModelDescription model = TooLargeFor(node, 2 * kGiB);
  EXPECT_THAT(Refused(Request(model, {node})).failure().remedy(), HasSubstr("letting models take"));
}

// Its driver's part can't be freed, and what such a card has is nothing like a Mac's share.
TEST(Advice, ADiscreteGpuNeedsALargerOneAndNotFreeMemory) {
  v1::PlannerNode node = Node("box", 24 * kGiB);
  node.set_chip("NVIDIA GeForce RTX 4090");
  node.set_gpu_cores(1);
  node.set_memory_total_bytes(24 * kGiB);
  const v1::ModelDescription model = TooLargeFor(node, kGiB);
  const std::string remedy = Refused(Request(model, {node})).failure().remedy();
  EXPECT_THAT(remedy, Not(HasSubstr("more free memory")));
  std::smatch found;
  ASSERT_TRUE(std::regex_search(remedy, found, std::regex("at least ([0-9]+) GiB in place of")))
      << remedy;
  const uint64_t gib = Number(found[1].str());
  EXPECT_LE(gib, 27u) << "24 GiB of which 2 are the driver's are one GiB too few";
  node.set_memory_total_bytes(gib * kGiB);
  Give(gib * kGiB, &node);
  EXPECT_TRUE(PlanModel(Request(model, {node})).has_plan()) << gib;
}

TEST(Advice, AnEngineWithoutTcpIsPromisedNoNetworkPath) {
  v1::PlanRequest request =
      Request(LargeModel("big", 50 * kGiB, 40), {Node("aaaa", 40 * kGiB), Node("bbbb", 40 * kGiB)});
  ASSERT_TRUE(PlanModel(request).has_plan());
  request.mutable_nodes(1)->mutable_traits()->add_backends("jaccl");
  const v1::PlanResult result = Refused(request);
  EXPECT_THAT(result.failure().remedy(), Not(HasSubstr("network path")));
}

TEST(Advice, AnEngineWithoutJacclIsPromisedNoCable) {
  std::vector<v1::PlannerNode> nodes = {Node("aaaa", 40 * kGiB), Node("bbbb", 40 * kGiB)};
  for (v1::PlannerNode& node : nodes) {
    node.set_chip("Apple M3 Ultra");
    node.set_gpu_cores(80);
  }
  v1::PlanRequest request = Request(LargeModel("big", 50 * kGiB, 40), nodes);
  const auto praises = [](const v1::PlanRequest& wanted) {
    const v1::PlanResult result = PlanModel(wanted);
    for (const v1::Reason& reason : result.plan().reasons()) {
      if (reason.message().rfind("RDMA over", 0) == 0) return true;
    }
    return false;
  };
  ASSERT_TRUE(praises(request)) << "a cable makes it much faster";
  request.mutable_nodes(0)->mutable_traits()->add_backends("ring");
  EXPECT_FALSE(praises(request)) << "its engine knows TCP alone";
  request.mutable_placement()->set_transport("jaccl");
  EXPECT_THAT(Refused(request).failure().remedy(), Not(HasSubstr("Thunderbolt 5 cable")));
}

TEST(Advice, BudgetsAreListedUpToABound) {
  std::vector<v1::PlannerNode> nodes;
  for (int i = 0; i < 12; ++i) nodes.push_back(Node(absl::StrCat("node-", i), kGiB));
  const v1::PlanRequest request = Request(LargeModel("big", 90 * kGiB, 40), nodes);
  const std::string message = Refused(request).failure().message();
  EXPECT_THAT(message, HasSubstr("host-node-7 (node-7) 1.0 GiB, and 4 more"));
  EXPECT_THAT(message, Not(HasSubstr("host-node-8")));
}

}  // namespace
}  // namespace macrame::planner
