#include "runtime/supervisor/crash_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/utf8.h"

namespace macrame::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kHeader[] =
    R"j({"app_name":"rankd","timestamp":"2026-11-30 10:00:00.00 +0000","app_version":"",)j"
    R"j("bug_type":"309","os_version":"macOS 26.2 (25C56)","name":"rankd"})j";

// A rank whose second thread crashed while it posted a receive.
nlohmann::json Body() {
  return nlohmann::json::parse(R"j({
    "uptime": 86000, "pid": 4711, "procName": "rankd", "procPath": "/opt/m/bin/rankd",
    "exception": {"codes": "0x0000000000000001, 0x0000000000000010", "rawCodes": [1, 16],
                  "type": "EXC_BAD_ACCESS", "signal": "SIGSEGV",
                  "subtype": "KERN_INVALID_ADDRESS at 0x0000000000000010"},
    "faultingThread": 1,
    "threads": [
      {"id": 100, "frames": [{"imageOffset": 4, "symbol": "__ulock_wait", "imageIndex": 2}]},
      {"id": 101, "triggered": true, "frames": [
        {"imageOffset": 8200, "symbol": "tbt_post_recv", "symbolLocation": 84, "imageIndex": 1},
        {"imageOffset": 91424, "imageIndex": 0},
        {"imageOffset": 1024, "symbol": "jaccl::Connection::receive(int)", "imageIndex": 0},
        {"imageOffset": 99, "symbol": "start", "imageIndex": 7}]}],
    "usedImages": [
      {"base": 4295000000, "size": 900, "name": "libmlx.dylib", "path": "/opt/m/lib/libmlx.dylib"},
      {"base": 6400000000, "size": 900, "path": "/usr/lib/libibverbs"},
      {"base": 6500000000, "size": 900, "name": "libsystem_kernel.dylib"}]})j");
}

std::string File(const nlohmann::json& body) { return std::string(kHeader) + "\n" + body.dump(2); }

TEST(CrashReport, TellsTheExceptionAndTheThreadThatCrashed) {
  const auto report = ParseCrashReport(File(Body()));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->pid, 4711u);
  EXPECT_EQ(report->program, "rankd");
  EXPECT_EQ(report->exception, "EXC_BAD_ACCESS (SIGSEGV), KERN_INVALID_ADDRESS at 0x10");
  EXPECT_THAT(report->frames,
              ElementsAre("0 libibverbs tbt_post_recv", "1 libmlx.dylib + 91424",
                          "2 libmlx.dylib jaccl::Connection::receive(int)", "3 ? start"));
  EXPECT_EQ(report->TopFrames(),
            "0 libibverbs tbt_post_recv, 1 libmlx.dylib + 91424, 2 libmlx.dylib "
            "jaccl::Connection::receive(int)");
  EXPECT_THAT(report->Text(), HasSubstr("at 0x10\n0 libibverbs tbt_post_recv\n1 "));
}

TEST(CrashReport, AnAbortIsToldWithTheCallThatLedToIt) {
  nlohmann::json body = Body();
  body["exception"] = {{"type", "EXC_CRASH"}, {"signal", "SIGABRT"}};
  body["asi"] = {{"libsystem_c.dylib", {"abort() called"}}};
  body.erase("faultingThread");
  body["threads"][1]["frames"] = nlohmann::json::parse(R"([
      {"imageOffset": 1, "symbol": "__pthread_kill", "imageIndex": 2},
      {"imageOffset": 2, "symbol": "mlx::core::metal::check_error", "imageIndex": 0}])");
  const auto report = ParseCrashReport(File(body));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->exception, "EXC_CRASH (SIGABRT)");
  EXPECT_EQ(report->note, "abort() called");
  EXPECT_EQ(report->TopFrames(), "1 libmlx.dylib mlx::core::metal::check_error");
}

// A null pointer alone says nothing of devices; in a call of verbs it does.
TEST(CrashReport, ANullPointerStandsInFullOnlyInACallOfVerbs) {
  nlohmann::json body = Body();
  body["exception"]["subtype"] = "KERN_INVALID_ADDRESS at 0x0000000000000000";
  EXPECT_THAT(ParseCrashReport(File(body))->exception, HasSubstr("_ADDRESS at 0x0"));
  EXPECT_THAT(ParseCrashReport(File(body))->exception, Not(HasSubstr("0x00")));
  body["threads"][1]["frames"][0]["symbol"] = "ibv_alloc_pd";
  EXPECT_THAT(ParseCrashReport(File(body))->exception, HasSubstr("at 0x0000000000000000"));
}

