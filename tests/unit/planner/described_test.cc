// What is answered about machines that are described instead of being there.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "planner/advice.h"
#include "planner/chip_table.h"
#include "planner/described/capacity.h"
#include "planner/described/catalogue.h"
#include "planner/described/cluster_file.h"
#include "planner/described/planner_answer.h"
#include "planner/planner.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

const std::vector<ModelCard>& Cards() {
  static const std::vector<ModelCard> cards = *CatalogueWith("");
  return cards;
}

v1::CapacityReport Report(const v1::CapacityQuestion& question) {
  const auto report = MakeCapacityReport(question, Cards());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : v1::CapacityReport();
}

v1::CapacityReport TierReport(const std::string& tier) {
  v1::CapacityQuestion question;
  question.set_tier(tier);
  question.add_models("Llama-3.1-8B-Instruct");
  return Report(question);
}

std::string ResultOf(const v1::CapacityReport& report, const std::string& what) {
  for (const v1::CapacityLine& line : report.lines()) {
    if (line.what() == what) return line.result();
  }
  return "";
}

TEST(Capacity, TheSumOfTheEnterpriseTierIsRightLineByLine) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("Llama-3.1-8B-Instruct");
  question.set_cloud_price(2000);
  const v1::CapacityReport report = Report(question);
  EXPECT_EQ(ResultOf(report, "energy of an hour at peak"), "£0.15");
  EXPECT_EQ(ResultOf(report, "energy of a month, all machines"), "£21.60");
  EXPECT_EQ(ResultOf(report, "energy, a user and month"), "£0.43");
  EXPECT_EQ(ResultOf(report, "hardware, a user and month"), "£27.78");
  EXPECT_EQ(ResultOf(report, "together, a user and month"), "£28.21");
  EXPECT_EQ(ResultOf(report, "energy of the idle hours of a month"), "£9.50");
  EXPECT_EQ(ResultOf(report, "energy with idle hours, a user and month"), "£0.62");
  EXPECT_EQ(ResultOf(report, "together with idle hours, a user and month"), "£28.40");
  EXPECT_EQ(ResultOf(report, "price of a gigabyte"), "£24.41");
  EXPECT_EQ(ResultOf(report, "months until it costs less than the cloud, hardware alone"), "25.0");
  EXPECT_EQ(ResultOf(report, "the same with energy"), "25.3");
  for (const v1::CapacityLine& line : report.lines()) {
    EXPECT_NE(line.result(), "£49.38") << "the published error";
    if (line.what().find("a user") == std::string::npos) continue;
    EXPECT_NE(line.result(), "£21.60") << line.what();
  }
}

TEST(Capacity, TiersByTheNumbersOfUsersThatWereClaimed) {
  const std::map<std::string, std::pair<std::string, std::string>> hardware = {
      {"starter", {"10 to 20", "£11.11 … £5.56"}},
      {"professional", {"50 to 100", "£16.67 … £8.33"}},
      {"enterprise", {"100 to 200", "£13.89 … £6.94"}}};
  for (const auto& [tier, expected] : hardware) {
    EXPECT_EQ(
        ResultOf(TierReport(tier), "hardware, a user and month, with " + expected.first + " users"),
        expected.second)
        << tier;
  }
  EXPECT_EQ(ResultOf(TierReport("starter"), "price of a gigabyte"), "£31.25");
  EXPECT_EQ(ResultOf(TierReport("starter"), "energy of a month, all machines"), "£7.20");
  EXPECT_EQ(ResultOf(TierReport("professional"), "price of a gigabyte"), "£39.06");
}

TEST(Capacity, ATierIsItsFileAndWhatIsPublishedStandsBesideOurs) {
  for (const TierFile& tier : TierFiles()) {
    v1::CapacityQuestion by_name, by_file;
    by_name.set_tier(std::string(tier.name));
    by_file.set_cluster_yaml(std::string(tier.yaml));
    EXPECT_EQ(Report(by_name).SerializeAsString(), Report(by_file).SerializeAsString());
  }
  std::map<std::string, v1::PublishedFigure> figures;
  const v1::CapacityReport report = TierReport("enterprise");
  for (const v1::PublishedFigure& figure : report.published()) figures[figure.what()] = figure;
  EXPECT_EQ(figures["users"].published(), "100 to 200");
  EXPECT_NE(figures["users"].ours().find("of 200 users 40 at once"), std::string::npos);
  EXPECT_EQ(figures["power at peak"].published(), "600 W");
  EXPECT_NE(figures["power at peak"].ours().find("1080 W"), std::string::npos);
  EXPECT_NE(figures["models up to"].ours().find("Llama-3.1-8B-Instruct"), std::string::npos)
      << "the largest of those that were asked about";
}

