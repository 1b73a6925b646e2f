#include "agentd/services/trace_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <optional>

#include "nlohmann/json.hpp"
#include "tests/unit/agentd/services/hook_server.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Steady = std::chrono::steady_clock;

std::vector<Span> Request(size_t spans) {
  Span span;
  span.trace_id = std::string(32, 'a');
  span.span_id = std::string(16, 'b');
  span.name = "one";
  return std::vector<Span>(spans, span);
}

class TraceExporterTest : public ::testing::Test {
 protected:
  TraceExporterOptions Options() const {
    TraceExporterOptions options;
    options.url = *ParseWebUrl(server_.url());
    options.fields = {{"authorization", "Bearer t"}};
    options.source = TraceSourceOf("n", "h", "1");
    options.batch_wait = milliseconds(20);
    options.try_limit = seconds(2);
    options.limits = {3, milliseconds(5), milliseconds(50)};
    return options;
  }
  void Start(TraceExporterOptions options) {
    exporter_.emplace(std::move(options),
                      TraceExporter::Counters{[this](uint64_t count) { Note(sent_, count); },
                                              [this](uint64_t count) { Note(dropped_, count); }});
  }
  void Note(uint64_t& counter, uint64_t count) {
    const std::lock_guard lock(mutex_);
    counter += count;
    changed_.notify_all();
  }
  // How many spans were taken and how many dropped, once all are one or the other.
  std::pair<uint64_t, uint64_t> Counts(uint64_t spans) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, seconds(10), [&] { return sent_ + dropped_ >= spans; });
    return {sent_, dropped_};
  }

  tests::HookServer server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t sent_ = 0, dropped_ = 0;
  std::optional<TraceExporter> exporter_;
};

TEST_F(TraceExporterTest, SendsBatchesWithItsFields) {
  Start(Options());
  for (int i = 0; i < 3; ++i) exporter_->Add(Request(2));
  EXPECT_EQ(Counts(6), std::pair(uint64_t{6}, uint64_t{0}));
  size_t spans = 0;
  for (const std::string& request : server_.requests()) {
    EXPECT_THAT(request, HasSubstr("authorization: Bearer t\r\n"));
    EXPECT_THAT(request, HasSubstr("Content-Type: application/json\r\n"));
    const auto body = nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
    spans += body["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
  }
  EXPECT_EQ(spans, 6u);
}

TEST_F(TraceExporterTest, TriesAgainAndThenGivesUp) {
  server_.SetStatus(503);
  Start(Options());
  exporter_->Add(Request(2));
  EXPECT_EQ(Counts(2), std::pair(uint64_t{0}, uint64_t{2}));
  EXPECT_EQ(server_.requests().size(), 3u);
  server_.SetStatus(400);
  exporter_->Add(Request(1));
  EXPECT_EQ(Counts(3).second, 3u);
  EXPECT_EQ(server_.requests().size(), 4u) << "it would say so again";
  server_.SetStatus(200);
  exporter_->Add(Request(1));
  EXPECT_EQ(Counts(4).first, 1u);
}

TEST_F(TraceExporterTest, WaitsAsLongAsTheCollectorAsks) {
  server_.SetStatus(429);
  server_.SetHeaders("retry-after: 1\r\n");
  TraceExporterOptions options = Options();
  options.limits = {2, milliseconds(5), seconds(5)};
  Start(options);
  const auto begun = Steady::now();
  exporter_->Add(Request(1));
  EXPECT_EQ(Counts(1).second, 1u);
  EXPECT_GE(Steady::now() - begun, seconds(1));
  EXPECT_EQ(server_.requests().size(), 2u);
}

TEST_F(TraceExporterTest, CountsWhatTheCollectorRefuses) {
  server_.SetBody(R"({"partialSuccess":{"rejectedSpans":"2","errorMessage":"no"}})");
  Start(Options());
  exporter_->Add(Request(5));
  EXPECT_EQ(Counts(5), std::pair(uint64_t{3}, uint64_t{2}));
}

TEST_F(TraceExporterTest, WhatFindsNoPlaceIsDroppedAndNobodyWaits) {
  TraceExporterOptions options = Options();
  options.url = *ParseWebUrl("http://127.0.0.1:1/v1/traces");
  options.waiting_max = 10;
  options.batch_wait = seconds(5);
  options.batch_max = 1000;
  Start(options);
  const auto begun = Steady::now();
  for (int i = 0; i < 1000; ++i) exporter_->Add(Request(5));
  EXPECT_LT(Steady::now() - begun, seconds(2));
  const auto [sent, dropped] = Counts(4990);
  EXPECT_EQ(sent, 0u);
  EXPECT_GE(dropped, 4990u);
}

TEST_F(TraceExporterTest, SendsWhatWaitsBeforeItGoes) {
  TraceExporterOptions options = Options();
  options.batch_wait = seconds(60);
  Start(options);
  exporter_->Add(Request(3));
  const auto begun = Steady::now();
  exporter_->BeginStop();
  exporter_->Add(Request(1));
  exporter_.reset();
  EXPECT_LT(Steady::now() - begun, seconds(5));
  EXPECT_EQ(sent_, 3u);
  EXPECT_EQ(dropped_, 1u);
}

// A collector that takes connections and never answers.
TEST_F(TraceExporterTest, GoesWithinItsLimitWhateverTheCollectorDoes) {
  server_.SetSilent(true);
  TraceExporterOptions options = Options();
  options.try_limit = seconds(60);
  options.flush_limit = milliseconds(300);
  Start(options);
  exporter_->Add(Request(3));
  while (server_.requests().empty()) std::this_thread::yield();
  const auto begun = Steady::now();
  exporter_.reset();
  EXPECT_LT(Steady::now() - begun, seconds(5));
  EXPECT_EQ(dropped_, 3u);
}

class TraceFieldsTest : public ::testing::Test {
 protected:
  absl::StatusOr<HttpFields> Read(const std::string& text, mode_t mode = 0600) {
    const std::string path = FreshFolder() + "/otlp_headers";
    std::ofstream(path, std::ios::trunc) << text;
    ::chmod(path.c_str(), mode);
    return ReadTraceFields(path);
  }
};

TEST_F(TraceFieldsTest, ReadsNamesAndValues) {
  const auto fields =
      Read("# of the cloud\nAuthorization: Bearer abc:def\n\n  x-tenant :  one two \n");
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_EQ(*fields, (HttpFields{{"Authorization", "Bearer abc:def"}, {"x-tenant", "one two"}}));
}

TEST_F(TraceFieldsTest, NamesTheLineAndNeverWhatStandsThere) {
  for (const std::string& text :
       {std::string("x-good: 1\nsecretsecret"), std::string("a: 1\n: secret"),
        std::string("a: 1\nb secret: 2"), std::string("a: 1\nb:"),
        std::string("a: 1\nContent-Length: 7secret"), std::string("a: 1\nb: secret\x01")}) {
    const auto fields = Read(text);
    ASSERT_FALSE(fields.ok()) << text;
    EXPECT_THAT(std::string(fields.status().message()), HasSubstr(":2: ")) << text;
    EXPECT_THAT(std::string(fields.status().message()), Not(HasSubstr("secret"))) << text;
  }
  EXPECT_FALSE(ReadTraceFields("/nowhere/at/all").ok());
  EXPECT_THAT(std::string(Read("a: 1", 0644).status().message()), HasSubstr("chmod 600"));
  EXPECT_FALSE(Read(std::string(20'000, '#')).ok());
}

}  // namespace
}  // namespace macrame::agentd
