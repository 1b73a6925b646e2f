#include "discovery/parsers/panic_report_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "discovery/base/plain_text.h"
#include "tests/unit/discovery/captured.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

using testing::HasSubstr;

constexpr uint64_t kPanicMs = 1'795'165'832'000;   // 2026-11-20 09:10:32 UTC
constexpr uint64_t kReportMs = 1'795'165'872'000;  // 40 s later
constexpr char kSaid[] =
    "panic(cpu 2 caller 0xfffffe0026d1c4a8): \"DART (dispext0) error: SID 3 PTE invalid exception "
    "on read of DVA 0x10a3f4000 (SEG 0 PTE 0x143f)\" @AppleT8110DART.cpp:2931";

std::string Captured() { return tests::Captured("panics/panic-full-2026-11-20-101112.0002.panic"); }

// With this first line, and this for a panic string.
std::string Report(const std::string& header, const std::string& said) {
  return header + "\n{\"product\" : \"Mac16,9\", \"panicString\" : \"" + said + "\"}\n";
}

std::string HeaderAt(const std::string& timestamp) {
  return R"({"bug_type":"210","timestamp":")" + timestamp + "\"}";
}

TEST(PanicReport, TellsWhenTheKernelPanickedAndWhatItSaid) {
  const auto panic = ParsePanicReport(Captured());
  ASSERT_TRUE(panic.has_value());
  EXPECT_EQ(panic->unix_ms, kPanicMs) << "the kernel's own clock, before the restart";
  EXPECT_EQ(panic->written_unix_ms, kReportMs);
  EXPECT_EQ(panic->text, kSaid);
  EXPECT_EQ(panic->incident_id, "1C0FFEE0-2B41-4D7A-9E55-60A1D3B7F214");
}

TEST(PanicReport, WithoutTheKernelsClockItIsOfTheTimeOfTheReport) {
  const std::string header = HeaderAt("2026-11-20 10:11:12.00 +0100");
  for (const char* said :
       {"panic(cpu 0): x", R"(panic(cpu 0): x\n  Calendar: 0x6b00)",
        R"(panic(cpu 0): x\n  Calendar: 0x6b0g0e88)", R"(panic(cpu 0): x\n  Calendar: 0x00000000)",
        R"(panic(cpu 0): x\n  Calendar: 0xffffffff)"}) {
    const auto panic = ParsePanicReport(Report(header, said));
    ASSERT_TRUE(panic.has_value()) << said;
    EXPECT_EQ(panic->unix_ms, kReportMs) << said;
    EXPECT_EQ(panic->text, "panic(cpu 0): x");
  }
}

TEST(PanicReport, TheTimeIsOfItsTimeZone) {
  for (const char* same : {"2026-11-20 09:11:12.00 +0000", "2026-11-20 01:11:12 -0800",
                           "2026-11-20 14:41:12.00 +0530", "2026-11-19 23:11:12.99 -1000"}) {
    const auto panic = ParsePanicReport(Report(HeaderAt(same), "panic"));
    ASSERT_TRUE(panic.has_value()) << same;
    EXPECT_EQ(panic->unix_ms, kReportMs) << same;
  }
  for (const char* none :
       {"", "2026-11-20", "2026-13-20 10:11:12.00 +0100", "2026-02-30 10:11:12.00 +0100",
        "2026-11-20 25:11:12.00 +0100", "2026-11-20 10:11:12.00 0100", "2026-11-20 10:11:12.00 +01",
        "2026-11-20 10:11:12.00", "0000-00-00 00:00:00 +0000", "1969-12-31 23:59:59 +0000",
        "9999999999999999999999", " ", "2026-11-20 10:11:12.00 +"}) {
    EXPECT_FALSE(ParsePanicReport(Report(HeaderAt(none), "panic")).has_value()) << none;
  }
}

TEST(PanicReport, AMacWithAT2TellsThePanicOfMacOsItself) {
  const std::string header = HeaderAt("2026-11-20 10:11:12.00 +0100");
  const auto panic =
      ParsePanicReport(header +
                       "\n{\"panicString\":\"panic(cpu 1): of the T2\", \"macOSPanicString\" : "
                       "\"panic(cpu 8): of macOS\\nMore\"}\n");
  ASSERT_TRUE(panic.has_value());
  EXPECT_EQ(panic->text, "panic(cpu 8): of macOS");
}