TEST(Capacity, PublishedSpeedsAndPricesOfAnyFileAreTaken) {
  std::ifstream file("deploy/catalogue/clusters/four-studios.yaml");
  v1::CapacityQuestion question;
  question.set_cluster_yaml(std::string(std::istreambuf_iterator<char>(file), {}));
  question.add_models("Qwen3-235B-A22B");
  const v1::CapacityReport report = Report(question);
  EXPECT_EQ(ResultOf(report, "price of a gigabyte"), "$26.04");
  int speeds = 0;
  for (const v1::PublishedFigure& figure : report.published()) {
    if (figure.what().find("one user") == std::string::npos) continue;
    ++speeds;
    EXPECT_NEAR(std::stod(figure.ours()), std::stod(figure.published()),
                0.1 * std::stod(figure.published()))
        << figure.what();
  }
  EXPECT_EQ(speeds, 3);
  question.set_price(30000);
  EXPECT_EQ(ResultOf(Report(question), "price of a gigabyte"), "$19.53") << "what is said wins";
}

TEST(Capacity, NoDutyAndNoTariffAreNone) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("Llama-3.1-8B-Instruct");
  question.set_duty(0);
  v1::CapacityReport report = Report(question);
  EXPECT_EQ(ResultOf(report, "energy of a month, all machines"), "£0.00");
  EXPECT_EQ(ResultOf(report, "energy of the idle hours of a month"), "£11.88") << "all hours";
  question.clear_duty();
  question.set_tariff(0);
  report = Report(question);
  EXPECT_EQ(ResultOf(report, "energy of an hour at peak"), "£0.00");
  EXPECT_GT(report.models(0).joules_per_token(), 0) << "energy is used, though it costs nothing";
  question.clear_tariff();
  EXPECT_EQ(ResultOf(Report(question), "energy of an hour at peak"), "£0.15");
}

TEST(Capacity, PowerThatOneMachineDoesNotTellIsNotCountedAsNone) {
  v1::CapacityQuestion question;
  question.set_cluster_yaml(
      "nodes:\n- {name: desk, machine: mac-studio-m4-max-128gb}\n"
      "- {name: lap, machine: macbook-pro-m4-max-128gb}\nlinks: mesh\n");
  question.add_models("Llama-3.1-8B-Instruct");
  v1::CapacityReport report = Report(question);
  EXPECT_EQ(ResultOf(report, "energy of an hour at peak"), "");
  EXPECT_EQ(report.models(0).joules_per_token(), 0);
  ASSERT_EQ(report.warnings_size(), 1);
  EXPECT_NE(report.warnings(0).find("the power of lap is not known"), std::string::npos)
      << report.warnings(0);
  question.set_peak_watts(300);
  report = Report(question);
  EXPECT_EQ(ResultOf(report, "energy of an hour at peak"), "£0.07");
  EXPECT_EQ(ResultOf(report, "energy of the idle hours of a month"), "");
  EXPECT_NE(report.warnings(0).find("idle power of lap"), std::string::npos);
}

TEST(Capacity, MoreThanFourMachinesAreForetoldAsTheyAreAdvisedToBeCabled) {
  const auto speed = [](const std::string& buy) {
    v1::CapacityQuestion question;
    question.set_buy(buy);
    question.add_models("Qwen3-235B-A22B-8bit");
    question.set_users(1);
    return Report(question).models(0).prediction().tokens_per_second();
  };
  const auto advised = [](const std::string& buy) {
    v1::PlannerQuestion question;
    question.mutable_topology()->set_buy(buy);
    question.mutable_topology()->set_model("Qwen3-235B-A22B-8bit");
    return AnswerOf(question).topology().tokens_per_second();
  };
  for (const char* buy : {"8x mac-studio-m3-ultra-256gb", "6x mac-mini-m4-pro-64gb"}) {
    EXPECT_GT(speed(buy), 0);
    EXPECT_DOUBLE_EQ(speed(buy), advised(buy)) << buy;
  }
  EXPECT_GE(speed("8x mac-studio-m3-ultra-256gb"), speed("4x mac-studio-m3-ultra-256gb"))
      << "four more machines make nothing slower";
}

