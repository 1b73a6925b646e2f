#include "agentd/tracing/export_decision.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using Kind = ExportDecision::Kind;
using std::chrono::seconds;

ExportDecision After(int status, int tries = 1, double chance = 1) {
  return DecideExport({status}, tries, chance, ExportLimits());
}

TEST(ExportDecision, TriesAgainWhatTheSpecificationNames) {
  for (const int status : {0, 429, 502, 503, 504}) EXPECT_EQ(After(status).kind, Kind::kAgain);
  for (const int status : {100, 301, 400, 401, 404, 408, 413, 500, 501, 505}) {
    EXPECT_EQ(After(status).kind, Kind::kGivenUp) << status;
  }
  for (const int status : {200, 202, 204}) EXPECT_EQ(After(status).kind, Kind::kTaken);
}

TEST(ExportDecision, PausesGrowAndHaveAnEnd) {
  EXPECT_EQ(After(503, 1).pause, seconds(1));
  EXPECT_EQ(After(503, 2).pause, seconds(2));
  EXPECT_EQ(After(503, 4).pause, seconds(8));
  EXPECT_EQ(After(503, 5).kind, Kind::kGivenUp);
  ExportLimits patient;
  patient.tries = 1000;
  EXPECT_EQ(DecideExport({503}, 999, 1, patient).pause, patient.pause_max);
  EXPECT_EQ(After(503, 2, 0).pause, seconds(1)) << "half of it by the worst of chances";
  EXPECT_EQ(After(503, 2, -5).pause, seconds(1));
}

TEST(ExportDecision, AServersOwnWordIsTakenWithinBounds) {
  const ExportLimits limits;
  EXPECT_EQ(DecideExport({429, seconds(7)}, 1, 0.3, limits).pause, seconds(7));
  EXPECT_EQ(DecideExport({429, seconds(86'400)}, 1, 0.3, limits).pause, limits.pause_max);
  EXPECT_EQ(DecideExport({400, seconds(7)}, 1, 0.3, limits).kind, Kind::kGivenUp);
}

}  // namespace
}  // namespace macrame::agentd
