// The history of latencies against a model that keeps every value and sorts, over many seeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/metrics/latency_history.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr int64_t kSlotMs = LatencyHistory::kSlotSeconds * 1000;

struct Seen {
  int64_t slot;
  double ms;
  uint64_t times;
};
using Values = std::vector<Seen>;

struct ExpectedPoint {
  double age_seconds;
  uint64_t count;
  double median_ms;
  double p95_ms;
};

// The value at this place when all are in order.
double ValueAt(const std::map<double, uint64_t>& sorted, uint64_t count, double share) {
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(count)));
  uint64_t seen = 0;
  for (const auto& [value, times] : sorted) {
    seen += times;
    if (seen >= wanted) return value;
  }
  return sorted.rbegin()->first;
}

// Of the three slots that end with this one.
std::vector<ExpectedPoint> PointAt(const Values& values, int64_t slot, double age_seconds) {
  std::map<double, uint64_t> sorted;
  uint64_t count = 0;
  for (const Seen& seen : values) {
    if (seen.slot > slot || seen.slot <= slot - LatencyHistory::kWindowSlots) continue;
    sorted[seen.ms] += seen.times;
    count += seen.times;
  }
  if (count == 0) return {};
  return {{age_seconds, count, ValueAt(sorted, count, 0.5), ValueAt(sorted, count, 0.95)}};
}

std::vector<ExpectedPoint> ExpectedPoints(const Values& values, int64_t now_ms) {
  const int64_t current = now_ms / kSlotMs;
  std::vector<ExpectedPoint> points;
  for (int64_t slot = current - LatencyHistory::kSpanSlots; slot < current; ++slot) {
    const double age = static_cast<double>(now_ms - (slot + 1) * kSlotMs) / 1000;
    for (const ExpectedPoint& point : PointAt(values, slot, age)) points.push_back(point);
  }
  for (const ExpectedPoint& point : PointAt(values, current, 0)) points.push_back(point);
  return points;
}

void ExpectPoints(const json& told, const std::vector<ExpectedPoint>& expected,
                  const std::string& where) {
  ASSERT_EQ(told.size(), expected.size()) << where << "\n" << told;
  for (size_t i = 0; i < expected.size(); ++i) {
    const ExpectedPoint& point = expected[i];
    EXPECT_NEAR(told[i][0].get<double>(), point.age_seconds, 0.0501) << where;
    EXPECT_EQ(told[i][1], point.count) << where;
    EXPECT_NEAR(told[i][2].get<double>() / point.median_ms, 1, 0.05) << where << told[i];
    EXPECT_NEAR(told[i][3].get<double>() / point.p95_ms, 1, 0.05) << where << told[i];
  }
}

class LatencyModel {
 public:
  explicit LatencyModel(uint64_t seed) : random_(seed), now_ms_(1'000'000 + Below(20'000)) {}

  void Step() {
    // Mostly within a slot, at times over several, rarely beyond all that is kept.
    const uint64_t leap = Below(40);
    now_ms_ += leap == 0 ? Below(900'000) : leap < 8 ? Below(60'000) : Below(2'500);
    const std::string model = absl::StrCat("model-", Below(4));
    const bool is_first = Below(2) == 0;
    // From a twentieth of a millisecond to some minutes, evenly by orders of size.
    const double ms = std::exp(std::uniform_real_distribution<>(-2.9, 12.0)(random_));
    const uint64_t times = 1 + Below(5);
    history_.Observe(model, is_first ? Latency::kFirstToken : Latency::kInterToken, ms / 1000,
                     times, Now());
    values_[model][is_first ? 0 : 1].push_back({now_ms_ / kSlotMs, ms, times});
  }

  void Compare() {
    now_ms_ += 1000;  // what was made before holds for a second
    const json told = json::parse(*history_.Json(Now()));
    std::set<std::string> expected_models;
    for (const auto& [model, series] : values_) {
      const auto first = ExpectedPoints(series[0], now_ms_);
      const auto inter = ExpectedPoints(series[1], now_ms_);
      if (first.empty() && inter.empty()) continue;
      expected_models.insert(model);
      const auto found =
          std::find_if(told["models"].begin(), told["models"].end(),
                       [&name = model](const json& one) { return one["model"] == name; });
      ASSERT_NE(found, told["models"].end()) << model << " is missing";
      ExpectPoints((*found)["first_token"], first, model + ", first token");
      ExpectPoints((*found)["inter_token"], inter, model + ", between tokens");
    }
    EXPECT_EQ(told["models"].size(), expected_models.size());
  }

 private:
  int64_t Below(uint64_t bound) { return static_cast<int64_t>(random_() % bound); }
  MonotonicTime Now() const { return MonotonicTime(milliseconds(now_ms_)); }

  std::mt19937_64 random_;
  int64_t now_ms_;
  LatencyHistory history_;
  std::map<std::string, std::array<Values, 2>> values_;
};

TEST(LatencyHistoryModel, EveryPointIsThatOfTheSortedValues) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    LatencyModel model(seed);
    for (int step = 0; step < 120; ++step) {
      model.Step();
      if (step % 5 == 0) model.Compare();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// A small model on a fast machine writes a token in less than a millisecond.
TEST(LatencyHistoryModel, TimesBelowAMillisecondKeepThreeDigits) {
  for (const double ms : {0.052, 0.071, 0.094, 0.15, 0.333, 0.72, 0.99}) {
    LatencyHistory history;
    const MonotonicTime now(std::chrono::seconds(1000));
    history.Observe("tiny", Latency::kInterToken, ms / 1000, 1, now);
    const json point = json::parse(*history.Json(now))["models"][0]["inter_token"][0];
    EXPECT_NEAR(point[2].get<double>() / ms, 1, 0.05) << ms << " ms became " << point[2];
  }
}

// Models come and go all day: one that nobody asks any more must not hold its place.
TEST(LatencyHistoryModel, AForgottenModelsPlaceIsFreeForAnother) {
  LatencyHistory history;
  const auto at = [](int64_t seconds) { return MonotonicTime(std::chrono::seconds(seconds)); };
  for (size_t i = 0; i < LatencyHistory::kModelsMax; ++i) {
    history.Observe(absl::StrCat("old-", i), Latency::kFirstToken, 0.1, 1, at(1000));
  }
  history.Observe("new", Latency::kFirstToken, 0.1, 1, at(1001));
  EXPECT_EQ(history.Json(at(1002))->find("\"new\""), std::string::npos) << "there is no place yet";
  const int64_t later = 1000 + LatencyHistory::kSlotSeconds *
                                   (LatencyHistory::kSpanSlots + LatencyHistory::kWindowSlots + 2);
  history.Observe("new", Latency::kFirstToken, 0.1, 1, at(later));
  const json models = json::parse(*history.Json(at(later + 1)))["models"];
  ASSERT_EQ(models.size(), 1u) << models;
  EXPECT_EQ(models[0]["model"], "new");
}

TEST(LatencyHistoryModel, ANameThatIsNoUtf8StaysOutOfTheWayOfTheOthers) {
  LatencyHistory history;
  const MonotonicTime now(std::chrono::seconds(1000));
  history.Observe("bad-\xff\xfe", Latency::kFirstToken, 0.1, 1, now);
  history.Observe("good", Latency::kFirstToken, 0.1, 1, now);
  const json told = json::parse(*history.Json(now), nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(told.is_discarded());
  EXPECT_EQ(told["models"].size(), 2u);
}

}  // namespace
}  // namespace macrame::agentd
