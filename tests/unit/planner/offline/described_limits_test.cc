// Described clusters and questions about them at their limits: what is loaded twice, links that
// can't be, machines by what macOS calls them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "planner/chip_table.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/cluster_file.h"
#include "planner/offline/machine_table.h"
#include "planner/offline/planner_answer.h"
#include "proto/reason_codes.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kGiB = 1ULL << 30;
constexpr char kTwo[] =
    "nodes:\n- {name: a, machine: mac-studio-m3-ultra-96gb}\n"
    "- {name: b, machine: mac-studio-m3-ultra-96gb}\n";

std::string ErrorOf(const std::string& yaml) {
  const auto cluster = ReadClusterFile(yaml);
  EXPECT_TRUE(cluster.ok() || absl::IsInvalidArgument(cluster.status())) << cluster.status();
  return cluster.ok() ? "" : std::string(cluster.status().message());
}

TEST(DescribedCluster, AModelsMemoryOnANodeIsToldOnce) {
  EXPECT_THAT(ErrorOf(absl::StrCat(kTwo, "loaded:\n- {name: m, gib: {a: 10, a: 20}}\n")),
              HasSubstr("'a' stands there twice"));
  const auto cluster = ReadClusterFile(
      absl::StrCat(kTwo, "loaded:\n- {name: m, gib: {a: 10, b: 5}}\n- {name: n, gib: {a: 1.5}}\n"));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->request.nodes(0).memory_reserved_bytes(), 23 * kGiB / 2);
  EXPECT_EQ(cluster->request.nodes(1).memory_reserved_bytes(), 5 * kGiB);
  EXPECT_EQ(cluster->loaded[0].bytes.at("a"), 10 * kGiB);
  EXPECT_EQ(cluster->loaded[1].bytes.at("a"), 3 * kGiB / 2);
}

TEST(DescribedCluster, NodesThatCannotReachEachOtherHaveNoRdma) {
  EXPECT_THAT(
      ErrorOf(absl::StrCat(kTwo, "links:\n- {between: [a, b], medium: none, rdma: true}\n")),
      HasSubstr("none"));
  const auto apart =
      ReadClusterFile(absl::StrCat(kTwo, "links:\n- {between: [a, b], medium: none}\n"));
  ASSERT_TRUE(apart.ok()) << apart.status();
  for (const v1::PlannerLink& link : apart->request.links()) EXPECT_EQ(link.backends_size(), 0);
}

TEST(DescribedCluster, PublishedFiguresOfTheWrongShapeAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{users: 100}", "two numbers"},
      {"{users: [1, 2, 3]}", "two numbers"},
      {"{users: [0, 5]}", "two numbers"},
      {"{users: {low: 1, high: 2}}", ""},
      {"{users: [-1, 5]}", ""},
      {"{price: free}", "wrong kind"},
      {"{price: -1}", "'price' is -1"},
      {"{price: .nan}", "'price' is nan"},
      {"{speeds: fast}", "'speeds' is a list"},
      {"{speeds: [{model: m, tokens_per_second: .inf}]}", "'tokens_per_second' is inf"},
      {"{notes: {a: b}}", "wrong kind"},
      {"[1, 2]", "keys with values"},
      {"{currancy: £}", "did you mean 'currency'"},
  };
  for (const auto& [published, says] : cases) {
    const std::string error = ErrorOf(absl::StrCat(kTwo, "published: ", published, "\n"));
    EXPECT_FALSE(error.empty()) << published;
    EXPECT_THAT(error, HasSubstr(says)) << published;
  }
}

