// What is answered about machines that are described instead of being there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "planner/advice.h"
#include "planner/chip_table.h"
#include "planner/offline/capacity.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/cluster_file.h"
#include "planner/offline/planner_answer.h"
#include "planner/planner.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kGiB = 1ULL << 30;

const std::vector<CatalogueEntry>& Entries() {
  static const std::vector<CatalogueEntry> entries = *CatalogueWith("");
  return entries;
}

TEST(ClusterFile, NodesLinksAndLanBecomeARequest) {
  const auto request = ReadClusterFile(R"(
nodes:
- {name: a, machine: mac-studio-m3-ultra-512gb, reserved_gib: 100}
- {name: b, chip: Apple M4 Max, memory_gib: 128, tenant: law}
- {name: c, memory_gib: 64, cpu_cores: 16, bandwidth_gb_s: 60}
links:
- {between: [a, b], round_trip_us: 14, gbit_s: 64}
lan: {medium: ethernet, gbit_s: 10}
)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.nodes(0).memory_usable_bytes(), 384 * kGiB);
  EXPECT_EQ(request->request.nodes(0).memory_reserved_bytes(), 100 * kGiB);
  EXPECT_EQ(request->request.nodes(1).gpu_cores(), 40u);
  EXPECT_EQ(request->request.nodes(2).memory_usable_bytes(), 64 * kGiB) << "no GPU: all of it";
  EXPECT_EQ(request->request.links_size(), 2);
  EXPECT_EQ(request->request.links(0).backends(1), "jaccl");
  EXPECT_EQ(request->request.links(0).bandwidth_bytes_per_second(), 8e9);
  const v1::PlannerLink& lan = request->request.default_link();
  EXPECT_EQ(lan.bandwidth_bytes_per_second(), 1.25e9);
  ASSERT_EQ(lan.backends_size(), 1) << "the LAN has no RDMA";
}

TEST(ClusterFile, AChipThatIsNotKnownIsAnErrorAndNotASlowMachine) {
  for (const char* chip : {"Apple M9 Max", "Apple M4 Maxx", "M4 Max Ultra", "M4Maxx", "Tesla M4",
                           "Quadro M6000", "Radeon", "NVIDIA", "abacus"}) {
    const auto cluster =
        ReadClusterFile(absl::StrCat("nodes:\n- {name: a, chip: ", chip, ", memory_gib: 128}\n"));
    EXPECT_NE(std::string(cluster.status().message()).find("table of chips"), std::string::npos)
        << chip << ": " << cluster.status();
  }
  for (const char* chip : {"M4 Max", "m4max", "apple-m4-max", "Apple M4  Max"}) {
    const auto cluster =
        ReadClusterFile(absl::StrCat("nodes:\n- {name: a, chip: ", chip, ", memory_gib: 128}\n"));
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ(cluster->request.nodes(0).chip(), "Apple M4 Max") << chip;
  }
  for (const char* told : {"bandwidth_gb_s: 80", "gpu_cores: 0"}) {
    EXPECT_TRUE(ReadClusterFile(
                    absl::StrCat("nodes:\n- {name: a, chip: Xeon, memory_gib: 128, ", told, "}\n"))
                    .ok())
        << told;
  }
  EXPECT_TRUE(ReadClusterFile("nodes:\n- {name: a, chip: Apple M9 Max, memory_gib: 128, "
                              "bandwidth_gb_s: 800, gpu_cores: 40}\n")
                  .ok());
}

TEST(ClusterFile, RdmaIsNotPromisedOverThunderbolt4) {
  const auto cluster = ReadClusterFile(
      "nodes:\n- {name: a, machine: macbook-pro-m3-max-128gb}\n"
      "- {name: b, machine: macbook-pro-m4-max-128gb}\nlinks:\n- {between: [a, b], rdma: true}\n");
  EXPECT_NE(std::string(cluster.status().message()).find("Thunderbolt 5"), std::string::npos)
      << cluster.status();
}

v1::PlannerAnswer AskPlan(const std::string& cluster, const std::string& model,
                          uint32_t context = 0) {
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(cluster);
  question.mutable_plan()->set_model(model);
  question.mutable_plan()->mutable_placement()->set_context_length(context);
  return AnswerOf(question);
}

std::string ReasonsOf(const v1::PlannerAnswer& answer) {
  std::string all;
  for (const v1::Reason& reason : answer.plan().plan().reasons()) all += reason.message() + "\n";
  return all;
}

TEST(DescribedPlan, SaysWhatMlxLmServes) {
  const std::string studio = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  const v1::PlannerAnswer answer = AskPlan(studio, "Step-3.5-Flash-4bit");
  EXPECT_FALSE(answer.plan().has_not_served());
  EXPECT_EQ(answer.plan().plan().engine(), "mlx-lm");
  EXPECT_THAT(ReasonsOf(answer), HasSubstr("served by mlx-lm (step3p5): one node alone; tensor "
                                           "splits of equal slices\n"));
}

