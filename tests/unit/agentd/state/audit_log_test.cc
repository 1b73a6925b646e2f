#include "agentd/state/audit_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/fake_dispatcher.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

class AuditLogTest : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = FreshFolder(); }

  std::string Path(const std::string& name = "audit.log") const { return folder_ + "/" + name; }
  std::string Text(const std::string& name = "audit.log") const {
    std::ifstream file(Path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  void Write(const std::string& text) const {
    std::ofstream(Path(), std::ios::binary | std::ios::trunc) << text;
  }
  static void AddSome(AuditLog& log, int count) {
    for (int i = 0; i < count; ++i) {
      log.Add({0, "local", "LoadModel", "model " + std::to_string(i), "socket", "ok", 0});
    }
  }

  transport::FakeDispatcher clock_;
  std::string folder_;
};

TEST_F(AuditLogTest, TheChainGoesOnOverRestartsAndFiles) {
  {
    AuditLog log(clock_, folder_, 1000);
    AddSome(log, 3);
  }
  AuditLog log(clock_, folder_, 1000);
  AddSome(log, 5);
  EXPECT_TRUE(std::filesystem::exists(Path("audit.log.1")));
  const v1::VerifyAuditResponse check = log.Verify();
  EXPECT_EQ(check.broken_at(), "");
  EXPECT_EQ(check.entries(), 8u);
  struct stat info {};
  ASSERT_EQ(::stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// Writing stops within a line, as on a disk that is full.
TEST_F(AuditLogTest, AFullDiskLosesEntriesAndSaysHowManyButBreaksNoChain) {
  AuditLog log(clock_, folder_);
  AddSome(log, 2);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto at_signal = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit full = before;
  full.rlim_cur = Text().size() + 40;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  AddSome(log, 3);
  const std::string trouble = log.trouble();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, at_signal);
  EXPECT_NE(trouble.find("audit.log: "), std::string::npos) << trouble;
  AddSome(log, 1);
  EXPECT_EQ(log.trouble(), "");
  const v1::VerifyAuditResponse check = log.Verify();
  EXPECT_EQ(check.broken_at(), "") << check.broken_why() << "\n" << Text();
  EXPECT_EQ(check.entries(), 4u) << "two, the one that says so, and one";
  EXPECT_NE(Text().find("3 entries were not written"), std::string::npos) << Text();
}

TEST_F(AuditLogTest, OldFilesGoAndWhatIsLeftHolds) {
  AuditLog log(clock_, folder_, 1000);
  AddSome(log, 60);
  size_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) bytes += file.file_size();
  EXPECT_LE(bytes, 4000u);
  const v1::VerifyAuditResponse check = log.Verify();
  EXPECT_EQ(check.broken_at(), "");
  EXPECT_GT(check.first_sequence(), 1u);
  EXPECT_EQ(check.first_sequence() + check.entries(), 61u);
}

TEST_F(AuditLogTest, AChangedLineIsNamed) {
  AuditLog log(clock_, folder_);
  AddSome(log, 4);
  std::string text = Text();
  const size_t at = text.find("model 2");
  ASSERT_NE(at, std::string::npos);
  text[at + 6] = '9';
  Write(text);
  EXPECT_EQ(log.Verify().broken_at(), "audit.log:3");
  EXPECT_EQ(log.Verify().entries(), 2u);
}

TEST_F(AuditLogTest, ALineThatACrashCutOffIsTakenAwayAndToldOf) {
  {
    AuditLog log(clock_, folder_);
    AddSome(log, 2);
  }
  Write(Text() + R"({"seq":3,"unix)");
  AuditLog log(clock_, folder_);
  const v1::VerifyAuditResponse check = log.Verify();
  EXPECT_EQ(check.broken_at(), "");
  EXPECT_EQ(check.entries(), 3u);
  EXPECT_NE(Text().find("audit log repaired"), std::string::npos);
}

TEST_F(AuditLogTest, EntriesAreReadByTimeAndInPages) {
  AuditLog log(clock_, folder_, 1500);
  AddSome(log, 5);
  clock_.AdvanceBy(std::chrono::hours(2));
  const uint64_t later = clock_.UnixMs();
  AddSome(log, 2);
  v1::ReadAuditRequest request;
  request.set_since_unix_ms(later);
  EXPECT_EQ(log.Read(request).lines_size(), 2);
  request.Clear();
  request.set_limit(3);
  ASSERT_EQ(log.Read(request).lines_size(), 3);
  EXPECT_NE(log.Read(request).lines(0).find(R"("seq":5,)"), std::string::npos) << "the newest";
  request.set_from_sequence(1);
  std::vector<uint64_t> pages;
  for (;;) {
    const v1::ReadAuditResponse page = log.Read(request);
    pages.push_back(static_cast<uint64_t>(page.lines_size()));
    if (page.next_sequence() == 0) break;
    request.set_from_sequence(page.next_sequence());
  }
  EXPECT_EQ(pages, (std::vector<uint64_t>{3, 3, 1}));
}

TEST_F(AuditLogTest, WhereNothingCanBeWrittenThatIsSaid) {
  AuditLog log(clock_, folder_ + "/missing");
  EXPECT_NE(log.trouble(), "");
  AddSome(log, 1);
  EXPECT_NE(log.trouble(), "");
}

}  // namespace
}  // namespace macrame::agentd