// Whatever stands where a value is expected, it is taken or refused with its place, never both.
TEST(DescribedCluster, AnyValueUnderAnyKeyIsTakenOrRefused) {
  constexpr const char* kValues[] = {"",
                                     "~",
                                     "[]",
                                     "{}",
                                     "[[[]]]",
                                     "{a: {b: c}}",
                                     "-1",
                                     "1e999",
                                     ".nan",
                                     "0x10",
                                     "'",
                                     "true",
                                     "\"\"",
                                     "[a, a]",
                                     "a",
                                     "&x [*x]",
                                     "!!binary aa",
                                     "1.5",
                                     "99999999999999999999"};
  constexpr const char* kOfNode[] = {"machine",    "chip",       "gpu_cores",   "cpu_cores",
                                     "memory_gib", "usable_gib", "free_gib",    "reserved_gib",
                                     "tflops",     "tenant",     "schedulable", "engine",
                                     "backends",   "rdma",       "portable",    "has_model"};
  constexpr const char* kOfCluster[] = {"links",     "lan",    "mesh_ranks_max", "title",
                                        "published", "loaded", "nodes"};
  int taken = 0, refused = 0;
  const auto check = [&](const std::string& yaml) {
    const auto cluster = ReadClusterFile(yaml);
    ++(cluster.ok() ? taken : refused);
    if (!cluster.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(cluster.status())) << yaml;
      return;
    }
    for (const v1::PlannerNode& node : cluster->request.nodes()) {
      EXPECT_LE(node.memory_usable_bytes(), node.memory_total_bytes()) << yaml;
      EXPECT_GT(node.memory_available_bytes(), 0u) << yaml;
    }
  };
  for (const char* value : kValues) {
    for (const char* key : kOfNode) {
      check(absl::StrCat("nodes:\n- {name: a, chip: Apple M4, memory_gib: 16, ", key, ": ", value,
                         "}\n"));
      check(absl::StrCat("nodes:\n- name: a\n  memory_gib: 16\n  ", key, ": ", value, "\n"));
    }
    for (const char* key : kOfCluster) check(absl::StrCat(kTwo, key, ": ", value, "\n"));
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 200);
}

// ---- Machines.

TEST(MachineTable, EachIsFoundByWhatMacosCallsItAndItsChip) {
  for (const Machine& machine : Machines()) {
    const std::vector<std::string> ids = absl::StrSplit(std::string(machine.model_ids), ' ');
    for (const std::string& id : ids) {
      EXPECT_EQ(FindMachineModel(id, machine.chip), &machine) << id;
      EXPECT_EQ(FindMachineModel(id, "Apple M6"), nullptr) << id << ": another chip";
      EXPECT_EQ(FindMachineModel(id, "Intel Core i7"), nullptr) << id;
      EXPECT_EQ(FindMachineModel(absl::StrCat(id, "0"), machine.chip), nullptr) << id;
    }
  }
  EXPECT_EQ(FindMachineModel("", "Apple M4"), nullptr);
  EXPECT_EQ(FindMachineModel("Mac16,9 Mac16,10", "Apple M4"), nullptr) << "two ids are none";
}

TEST(MachineTable, AMachineIsDescribedWithinWhatItsChipHas) {
  for (const Machine& machine : Machines()) {
    for (const uint32_t memory : machine.memory_gib) {
      const v1::PlannerNode node = DescribeMachine({&machine, memory, true}, "x");
      const Chip* chip = FindChip(node.chip());
      ASSERT_NE(chip, nullptr) << machine.name;
      EXPECT_TRUE(node.gpu_cores() == chip->gpu_cores[0] || node.gpu_cores() == chip->gpu_cores[1])
          << machine.name;
      EXPECT_LT(node.memory_usable_bytes(), node.memory_total_bytes());
      EXPECT_EQ(node.is_portable(), IsPortable(machine));
      EXPECT_EQ(HasThunderbolt5(node), machine.rdma_ports > 0) << machine.name;
    }
  }
}

TEST(MachineTable, AMistypedMachineIsToldTheOneThatIsSold) {
  const std::pair<const char*, const char*> cases[] = {
      {"mac-studio-m3-ulta-512gb", "did you mean 'mac-studio-m3-ultra-512gb'"},
      {"mac-mini-m4pro-64gb", "did you mean 'mac-mini-m4-pro-64gb'"},
      {"mac-mini-m4-pro",
       "mac-mini-m4-pro is sold with 24, 48, 64 GB, such as mac-mini-m4-pro-64gb"},
      {"mac-mini-m4-pro-lots", "does not say how much memory"},
      {"pc", "no machine is called 'pc'; known are mac-mini-m1"},
  };
  for (const auto& [typed, says] : cases) {
    const auto found = FindMachine(typed);
    EXPECT_TRUE(absl::IsInvalidArgument(found.status())) << typed;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(says)) << typed;
  }
}