TEST(Capacity, EnergyOfAMillionTokens) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("DeepSeek-V3.1-4bit");
  const v1::CapacityModel row = Report(question).models(0);
  // 600 W at the speed foretold; 32.5 tokens/s as published would be 18.5 J and £1.28.
  EXPECT_NEAR(row.prediction().tokens_per_second(), 32.5, 32.5 * 0.12);
  EXPECT_NEAR(row.joules_per_token(), 600 / row.prediction().tokens_per_second(), 1e-9);
  EXPECT_NEAR(row.cost_per_million_tokens(), row.joules_per_token() / 3.6 * 0.25, 1e-9);
}

TEST(Capacity, WhatNobodySellsIsRefusedAndWarnedOf) {
  v1::CapacityQuestion question;
  question.set_buy("4x mac-studio-m3-ultra-192gb");
  const auto refused = MakeCapacityReport(question, Cards());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("96, 256, 512"), std::string::npos);
  EXPECT_FALSE(ParsePurchase("2x mac-mini-m4-max-64gb").ok()) << "there is no such mini";
  EXPECT_FALSE(ParsePurchase("mac-pro-m4-ultra-512gb").ok());
  EXPECT_FALSE(ParsePurchase("").ok());
  EXPECT_FALSE(ParsePurchase("0x mac-mini-m4-pro-64gb").ok());
  EXPECT_FALSE(ParsePurchase("99999x mac-mini-m4-pro-64gb").ok());
  const v1::CapacityReport tier = TierReport("professional");
  ASSERT_FALSE(tier.warnings().empty());
  EXPECT_NE(tier.warnings(0).find("not sold"), std::string::npos);
}

TEST(Capacity, NonsenseIsRefused) {
  v1::CapacityQuestion question;
  EXPECT_FALSE(MakeCapacityReport(question, Cards()).ok()) << "no machines";
  question.set_tier("palace");
  EXPECT_FALSE(MakeCapacityReport(question, Cards()).ok());
  question.set_tier("starter");
  question.set_duty(2);
  EXPECT_FALSE(MakeCapacityReport(question, Cards()).ok());
  question.set_duty(0);
  question.add_models("no-such-model");
  EXPECT_FALSE(MakeCapacityReport(question, Cards()).ok());
}

TEST(Capacity, WhatToBuyHoldsTheModelAndIsFastEnough) {
  v1::CapacityQuestion question;
  question.set_recommend(true);
  question.add_models("DeepSeek-V3.1");
  question.set_users(10);
  question.set_tokens_per_second(8);
  const v1::CapacityReport report = Report(question);
  ASSERT_GT(report.machines_size(), 0);
  EXPECT_TRUE(report.recommends());
  for (const v1::CapacityModel& row : report.models()) {
    EXPECT_GE(row.prediction().users_tokens_per_second() / row.prediction().users(), 8);
  }
  for (const std::string& machines : report.machines()) {
    EXPECT_EQ(machines.find("192gb"), std::string::npos) << machines;
  }
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
  EXPECT_EQ(request->request.links_size(), 6);
  EXPECT_EQ(request->request.links(0).backends(1), "jaccl");
  EXPECT_EQ(request->request.links(0).bandwidth_bytes_per_second(), 8e9);
  EXPECT_EQ(request->request.links(2).backends_size(), 1) << "the LAN has no RDMA";
}

TEST(ClusterFile, AChipThatIsNotKnownIsAnErrorAndNotASlowMachine) {
  for (const char* chip : {"Apple M9 Max", "Apple M4 Maxx", "M4 Max Ultra"}) {
    const auto cluster =
        ReadClusterFile(absl::StrCat("nodes:\n- {name: a, chip: ", chip, ", memory_gib: 128}\n"));
    EXPECT_NE(std::string(cluster.status().message()).find("table of chips"), std::string::npos)
        << chip << ": " << cluster.status();
  }
  EXPECT_TRUE(ReadClusterFile("nodes:\n- {name: a, chip: M4 Max, memory_gib: 128}\n").ok());
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
  question.mutable_plan()->mutable_wishes()->set_context_length(context);
  return AnswerOf(question);
}

