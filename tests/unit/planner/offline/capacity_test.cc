// What machines hold, how fast and for how much, and what to buy.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "planner/offline/capacity.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/planner_answer.h"

namespace macrame::planner {
namespace {

const std::vector<CatalogueEntry>& Entries() {
  static const std::vector<CatalogueEntry> entries = *CatalogueWith("");
  return entries;
}

v1::CapacityReport Report(const v1::CapacityQuestion& question) {
  const auto report = MakeCapacityReport(question, Entries());
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
                0.12 * std::stod(figure.published()))
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

TEST(Capacity, MoreThanFourMachinesArePredictedAsTheyAreAdvisedToBeCabled) {
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
  // Machines of 270 W, as a plan says; the tier's own sums go by the 600 W that it states.
  EXPECT_NEAR(row.prediction().tokens_per_second(), 32.5, 32.5 * 0.12);
  EXPECT_NEAR(row.prediction().power_watts(), 270 * row.nodes(), 1e-9);
  EXPECT_NEAR(row.joules_per_token(),
              row.prediction().power_watts() / row.prediction().tokens_per_second(), 1e-9);
  EXPECT_NEAR(row.cost_per_million_tokens(), row.joules_per_token() / 3.6 * 0.25, 1e-9);
}

TEST(Capacity, WhatNobodySellsIsRefusedAndWarnedOf) {
  v1::CapacityQuestion question;
  question.set_buy("4x mac-studio-m3-ultra-192gb");
  const auto refused = MakeCapacityReport(question, Entries());
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
  EXPECT_FALSE(MakeCapacityReport(question, Entries()).ok()) << "no machines";
  question.set_tier("palace");
  EXPECT_FALSE(MakeCapacityReport(question, Entries()).ok());
  question.set_tier("starter");
  question.set_duty(2);
  EXPECT_FALSE(MakeCapacityReport(question, Entries()).ok());
  question.set_duty(0);
  question.add_models("no-such-model");
  EXPECT_FALSE(MakeCapacityReport(question, Entries()).ok());
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

v1::CapacityQuestion BuyFor(const std::string& model, double speed, uint32_t users = 1) {
  v1::CapacityQuestion question;
  question.set_recommend(true);
  question.add_models(model);
  question.set_tokens_per_second(speed);
  question.set_users(users);
  return question;
}

TEST(Capacity, WhatToBuyForASmallModelBeginsWithTheSmallestMac) {
  const v1::CapacityReport report = Report(BuyFor("Llama-3.1-8B-Instruct-4bit", 10));
  ASSERT_GT(report.machines_size(), 0);
  EXPECT_EQ(report.machines(0), "1x mac-mini-m4-16gb") << "one machine needs no RDMA";
  std::map<std::string, int> kinds;
  double fastest = 0;
  for (int i = 0; i < report.machines_size(); ++i) {
    const std::string kind = report.machines(i).substr(3, report.machines(i).rfind('-') - 3);
    ++kinds[kind];
    EXPECT_EQ(kind.find("-m1"), std::string::npos) << "sold no more";
    fastest = std::max(fastest, report.models(i).prediction().tokens_per_second());
  }
  for (const char* kind : {"mac-mini-m4", "mac-mini-m4-pro", "mac-studio-m4-max",
                           "mac-studio-m3-ultra", "macbook-pro-m5-max"}) {
    EXPECT_GT(kinds[kind], 0) << kind;
  }
  EXPECT_LE(report.machines_size(), 12);
  bool says_how_many = false;
  for (const std::string& warning : report.warnings()) {
    says_how_many =
        says_how_many || warning.find("further offers are left out") != std::string::npos;
  }
  EXPECT_TRUE(says_how_many);
  // Nothing that can be bought is faster than the fastest that is shown.
  for (const char* buy : {"4x mac-studio-m3-ultra-96gb", "4x macbook-pro-m5-max-128gb"}) {
    v1::CapacityQuestion other;
    other.set_buy(buy);
    other.add_models("Llama-3.1-8B-Instruct-4bit");
    other.set_users(1);
    EXPECT_LE(Report(other).models(0).prediction().tokens_per_second(), fastest * 1.0001) << buy;
  }
}

TEST(Capacity, DesktopsAreOfferedBeforeLaptops) {
  const v1::CapacityReport report = Report(BuyFor("Llama-3.3-70B-Instruct-4bit", 5));
  bool laptop = false;
  ASSERT_GT(report.machines_size(), 1);
  for (const std::string& machines : report.machines()) {
    const bool is_laptop = machines.find("macbook") != std::string::npos;
    EXPECT_FALSE(laptop && !is_laptop) << machines;
    laptop = laptop || is_laptop;
  }
  EXPECT_TRUE(laptop) << "they are offered too";
}

TEST(Capacity, OffersForManyAreChosenByWhatEachGets) {
  const v1::CapacityReport report = Report(BuyFor("Qwen3-30B-A3B-8bit", 15, 20));
  const auto share = [&](int i) {
    const v1::Prediction& predicted = report.models(i).prediction();
    return predicted.users_tokens_per_second() / predicted.users();
  };
  ASSERT_GT(report.machines_size(), 0);
  for (int i = 0; i < report.machines_size(); ++i) EXPECT_GE(share(i), 15) << report.machines(i);
}

TEST(Capacity, OffersOfSeveralSayWhatJoinsThem) {
  const v1::CapacityReport report = Report(BuyFor("Llama-3.3-70B-Instruct-4bit", 0));
  bool over_ethernet = false;
  for (int i = 0; i < report.machines_size(); ++i) {
    const std::string& shape = report.models(i).shape();
    const bool one = report.machines(i).starts_with("1x");
    EXPECT_EQ(shape == "one rank", one) << shape;
    const bool mini = report.machines(i).find("mac-mini-m4-1") != std::string::npos ||
                      report.machines(i).find("mac-mini-m4-2") != std::string::npos ||
                      report.machines(i).find("mac-mini-m4-3") != std::string::npos;
    if (one || !mini) continue;
    over_ethernet = true;
    EXPECT_NE(shape.find("gigabit Ethernet, "), std::string::npos) << shape;
  }
  EXPECT_TRUE(over_ethernet);
}

TEST(Capacity, WhenNothingWillDoItSaysHowFarTheMachinesGo) {
  v1::PlannerQuestion slow;
  *slow.mutable_capacity() = BuyFor("DeepSeek-V3.1-4bit", 500);
  const v1::Reason speed = AnswerOf(slow).failure();
  EXPECT_EQ(speed.code(), "NO_OFFER");
  EXPECT_NE(speed.message().find("the fastest, 4x mac"), std::string::npos) << speed.message();
  v1::PlannerQuestion large;
  *large.mutable_capacity() = BuyFor("Huge-4bit", 0);
  large.mutable_capacity()->set_catalogue_yaml(
      "models:\n- {name: Huge, layers: 100, hidden: 16384, heads: 128, kv_heads: 8, head_dim: 128, "
      "vocab: 128256, experts: 512, active: 8, expert_width: 16384, parameters: 41000}\n");
  const v1::Reason memory = AnswerOf(large).failure();
  EXPECT_EQ(memory.code(), "NO_OFFER");
  EXPECT_NE(memory.message().find("the largest, 4x mac-studio-m3-ultra-512gb, can give models"),
            std::string::npos)
      << memory.message();
}

TEST(Capacity, WhatIsPredictedSmallerThanAskedForIsSaid) {
  v1::CapacityQuestion question = BuyFor("Qwen3-8B-4bit", 0, 100'000);
  question.set_context_length(1'000'000);
  question.set_duty(1);
  question.set_recommend(false);
  question.set_buy("1 × mac-studio-m3-ultra-512gb");
  std::string warnings;
  const v1::CapacityReport report = Report(question);
  for (const std::string& warning : report.warnings()) warnings += warning + "\n";
  EXPECT_NE(warnings.find("the most that a model was made for: Qwen3-8B 40960"), std::string::npos)
      << warnings;
  EXPECT_NE(warnings.find("of 100000 users 4096 at work"), std::string::npos) << warnings;
}

TEST(Capacity, NoCopyHasMoreBitsThanTheMakersGaveIt) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("Kimi-K2-Thinking");
  question.add_models("Qwen3-8B");
  const v1::CapacityReport report = Report(question);
  EXPECT_EQ(report.models(0).bits(), 4u);
  EXPECT_EQ(report.models(1).bits(), 8u);
}

TEST(Capacity, UsersAtWorkNeedTheirCaches) {
  v1::CapacityQuestion question;
  question.set_buy("1x mac-mini-m4-pro-24gb");
  question.add_models("Llama-3.1-8B-Instruct-8bit");
  question.set_users(5000);
  EXPECT_FALSE(Report(question).models(0).fits()) << "a thousand caches of half a GiB";
}

}  // namespace
}  // namespace macrame::planner