// An entry that knows how large the files are, but not how wide the layers.
TEST(DescribedPlan, UnequalSlicesOfAnUnknownWidthHoldAllOfTheWeights) {
  constexpr uint64_t kFileBytes = 114572190076;
  const v1::PlannerAnswer answer = AskPlan(
      "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n"
      "- {name: b, machine: mac-studio-m3-ultra-512gb}\n"
      "- {name: c, machine: mac-studio-m3-ultra-512gb}\n",
      "Step-3.5-Flash-4bit");
  uint64_t held = 0;
  for (const v1::Assignment& part : answer.plan().plan().assignments()) {
    held += part.need().weights_bytes() + part.need().embedding_bytes() + part.need().head_bytes();
  }
  EXPECT_GE(held, kFileBytes * 99 / 100) << answer.plan().plan().world_size() << " ranks";
  // 11 of 197 thousand millions of weights are read for a token, by three machines of 819 GB/s.
  const double floor_ms = 1e3 * kFileBytes * 11 / 197 / (3 * 819e9);
  EXPECT_GE(answer.plan().plan().prediction().weights_ms(), floor_ms);
}

TEST(DescribedPlan, SaysWhatCanBePredictedButNotServedYet) {
  const std::string studio = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  const v1::PlannerAnswer predicted = AskPlan(studio, "DeepSeek-V4-Flash-4bit");
  EXPECT_THAT(predicted.plan().not_served().message(), HasSubstr("can't serve it yet"));
  EXPECT_THAT(ReasonsOf(predicted), Not(HasSubstr("served by")));
  // Also where it does not fit: nobody should buy machines for it unwarned.
  const v1::PlannerAnswer misfit =
      AskPlan("nodes:\n- {name: a, machine: mac-mini-m4-16gb}\n", "DeepSeek-V4-Flash-4bit");
  EXPECT_FALSE(misfit.plan().has_plan());
  EXPECT_THAT(misfit.plan().not_served().message(), HasSubstr("can't serve it yet"));
  for (const char* served : {"gpt-oss-120b-4bit", "Qwen3-32B-4bit"}) {
    const v1::PlannerAnswer answer = AskPlan(studio, served);
    EXPECT_FALSE(answer.plan().has_not_served()) << served;
    EXPECT_THAT(ReasonsOf(answer),
                HasSubstr("one node alone; tensor splits, uneven ones too; pipelines"));
  }
}

TEST(DescribedPlan, UsersBeyondThoseAnsweredAtOnceWaitAndNeedNoCaches) {
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(
      "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n");
  question.mutable_plan()->set_model("Qwen3-32B-4bit");
  const auto plan = [&](uint32_t users) {
    question.mutable_plan()->mutable_placement()->set_users(users);
    return AnswerOf(question);
  };
  EXPECT_EQ(plan(10).plan().plan().concurrent_sequences(), 10u);
  EXPECT_EQ(ReasonsOf(plan(16)).find("wait"), std::string::npos);
  const v1::PlannerAnswer many = plan(64);
  EXPECT_EQ(many.plan().plan().concurrent_sequences(), 16u);
  EXPECT_NE(ReasonsOf(many).find("of 64 users 16 are answered at once"), std::string::npos);
}

TEST(DescribedPlan, NamesTheBitsAndWhatIsLeftOfTheSpeedWhenTheContextIsFull) {
  const std::string studio = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  const v1::PlannerAnswer answer = AskPlan(studio, "Llama-3.3-70B-Instruct", 131072);
  EXPECT_EQ(answer.plan().plan().model_name(), "Llama-3.3-70B-Instruct-16bit");
  EXPECT_NE(ReasonsOf(answer).find("with its context of 131072 full, one user would get"),
            std::string::npos);
  v1::PlannerQuestion full;
  full.mutable_plan()->set_cluster_yaml(studio);
  full.mutable_plan()->set_model("Llama-3.3-70B-Instruct");
  full.mutable_plan()->mutable_placement()->set_context_length(131072);
  full.mutable_plan()->mutable_placement()->set_prompt_tokens(131072);
  EXPECT_LT(AnswerOf(full).plan().plan().prediction().tokens_per_second(),
            0.9 * answer.plan().plan().prediction().tokens_per_second());
}

TEST(DescribedPlan, AModelIsPlannedAsItsMakersPublishIt) {
  const std::string studio = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  const v1::PlannerAnswer native = AskPlan(studio, "openai/gpt-oss-120b");
  EXPECT_EQ(native.plan().plan().model_name(), "gpt-oss-120b-4bit");
  EXPECT_NE(ReasonsOf(native).find("planned with 4 bits a weight, as its makers publish it"),
            std::string::npos)
      << ReasonsOf(native);
  const v1::PlannerAnswer named = AskPlan(studio, "mlx-community/gpt-oss-120b-8bit");
  EXPECT_EQ(named.plan().plan().model_name(), "gpt-oss-120b-8bit") << "what is said wins";
  EXPECT_EQ(ReasonsOf(named).find("bits a weight"), std::string::npos);
  const v1::PlannerAnswer alias = AskPlan(studio, "mistral-7b");
  EXPECT_EQ(alias.plan().plan().model_name(), "Mistral-7B-Instruct-v0.3-4bit")
      << "as the alias means on a live cluster";
  EXPECT_NE(ReasonsOf(alias).find("means mlx-community/Mistral-7B-Instruct-v0.3-4bit"),
            std::string::npos)
      << ReasonsOf(alias);
  const v1::PlannerAnswer whole = AskPlan(studio, "Llama-3.3-70B-Instruct");
  EXPECT_NE(ReasonsOf(whole).find("planned with 16 bits a weight"), std::string::npos);
  v1::PlannerQuestion both;
  both.mutable_plan()->set_cluster_yaml(studio);
  both.mutable_plan()->set_model("gpt-oss-120b-4bit");
  both.mutable_plan()->set_bits(8);
  EXPECT_EQ(AnswerOf(both).failure().code(), "BAD_REQUEST") << "of two numbers neither is meant";
}