// ---- Questions.

v1::PlannerAnswer AskPlan(const std::string& cluster, const std::string& model, uint32_t bits,
                          const v1::PlacementOptions& placement = {}) {
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(cluster);
  question.mutable_plan()->set_model(model);
  question.mutable_plan()->set_bits(bits);
  *question.mutable_plan()->mutable_placement() = placement;
  return AnswerOf(question);
}

TEST(DescribedPlan, BitsThatContradictTheNameOrCannotBeAreRefused) {
  for (const uint32_t bits : {1u, 33u, ~0u}) {
    const v1::Reason failure = AskPlan(kTwo, "Qwen3-32B", bits).failure();
    EXPECT_EQ(failure.code(), reasons::kBadRequest) << bits;
    EXPECT_THAT(failure.message(), HasSubstr("between 2 and 32"));
  }
  EXPECT_THAT(AskPlan(kTwo, "Qwen3-32B-8bit", 4).failure().message(),
              HasSubstr("'Qwen3-32B-8bit' says 8 bits, and 4 are asked for"));
  const v1::PlannerAnswer same = AskPlan(kTwo, "Qwen3-32B-8bit", 8);
  ASSERT_TRUE(same.plan().has_plan()) << same.failure().message();
  EXPECT_EQ(same.plan().plan().model_name(), "Qwen3-32B-8bit");
}

TEST(DescribedPlan, MoreBitsNeverTakeLessMemory) {
  uint64_t before = 0;
  for (const uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u, 16u}) {
    const v1::PlannerAnswer answer = AskPlan(kTwo, "Qwen3-32B", bits);
    ASSERT_TRUE(answer.plan().has_plan()) << bits << ": " << answer.plan().failure().message();
    uint64_t weights = 0;
    for (const v1::Assignment& part : answer.plan().plan().assignments()) {
      weights += part.need().weights_bytes();
    }
    EXPECT_GT(weights, before) << bits << " bits";
    before = weights;
  }
}

// What is to be unloaded is told only where it is enough, and it is.
TEST(DescribedPlan, OnceWhatIsNamedHasGoneItFits) {
  std::mt19937 random(5);
  int named = 0;
  for (int round = 0; round < 40; ++round) {
    std::string loaded = "loaded:\n";
    std::vector<std::pair<int, int>> sizes;  // GiB on a and b
    const int models = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < models; ++i) {
      sizes.emplace_back(random() % 30, random() % 30);
      absl::StrAppend(&loaded, "- {name: m", i, ", gib: {a: ", sizes.back().first,
                      ", b: ", sizes.back().second, "}}\n");
    }
    const v1::PlanResult result =
        AskPlan(absl::StrCat(kTwo, loaded), "Llama-3.3-70B-Instruct", 8).plan();
    const std::string& remedy = result.failure().remedy();
    const size_t at = remedy.find("unload ");
    if (result.has_plan() || at == std::string::npos) continue;
    ++named;
    std::string rest = "loaded: []\n";
    for (int i = 0; i < models; ++i) {
      const std::string name = absl::StrCat("m", i);
      if (remedy.find(name, at) != std::string::npos) continue;
      if (rest == "loaded: []\n") rest = "loaded:\n";
      absl::StrAppend(&rest, "- {name: ", name, ", gib: {a: ", sizes[i].first,
                      ", b: ", sizes[i].second, "}}\n");
    }
    EXPECT_TRUE(AskPlan(absl::StrCat(kTwo, rest), "Llama-3.3-70B-Instruct", 8).plan().has_plan())
        << remedy << "\n"
        << loaded;
  }
  EXPECT_GT(named, 8);
}

TEST(DescribedPlan, NamesInOptionsAreThoseOfTheFile) {
  v1::PlacementOptions placement;
  placement.add_node_ids("b");
  const v1::PlannerAnswer answer = AskPlan(kTwo, "Llama-3.1-8B-Instruct", 4, placement);
  ASSERT_TRUE(answer.plan().has_plan());
  EXPECT_EQ(answer.plan().plan().assignments(0).hostname(), "b");
  placement.set_node_ids(0, "c");
  const v1::Reason failure = AskPlan(kTwo, "Llama-3.1-8B-Instruct", 4, placement).plan().failure();
  EXPECT_EQ(failure.code(), reasons::kNodeNotFound);
  EXPECT_THAT(failure.message(), HasSubstr("there is no node 'c'; known are a, b"));
}

