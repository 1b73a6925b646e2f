// Laws of what is told of described machines: more of them never hold less, no cable makes anything
// slower, and sums are sums.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "planner/offline/capacity.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/machine_table.h"
#include "planner/offline/planner_answer.h"
#include "proto/reason_codes.h"

namespace macrame::planner {
namespace {

const std::vector<CatalogueEntry>& Entries() {
  static const std::vector<CatalogueEntry> entries = *CatalogueWith("");
  return entries;
}

constexpr const char* kModels[] = {"Llama-3.1-8B-Instruct", "Qwen3-30B-A3B",
                                   "Llama-3.3-70B-Instruct", "gpt-oss-120b", "DeepSeek-V3.1"};

v1::PlanResult Planned(const std::string& cluster, const std::string& model, uint32_t context = 0) {
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(cluster);
  question.mutable_plan()->set_model(model);
  question.mutable_plan()->set_bits(4);
  question.mutable_plan()->mutable_placement()->set_context_length(context);
  const v1::PlannerAnswer answer = AnswerOf(question);
  EXPECT_TRUE(answer.has_plan()) << answer.failure().message() << "\n" << cluster;
  return answer.plan();
}

struct Box {
  double memory_gib = 0, reserved_gib = 0;
};

std::string ClusterOf(const std::vector<Box>& boxes, const std::string& links) {
  std::string yaml = "nodes:\n";
  for (size_t i = 0; i < boxes.size(); ++i) {
    absl::StrAppend(&yaml, "- {name: n", i,
                    ", chip: Apple M4 Max, memory_gib: ", boxes[i].memory_gib,
                    ", reserved_gib: ", boxes[i].reserved_gib, "}\n");
  }
  return absl::StrCat(yaml, "links: ", links, "\n");
}

std::vector<Box> RandomBoxes(std::mt19937& random, size_t count) {
  constexpr double kSizes[] = {16, 24, 36, 48, 64, 128};
  std::vector<Box> boxes(count);
  for (Box& box : boxes) {
    box.memory_gib = kSizes[random() % 6];
    box.reserved_gib = random() % 3 == 0 ? box.memory_gib / 4 : 0;
  }
  return boxes;
}

TEST(PlanLaws, ALargerClusterNeverHoldsLess) {
  std::mt19937 random(21);
  int fitted = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Box> boxes = RandomBoxes(random, 1 + random() % 4);
    const std::string model = kModels[random() % 5];
    const std::string links = random() % 2 == 0 ? "mesh" : "none";
    const v1::PlanResult before = Planned(ClusterOf(boxes, links), model);
    if (!before.has_plan()) continue;
    ++fitted;
    const double speed = before.plan().prediction().tokens_per_second();
    std::vector<std::vector<Box>> larger;
    larger.push_back(boxes);
    larger.back().push_back({64, 0});  // one more
    larger.push_back(boxes);
    larger.back()[random() % boxes.size()].memory_gib += 64;  // more memory
    larger.push_back(boxes);
    for (Box& box : larger.back()) box.reserved_gib = 0;  // less that is promised
    for (const std::vector<Box>& more : larger) {
      const v1::PlanResult after = Planned(ClusterOf(more, links), model);
      ASSERT_TRUE(after.has_plan()) << model << "\n"
                                    << ClusterOf(boxes, links) << "fits, and not\n"
                                    << ClusterOf(more, links) << after.failure().message();
      // A plan of fewer nodes is there as well; speeds are predicted to within an error.
      EXPECT_GE(after.plan().prediction().tokens_per_second(), 0.8 * speed)
          << model << "\n"
          << ClusterOf(boxes, links) << "against\n"
          << ClusterOf(more, links);
    }
  }
  EXPECT_GT(fitted, 20) << "enough of them fit";
}

TEST(PlanLaws, NoNodeHoldsMoreThanItsBudgetAndAllLayersAreThere) {
  std::mt19937 random(22);
  for (int round = 0; round < 50; ++round) {
    const std::vector<Box> boxes = RandomBoxes(random, 1 + random() % 5);
    const v1::PlanResult result = Planned(ClusterOf(boxes, "mesh"), kModels[random() % 5]);
    if (!result.has_plan()) {
      EXPECT_NE(result.failure().message(), "");
      EXPECT_NE(result.failure().remedy(), "") << result.failure().message();
      continue;
    }
    for (const v1::Assignment& part : result.plan().assignments()) {
      EXPECT_LE(part.need().total_bytes(), part.budget_bytes());
      const auto node = static_cast<size_t>(std::stoi(part.node_id().substr(1)));
      EXPECT_LE(part.need().total_bytes(),
                static_cast<double>(boxes[node].memory_gib - boxes[node].reserved_gib) * (1 << 30));
    }
  }
}

TEST(PlanLaws, ALongerContextNeverFitsWhereAShorterDoesNot) {
  std::mt19937 random(23);
  for (int round = 0; round < 40; ++round) {
    const std::string cluster = ClusterOf(RandomBoxes(random, 1 + random() % 3), "mesh");
    const std::string model = kModels[random() % 4];
    bool fits = true;
    for (const uint32_t context : {1024u, 8192u, 32768u, 131072u}) {
      const bool now = Planned(cluster, model, context).has_plan();
      EXPECT_TRUE(fits || !now) << model << " with " << context << "\n" << cluster;
      fits = now;
    }
  }
}

absl::StatusOr<v1::CapacityReport> Bought(const std::string& buy, const std::string& model) {
  v1::CapacityQuestion question;
  question.set_buy(buy);
  question.add_models(model);
  question.set_users(1);
  return MakeCapacityReport(question, Entries());
}

TEST(CapacityLaws, MoreMachinesOfOneKindHoldAtLeastAsManyBitsAndAreNotSlower) {
  for (const char* machine : {"mac-mini-m4-pro-64gb", "mac-studio-m3-ultra-256gb",
                              "mac-mini-m4-16gb", "mac-studio-m4-max-128gb"}) {
    for (const char* model : kModels) {
      uint32_t bits = 0;
      double speed = 0;
      for (const int count : {1, 2, 3, 4, 6, 8}) {
        const auto report = Bought(absl::StrCat(count, "x ", machine), model);
        ASSERT_TRUE(report.ok()) << report.status();
        const v1::CapacityModel& row = report->models(0);
        if (!row.fits()) {
          EXPECT_EQ(bits, 0u) << count << "x " << machine << " hold no " << model;
          EXPECT_NE(row.why_not(), "");
          continue;
        }
        EXPECT_GE(row.bits(), bits) << count << "x " << machine << ", " << model;
        EXPECT_LE(row.nodes(), static_cast<uint32_t>(count));
        EXPECT_TRUE(std::isfinite(row.joules_per_token()));
        EXPECT_GT(row.prediction().tokens_per_second(), 0);
        // More bits are read for longer; of as many it is as fast. Up to four are a mesh, in which
        // the fewer are; larger rings hold no smaller ones, and desks hold a mesh of four.
        if (row.bits() == bits) {
          EXPECT_GE(row.prediction().tokens_per_second(), 0.95 * speed)
              << count << "x " << machine << ", " << model;
        }
        if (count <= 4 || row.bits() != bits) speed = row.prediction().tokens_per_second();
        bits = row.bits();
      }
    }
  }
}

TEST(CapacityLaws, EachOfferHoldsTheModelAndIsFastEnough) {
  for (const char* model : kModels) {
    for (const double speed : {0.0, 5.0, 20.0}) {
      v1::CapacityQuestion question;
      question.set_recommend(true);
      question.add_models(model);
      question.set_users(10);
      question.set_tokens_per_second(speed);
      const auto report = MakeCapacityReport(question, Entries());
      if (!report.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(report.status())) << report.status();
        continue;
      }
      ASSERT_GT(report->models_size(), 0);
      EXPECT_LE(report->models_size(), 12);
      ASSERT_EQ(report->models_size(), report->machines_size());
      for (int i = 0; i < report->models_size(); ++i) {
        const v1::Prediction& predicted = report->models(i).prediction();
        EXPECT_TRUE(report->models(i).fits());
        EXPECT_GE(predicted.tokens_per_second(), speed) << report->machines(i);
        EXPECT_GE(predicted.users_tokens_per_second() / predicted.users(), speed)
            << report->machines(i);
        const auto bought = ParsePurchase(report->machines(i));
        ASSERT_TRUE(bought.ok()) << report->machines(i);
        for (const MachineConfiguration& machine : *bought) {
          EXPECT_TRUE(machine.is_sold && !machine.machine->used_only) << report->machines(i);
        }
      }
    }
  }
}