TEST(DescribedPlan, NodeOptionsThatContradictEachOtherAreNoMisfit) {
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(
      "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n"
      "- {name: b, machine: mac-studio-m3-ultra-512gb}\n");
  question.mutable_plan()->set_model("Qwen3-8B");
  v1::PlacementOptions& placement = *question.mutable_plan()->mutable_placement();
  placement.add_node_ids("a");
  placement.set_world_size(2);
  EXPECT_EQ(AnswerOf(question).plan().failure().code(), "BAD_REQUEST");
  placement.set_world_size(0);
  placement.add_excluded_node_ids("a");
  EXPECT_EQ(AnswerOf(question).plan().failure().code(), "BAD_REQUEST");
}

TEST(DescribedPlan, AMacThatIsHeldBackByItsGpuLimitIsToldHowToRaiseIt) {
  const v1::PlannerAnswer answer =
      AskPlan("nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n", "DeepSeek-V3.1-5bit");
  ASSERT_EQ(answer.plan().failure().code(), "MEMORY_SHORT");
  EXPECT_NE(answer.plan().failure().remedy().find("iogpu.wired_limit_mb="), std::string::npos)
      << answer.plan().failure().remedy();
  const v1::PlannerAnswer small =
      AskPlan("nodes:\n- {name: a, machine: mac-mini-m4-16gb}\n", "DeepSeek-V3.1-4bit");
  EXPECT_NE(small.plan().failure().remedy().find("a machine of at least "), std::string::npos)
      << small.plan().failure().remedy();
}

TEST(DescribedPlan, MoreEqualMachinesAreNeverWorse) {
  const auto studios = [](int count) {
    std::string yaml = "nodes:\n";
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&yaml, "- {name: s", i, ", machine: mac-studio-m3-ultra-512gb}\n");
    }
    return yaml + "links: none\n";
  };
  const auto speed = [&](int count) {
    return AskPlan(studios(count), "Kimi-K2-Thinking-8bit")
        .plan()
        .plan()
        .prediction()
        .tokens_per_second();
  };
  EXPECT_GE(speed(7), speed(6) * 0.999);
  EXPECT_EQ(ReasonsOf(AskPlan(studios(7), "Kimi-K2-Thinking-8bit")).find("does not fit"),
            std::string::npos)
      << "which was not proven";
}

TEST(ClusterFile, RdmaHasFiguresOfItsOwn) {
  const auto cluster = ReadClusterFile(R"(
nodes:
- {name: a, machine: mac-studio-m3-ultra-512gb}
- {name: b, machine: mac-studio-m3-ultra-512gb}
links:
- {between: [a, b], round_trip_us: 300, gbit_s: 24, rdma_round_trip_us: 12, rdma_gbit_s: 56}
)");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->request.links(0).round_trip_us(), 300);
  EXPECT_EQ(cluster->request.links(0).rdma_round_trip_us(), 12);
  EXPECT_EQ(cluster->request.links(0).bandwidth_bytes_per_second(), 3e9);
  EXPECT_EQ(cluster->request.links(0).rdma_bandwidth_bytes_per_second(), 7e9);
}

constexpr char kTwoLoadedModels[] = R"(
nodes:
- {name: a, machine: mac-studio-m3-ultra-96gb}
- {name: b, machine: mac-studio-m3-ultra-96gb}
loaded:
- {name: chat, gib: {a: 30, b: 30}}
- {name: coder, gib: {b: 38}}
)";

TEST(ClusterFile, WhatIsLoadedHoldsMemoryAndTheRefusalSaysWhatToUnload) {
  const auto cluster = ReadClusterFile(kTwoLoadedModels);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->request.nodes(0).memory_reserved_bytes(), 30 * kGiB);
  EXPECT_EQ(cluster->request.nodes(1).memory_reserved_bytes(), 68 * kGiB);
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(kTwoLoadedModels);
  question.mutable_plan()->set_model("Llama-3.3-70B-Instruct");
  question.mutable_plan()->set_bits(4);
  question.mutable_plan()->mutable_placement()->set_world_size(1);
  EXPECT_TRUE(AnswerOf(question).plan().has_plan()) << "beside the others";
  question.mutable_plan()->set_bits(6);
  const v1::PlannerAnswer refused = AnswerOf(question);
  ASSERT_EQ(refused.plan().failure().code(), "MEMORY_SHORT");
  EXPECT_NE(refused.plan().failure().remedy().find("unload chat: then it fits"), std::string::npos)
      << refused.plan().failure().remedy();
}

