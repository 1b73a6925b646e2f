// What a report says is done again here: each line's sum from its words, each model's cost from its
// energy, whatever the figures that were asked with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "planner/offline/capacity.h"
#include "planner/offline/catalogue.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;

const std::vector<CatalogueEntry>& Entries() {
  static const std::vector<CatalogueEntry> entries = *CatalogueWith("");
  return entries;
}

// "600 W / 1000 × £0.25" by the rules of arithmetic; units and currency signs say nothing.
class Sum {
 public:
  Sum(std::string text, const std::string& currency)
      : words_(absl::StrSplit(
            absl::StrReplaceAll(
                text, {{currency, ""}, {"(", " ( "}, {")", " ) "}, {"×", "*"}, {" %", " / 100"}}),
            ' ', absl::SkipEmpty())) {
    std::erase_if(words_, [](const std::string& word) {
      return word == "W" || word == "h" || word == "d" || word == "GB";
    });
  }
  std::optional<double> Value() {
    const double value = Terms();
    return is_bad_ || at_ != words_.size() ? std::nullopt : std::optional(value);
  }

 private:
  bool Next(const char* word) {
    if (at_ >= words_.size() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  double Terms() {
    double value = Factors();
    while (true) {
      if (Next("+")) {
        value += Factors();
      } else if (Next("-")) {
        value -= Factors();
      } else {
        return value;
      }
    }
  }
  double Factors() {
    double value = One();
    while (true) {
      if (Next("*")) {
        value *= One();
      } else if (Next("/")) {
        value /= One();
      } else {
        return value;
      }
    }
  }
  double One() {
    if (Next("(")) {
      const double value = Terms();
      is_bad_ = is_bad_ || !Next(")");
      return value;
    }
    double value = 0;
    if (at_ >= words_.size() || !absl::SimpleAtod(words_[at_++], &value)) is_bad_ = true;
    return value;
  }

  std::vector<std::string> words_;
  size_t at_ = 0;
  bool is_bad_ = false;
};

v1::CapacityReport Report(const v1::CapacityQuestion& question) {
  auto report = MakeCapacityReport(question, Entries());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : v1::CapacityReport();
}

v1::CapacityLine LineOf(const v1::CapacityReport& report, const std::string& what) {
  for (const v1::CapacityLine& line : report.lines()) {
    if (line.what() == what) return line;
  }
  ADD_FAILURE() << "no line says " << what;
  return {};
}

// Half of the last digit that the result shows, and a little for what the sum's own digits leave.
double Rounding(const std::string& result) {
  const size_t point = result.rfind('.');
  const size_t digits = point == std::string::npos ? 0 : result.size() - point - 1;
  return 0.52 * std::pow(10, -static_cast<double>(digits));
}

void CheckLines(const v1::CapacityReport& report) {
  for (const v1::CapacityLine& line : report.lines()) {
    if (line.result() == "never" || line.sum().find("…") != std::string::npos) continue;
    const auto value = Sum(line.sum(), report.currency()).Value();
    ASSERT_TRUE(value.has_value()) << "no sum: " << line.sum();
    double result = 0;
    ASSERT_TRUE(
        absl::SimpleAtod(absl::StrReplaceAll(line.result(), {{report.currency(), ""}}), &result))
        << line.result();
    EXPECT_NEAR(*value, result, Rounding(line.result()))
        << line.what() << ": " << line.sum() << " = " << line.result();
  }
}

v1::CapacityQuestion RandomQuestion(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t low, uint64_t high) {
    return static_cast<double>(low + random() % (high - low + 1));
  };
  constexpr const char* kBuys[] = {"mac-mini-m4-16gb", "mac-studio-m4-max-64gb",
                                   "2x mac-studio-m3-ultra-96gb", "mac-mini-m4-pro-64gb"};
  constexpr const char* kCurrencies[] = {"", "£", "$", "€", "kr.", "Rs. "};
  v1::CapacityQuestion question;
  question.set_buy(kBuys[random() % 4]);
  question.set_currency(kCurrencies[random() % 6]);
  question.add_models("Llama-3.1-8B-Instruct-4bit");
  question.set_users(static_cast<uint32_t>(pick(1, 40)));
  question.set_months(static_cast<uint32_t>(pick(0, 60)));
  question.set_price(pick(0, 3) == 0 ? pick(1, 900'000) / 100 : pick(500, 90'000));
  question.set_tariff(pick(0, 2) == 0 ? 0.25 : pick(0, 9999) / 10'000);
  question.set_duty(pick(0, 100) / 100);
  if (pick(0, 1) > 0) question.set_peak_watts(pick(1, 100'000) / 4);
  if (pick(0, 1) > 0) question.set_idle_watts(std::min(pick(1, 40), question.peak_watts()));
  // Well above what energy costs, or far below.
  const bool is_dear =
      question.peak_watts() > 1000 && question.tariff() > 0.05 && question.duty() > 0.05;
  if (pick(0, 2) > 0) {
    question.set_cloud_price(is_dear && pick(0, 1) > 0 ? 0.01 : pick(40'000, 90'000));
  }
  return question;
}

TEST(CapacitySums, EachLinesSumIsItsResult) {
  int lines = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const v1::CapacityQuestion question = RandomQuestion(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << question.ShortDebugString());
    const v1::CapacityReport report = Report(question);
    CheckLines(report);
    lines += report.lines_size();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(lines, 2500);
}

// A machine that draws little: the hour's pence are many digits behind the point.
TEST(CapacitySums, OfSmallMachinesAreExactToo) {
  v1::CapacityQuestion question;
  question.set_buy("mac-mini-m4-16gb");
  question.add_models("Llama-3.1-8B-Instruct-4bit");
  for (const double watts : {5.0, 65.0, 125.0, 3.25}) {
    question.set_peak_watts(watts);
    CheckLines(Report(question));
  }
}

TEST(CapacitySums, APointInTheCurrencyIsNoDecimalPoint) {
  v1::CapacityQuestion question;
  question.set_buy("mac-studio-m4-max-64gb");
  question.add_models("Llama-3.1-8B-Instruct-4bit");
  question.set_currency("Rs.");
  question.set_peak_watts(1000);
  question.set_tariff(0.5);
  EXPECT_EQ(LineOf(Report(question), "energy of a month, all machines").sum(),
            "Rs.0.50 × 24 h × 30 d × 20 %");
}

TEST(CapacitySums, ATariffIsShownWithAllItsDigits) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("Llama-3.1-8B-Instruct-4bit");
  question.set_tariff(0.2567);
  EXPECT_THAT(LineOf(Report(question), "energy of an hour at peak").sum(), HasSubstr("£0.2567"));
}

TEST(CapacitySums, EnergyThatCostsMoreThanTheCloudNeverPays) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("Llama-3.1-8B-Instruct-4bit");
  question.set_cloud_price(1);
  question.set_duty(1);
  EXPECT_EQ(LineOf(Report(question), "the same with energy").result(), "never");
}

TEST(CapacitySums, AModelsCostFollowsFromItsEnergy) {
  int fits = 0, none = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const v1::CapacityQuestion question = RandomQuestion(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::CapacityReport report = Report(question);
    ASSERT_EQ(report.models_size(), 1);
    const v1::CapacityModel& row = report.models(0);
    ++(row.fits() ? fits : none);
    if (!row.fits()) {
      EXPECT_EQ(row.joules_per_token(), 0);
      EXPECT_FALSE(row.why_not().empty());
      continue;
    }
    EXPECT_EQ(row.bits(), 4u) << "as its name says";
    EXPECT_NEAR(row.cost_per_million_tokens(),
                row.joules_per_token() * 1e6 / 3.6e6 * question.tariff(),
                1e-9 * (1 + row.cost_per_million_tokens()));
    if (question.peak_watts() > 0) {
      // Those of the machines that serve it.
      const double share = row.nodes() / static_cast<double>(report.machines_size());
      EXPECT_NEAR(row.joules_per_token() * row.prediction().tokens_per_second(),
                  question.peak_watts() * share, 1e-6 * question.peak_watts());
    }
  }
  EXPECT_GT(fits, 30);
  EXPECT_GT(none, 2) << "many users on a small machine";
}

// ---- Refusals.

TEST(CapacityRefusals, FiguresThatAreNoneAreNotSummed) {
  using Question = v1::CapacityQuestion;
  using Set = std::function<void(Question*, double)>;
  const std::pair<const char*, Set> figures[] = {
      {"price", [](Question* q, double x) { q->set_price(x); }},
      {"tariff", [](Question* q, double x) { q->set_tariff(x); }},
      {"duty", [](Question* q, double x) { q->set_duty(x); }},
      {"peak watts", [](Question* q, double x) { q->set_peak_watts(x); }},
      {"idle watts", [](Question* q, double x) { q->set_idle_watts(x); }},
      {"cloud price", [](Question* q, double x) { q->set_cloud_price(x); }},
      {"tokens per second", [](Question* q, double x) { q->set_tokens_per_second(x); }},
  };
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  for (const bool recommend : {false, true}) {
    for (const auto& [name, set] : figures) {
      for (const double figure : {kNone, kEndless, -kEndless, -0.01, 1e12}) {
        Question question;
        question.set_recommend(recommend);
        if (!recommend) question.set_tier("starter");
        question.add_models("Llama-3.1-8B-Instruct-4bit");
        set(&question, figure);
        const auto report = MakeCapacityReport(question, Entries());
        EXPECT_TRUE(absl::IsInvalidArgument(report.status()))
            << name << " " << figure << (recommend ? ", to buy" : "") << ": " << report.status();
      }
    }
  }
}

TEST(CapacityRefusals, EachNamesWhatIsWrong) {
  using Question = v1::CapacityQuestion;
  const std::pair<const char*, std::function<void(Question*)>> cases[] = {
      {"name machines to buy, a tier, or", [](Question* q) { q->clear_tier(); }},
      {"did you mean 'professional'", [](Question* q) { q->set_tier("profesional"); }},
      {"more power idle than at peak",
       [](Question* q) {
         q->set_peak_watts(10);
         q->set_idle_watts(11);
       }},
      {"between 0 and 1", [](Question* q) { q->set_duty(1.01); }},
      {"name the one model", [](Question* q) { q->set_recommend(true); }},
      {"mac-mini-m4 comes with 16, 24, 32 GB",
       [](Question* q) {
         q->clear_tier();
         q->set_buy("mac-mini-m4-128gb");
       }},
      {"there are no 'nodes'", [](Question* q) { q->set_cluster_yaml("title: empty\n"); }},
      {"no model of the catalogue is called 'Lama'", [](Question* q) { q->add_models("Lama"); }},
  };
  for (const auto& [says, spoil] : cases) {
    Question question;
    question.set_tier("starter");
    spoil(&question);
    const auto report = MakeCapacityReport(question, Entries());
    EXPECT_FALSE(report.ok()) << says;
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(says));
  }
}

TEST(CapacityRefusals, AModelsFilesThatMakeNoSenseAreRefusedAndNotSaidNotToFit) {
  v1::CapacityQuestion question;
  question.set_tier("starter");
  question.add_described()->set_name("broken");
  const auto report = MakeCapacityReport(question, Entries());
  EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("the description of broken has"));
}

TEST(CapacityLimits, MoreUsersThanCanBePredictedAreSaid) {
  v1::CapacityQuestion question;
  question.set_tier("enterprise");
  question.add_models("Llama-3.1-8B-Instruct-4bit");
  question.set_users(std::numeric_limits<uint32_t>::max());
  question.set_duty(1);
  const v1::CapacityReport report = Report(question);
  EXPECT_THAT(report.warnings(),
              testing::Contains(HasSubstr("of 4294967295 users 4096 at work are predicted")));
}

}  // namespace
}  // namespace macrame::planner
