#include "agentd/services/metrics_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsServiceTest : public sim::AskedAgents {
 protected:
  absl::StatusOr<v1::GetMetricsResponse> Get(int at, const std::string& format = "prometheus") {
    v1::GetMetricsRequest request;
    request.set_format(format);
    return Ask(at, kGetMetrics, request);
  }
  // The value of the sample whose line begins so; nullopt: there is none.
  std::optional<double> Value(int at, const std::string& sample) {
    const auto page = Get(at);
    if (!page.ok()) return std::nullopt;
    for (const absl::string_view line : absl::StrSplit(page->text(), '\n')) {
      if (absl::StartsWith(line, absl::StrCat(sample, " "))) {
        return std::strtod(std::string(line.substr(sample.size() + 1)).c_str(), nullptr);
      }
    }
    return std::nullopt;
  }
};

TEST_F(MetricsServiceTest, EachFormatIsAWholeOneOnAnyNode) {
  Begin(2);
  LoadAndWait("m1");
  for (const int at : LeaderAndFollower()) {
    const auto plain = Get(at);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_THAT(plain->text(), HasSubstr("# TYPE macrame_build_info gauge"));
    EXPECT_TRUE(absl::EndsWith(plain->text(), "\n"));
    const auto open = Get(at, "openmetrics");
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_TRUE(absl::EndsWith(open->text(), "# EOF\n"));
    const auto json = Get(at, "json");
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_FALSE(nlohmann::json::parse(json->text(), nullptr, false).is_discarded());
  }
}

