#include "runtime/supervisor/crash_report_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {
namespace {

constexpr uint64_t kStartedMs = 1'700'000'000'500;
constexpr uint64_t kPid = 4711;

class CrashReportFinderTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::string Report(uint64_t pid) {
    return R"({"bug_type":"309","app_name":"rankd"})"
           "\n{\"pid\": " +
           std::to_string(pid) + R"(, "procName": "rankd", "exception": {"type": "EXC_CRASH"}})";
  }
  std::string Write(const std::string& name, const std::string& text, int64_t seconds_after = 1) {
    std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    SetTime(path, seconds_after);
    return path;
  }
  static void SetTime(const std::string& path, int64_t seconds_after) {
    const auto when = static_cast<time_t>(static_cast<int64_t>(kStartedMs / 1000) + seconds_after);
    const utimbuf times = {when, when};
    ASSERT_EQ(utime(path.c_str(), &times), 0);
  }

  const std::string folder_ = FreshFolder();
  CrashReportFinder finder_{{"/nonexistent", folder_}, "rankd", kPid, kStartedMs};
};

TEST_F(CrashReportFinderTest, TheReportOfTheProcessIsFoundOnceItIsThere) {
  EXPECT_FALSE(finder_.Look().has_value());
  Write("rankd-2023-11-14-221300.ips", Report(kPid + 1));
  Write("rankd-2023-11-14-221301.ips", Report(kPid).substr(0, 60));
  EXPECT_FALSE(finder_.Look().has_value());
  const std::string path = Write("rankd-2023-11-14-221301.ips", Report(kPid));
  const auto found = finder_.Look();
  ASSERT_TRUE(found.has_value()) << "the file that was being written is read again";
  EXPECT_EQ(found->path, path);
  EXPECT_EQ(found->report.pid, kPid);
}

TEST_F(CrashReportFinderTest, OtherFilesAreLeftAlone) {
  Write("rankd-older.ips", Report(kPid), -60);
  Write("rankd.ips", Report(kPid));
  Write("rankdx-2023.ips", Report(kPid));
  Write("other-2023.ips", Report(kPid));
  Write("rankd-2023.txt", Report(kPid));
  Write("rankd-empty.ips", "");
  Write("rankd-huge.ips", Report(kPid) + std::string(kCrashReportBytesMax, ' '));
  Write("elsewhere", Report(kPid));
  std::filesystem::create_symlink(folder_ + "/elsewhere", folder_ + "/rankd-link.ips");
  std::filesystem::create_directory(folder_ + "/rankd-folder.ips");
  ASSERT_EQ(mkfifo((folder_ + "/rankd-pipe.ips").c_str(), 0600), 0);
  EXPECT_FALSE(finder_.Look().has_value());
}

// However many ranks crash on a machine, one look reads a few files, and the next ones the rest.
TEST_F(CrashReportFinderTest, ManyReportsAreReadInSeveralLooks) {
  const std::string path = Write("rankd-first.ips", Report(kPid), 1);
  for (int i = 0; i < 20; ++i) {
    Write("rankd-" + std::to_string(i) + ".ips", Report(kPid + 1), 2);
  }
  int looks = 1;
  auto found = finder_.Look();
  EXPECT_FALSE(found.has_value());
  while (!found.has_value() && looks < 10) {
    found = finder_.Look();
    ++looks;
  }
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path, path);
  EXPECT_EQ(looks, 3);
}

}  // namespace
}  // namespace macrame::runtime