TEST(CrashReport, TheOlderFormIsRead) {
  const auto report = ParseCrashReport(
      "Process:               rankd [4711]\n"
      "Path:                  /opt/m/bin/rankd\n"
      "\n"
      "Exception Type:        EXC_BAD_ACCESS (SIGBUS)\n"
      "Exception Codes:       KERN_PROTECTION_FAILURE at 0x0000000100\n"
      "\n"
      "Thread 0:\n"
      "0   libsystem_kernel.dylib   0x000000018d0 __ulock_wait + 8\n"
      "\n"
      "Thread 3 Crashed:: engine\n"
      "0   libibverbs   ibv_reg_mr_iova2\n"
      "1   libmlx.dylib  \t0x0000000104a3c000 jaccl::SharedBuffer::make(int, char*) + 84\n"
      "2   rankd         0x0000000100000000 0x100000000 + 4096\n"
      "\n"
      "Thread 3 crashed with ARM Thread State (64-bit):\n"
      "0   not   a frame\n");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->pid, 4711u);
  EXPECT_EQ(report->program, "rankd");
  EXPECT_THAT(report->exception, HasSubstr("EXC_BAD_ACCESS (SIGBUS), KERN_PROTECTION_FAILURE"));
  EXPECT_THAT(report->frames, ElementsAre("0 libibverbs ibv_reg_mr_iova2",
                                          "1 libmlx.dylib jaccl::SharedBuffer::make(int, char*)",
                                          "2 rankd + 4096"));
}

TEST(CrashReport, WhatIsNoCrashIsNone) {
  EXPECT_FALSE(ParseCrashReport("").has_value());
  EXPECT_FALSE(ParseCrashReport("\n\n").has_value());
  EXPECT_FALSE(ParseCrashReport("{}").has_value());
  EXPECT_FALSE(ParseCrashReport("{}\n{}").has_value());
  EXPECT_FALSE(ParseCrashReport("{\"bug_type\":\"309\"}\n[1, 2]").has_value());
  EXPECT_FALSE(ParseCrashReport("the disk is full").has_value());
  // A machine that ran out of memory writes such a file too, by another number.
  std::string other = File(Body());
  other.replace(other.find("309"), 3, "298");
  EXPECT_FALSE(ParseCrashReport(other).has_value());
}

// Of a file that is being written, of other types in each place, and of any byte changed: nothing
// is thrown, and what is told is text within its bounds.
TEST(CrashReport, DamagedReportsDoNoHarm) {
  const std::string whole = File(Body());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseCrashReport(whole.substr(0, size)).has_value()) << size;
  }
  const auto expect_bounded = [](const std::string& text) {
    const auto report = ParseCrashReport(text);
    if (!report.has_value()) return;
    EXPECT_LE(report->Text().size(), kCrashTextBytesMax);
    EXPECT_EQ(FirstNonUtf8(report->Text()), report->Text().size());
    EXPECT_LE(report->frames.size(), kCrashFramesMax);
    report->TopFrames();
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char byte : {'\0', '"', '[', '}', '\xff', '9'}) {
      std::string changed = whole;
      changed[i] = byte;
      expect_bounded(changed);
    }
  }
  const nlohmann::json flat = Body().flatten();
  for (const auto& [place, value] : flat.items()) {
    for (const nlohmann::json& other :
         {nlohmann::json(), nlohmann::json(-1), nlohmann::json(1e300), nlohmann::json("\x01\n"),
          nlohmann::json::array({1}), nlohmann::json(uint64_t{1} << 63)}) {
      nlohmann::json body = Body();
      body[nlohmann::json::json_pointer(place)] = other;
      expect_bounded(File(body));
    }
  }
}

TEST(CrashReport, LargeAndDeepReportsAreBounded) {
  nlohmann::json body = Body();
  nlohmann::json frame = body["threads"][1]["frames"][0];
  frame["symbol"] = std::string(1000, 'f');
  body["threads"][1]["frames"] = nlohmann::json(1000, frame);
  const auto report = ParseCrashReport(File(body));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->frames.size(), kCrashFramesMax);
  EXPECT_LE(report->Text().size(), kCrashTextBytesMax);
  EXPECT_LE(report->TopFrames().size(), 700u);

  const std::string deep(kCrashReportBytesMax / 2, '[');
  EXPECT_FALSE(ParseCrashReport(std::string(kHeader) + "\n{\"threads\":" + deep).has_value());
  EXPECT_FALSE(ParseCrashReport("{\"bug_type\":" + deep + "\n{}").has_value());
  EXPECT_FALSE(ParseCrashReport(File(Body()) + std::string(kCrashReportBytesMax, ' ')).has_value());
}

}  // namespace
}  // namespace macrame::runtime