TEST_F(MetricsServiceTest, AnotherFormatIsRefusedWithThoseThatThereAre) {
  Begin(2);
  for (const std::string& format :
       {std::string(), std::string("Prometheus"), std::string("xml"), std::string(100'000, 'x')}) {
    const auto refused = Get(Follower(), format);
    EXPECT_EQ(CodeOf(refused), reasons::kBadRequest) << format.substr(0, 20);
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("openmetrics"));
    EXPECT_LT(ReasonOf(refused.status()).message().size(), 300u);
  }
}

TEST_F(MetricsServiceTest, EachAnswerIsCountedAndTheFirstLaunchIsNoRestart) {
  Begin(2);
  const double before = Value(0, "macrame_metrics_scrapes_total").value_or(0);
  EXPECT_EQ(Value(0, "macrame_metrics_scrapes_total"), before + 1);
  LoadAndWait("m1");
  sim().RunFor(1000);
  const std::string restarts = "macrame_gang_restarts_total{model=\"m1\"}";
  for (int at = 0; at < 2; ++at) EXPECT_EQ(Value(at, restarts).value_or(0), 0) << at;
  int holder = 0;
  while (sim().RanksOn(holder, "m1") == 0) ++holder;
  const uint64_t epoch = sim().EpochOf("m1");
  sim().KillRank(holder);
  ASSERT_TRUE(RunUntil([&] { return sim().EpochOf("m1") > epoch; }, 20'000));
  sim().RunFor(2000);
  for (int at = 0; at < 2; ++at) {
    EXPECT_EQ(Value(at, restarts), static_cast<double>(sim().EpochOf("m1") - epoch)) << at;
  }
}

TEST_F(MetricsServiceTest, DeathsAndElectionsAreCountedByThoseWhoSeeThem) {
  Begin(3);
  const int dead = Leader();
  sim().RunFor(2000);
  const int witness = Follower();
  const double elections = Value(witness, "macrame_coordinator_changes_total").value_or(0);
  EXPECT_GE(elections, 1);
  sim().Crash(dead);
  ASSERT_TRUE(RunUntil([&] { return Leader() >= 0 && Leader() != dead; }, 20'000));
  sim().RunFor(5000);
  EXPECT_EQ(Value(witness, "macrame_coordinator_changes_total"), elections + 1);
  const auto page = Get(witness);
  ASSERT_TRUE(page.ok());
  double deaths = 0;
  for (const absl::string_view line : absl::StrSplit(page->text(), '\n')) {
    if (!absl::StartsWith(line, "macrame_node_deaths_total{")) continue;
    deaths += std::strtod(std::string(line.substr(line.rfind(' ') + 1)).c_str(), nullptr);
  }
  EXPECT_EQ(deaths, 1);
}

// Whoever watches a cluster wants to know just then.
TEST_F(MetricsServiceTest, WithoutACoordinatorItAnswersAllTheSame) {
  Begin(2, [](auto& options) { options.consistency = Consistency::kQuorum; });
  sim().RunFor(10'000);
  const int left = Follower();
  sim().Crash(Leader());
  sim().RunFor(6000);
  const auto page = Get(left);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->text(), HasSubstr("macrame_build_info"));
}

TEST_F(MetricsServiceTest, ARequestOfTheGatewayLeavesItsCountAndItsTime) {
  Begin(1);
  RequestRecord record;
  record.method = "POST";
  record.route = "/v1/chat/completions";
  record.status = 200;
  record.begun = RequestRecord::Clock::now();
  record.ended = record.begun + std::chrono::milliseconds(1500);
  record.bytes_received = 10;
  record.bytes_sent = 1000;
  parts(0).metrics_service.NoteRequest(record);
  record.client_gone = true;
  parts(0).metrics_service.NoteRequest(record);
  const auto page = Get(0);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(page->text(), HasSubstr("macrame_gateway_requests_total{method=\"POST\","
                                      "route=\"/v1/chat/completions\",status=\"200\"} 2"));
  parts(0).metrics_service.NoteSpansSent(5);
  parts(0).metrics_service.NoteSpansDropped(3);
  EXPECT_EQ(Value(0, "macrame_trace_spans_sent_total"), 5);
  EXPECT_EQ(Value(0, "macrame_trace_spans_dropped_total"), 3);
}

TEST_F(MetricsServiceTest, AScrapeIsAnsweredInTheFormatThatItAsksFor) {
  Begin(2);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "text/plain"},
      {"text/plain", "text/plain"},
      {"application/openmetrics-text; version=1.0.0", "application/openmetrics-text"},
      {"application/openmetrics-text;q=0.1, text/plain;q=0.9", "text/plain"},
      {"\xff\xff;;;q=nan,", "text/plain"}};
  for (const auto& [accept, type] : cases) {
    std::optional<MetricsPage> page;
    parts(Follower()).metrics_service.Page(accept, [&](MetricsPage got) { page = std::move(got); });
    ASSERT_TRUE(RunUntil([&] { return page.has_value(); }, 10'000)) << accept;
    EXPECT_THAT(page->content_type, HasSubstr(type)) << accept;
    EXPECT_THAT(*page->body, HasSubstr("macrame_build_info"));
  }
}

TEST_F(MetricsServiceTest, WhoAsksWhileAPageIsMadeSharesIt) {
  Begin(2);
  const int at = Follower();  // which asks its coordinator first
  const std::string pages = "macrame_metrics_scrapes_total";
  const double before = Value(at, pages).value_or(0);
  MetricsService& service = parts(at).metrics_service;
  std::vector<MetricsPage> told;
  const auto ask = [&](const std::string& accept) {
    service.Page(accept, [&](MetricsPage page) { told.push_back(std::move(page)); });
  };
  for (int i = 0; i < 100; ++i) ask("text/plain");
  ask("application/openmetrics-text");
  // What was counted before a request stands on the page that it shares.
  service.NoteSpansSent(7);
  ask("text/plain");
  ASSERT_TRUE(RunUntil([&] { return told.size() == 102; }, 10'000));
  int plain = 0;
  for (const MetricsPage& page : told) {
    const bool is_plain = absl::StartsWith(page.content_type, "text/plain");
    plain += is_plain ? 1 : 0;
    EXPECT_EQ(absl::EndsWith(*page.body, "# EOF\n"), !is_plain);
    EXPECT_THAT(*page.body, HasSubstr("macrame_trace_spans_sent_total 7"));
  }
  EXPECT_EQ(plain, 101);
  EXPECT_EQ(Value(at, pages), before + 3) << "one of each format, and this one";
  // What was told is not told again.
  service.NoteSpansSent(1);
  told.clear();
  ask("text/plain");
  ASSERT_TRUE(RunUntil([&] { return told.size() == 1; }, 10'000));
  EXPECT_THAT(*told[0].body, HasSubstr("macrame_trace_spans_sent_total 8"));
}

}  // namespace
}  // namespace macrame::agentd
