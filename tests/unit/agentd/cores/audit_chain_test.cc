#include "agentd/cores/audit_chain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace macrame::agentd {
namespace {

std::vector<std::string> Lines(int count) {
  std::vector<std::string> lines;
  AuditTail tail;
  for (int i = 0; i < count; ++i) {
    std::string line = ComposeAuditLine({1'790'000'000'000 + static_cast<uint64_t>(i), "local",
                                         "LoadModel", "m", "socket", "ok", 0},
                                        &tail);
    EXPECT_EQ(line.back(), '\n');
    line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

// The number of the first line (from 1) that breaks the chain; 0: it holds.
int BrokenAt(const std::vector<std::string>& lines) {
  AuditVerifier verifier;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!verifier.Take(lines[i]).empty()) return static_cast<int>(i) + 1;
  }
  return 0;
}

TEST(AuditChain, ALineSaysWhoWhatWhenFromWhereAndHowItEnded) {
  AuditTail tail;
  std::string line = ComposeAuditLine(
      {1'790'000'000'123, "key 01", "POST /v1/x", "a\"b\n\xff", "10.0.0.1", "403 no", 4}, &tail);
  line.pop_back();
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["seq"], 1);
  EXPECT_EQ(parsed["time"], "2026-09-21T14:13:20.123Z");
  EXPECT_EQ(parsed["who"], "key 01");
  EXPECT_EQ(parsed["from"], "10.0.0.1");
  EXPECT_EQ(parsed["left_out"], 4);
  EXPECT_EQ(parsed["prev"], "");
  EXPECT_EQ(parsed["hash"], tail.hash);
  EXPECT_TRUE(ReadAuditLine(line).has_value());
}

TEST(AuditChain, AnyChangedMissingOrMovedLineIsFound) {
  const std::vector<std::string> good = Lines(5);
  EXPECT_EQ(BrokenAt(good), 0);
  for (size_t at = 0; at < good[2].size(); at += 7) {
    std::vector<std::string> changed = good;
    changed[2][at] ^= 1;
    EXPECT_EQ(BrokenAt(changed), 3) << at;
  }
  std::vector<std::string> missing = good;
  missing.erase(missing.begin() + 1);
  EXPECT_EQ(BrokenAt(missing), 2);
  std::vector<std::string> moved = good;
  std::swap(moved[3], moved[4]);
  EXPECT_EQ(BrokenAt(moved), 4);
  std::vector<std::string> twice = good;
  twice.insert(twice.begin() + 2, good[2]);
  EXPECT_EQ(BrokenAt(twice), 4);
  std::vector<std::string> foreign = good;
  foreign.push_back("hello");
  EXPECT_EQ(BrokenAt(foreign), 6);
  EXPECT_EQ(BrokenAt({good.begin() + 2, good.end()}), 0) << "the first ones were rotated away";
}

TEST(AuditChain, LongTextsAreCut) {
  AuditTail tail;
  const std::string line =
      ComposeAuditLine({1, std::string(5000, 'a'), "b", std::string(5000, 'c'), "", "", 0}, &tail);
  EXPECT_LT(line.size(), 1000u);
}

TEST(AuditThrottle, AFloodGetsFewLinesAndACount) {
  AuditThrottle throttle;
  MonotonicTime now{std::chrono::seconds(100)};
  uint32_t lines = 0;
  for (int i = 0; i < 1000; ++i) lines += throttle.Take(now).has_value();
  EXPECT_EQ(lines, AuditThrottle::kLinesPerMinute);
  const auto later = throttle.Take(now + std::chrono::minutes(1));
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(*later, 1000u - AuditThrottle::kLinesPerMinute);
  EXPECT_EQ(throttle.Take(now + std::chrono::minutes(1)), 0u);
}

}  // namespace
}  // namespace macrame::agentd