TEST(PanicReport, WhatIsNoReportOfAPanicIsNone) {
  const std::string body = "\n{\"panicString\" : \"panic(cpu 0): x\"}\n";
  for (const std::string& header :
       {std::string(), std::string("{}"), std::string("[]"), std::string("panic(cpu 0)"),
        std::string(R"({"bug_type":"309","timestamp":"2026-11-20 10:11:12.00 +0100"})"),
        std::string(R"({"bug_type":210,"timestamp":"2026-11-20 10:11:12.00 +0100"})"),
        std::string(R"({"bug_type":"210","timestamp":1795165872})"),
        std::string(R"({"bug_type":"210"})"), std::string("\0\xff\xfe", 3),
        HeaderAt("2026-11-20 10:11:12.00 +0100") + std::string(5000, ' ')}) {
    EXPECT_FALSE(ParsePanicReport(header + body).has_value()) << header.substr(0, 80);
  }
  EXPECT_FALSE(ParsePanicReport(HeaderAt("2026-11-20 10:11:12.00 +0100")).has_value())
      << "its first line may be cut";
  EXPECT_FALSE(ParsePanicReport(std::string(1'000'000, '[')).has_value());
  EXPECT_FALSE(ParsePanicReport(std::string(4000, '[') + "\n").has_value());
}

TEST(PanicReport, AReportWithoutWordsIsStillOne) {
  const std::string header = HeaderAt("2026-11-20 10:11:12.00 +0100") + "\n";
  for (const char* body :
       {"", "{", "{\"panicString\"", "{\"panicString\" :", "{\"panicString\":7}",
        "{\"panicString\":\"", "{\"panicstring\":\"x\"}", R"({"a":"\"panicString\":\"x"})"}) {
    const auto panic = ParsePanicReport(header + body);
    ASSERT_TRUE(panic.has_value()) << body;
    EXPECT_EQ(panic->text, "") << body;
    EXPECT_EQ(panic->unix_ms, kReportMs);
  }
}

TEST(PanicReport, TheTextIsPlainAndShort) {
  const std::string header = HeaderAt("2026-11-20 10:11:12.00 +0100");
  const auto text = [&](const std::string& said) {
    return ParsePanicReport(Report(header, said)).value_or(PanicReportText()).text;
  };
  const std::string escaped = "panic: \\\"a\\\\b\\\" \\/c\\td";
  EXPECT_EQ(text(escaped), "panic: \"a\\b\" /c d");
  EXPECT_EQ(text("panic: \x1b[2J\x07"), "panic: ?[2J?");
  EXPECT_TRUE(IsPlainText(text("panic: \xff\xfe\xc3")));
  EXPECT_LE(text(std::string(1'000'000, 'x')).size(), kPanicTextBytesMax);
  EXPECT_EQ(text("panic: x\\"), "panic: x\"}") << "no end of the string in sight";
}

TEST(PanicReport, CutAnywhereItTellsLessAndNothingElse) {
  const std::string whole = Captured();
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto panic = ParsePanicReport(std::string_view(whole).substr(0, n));
    if (!panic) continue;
    EXPECT_TRUE(panic->unix_ms == kPanicMs || panic->unix_ms == kReportMs) << n;
    EXPECT_TRUE(std::string_view(kSaid).starts_with(panic->text)) << panic->text;
  }
}

TEST(PanicReport, DamageCrashesNothing) {
  std::mt19937_64 random(29);
  const std::string whole = Captured();
  for (int i = 0; i < 20'000; ++i) {
    const auto panic = ParsePanicReport(tests::Mutate(whole, random));
    if (!panic) continue;
    ASSERT_TRUE(IsPlainText(panic->text));
    ASSERT_LE(panic->text.size(), kPanicTextBytesMax);
  }
}

}  // namespace
}  // namespace macrame::discovery