TEST(ClusterFile, AModelLoadedOnANodeThatIsNotThereIsAnError) {
  const auto cluster = ReadClusterFile(
      "nodes:\n- {name: a, machine: mac-studio-m3-ultra-96gb}\n"
      "loaded:\n- {name: chat, gib: {z: 30}}\n");
  EXPECT_NE(std::string(cluster.status().message()).find("no node 'z'"), std::string::npos)
      << cluster.status();
}

TEST(ClusterFile, TheGpuFollowsTheMemoryThatIsSoldWithIt) {
  const auto bandwidth = [](const std::string& machine) {
    return SpeedOf(DescribeMachine(*FindMachine(machine), "a")).bandwidth / 1e9;
  };
  EXPECT_EQ(bandwidth("mac-studio-m4-max-36gb"), 410);
  EXPECT_EQ(bandwidth("mac-studio-m4-max-48gb"), 546);
  EXPECT_EQ(bandwidth("macbook-pro-m4-max-36gb"), 410);
  EXPECT_EQ(bandwidth("macbook-pro-m3-max-36gb"), 300);
  EXPECT_EQ(bandwidth("macbook-pro-m3-max-96gb"), 300);
  EXPECT_EQ(bandwidth("macbook-pro-m3-max-128gb"), 400);
  EXPECT_EQ(bandwidth("macbook-pro-m5-max-36gb"), 460);
  EXPECT_EQ(bandwidth("macbook-pro-m5-max-128gb"), 614);
  const auto request = ReadClusterFile(
      "nodes:\n- {name: a, chip: Apple M4 Max, memory_gib: 36}\n"
      "- {name: b, chip: Apple M4 Max, memory_gib: 36, gpu_cores: 40}\n");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.nodes(0).gpu_cores(), 32u);
  EXPECT_EQ(request->request.nodes(1).gpu_cores(), 40u) << "what is said wins";
}

TEST(ClusterFile, MachinesAsBoughtHaveCablesOnlyWhereRdmaWorks) {
  const auto minis = ParsePurchase("2x mac-mini-m4-16gb, 2x mac-mini-m4-pro-64gb");
  ASSERT_TRUE(minis.ok());
  const v1::PlanRequest request = ClusterOf(*minis);
  ASSERT_EQ(request.links_size(), 2) << "one cable, both ways";
  EXPECT_EQ(request.links(0).from_node_id(), "mac-mini-m4-pro-1");
  EXPECT_EQ(request.links(0).to_node_id(), "mac-mini-m4-pro-2");
  // Without cables a hop takes what a gigabit switch takes, not what Thunderbolt does.
  const auto speed = [](const std::string& yaml) {
    v1::PlannerQuestion question;
    question.mutable_plan()->set_cluster_yaml(
        "nodes:\n- {name: a, machine: mac-studio-m2-ultra-64gb}\n"
        "- {name: b, machine: mac-studio-m2-ultra-64gb}\n" +
        yaml);
    question.mutable_plan()->set_model("Llama-3.3-70B-Instruct-8bit");
    return AnswerOf(question).plan().plan().prediction().tokens_per_second();
  };
  v1::PlanRequest bought = ClusterOf(*ParsePurchase("2x mac-studio-m2-ultra-64gb"));
  *bought.mutable_model() = DescribeEntry(**FindEntry(Entries(), "Llama-3.3-70B-Instruct"), 8);
  const double predicted = PlanModel(bought).plan().prediction().tokens_per_second();
  EXPECT_GT(predicted, 0);
  EXPECT_DOUBLE_EQ(predicted, speed("lan: {medium: ethernet}"));
  EXPECT_LT(predicted, speed("links: mesh"));
}

