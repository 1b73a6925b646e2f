// Every view of every message: whatever an agent sends, the terminal obeys nobody but clusterctl,
// colours change nothing but colours, and an agent that knows less of something is no division by
// nought.

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "cli/format/access_view.h"
#include "cli/format/bench_view.h"
#include "cli/format/capacity_view.h"
#include "cli/format/chrome_trace.h"
#include "cli/format/cluster_view.h"
#include "cli/format/doctor_view.h"
#include "cli/format/drain_view.h"
#include "cli/format/event_view.h"
#include "cli/format/links_view.h"
#include "cli/format/load_progress.h"
#include "cli/format/model_view.h"
#include "cli/format/profile_view.h"
#include "cli/format/reason_text.h"
#include "cli/format/timings_view.h"
#include "cli/format/top_view.h"
#include "cli/format/verify_view.h"
#include "proto/reasons.h"
#include "tests/unit/cli/odd_messages.h"

namespace macrame::cli {
namespace {

// Makes its message by itself.
struct View {
  const char* name;
  std::function<std::string(Oddity, uint64_t seed, int width, const Style&)> draw;
};

// Of a message alone.
template <typename Message, typename Draw>
View Of(const char* name, const Draw& draw) {
  return {name, [draw](Oddity oddity, uint64_t seed, int width, const Style& style) {
            return draw(Odd<Message>(oddity, seed), width, style);
          }};
}

BenchReport OddReport(Oddity oddity, uint64_t seed) {
  BenchReport report;
  report.model = oddity == Oddity::kWild ? kSteering : "";
  report.agent = Odd<v1::VersionResponse>(oddity, seed);
  report.deployment = Odd<v1::DeploymentStatus>(oddity, seed + 1);
  report.nodes.push_back(Odd<v1::NodeStatus>(oddity, seed + 2));
  BenchRow row;
  row.errors = 1;
  row.first_error = report.model;
  report.rows.push_back(row);
  return report;
}

std::vector<View> ClusterViews() {
  return {
      Of<v1::ClusterStatus>("devices list", [](const auto& m, int w,
                                               const Style& s) { return DevicesView(m, w, s); }),
      Of<v1::ClusterStatus>(
          "status", [](const auto& m, int w, const Style& s) { return StatusView(m, w, s); }),
      Of<v1::ClusterStatus>("health",
                            [](const auto& m, int, const Style& s) { return HealthView(m, s); }),
      Of<v1::ClusterStatus>("top",
                            [](const auto& m, int w, const Style& s) { return TopView(m, w, s); }),
      Of<v1::ClusterStatus>(
          "ps", [](const auto& m, int w, const Style& s) { return LoadedView(m, w, s); }),
      Of<v1::ClusterStatus>("drain",
                            [](const auto& m, int, const Style&) {
                              const Draining left = DrainOf(
                                  m, m.nodes().empty() ? "" : m.nodes(0).identity().node_id());
                              return DrainLine(left, kSteering) + left.Why() + "\n";
                            }),
      Of<v1::DeploymentStatus>(
          "balance", [](const auto& m, int w, const Style& s) { return BalanceView(m, w, s); }),
      Of<v1::DeploymentStatus>(
          "loaded", [](const auto& m, int, const Style&) { return LoadedSummary(m, 1.5); }),
      Of<v1::DeploymentStatus>("timings",
                               [](const auto& m, int w, const Style& s) {
                                 return TimingsView(v1::ClusterStatus(), m, w, s);
                               }),
      Of<v1::ListModelsResponse>(
          "model list", [](const auto& m, int w, const Style& s) { return ModelsView(m, w, s); }),
      Of<v1::PlanResult>("plan",
                         [](const auto& m, int w, const Style& s) { return PlanView(m, w, s); }),
      Of<v1::SpeedCorrections>(
          "speeds", [](const auto& m, int w, const Style& s) { return SpeedsView(m, w, s); }),
      Of<v1::LoadModelProgress>(
          "bars", [](const auto& m, int w, const Style& s) { return ProgressBars(m, w, s); }),
      Of<v1::LoadModelProgress>(
          "lines", [](const auto& m, int, const Style&) { return ProgressLines().Update(m); }),
  };
}

std::vector<View> OtherViews() {
  return {
      Of<v1::ListKeysResponse>(
          "keys", [](const auto& m, int w, const Style& s) { return KeysView(m, {}, 1, w, s); }),
      Of<v1::ListTenantsResponse>(
          "tenants", [](const auto& m, int w, const Style& s) { return TenantsView(m, w, s); }),
      Of<v1::LinksView>("links", [](const auto& m, int w,
                                    const Style& s) { return LinksText(m, "", true, w, s); }),
      Of<v1::LinksView>("network", [](const auto& m, int w,
                                      const Style& s) { return NetworkStatsText(m, w, s); }),
      Of<v1::LinkMeasurement>(
          "measurement",
          [](const auto& m, int, const Style&) { return MeasurementLine(m, v1::LinksView()); }),
      Of<v1::Diagnosis>("doctor",
                        [](const auto& m, int, const Style& s) { return DoctorText(m, s); }),
      Of<v1::ListEventsResponse>(
          "events", [](const auto& m, int, const Style& s) { return EventsView(m, s); }),
      Of<v1::ListProfilesResponse>(
          "profiles", [](const auto& m, int w, const Style& s) { return ProfilesView(m, w, s); }),
      Of<v1::ModelProfile>(
          "profile", [](const auto& m, int, const Style&) { return ProfileLine(kSteering, &m); }),
      Of<v1::ModelVerification>("verify",
                                [](const auto& m, int w, const Style& s) {
                                  return VerifyProgressLine(m) + "\n" +
                                         VerifyView(m, v1::ClusterStatus(), w, s);
                                }),
      Of<v1::TopologyAdvice>(
          "topology", [](const auto& m, int w, const Style& s) { return TopologyView(m, w, s); }),
      Of<v1::CapacityReport>(
          "capacity", [](const auto& m, int w, const Style& s) { return CapacityView(m, w, s); }),
      {"bench", [](Oddity oddity, uint64_t seed, int w, const Style& s) {
         return BenchView(OddReport(oddity, seed), w, s);
       }}};
}

std::vector<View> AllViews() {
  std::vector<View> views = ClusterViews();
  for (View& view : OtherViews()) views.push_back(std::move(view));
  return views;
}

constexpr uint64_t kSeeds = 60;

TEST(OddMessages, SteerNoTerminalWhateverTheView) {
  for (const View& view : AllViews()) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const int width = std::vector<int>{0, 1, 17, 40, 80, 400}[seed % 6];
      const std::string text = view.draw(Oddity::kWild, seed, width, Style());
      EXPECT_EQ(WhatSteers(text), "") << view.name << ", seed " << seed << "\n" << text;
      EXPECT_TRUE(text.empty() || text.back() == '\n') << view.name << ", seed " << seed;
      if (HasFailure()) break;
    }
  }
}