std::string ReasonsOf(const v1::PlannerAnswer& answer) {
  std::string all;
  for (const v1::Reason& reason : answer.plan().plan().reasons()) all += reason.message() + "\n";
  return all;
}

TEST(DescribedPlan, SaysWhatCanBeForetoldButNotServedYet) {
  const std::string studio = "nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n";
  EXPECT_NE(ReasonsOf(AskPlan(studio, "gpt-oss-120b-4bit")).find("can't serve it yet"),
            std::string::npos);
  EXPECT_EQ(ReasonsOf(AskPlan(studio, "Qwen3-32B-4bit")).find("can't serve it yet"),
            std::string::npos);
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
  full.mutable_plan()->mutable_wishes()->set_context_length(131072);
  full.mutable_plan()->mutable_wishes()->set_prompt_tokens(131072);
  EXPECT_LT(AnswerOf(full).plan().plan().prediction().tokens_per_second(),
            0.9 * answer.plan().plan().prediction().tokens_per_second());
}

TEST(DescribedPlan, AMacThatIsHeldBackByItsGpuLimitIsToldHowToRaiseIt) {
  const v1::PlannerAnswer answer =
      AskPlan("nodes:\n- {name: a, machine: mac-studio-m3-ultra-512gb}\n", "DeepSeek-V3.1-4bit");
  ASSERT_EQ(answer.plan().failure().code(), "MEMORY_SHORT");
  EXPECT_NE(answer.plan().failure().remedy().find("iogpu.wired_limit_mb="), std::string::npos)
      << answer.plan().failure().remedy();
  const v1::PlannerAnswer small =
      AskPlan("nodes:\n- {name: a, machine: mac-mini-m4-16gb}\n", "DeepSeek-V3.1-4bit");
  EXPECT_NE(small.plan().failure().remedy().find("a machine with"), std::string::npos)
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
  question.mutable_plan()->mutable_wishes()->set_world_size(1);
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
    return AnswerOf(question).plan().plan().prediction().first_token_ms();
  };
  v1::PlanRequest bought = ClusterOf(*ParsePurchase("2x mac-studio-m2-ultra-64gb"));
  *bought.mutable_model() = DescribeCard(**FindModelCard(Cards(), "Llama-3.3-70B-Instruct"), 8);
  const double foretold = PlanModel(bought).plan().prediction().first_token_ms();
  EXPECT_GT(foretold, 0);
  EXPECT_DOUBLE_EQ(foretold, speed("lan: {medium: ethernet}"));
  EXPECT_GT(foretold, speed("links: mesh"));
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
  };
  for (const auto& [yaml, expected] : faults) {
    const auto request = ReadClusterFile(yaml);
    ASSERT_FALSE(request.ok()) << yaml;
    EXPECT_NE(request.status().message().find(expected), std::string::npos) << request.status();
  }
}

TEST(ModelCards, AreFoundByTheNamesThatPeopleUse) {
  for (const auto& [name, card] : std::map<std::string, std::string>{
           {"mlx-community/MiniMax-M2.5-6bit", "MiniMax-M2.5"},
           {"deepseek-v3.1-8bit", "DeepSeek-V3.1"},
           {"kimmi-k2-1t-moe", "Kimi-K2-Instruct"},
           {"qwen-480b-coder", "Qwen3-Coder-480B-A35B-Instruct"},
           {"Qwen/Qwen3-235B-A22B", "Qwen3-235B-A22B"},
           {"Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"},
           {"deepseek-ai/DeepSeek-R1-0528-4bit", "DeepSeek-V3.1"},
           {"gpt-oss-20b-MXFP4-Q8", "gpt-oss-20b"},
           {"Qwen3-4B-Instruct-2507-4bit-DWQ", "Qwen3-4B"},
           {"Mistral-Small-24B", "Mistral-Small-24B-Instruct-2501"}}) {
    const auto found = FindModelCard(Cards(), name);
    ASSERT_TRUE(found.ok()) << name << ": " << found.status();
    EXPECT_EQ((*found)->name, card) << name;
  }
  EXPECT_EQ(BitsInName("Meta-Llama-3.1-8B-Instruct-Q4_K_M"), 4u);
  EXPECT_EQ(BitsInName("gpt-oss-120b MXFP4"), 4u);
  EXPECT_EQ(BitsInName("DeepSeek-V3.1 fp8"), 8u);
  EXPECT_EQ(BitsInName("Qwen3-8B"), std::nullopt);
  const auto several = FindModelCard(Cards(), "qwen3");
  ASSERT_FALSE(several.ok());
  EXPECT_NE(several.status().message().find("alike are"), std::string::npos);
}