TEST(TopologyLaws, NoCableIsWorthLessThanNothing) {
  for (const char* buy :
       {"2x mac-mini-m4-pro-64gb", "3x mac-studio-m3-ultra-256gb", "4x mac-studio-m4-max-128gb",
        "6x mac-mini-m4-pro-64gb", "5x mac-studio-m3-ultra-96gb, 2x mac-mini-m4-16gb"}) {
    for (const char* model :
         {"Llama-3.3-70B-Instruct-4bit", "gpt-oss-120b", "Qwen3-30B-A3B-4bit"}) {
      v1::PlannerQuestion question;
      question.mutable_topology()->set_buy(buy);
      question.mutable_topology()->set_model(model);
      const v1::PlannerAnswer answer = AnswerOf(question);
      ASSERT_TRUE(answer.has_topology()) << answer.failure().message();
      const v1::TopologyAdvice& advice = answer.topology();
      for (const v1::TopologyCable& cable : advice.cables()) {
        EXPECT_LE(cable.tokens_per_second_without(), 1.02 * advice.tokens_per_second())
            << buy << ", " << model << ": " << cable.a() << " - " << cable.b();
      }
      for (const v1::TopologyOption& option : advice.options()) {
        EXPECT_LE(option.tokens_per_second(), 1.01 * advice.tokens_per_second())
            << buy << ", " << model << ": " << option.graph() << " would be faster";
      }
    }
  }
}