// An entry of one's own: each of its numbers in turn is as small and as large as there is.
TEST(CatalogueEntries, WhateverIsAcceptedIsPlannedOrRefusedForAReason) {
  constexpr const char* kKeys[] = {"layers",
                                   "hidden",
                                   "heads",
                                   "kv_heads",
                                   "head_dim",
                                   "intermediate",
                                   "vocab",
                                   "context",
                                   "experts",
                                   "active",
                                   "shared",
                                   "expert_width",
                                   "dense_layers",
                                   "sliding_window",
                                   "kv_index",
                                   "residual_streams",
                                   "expert_hidden",
                                   "fixed_state_bytes",
                                   "group",
                                   "rest_bits",
                                   "parameters",
                                   "active_parameters",
                                   "vision_bytes",
                                   "attention_weights",
                                   "full_attention_every"};
  constexpr const char* kNumbers[] = {"0", "1", "2", "1024", "1048576", "4294967295"};
  int planned = 0, refused = 0;
  for (const char* base : {"", "experts: 16, active: 2, expert_width: 512, ",
                           "latent: {kv_rank: 512, q_rank: 1024}, "}) {
    for (const char* key : kKeys) {
      if (std::string(base).find(absl::StrCat(key, ":")) != std::string::npos) continue;
      for (const char* number : kNumbers) {
        std::string entry = "models:\n- {name: own, ";
        absl::StrAppend(&entry, base);
        const std::pair<const char*, int> shape[] = {
            {"layers", 8},    {"hidden", 1024},       {"heads", 16},    {"kv_heads", 4},
            {"head_dim", 64}, {"intermediate", 4096}, {"vocab", 32000}, {"parameters", 2}};
        for (const auto& [name, value] : shape) {
          if (std::string(name) != key) absl::StrAppend(&entry, name, ": ", value, ", ");
        }
        absl::StrAppend(&entry, key, ": ", number, "}\n");
        v1::PlannerQuestion question;
        question.mutable_plan()->set_cluster_yaml(kTwo);
        question.mutable_plan()->set_catalogue_yaml(entry);
        question.mutable_plan()->set_model("own");
        question.mutable_plan()->set_bits(4);
        const v1::PlannerAnswer answer = AnswerOf(question);
        const v1::Reason& failure =
            answer.has_failure() ? answer.failure() : answer.plan().failure();
        ++(answer.plan().has_plan() ? planned : refused);
        if (answer.plan().has_plan()) {
          const double speed = answer.plan().plan().prediction().tokens_per_second();
          EXPECT_TRUE(std::isfinite(speed) && speed > 0) << entry;
          continue;
        }
        EXPECT_FALSE(failure.message().empty()) << entry;
        // What the reader lets through, the planner can calculate with.
        EXPECT_NE(failure.code(), reasons::kModelConfigInvalid) << entry << failure.message();
      }
    }
  }
  EXPECT_GT(planned, 200);
  EXPECT_GT(refused, 60);
}

TEST(DescribedTopology, MachinesThatAreNotSoldAreToldAndUnknownModelsRefused) {
  v1::PlannerQuestion question;
  question.mutable_topology()->set_buy("2x mac-studio-m3-ultra-128gb");
  v1::PlannerAnswer answer = AnswerOf(question);
  ASSERT_TRUE(answer.has_topology()) << answer.failure().message();
  EXPECT_THAT(answer.topology().notes(),
              testing::Contains(HasSubstr("mac-studio-m3-ultra-128gb is not sold")));
  question.mutable_topology()->set_model("Lama-9000");
  answer = AnswerOf(question);
  EXPECT_EQ(answer.failure().code(), reasons::kModelNotFound);
  question.mutable_topology()->clear_model();
  question.mutable_topology()->clear_buy();
  answer = AnswerOf(question);
  EXPECT_EQ(answer.failure().code(), reasons::kBadRequest);
  EXPECT_THAT(answer.failure().message(), HasSubstr("no machine is named"));
}

}  // namespace
}  // namespace macrame::planner