TEST(ClusterFile, FaultsAreNamed) {
  const std::map<std::string, std::string> faults = {
      {"nodes: []", "no 'nodes'"},
      {"nodes:\n- {machine: mac-mini-m4-16gb}", "no 'name'"},
      {"nodes:\n- {name: a}", "how much memory"},
      {"nodes:\n- {name: a, memory_gib: -4}", "'memory_gib' is -4"},
      {"nodes:\n- {name: a, memory_gib: .nan}", "'memory_gib'"},
      {"nodes:\n- {name: a, memory_gb: 4}", "'memory_gb' is not a key"},
      {"nodes:\n- {name: a, memory_gib: 4}\n- {name: a, memory_gib: 4}", "two nodes"},
      {"nodes:\n- {name: a, memory_gib: 4}\nlinks: web", "'web' is none of"},
      {"nodes:\n- {name: a, memory_gib: 4}\nlinks:\n- {between: [a, z]}", "no node 'z'"},
      {"nodes:\n- {name: a, machine: mac-mini-m4-16gb, usable_gib: 99}", "'usable_gib' is more"},
      {"nodes:\n- {name: a, machine: mac-mini-m4-16gb, memory_gib: 99}", "says its memory_gib"},
      {"nodes: [", "description"},
      {"nodes:\n- {name: a, memory_gib: 4}\npublished: {users: 5}", "published: 'users'"},
      {"nodes:\n- {name: a, memory_gib: 4}\npublished: {cost: 5}", "'cost' is not a key"},
      {"nodes:\n- {name: a, machine: commodore-64}", "no machine"},
      {"nodes: {a: {memory_gib: 8}}", "'nodes' is a list"},
      {"nodes:\n- {name: '', memory_gib: 8}", "'name' is empty"},
      {"nodes:\n- {name: a, memory_gib: 8}\nnodes:\n- {name: b, memory_gib: 8}",
       "line 3, column 1: 'nodes' stands there twice"},
      {"nodes:\n- {name: a, memory_gib: 0}", "'memory_gib' is 0"},
      {"nodes:\n- {name: a, memory_gib: 8}\nlinks: {between: [a, b]}", "'links' is a list"},
      {"nodes:\n- {name: a, memory_gib: 8}\nloaded: {a: 5}", "'loaded' is a list"},
      {"nodes:\n- {name: a, memory_gib: 99999999999999999999}", "'memory_gib'"},
      {std::string(100'000, '['), "description"},
  };
  for (const auto& [yaml, expected] : faults) {
    const auto request = ReadClusterFile(yaml);
    ASSERT_FALSE(request.ok()) << yaml;
    EXPECT_NE(request.status().message().find(expected), std::string::npos) << request.status();
  }
}

TEST(CatalogueEntries, AreFoundByTheNamesThatPeopleUse) {
  for (const auto& [name, entry] : std::map<std::string, std::string>{
           {"mlx-community/MiniMax-M2.5-6bit", "MiniMax-M2.5"},
           {"deepseek-v3.1-8bit", "DeepSeek-V3.1"},
           {"kimmi-k2-1t-moe", "Kimi-K2-Instruct"},
           {"qwen-480b-coder", "Qwen3-Coder-480B-A35B-Instruct"},
           {"Qwen/Qwen3-235B-A22B", "Qwen3-235B-A22B"},
           {"Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"},
           {"deepseek-ai/DeepSeek-R1-0528-4bit", "DeepSeek-V3.1"},
           {"gpt-oss-20b-MXFP4-Q8", "gpt-oss-20b"},
           {"Qwen3-4B-Instruct-2507-4bit-DWQ", "Qwen3-4B-Instruct-2507"},
           {"qwen3-4b-it", "Qwen3-4B"},
           {"gemma-3-4b", "gemma-3-4b-it"},
           {"gemma-3-4b-4bit", "gemma-3-4b-it"},
           {"gemma-4-26b-a4b-4bit", "gemma-4-26b-a4b-it"},
           {"unsloth/gemma-3-27b-it-qat-bnb-4bit", "gemma-3-27b-it"},
           {"meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B-Chat"},
           {"gpt-oss:20b", "gpt-oss-20b"},
           {"qwen3:4b-instruct-2507-q4_K_M", "Qwen3-4B-Instruct-2507"},
           {"Mistral-7B-v0.3", "Mistral-7B-Instruct-v0.3"},
           {"Mistral-Small-24B", "Mistral-Small-24B-Instruct-2501"}}) {
    const auto found = FindEntry(Entries(), name);
    ASSERT_TRUE(found.ok()) << name << ": " << found.status();
    EXPECT_EQ((*found)->name, entry) << name;
  }
  for (const auto& [name, meant] : std::map<std::string, std::string>{
           {"qwen3", "Qwen3-0.6B, Qwen3-8B"}, {"gemma-3", "gemma-3-4b-it, gemma-3-12b-it"}}) {
    const auto several = FindEntry(Entries(), name);
    ASSERT_FALSE(several.ok()) << name << " is " << (*several)->name;
    EXPECT_NE(several.status().message().find("did you mean one of " + meant), std::string::npos)
        << several.status();
  }
}

TEST(CatalogueEntries, AreFoundByEveryNameOfTheirsAndOfTheirCopies) {
  const auto entry_of = [](const std::string& name) -> std::string {
    const auto found = FindEntry(Entries(), name);
    return found.ok() ? (*found)->name : std::string(found.status().message());
  };
  for (const CatalogueEntry& entry : Entries()) {
    std::vector<std::string> names = entry.aliases;
    names.push_back(entry.name);
    for (const std::string& name : names) {
      std::string base = absl::AsciiStrToLower(name);
      for (const char* taught : {"-instruct", "-it", "-chat"}) {
        if (base.ends_with(taught)) base.resize(base.size() - std::string(taught).size());
      }
      for (const std::string& called :
           {name, base, base + "-it", base + "-instruct", base + "-chat"}) {
        EXPECT_EQ(entry_of(called), entry.name) << called;
        EXPECT_EQ(BitsInName(called), std::nullopt) << called;
        EXPECT_EQ(entry_of("mlx-community/" + called + "-4bit"), entry.name) << called;
        EXPECT_EQ(BitsInName(called + "-4bit"), 4u) << called;
      }
    }
  }
}

// rankd makes 16 bits of FP8 while it loads.
TEST(CatalogueEntries, EveryWordForBitsIsReadAndIsNoPartOfTheName) {
  std::map<std::string, uint32_t> copies = {
      {"-Q5_K_M", 5},      {"-Q4_K_S", 4},   {"-Q4_K_M", 4},   {"-IQ4_XS", 4},
      {"-Q8_0", 8},        {"-qat-4bit", 4}, {"-bnb-4bit", 4}, {" MXFP4", 4},
      {"-MXFP4-Q8", 4},    {" fp8", 16},     {"-bf16", 16},    {"-FP16", 16},
      {"-4bit-DWQ", 4},    {"-6-bit", 6},    {" 8 bits", 8},   {"-UD-Q4_K_XL-GGUF", 4},
      {"-GPTQ-Int4", 4},   {"-mlx-3bit", 3}, {"-q4km", 4},     {"-F32", 32},
      {"-it-qat-q4_0", 4}, {"-bf16-4bit", 4}};
  // As the planner names what it plans.
  for (uint32_t bits = 2; bits <= 32; ++bits) copies[absl::StrCat("-", bits, "bit")] = bits;
  for (const auto& [copy, bits] : copies) {
    for (const char* model : {"Qwen3-8B", "gemma-3-27b-it", "Llama-3.1-8B-Instruct"}) {
      EXPECT_EQ(BitsInName(model + copy), bits) << model << copy;
      const auto entry = FindEntry(Entries(), model + copy);
      ASSERT_TRUE(entry.ok()) << entry.status();
      EXPECT_EQ((*entry)->name, model) << copy;
    }
  }
  EXPECT_EQ(BitsInName("Qwen3-8B"), std::nullopt);
}

TEST(PlannerAnswer, ThePlansNameForAModelMeansThatCopy) {
  const std::string cluster = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  for (const char* name : {"Qwen3-8B", "gpt-oss-20b", "gemma-3-4b-it-6bit",
                           "Qwen3-235B-A22B-Q4_K_M", "Llama-3.3-70B-Instruct"}) {
    const v1::Plan plan = AskPlan(cluster, name).plan().plan();
    const v1::Plan again = AskPlan(cluster, plan.model_name()).plan().plan();
    EXPECT_EQ(again.model_name(), plan.model_name()) << name;
    ASSERT_EQ(again.assignments_size(), 1) << name;
    EXPECT_EQ(again.assignments(0).need().total_bytes(), plan.assignments(0).need().total_bytes())
        << name;
  }
}

TEST(CatalogueEntries, AWindowThatSlidesKeepsTheCacheSmall) {
  const std::string cluster = "nodes:\n- {name: a, machine: mac-mini-m4-pro-64gb}\n";
  // Of a model that mlx-lm serves: the engine of its own keeps all of those that it serves.
  const v1::PlannerAnswer answer = AskPlan(cluster, "gemma-2-27b-it-4bit", 8192);
  ASSERT_TRUE(answer.plan().has_plan()) << answer.plan().failure().message();
  // 46 layers x 16 heads x (128 + 128) numbers of 2 bytes; every second one keeps a window of 4096
  // and a chunk of 256 positions.
  EXPECT_EQ(answer.plan().plan().assignments(0).need().kv_cache_bytes(),
            uint64_t{23} * (8192 + 4096 + 256) * 16 * 256 * 2);
  for (const auto& [name, window] :
       std::map<std::string, std::pair<uint32_t, uint32_t>>{{"gemma-2-9b-it", {4096, 2}},
                                                            {"gemma-3-4b-it", {1024, 6}},
                                                            {"gemma-4-31b-it", {1024, 6}},
                                                            {"gpt-oss-120b", {128, 2}},
                                                            {"gpt-oss-20b", {128, 2}}}) {
    const v1::ModelDescription model = DescribeEntry(**FindEntry(Entries(), name), 4);
    EXPECT_EQ(std::pair(model.sliding_window(), model.full_attention_every()), window) << name;
  }
}

// rankd keeps the keys and values of all positions: a plan must not promise less than is used.
TEST(CatalogueEntries, AWindowOfAModelThatIsServedSavesNoMemory) {
  const std::string cluster = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  const auto cache = [&](const char* model) {
    const v1::PlannerAnswer answer = AskPlan(cluster, model, 131072);
    EXPECT_TRUE(answer.plan().has_plan()) << answer.plan().failure().message();
    return answer.plan().plan().assignments(0).need().kv_cache_bytes();
  };
  // 24 layers x 8 heads x (64 + 64) numbers of 2 bytes.
  EXPECT_GE(cache("gpt-oss-20b"), uint64_t{131072} * 24 * 8 * 128 * 2);
  EXPECT_GE(cache("gemma-3-4b-it"), uint64_t{131072} * 34 * 4 * 512 * 2);
  EXPECT_GE(cache("gemma-4-31b-it"), uint64_t{131072} * 60 * 16 * 512 * 2);
}

TEST(CatalogueEntries, ModelsOfOneShapeHaveTheirOwnContext) {
  for (const auto& [name, context] :
       std::map<std::string, uint32_t>{{"qwen3-30b-a3b", 40960},
                                       {"qwen3-30b-a3b-instruct-2507", 262144},
                                       {"qwen3-30b-a3b-thinking-2507", 262144},
                                       {"qwen3-coder-30b-a3b", 262144},
                                       {"qwen3-235b-a22b", 40960},
                                       {"qwen3-235b-a22b-instruct-2507", 262144},
                                       {"qwen3-4b", 40960},
                                       {"qwen3-4b-thinking-2507", 262144},
                                       {"codellama-7b", 16384},
                                       {"codellama-13b", 16384},
                                       {"codellama-70b", 16384},
                                       {"llama-2-7b", 4096},
                                       {"llama-3-8b", 8192},
                                       {"llama-3-70b", 8192},
                                       {"llama-3.1-70b", 131072},
                                       {"phi-3-mini-4k", 4096},
                                       {"phi-3-mini-128k", 131072},
                                       {"kimi-k2", 131072},
                                       {"kimi-k2-instruct-0905", 262144},
                                       {"mistral-small-24b", 32768},
                                       {"mistral-small-3.1-24b", 131072},
                                       {"glm-4.5", 131072},
                                       {"glm-4.6", 202752},
                                       {"deepseek-r1-distill-qwen-1.5b", 131072}}) {
    const auto entry = FindEntry(Entries(), name);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->context, context) << name;
  }
}

TEST(Typos, EveryUnknownNameIsToldWhatWasMeant) {
  const auto of_model = [](const std::string& name) { return FindEntry(Entries(), name).status(); };
  const auto of_tier = [](const std::string& name) {
    v1::CapacityQuestion question;
    question.set_tier(name);
    return MakeCapacityReport(question, Entries()).status();
  };
  const auto of_file = [](const std::string& more) {
    return ReadClusterFile("nodes:\n- {name: north, memory_gib: 8}\n" + more).status();
  };
  const std::vector<std::pair<absl::Status, std::string>> cases = {
      {of_model("gpt-os-120b-4bit"), "'gpt-oss-120b'"},
      {of_model("Llmaa-3.3-70B-Instruct"), "'Llama-3.3-70B-Instruct'"},
      {of_model("mlx-community/Qwen3-235B-A22B-Instruct-2509-4bit"), "'Qwen3-235B-A22B'"},
      {of_tier("strater"), "'starter'"},
      {of_tier("Starter"), "'starter'"},
      {ParsePurchase("2x mac-studio-m3-utra-512gb").status(), "'mac-studio-m3-ultra-512gb'"},
      {ParsePurchase("mac-min-m4-16gb").status(), "'mac-mini-m4-16gb'"},
      {of_file("- {name: b, chip: Apple M4 Mxa, memory_gib: 64}"), "'Apple M4 Max'"},
      {of_file("- {name: b, memory_gb: 64}"), "'memory_gib'"},
      {of_file("- {name: b, memory_gib: 8}\nlinks: [{between: [b, nroth]}]"), "'north'"},
      {of_file("links: msh"), "'mesh'"},
      {ReadCatalogue("models: [{name: x, layer: 2}]").status(), "'layers'"},
  };
  for (const auto& [status, meant] : cases) {
    EXPECT_NE(status.message().find("; did you mean " + meant + "?"), std::string::npos)
        << meant << ": " << status;
  }
  const absl::Status far = of_model("nothing-like-it");
  EXPECT_EQ(far.message().find("did you mean"), std::string::npos) << far;
}

TEST(CatalogueEntries, AMixtureWithoutItsExpertsIsAsLargeAsAllItsParameters) {
  const auto entry = FindEntry(Entries(), "DeepSeek-V4-Pro");
  ASSERT_TRUE(entry.ok());
  const v1::ModelDescription model = DescribeEntry(**entry, 8);
  uint64_t bytes = 0;
  for (const uint64_t layer : model.layer_bytes()) bytes += layer;
  EXPECT_NEAR(static_cast<double>(bytes), 1600e9 * 8.5 / 8, 1600e9 * 8.5 / 8 * 0.05);
  EXPECT_GT(model.experts(), 0u) << "and reads the active part only";
}

TEST(CatalogueEntries, ATiedTableIsInTheFilesOnce) {
  const char shape[] =
      "layers: 16, hidden: 2048, heads: 32, kv_heads: 8, head_dim: 64, intermediate: 8192, "
      "vocab: 128256";
  const auto entries = ReadCatalogue(absl::StrCat("models:\n- {name: Tied, tied_embeddings: true, ",
                                                  shape, "}\n- {name: Apart, ", shape, "}\n"));
  ASSERT_TRUE(entries.ok()) << entries.status();
  const v1::ModelDescription tied = DescribeEntry((*entries)[0], 16);
  const v1::ModelDescription apart = DescribeEntry((*entries)[1], 16);
  EXPECT_EQ(ModelBytes(apart) - ModelBytes(tied), uint64_t{128256} * 2048 * 2);
  // 1.24 billion parameters of two bytes, as its makers count them: with one table.
  EXPECT_NEAR(static_cast<double>(ModelBytes(tied)), 1.24e9 * 2, 0.01 * 1.24e9 * 2);
  for (const auto& [name, is_tied] :
       std::map<std::string, bool>{{"Llama-3.2-3B-Instruct", true},
                                   {"Qwen3-0.6B", true},
                                   {"Qwen2.5-1.5B-Instruct", true},
                                   {"DeepSeek-R1-Distill-Qwen-1.5B", false},
                                   {"Llama-3.1-8B-Instruct", false}}) {
    EXPECT_EQ(DescribeEntry(**FindEntry(Entries(), name), 4).tied_embeddings(), is_tied) << name;
  }
  // A published size is the size, tied or not.
  EXPECT_NEAR(
      static_cast<double>(ModelBytes(DescribeEntry(**FindEntry(Entries(), "gemma-4-31b-it"), 4))),
      18411755224, 1e6);
}

TEST(CatalogueEntries, EntriesThatMakeNoSenseAreRefused) {
  const auto mistyped = ReadCatalogue("models:\n- {name: x, layers: 2, hidden: 8, tied: true}");
  ASSERT_FALSE(mistyped.ok());
  EXPECT_NE(mistyped.status().message().find("'tied' is not a key"), std::string::npos);
  EXPECT_FALSE(ReadCatalogue("models:\n- {layers: 2, hidden: 8}").ok());
  EXPECT_FALSE(ReadCatalogue("models:\n- {name: x, layers: 4000000000, hidden: 8}").ok());
  EXPECT_FALSE(ReadCatalogue("models:\n- {name: x}").ok());
  EXPECT_FALSE(ReadCatalogue("models: [").ok());
  EXPECT_FALSE(ReadCatalogue("models:\n- {name: x, layers: 2, hidden: 8}").ok()) << "of no size";
  const std::string sized = "{name: x, layers: 2, hidden: 8, active_parameters: 1}";
  EXPECT_TRUE(ReadCatalogue("models: [" + sized + "]").ok());
  EXPECT_FALSE(ReadCatalogue("models: [" + sized + ", " + sized + "]").ok()) << "which of them?";
  EXPECT_FALSE(ReadCatalogue("models: {x: {layers: 2, hidden: 8}}").ok());
  EXPECT_FALSE(ReadCatalogue(std::string(100'000, '[')).ok());
  for (const char* wrong :
       {"hidden: 8, engine: vllm, architecture: x", "hidden: 8, engine: mlx-lm",
        "hidden: 8, splits: [tensor]", "hidden: 8, engine: mlx-lm, architecture: x, splits: [rows]",
        "hidden: 4000000000", "hidden: 8, vocab: 4000000000", "hidden: 8, experts: 4000000000",
        "hidden: 8, parameters: 1e300", "hidden: 8, parameters: .nan", "hidden: 8, rest_bits: -4",
        "hidden: 8, bits: 64", "hidden: 8, latent: {kv_rank: 4000000000}"}) {
    const auto entries = ReadCatalogue(
        absl::StrCat("models: [{name: x, layers: 2, active_parameters: 1, ", wrong, "}]"));
    EXPECT_FALSE(entries.ok()) << wrong;
  }
}

TEST(PlannerAnswer, AModelIdWithoutBitsIsNotTakenToBeQuantised) {
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(
      "nodes:\n- {name: a, machine: mac-mini-m4-pro-24gb}\n"
      "- {name: b, machine: mac-mini-m4-pro-24gb}\n- {name: c, machine: mac-mini-m4-pro-24gb}\n"
      "links: mesh\n");
  question.mutable_plan()->set_model("Qwen/Qwen2.5-Coder-32B");
  const v1::PlannerAnswer answer = AnswerOf(question);
  ASSERT_TRUE(answer.has_plan()) << answer.failure().message();
  EXPECT_FALSE(answer.plan().has_plan());
  EXPECT_EQ(answer.plan().failure().code(), "MEMORY_SHORT");
  EXPECT_NE(answer.plan().failure().remedy().find("8-bit copy"), std::string::npos)
      << answer.plan().failure().remedy();
  question.mutable_plan()->set_bits(4);
  EXPECT_TRUE(AnswerOf(question).plan().has_plan());
}

TEST(PlannerAnswer, QuestionsWithoutAnAnswerSayWhy) {
  EXPECT_EQ(AnswerOf({}).failure().code(), "BAD_REQUEST");
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml("nodes:\n- {name: a, memory_gib: 8}\n");
  question.mutable_plan()->set_model("nothing-like-it");
  EXPECT_EQ(AnswerOf(question).failure().code(), "MODEL_NOT_FOUND");
  EXPECT_NE(AnswerOf(question).failure().remedy().find("--catalogue"), std::string::npos);
  question.mutable_capacity()->set_tier("strater");
  EXPECT_EQ(AnswerOf(question).failure().code(), "BAD_REQUEST") << "a tier is no model";
  question.mutable_capacity()->set_tier("");
  question.mutable_capacity()->set_buy("abacus");
  EXPECT_EQ(AnswerOf(question).failure().code(), "BAD_REQUEST");
}

}  // namespace
}  // namespace macrame::planner