TEST(OddMessages, ColoursChangeNothingElse) {
  for (const View& view : AllViews()) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const std::string painted = view.draw(Oddity::kWild, seed, 100, Style(true));
      EXPECT_EQ(WithoutColours(painted), view.draw(Oddity::kWild, seed, 100, Style()))
          << view.name << ", seed " << seed;
      if (HasFailure()) break;
    }
  }
}

TEST(OddMessages, OfAnAgentThatKnowsLessAreNoNonsense) {
  for (const View& view : AllViews()) {
    for (const int width : {0, 40, 120}) {
      const std::string text = view.draw(Oddity::kEmpty, 0, width, Style());
      EXPECT_FALSE(std::regex_search(text, std::regex("\\b(nan|inf)\\b"))) << view.name << "\n"
                                                                           << text;
    }
  }
  for (const View& view : ClusterViews()) {
    const std::string text = view.draw(Oddity::kEmpty, 0, 120, Style());
    EXPECT_EQ(text.find(": \n"), std::string::npos) << view.name << "\n" << text;
  }
}

TEST(OddMessages, MakeDocumentsThatCanBeReadAgain) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto status = Odd<v1::ClusterStatus>(Oddity::kWild, seed);
    const Json documents[] = {
        Document("ClusterStatus", status), BenchDocument(OddReport(Oddity::kWild, seed)),
        TimingsJson(Odd<v1::DeploymentStatus>(Oddity::kWild, seed)),
        ChromeTrace(Odd<v1::TraceModelResponse>(Oddity::kWild, seed),
                    [](const std::string&) { return std::string(kSteering); }),
        ErrorDocument(ReasonStatus(absl::StatusCode::kInternal,
                                   MakeReason(reasons::kInternal, kSteering, kSteering)))};
    for (const Json& document : documents) {
      for (const bool compact : {false, true}) {
        const std::string text = ToJsonText(document, compact);
        EXPECT_TRUE(Json::accept(text)) << text;
        EXPECT_EQ(WhatSteers(text).find("U+001B"), std::string::npos) << text;
      }
      EXPECT_EQ(ToYamlText(document).find('\x1b'), std::string::npos);
    }
  }
}

TEST(OddMessages, AnErrorKeepsWhatAMachineSaidWithinItsLines) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto reason = Odd<v1::Reason>(Oddity::kWild, seed);
    if (reason.code().empty()) reason.set_code("X");
    reason.set_message("what happened");
    const std::string block =
        ErrorBlock(ReasonStatus(absl::StatusCode::kInternal, reason), Style());
    EXPECT_EQ(WhatSteers(block), "") << block;
    EXPECT_EQ(block.rfind("error: what happened\n", 0), 0u) << block;
  }
}

}  // namespace
}  // namespace macrame::cli