TEST(ModelCards, AMixtureWithoutItsExpertsIsAsLargeAsAllItsParameters) {
  const auto card = FindModelCard(Cards(), "DeepSeek-V4-Pro");
  ASSERT_TRUE(card.ok());
  const v1::ModelDescription model = DescribeCard(**card, 4);
  uint64_t bytes = 0;
  for (const uint64_t layer : model.layer_bytes()) bytes += layer;
  EXPECT_NEAR(static_cast<double>(bytes), 1600e9 * 4.5 / 8, 1600e9 * 4.5 / 8 * 0.05);
  EXPECT_GT(model.experts(), 0u) << "and reads the active part only";
}

TEST(ModelCards, ATiedTableIsInTheFilesOnce) {
  const char shape[] =
      "layers: 16, hidden: 2048, heads: 32, kv_heads: 8, head_dim: 64, intermediate: 8192, "
      "vocab: 128256";
  const auto cards = ReadModelCards(absl::StrCat("models:\n- {name: Tied, tied_embeddings: true, ",
                                                 shape, "}\n- {name: Apart, ", shape, "}\n"));
  ASSERT_TRUE(cards.ok()) << cards.status();
  const v1::ModelDescription tied = DescribeCard((*cards)[0], 16);
  const v1::ModelDescription apart = DescribeCard((*cards)[1], 16);
  EXPECT_EQ(ModelBytes(apart) - ModelBytes(tied), uint64_t{128256} * 2048 * 2);
  // 1.24 billion parameters of two bytes, as its makers count them: with one table.
  EXPECT_NEAR(static_cast<double>(ModelBytes(tied)), 1.24e9 * 2, 0.01 * 1.24e9 * 2);
  for (const auto& [name, is_tied] :
       std::map<std::string, bool>{{"Llama-3.2-3B-Instruct", true},
                                   {"Qwen3-0.6B", true},
                                   {"Llama-3.1-8B-Instruct", false}}) {
    EXPECT_EQ(DescribeCard(**FindModelCard(Cards(), name), 4).tied_embeddings(), is_tied) << name;
  }
  // A published size is the size, tied or not.
  EXPECT_NEAR(static_cast<double>(
                  ModelBytes(DescribeCard(**FindModelCard(Cards(), "Llama-3.2-3B-Instruct"), 4))),
              1863319552, 1e6);
}

TEST(ModelCards, CardsThatMakeNoSenseAreRefused) {
  const auto mistyped = ReadModelCards("models:\n- {name: x, layers: 2, hidden: 8, tied: true}");
  ASSERT_FALSE(mistyped.ok());
  EXPECT_NE(mistyped.status().message().find("'tied' is not a key"), std::string::npos);
  EXPECT_FALSE(ReadModelCards("models:\n- {layers: 2, hidden: 8}").ok());
  EXPECT_FALSE(ReadModelCards("models:\n- {name: x, layers: 4000000000, hidden: 8}").ok());
  EXPECT_FALSE(ReadModelCards("models:\n- {name: x}").ok());
  EXPECT_FALSE(ReadModelCards("models: [").ok());
}

