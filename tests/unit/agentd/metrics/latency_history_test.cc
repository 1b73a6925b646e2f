#include "agentd/metrics/latency_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LatencyHistoryTest : public ::testing::Test {
 protected:
  // Slots begin at whole multiples of ten seconds.
  MonotonicTime At(double s) const {
    return MonotonicTime(seconds(1000)) + milliseconds(static_cast<int64_t>(s * 1000));
  }
  json Models(double s) { return json::parse(*history_.Json(At(s)))["models"]; }
  void First(double value_seconds, double s, const std::string& model = "tiny") {
    history_.Observe(model, Latency::kFirstToken, value_seconds, 1, At(s));
  }

  LatencyHistory history_;
};

TEST_F(LatencyHistoryTest, SaysHowItIsCut) {
  const json all = json::parse(*history_.Json(At(0)));
  EXPECT_EQ(all["slot_seconds"], 10);
  EXPECT_EQ(all["window_seconds"], 30);
  EXPECT_EQ(all["span_seconds"], 600);
  EXPECT_EQ(all["models"], json::array());
}

TEST_F(LatencyHistoryTest, PercentilesAreRightToFivePercent) {
  for (const double scale : {0.0001, 0.003, 0.2, 10.0}) {
    LatencyHistory history;
    for (int i = 1; i <= 100; ++i) {
      history.Observe("tiny", Latency::kInterToken, i * scale, 3, At(1));
    }
    const json point = json::parse(*history.Json(At(2)))["models"][0]["inter_token"][0];
    EXPECT_EQ(point[0], 0);
    EXPECT_EQ(point[1], 300);
    EXPECT_NEAR(point[2].get<double>() / (50 * scale * 1000), 1, 0.06) << scale;
    EXPECT_NEAR(point[3].get<double>() / (95 * scale * 1000), 1, 0.06) << scale;
  }
}

TEST_F(LatencyHistoryTest, WhatIsNoTimeHarmsNothing) {
  for (const double value : {-1.0, 0.0, std::nan(""), 1e300}) First(value, 1);
  EXPECT_EQ(Models(1)[0]["first_token"][0][1], 4);
}

TEST_F(LatencyHistoryTest, EachSlotHasAPointOfTheLastThree) {
  First(1, 5);
  First(4, 15);
  const json points = Models(25)[0]["first_token"];
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0][0], 15);
  EXPECT_EQ(points[0][1], 1);
  EXPECT_EQ(points[1][0], 5);
  EXPECT_EQ(points[1][1], 2);
  EXPECT_NEAR(points[1][3].get<double>(), 4000, 200);
  EXPECT_EQ(points[2][0], 0);
  EXPECT_EQ(points[2][1], 2) << "both are in the window still";
  // The first has left it.
  EXPECT_EQ(Models(35)[0]["first_token"].back()[1], 1);
}

TEST_F(LatencyHistoryTest, WhereNothingCameThereIsNoPoint) {
  First(1, 5);
  First(1, 305);
  const json points = Models(305)[0]["first_token"];
  std::vector<double> ages;
  for (const json& point : points) ages.push_back(point[0]);
  EXPECT_EQ(ages, (std::vector<double>{295, 285, 275, 0}));
}

TEST_F(LatencyHistoryTest, WhatIsTooOldGoes) {
  First(1, 5);
  First(1, 5, "other");
  First(1, 500);
  EXPECT_EQ(Models(600).size(), 2u);
  const json later = Models(660);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0]["model"], "tiny");
  EXPECT_EQ(Models(100'000).size(), 0u);
}

TEST_F(LatencyHistoryTest, KeepsABoundedNumberOfModelsAndPoints) {
  for (int second = 0; second < 2000; ++second) {
    for (size_t i = 0; i < 2 * LatencyHistory::kModelsMax; ++i) {
      First(0.1, second, absl::StrCat("model-", i));
    }
  }
  const json models = Models(2000);
  EXPECT_EQ(models.size(), LatencyHistory::kModelsMax);
  EXPECT_LE(models[0]["first_token"].size(), static_cast<size_t>(LatencyHistory::kSpanSlots) + 2);
}

TEST_F(LatencyHistoryTest, IsMadeOnceASecondForAllWhoAsk) {
  First(1, 5);
  const auto made = history_.Json(At(6));
  First(2, 6.2);
  EXPECT_EQ(history_.Json(At(6.9)), made);
  EXPECT_NE(history_.Json(At(7.1)), made);
}

// Threads that count have read the clock a little before or after each other.
TEST_F(LatencyHistoryTest, AClockThatIsReadOutOfOrderDoesNoHarm) {
  First(1, 20.1);
  First(1, 19.9);
  EXPECT_EQ(Models(21)[0]["first_token"].back()[1], 2);
}

}  // namespace
}  // namespace macrame::agentd
