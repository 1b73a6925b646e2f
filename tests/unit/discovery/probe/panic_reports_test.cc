#include "discovery/probe/panic_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/unit/discovery/captured.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMinute = 60'000, kHour = 60 * kMinute;

class PanicReportsTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  // A report, as written so long before now, of a panic that the kernel's clock does not tell.
  std::string ReportOf(uint64_t age_ms, const std::string& said, const std::string& id = "") {
    const auto seconds = static_cast<time_t>((now_ms_ - age_ms) / 1000);
    char timestamp[64];
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    strftime(timestamp, sizeof(timestamp), "%Y-%m-%d %H:%M:%S.00 +0000", &utc);
    return std::string(R"({"bug_type":"210","timestamp":")") + timestamp + R"(","incident_id":")" +
           id + "\"}\n{\"panicString\" : \"" + said + "\\nDebugger message: panic\"}\n";
  }
  v1::LinkFacts Read() {
    v1::LinkFacts facts;
    facts.set_node_id("ada");
    reports_.Read(now_ms_, facts);
    return facts;
  }
  static std::vector<std::string> Texts(const v1::LinkFacts& facts) {
    std::vector<std::string> texts;
    for (const v1::PanicReport& panic : facts.panics()) texts.push_back(panic.text());
    return texts;
  }

  const std::string folder_ = FreshFolder();
  PanicReports reports_{folder_};
  // The files are of now.
  uint64_t now_ms_ = static_cast<uint64_t>(std::time(nullptr)) * 1000;
};

TEST_F(PanicReportsTest, ThoseOfTheLastDayAreToldOldestFirst) {
  Write("panic-full-2026-11-20-101112.0002.panic", ReportOf(1 * kHour, "panic: late"));
  Write("Retired/panic-full-2026-11-19-201112.0002.panic", ReportOf(20 * kHour, "panic: early"));
  Write("Panic-2026-11-20-051112.panic", ReportOf(6 * kHour, "panic: between"));
  Write("panic-full-2026-11-18-051112.0002.panic", ReportOf(25 * kHour, "panic: old"));
  const v1::LinkFacts facts = Read();
  EXPECT_THAT(Texts(facts), ElementsAre("panic: early", "panic: between", "panic: late"));
  EXPECT_EQ(facts.panics(2).file(), Path("panic-full-2026-11-20-101112.0002.panic"));
  EXPECT_EQ(facts.panics(2).unix_ms(), now_ms_ - kHour);
  EXPECT_THAT(facts.unknown(), IsEmpty());
  now_ms_ += 5 * kHour;
  EXPECT_THAT(Texts(Read()), ElementsAre("panic: between", "panic: late"));
}

TEST_F(PanicReportsTest, OneThatIsWrittenLaterIsFoundByTheNextLook) {
  EXPECT_THAT(Texts(Read()), IsEmpty());
  const std::string report = ReportOf(2 * kMinute, "panic: x");
  Write("panic-full-2026-11-20-101112.0002.panic", report.substr(0, 40));
  EXPECT_THAT(Texts(Read()), IsEmpty()) << "it is being written";
  Write("panic-full-2026-11-20-101112.0002.panic", report);
  EXPECT_THAT(Texts(Read()), ElementsAre("panic: x"));
}

// Of one panic there may be a short report and a full one.
TEST_F(PanicReportsTest, ReportsOfOnePanicAreOne) {
  Write("panic-base+socd-2026-11-20-101100.000.panic", ReportOf(50 * kMinute, ""));
  Write("panic-full-2026-11-20-101112.0002.panic", ReportOf(50 * kMinute, "panic: full"));
  Write("panic-base-2026-11-20-091100.panic", ReportOf(130 * kMinute, "panic: base", "A-1"));
  Write("panic-full-2026-11-20-091112.0002.panic", ReportOf(123 * kMinute, "panic: whole", "A-1"));
  EXPECT_THAT(Texts(Read()), ElementsAre("panic: base", "panic: full"));
}