TEST(Capacity, UsersAtWorkNeedTheirCaches) {
  v1::CapacityQuestion question;
  question.set_buy("1x mac-mini-m4-pro-24gb");
  question.add_models("Llama-3.1-8B-Instruct-8bit");
  question.set_users(5000);
  EXPECT_FALSE(Report(question).models(0).fits()) << "a thousand caches of half a GiB";
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
  EXPECT_NE(AnswerOf(question).failure().remedy().find("--card"), std::string::npos);
  question.mutable_capacity()->set_tier("strater");
  EXPECT_EQ(AnswerOf(question).failure().code(), "BAD_REQUEST") << "a tier is no model";
  question.mutable_capacity()->set_tier("");
  question.mutable_capacity()->set_buy("abacus");
  EXPECT_EQ(AnswerOf(question).failure().code(), "BAD_REQUEST");
}

v1::TopologyAdvice Advice(const std::string& buy, const std::string& model = "") {
  v1::PlannerQuestion question;
  question.mutable_topology()->set_buy(buy);
  question.mutable_topology()->set_model(model);
  const v1::PlannerAnswer answer = AnswerOf(question);
  EXPECT_TRUE(answer.has_topology()) << answer.failure().message();
  return answer.topology();
}

TEST(Topology, PairForTwoMeshUpToFourOneRingForWhatNoDeskHolds) {
  EXPECT_EQ(Advice("2x mac-mini-m4-pro-64gb").graph(), "pair");
  const v1::TopologyAdvice mesh = Advice("4x mac-studio-m3-ultra-512gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(mesh.graph(), "mesh");
  EXPECT_EQ(mesh.cables_size(), 6);
  for (const v1::TopologyCable& cable : mesh.cables()) {
    EXPECT_GT(cable.tokens_per_second_without(), 0);
    EXPECT_LT(cable.tokens_per_second_without(), mesh.tokens_per_second());
  }
  const v1::TopologyAdvice ring = Advice("6x mac-mini-m4-pro-64gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(ring.graph(), "ring");
  EXPECT_EQ(ring.cables_size(), 6);
}

TEST(Topology, EachSocketHasOneCable) {
  const v1::TopologyAdvice mesh = Advice("4x mac-studio-m3-ultra-512gb");
  std::map<std::string, int> used;
  for (const v1::TopologyCable& cable : mesh.cables()) {
    EXPECT_EQ(++used[cable.a() + cable.a_port()], 1);
    EXPECT_EQ(++used[cable.b() + cable.b_port()], 1);
  }
}

TEST(Topology, NoCableIsToldIntoTheSocketBesideEthernet) {
  for (const char* buy : {"4x mac-studio-m3-ultra-512gb", "4x mac-studio-m4-max-128gb",
                          "6x mac-studio-m3-ultra-256gb"}) {
    const v1::TopologyAdvice advice = Advice(buy);
    for (const v1::TopologyCable& cable : advice.cables()) {
      EXPECT_NE(cable.a_port(), "Thunderbolt socket 1") << buy;
      EXPECT_NE(cable.b_port(), "Thunderbolt socket 1") << buy;
    }
  }
  EXPECT_EQ(Advice("2x mac-mini-m4-pro-64gb").cables(0).a_port(), "Thunderbolt socket 1");
}

TEST(Topology, AboveFourDesksOrARingAsTheModelIsFaster) {
  const v1::TopologyAdvice desks = Advice("8x mac-studio-m3-ultra-256gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(desks.graph(), "desks");
  EXPECT_EQ(desks.cables_size(), 12) << "two meshes of four";
  ASSERT_EQ(desks.options_size(), 2);
  EXPECT_GT(desks.options(0).tokens_per_second(), desks.options(1).tokens_per_second());
  EXPECT_EQ(desks.options(0).copies(), 2u) << "each desk serves one";
  for (const v1::TopologyCable& cable : desks.cables()) {
    EXPECT_LT(cable.tokens_per_second_without(), desks.tokens_per_second()) << "of its own desk";
  }
  const v1::TopologyAdvice ring = Advice("6x mac-mini-m4-pro-64gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(ring.graph(), "ring") << "no desk of four holds it";
  EXPECT_EQ(ring.cables_size(), 6);
  EXPECT_GT(ring.options(0).tokens_per_second(), ring.options(1).tokens_per_second());
  const v1::TopologyAdvice both = Advice("8x mac-studio-m3-ultra-256gb");
  ASSERT_EQ(both.options_size(), 2);
  EXPECT_EQ(both.options(0).graph(), "desks");
  EXPECT_EQ(both.options(1).graph(), "ring");
  EXPECT_EQ(both.options(1).cables_size(), 8);
  EXPECT_NE(both.options(0).suits(), both.options(1).suits());
}

v1::PresentMachine Studio(const std::string& name) {
  v1::PresentMachine machine;
  machine.set_name(name);
  machine.set_machine_model("Mac15,14");
  machine.set_chip("Apple M3 Ultra");
  machine.set_gpu_cores(80);
  machine.set_memory_total_bytes(256 * kGiB);
  return machine;
}

v1::PresentCable Present(const std::string& a, uint32_t a_socket, const std::string& b,
                         uint32_t b_socket, bool rdma = true) {
  v1::PresentCable cable;
  cable.set_a(a);
  cable.set_a_socket(a_socket);
  cable.set_b(b);
  cable.set_b_socket(b_socket);
  cable.set_rdma(rdma);
  return cable;
}

TEST(Topology, OfMachinesThatAreThereItSaysWhatIsMissingAndWhatIsInTheWrongSocket) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  for (const char* name : {"north", "east", "south"}) *topology.add_machines() = Studio(name);
  *topology.add_cables() = Present("east", 1, "north", 3);
  *topology.add_cables() = Present("east", 2, "south", 2, false);
  topology.mutable_cables(1)->set_why_not("RDMA is off on south");
  *topology.add_cables() = Present("north", 1, "east", 4);
  topology.set_model("Llama-3.3-70B-Instruct-8bit");
  const v1::TopologyAdvice advice = AnswerOf(question).topology();
  EXPECT_EQ(advice.graph(), "mesh");
  std::map<std::string, v1::TopologyCable> cables;
  for (const v1::TopologyCable& cable : advice.cables()) {
    cables[std::min(cable.a(), cable.b()) + "-" + std::max(cable.a(), cable.b())] = cable;
  }
  ASSERT_EQ(cables.size(), 3u);
  EXPECT_EQ(cables["east-north"].state(), "present");
  EXPECT_NE(cables["east-north"].note().find("move it on east from socket 1"), std::string::npos)
      << cables["east-north"].note();
  EXPECT_NE(cables["east-south"].note().find("RDMA is off on south"), std::string::npos);
  const v1::TopologyCable& missing = cables["north-south"];
  EXPECT_EQ(missing.state(), "missing");
  for (const std::string& port : {missing.a_port(), missing.b_port()}) {
    EXPECT_NE(port, "Thunderbolt socket 1");
  }
  EXPECT_NE(missing.a() == "north" ? missing.a_port() : missing.b_port(), "Thunderbolt socket 3")
      << "there is a cable in it";
  ASSERT_EQ(advice.spare_size(), 1) << "a second cable between two machines";
  EXPECT_GT(advice.tokens_per_second(), advice.tokens_per_second_now());
  EXPECT_GT(advice.tokens_per_second_now(), 0);
}

TEST(Topology, CablesThatAreThereDecideWhoSharesADesk) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    *topology.add_machines() = Studio(name);
  }
  const char* desks[2][4] = {{"a", "c", "e", "g"}, {"b", "d", "f", "h"}};
  for (const auto& desk : desks) {
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint32_t j = i + 1; j < 4; ++j) {
        *topology.add_cables() = Present(desk[i], 1 + j, desk[j], 2 + i);
      }
    }
  }
  const v1::TopologyAdvice advice = AnswerOf(question).topology();
  EXPECT_EQ(advice.graph(), "desks");
  EXPECT_EQ(advice.cables_size(), 12);
  for (const v1::TopologyCable& cable : advice.cables()) EXPECT_EQ(cable.state(), "present");
  EXPECT_TRUE(advice.spare().empty());
}

TEST(Topology, MachinesWithoutThunderbolt5StayOutside) {
  const v1::TopologyAdvice advice =
      Advice("2x mac-studio-m3-ultra-512gb, 1x macbook-pro-m3-max-64gb");
  EXPECT_EQ(advice.graph(), "pair");
  EXPECT_EQ(advice.cables_size(), 1);
  EXPECT_EQ(Advice("2x mac-mini-m4-16gb").graph(), "none");
}

}  // namespace
}  // namespace macrame::planner