TEST(MachineTable, EachMachineIsFoundByItsNameAndMemory) {
  for (const Machine& machine : Machines()) {
    const std::string name(machine.name);
    EXPECT_LE(machine.rdma_ports, machine.thunderbolt_ports) << name;
    EXPECT_LE(machine.idle_watts, machine.peak_watts) << name;
    EXPECT_TRUE(std::is_sorted(machine.memory_gib.begin(), machine.memory_gib.end())) << name;
    for (const uint32_t memory : machine.memory_gib) {
      for (const std::string& typed :
           {absl::StrCat(name, "-", memory, "gb"), absl::StrCat(name, "-", memory, "GiB"),
            absl::StrCat(name, "-", memory)}) {
        const auto found = FindMachine(typed);
        ASSERT_TRUE(found.ok()) << typed << ": " << found.status();
        EXPECT_EQ(found->machine, &machine) << typed;
        EXPECT_EQ(found->memory_gib, memory) << typed;
        EXPECT_TRUE(found->is_sold) << typed;
        EXPECT_EQ(DescribeMachine(*found, "x").memory_total_bytes(), uint64_t{memory} << 30);
      }
    }
    const auto none = FindMachine(name);
    EXPECT_NE(std::string(none.status().message()).find("how much memory"), std::string::npos);
    EXPECT_FALSE(FindMachine(absl::StrCat(name, "-7gb"))->is_sold) << name;
    EXPECT_FALSE(FindMachine(absl::StrCat(name, "-0gb")).ok()) << name;
    EXPECT_FALSE(FindMachine(absl::StrCat(name, "-99999999999gb")).ok()) << name;
  }
}

TEST(Purchase, IsReadAsPeopleWriteItAndRefusedBeyondItsBounds) {
  struct Case {
    const char* text;
    size_t machines;  // 0: refused
  };
  const Case cases[] = {{"mac-mini-m4-16gb", 1},
                        {"2x mac-mini-m4-16gb", 2},
                        {"2 x mac-mini-m4-16gb; 1*mac-mini-m4-24gb + mac-mini-m4-32gb", 4},
                        {"2× MAC-MINI-M4-16GB", 2},
                        {"4x mac-studio-m4-max-64gb", 4},
                        {" , mac-mini-m4-16gb ,, ", 1},
                        {"1024x mac-mini-m4-16gb", 1024},
                        {"1025x mac-mini-m4-16gb", 0},
                        {"1000x mac-mini-m4-16gb, 25x mac-mini-m4-16gb", 0},
                        {"4294967295x mac-mini-m4-16gb", 0},
                        {"0x mac-mini-m4-16gb", 0},
                        {"-1x mac-mini-m4-16gb", 0},
                        {"2x", 0},
                        {"", 0},
                        {",", 0},
                        {"mac-mini-m4", 0}};
  for (const Case& one : cases) {
    const auto machines = ParsePurchase(one.text);
    EXPECT_EQ(machines.ok() ? machines->size() : 0, one.machines) << one.text;
    if (!machines.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(machines.status())) << one.text;
    }
  }
}

}  // namespace
}  // namespace macrame::planner