TEST_F(PanicReportsTest, AtMostEightAreToldTheNewest) {
  for (int i = 0; i < 20; ++i) {
    Write("panic-full-2026-11-20-1011" + std::to_string(10 + i) + ".panic",
          ReportOf((20 - i) * kHour, "panic " + std::to_string(i)));
  }
  const auto texts = Texts(Read());
  ASSERT_EQ(texts.size(), kPanicsMax);
  EXPECT_EQ(texts.front(), "panic 12");
  EXPECT_EQ(texts.back(), "panic 19");
}

TEST_F(PanicReportsTest, WhateverElseLiesThereDoesNoHarm) {
  Write("panic-full-2026-11-20-101112.0002.panic", ReportOf(kHour, "panic: x"));
  Write("JetsamEvent-2026-11-20-101112.ips", ReportOf(2 * kHour, "no panic"));
  Write("forceReset-full-2026-11-20-101112.0002.panic", ReportOf(3 * kHour, "the button"));
  Write("panic-full-a.panic", std::string(5'000'000, '{'));
  Write("panic-full-b.panic", std::string("\0\xff\x1b\n\0", 5));
  Write("panic-full-c.panic", "");
  Write("outside", ReportOf(4 * kHour, "panic: elsewhere"));
  fs::create_symlink(Path("outside"), Path("panic-full-d.panic"));
  fs::create_symlink("/dev/zero", Path("panic-full-e.panic"));
  ASSERT_EQ(mkfifo(Path("panic-full-f.panic").c_str(), 0600), 0);
  fs::create_directories(Path("panic-full-g.panic/panic-full-h.panic"));
  const v1::LinkFacts facts = Read();
  EXPECT_THAT(Texts(facts), ElementsAre("panic: x"));
  EXPECT_THAT(facts.unknown(), IsEmpty());
}

TEST_F(PanicReportsTest, OfManyFilesTheNewestByNameAreRead) {
  for (int i = 0; i < 300; ++i) {
    Write("panic-full-2026-11-20-" + std::to_string(100'000 + i) + ".panic", "no report");
  }
  Write("Kernel-2026-11-21-000000.panic", ReportOf(kHour, "panic: newest"));
  Write("panic-full-2026-11-01-000000.panic", ReportOf(2 * kHour, "panic: oldest"));
  EXPECT_THAT(Texts(Read()), ElementsAre("panic: newest"));
}

TEST_F(PanicReportsTest, WithoutTheFolderThereIsNone) {
  v1::LinkFacts facts;
  PanicReports(folder_ + "/none").Read(now_ms_, facts);
  EXPECT_THAT(facts.panics(), IsEmpty());
  EXPECT_THAT(facts.unknown(), IsEmpty());
}

// As another user, where this one may read everything. Gives what is told as `unknown`.
std::string AsNobody(PanicReports& reports, uint64_t now_ms) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(1);
    v1::LinkFacts facts;
    reports.Read(now_ms, facts);
    std::string said = std::to_string(facts.panics_size());
    for (const v1::Reason& unknown : facts.unknown()) said += " " + unknown.message();
    _exit(write(fds[1], said.data(), said.size()) > 0 ? 0 : 1);
  }
  close(fds[1]);
  char buffer[1024];
  const ssize_t got = read(fds[0], buffer, sizeof(buffer));
  close(fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return std::string(buffer, got > 0 ? static_cast<size_t>(got) : 0);
}

TEST_F(PanicReportsTest, WhatMayNotBeReadIsUnknownWithWhatToDo) {
  Write("panic-full-2026-11-20-101112.0002.panic", ReportOf(kHour, "panic: x"));
  ASSERT_EQ(chmod(folder_.c_str(), 0), 0);
  std::string said = AsNobody(reports_, now_ms_);
  EXPECT_THAT(said, HasSubstr("0 panics: " + folder_ + " can be read by administrators alone"));
  EXPECT_THAT(said, HasSubstr("dseditgroup"));
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(AsNobody(reports_, now_ms_), "1");
  ASSERT_EQ(chmod(Path("panic-full-2026-11-20-101112.0002.panic").c_str(), 0), 0);
  Write("panic-full-2026-11-20-201112.0002.panic", ReportOf(kMinute, "panic: y"));
  said = AsNobody(reports_, now_ms_);
  EXPECT_THAT(said, HasSubstr("1 panics: "));
  EXPECT_THAT(said, HasSubstr("administrators alone"));
}

}  // namespace
}  // namespace macrame::discovery
