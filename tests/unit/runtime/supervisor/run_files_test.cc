#include "runtime/supervisor/run_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "runtime/supervisor/process_identity.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {
namespace {

TEST(RunFiles, NotesAreFoundAgainAndTakenOnce) {
  const std::string folder = FreshFolder();
  RunFiles files(folder);
  ASSERT_TRUE(files.Prepare().ok());
  const RunPaths paths = files.PathsOf(3, "../../etc/passwd", 2);
  EXPECT_EQ(paths.log.find(".."), std::string::npos);
  EXPECT_EQ(paths.log.rfind(folder + "/logs/", 0), 0u);
  ASSERT_TRUE(files.WriteNote(paths.note, {1234, "then", "m", 5, 2}).ok());
  std::ofstream(folder + "/ranks/x.json") << "not json";
  const auto notes = files.TakeLeftovers();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].pid, 1234);
  EXPECT_EQ(notes[0].identity, "then");
  EXPECT_TRUE(files.TakeLeftovers().empty());
}

namespace fs = std::filesystem;

class RunFilesFolder : public testing::Test {
 protected:
  void SetUp() override { folder_ = FreshFolder(); }
  void TearDown() override {
    chmod(folder_.c_str(), 0700);
    fs::remove_all(folder_);
  }
  RunFiles Prepared() const {
    RunFiles files(folder_);
    EXPECT_TRUE(files.Prepare().ok());
    return files;
  }
  void PutNote(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/ranks/" + name, std::ios::binary) << text;
  }
  size_t Left() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_ + "/ranks"), fs::directory_iterator()));
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  }

  std::string folder_;
};

TEST_F(RunFilesFolder, AreInFoldersThatOnlyTheUserMayEnterWhateverWasThere) {
  fs::create_directories(folder_ + "/ranks");
  fs::create_directories(folder_ + "/logs");
  chmod((folder_ + "/ranks").c_str(), 0777);
  chmod((folder_ + "/logs").c_str(), 0755);
  Prepared();
  EXPECT_EQ(ModeOf(folder_ + "/ranks"), 0700u);
  EXPECT_EQ(ModeOf(folder_ + "/logs"), 0700u);
}

TEST_F(RunFilesFolder, AFileInAFoldersPlaceIsNamed) {
  std::ofstream(folder_ + "/ranks") << "in the way";
  const absl::Status prepared = RunFiles(folder_).Prepare();
  EXPECT_TRUE(absl::IsUnavailable(prepared)) << prepared;
  EXPECT_NE(prepared.message().find(folder_ + "/ranks"), absl::string_view::npos) << prepared;
}

// Two ranks of one agent never share a spec, a socket or a note; no name leads out of the folder.
TEST_F(RunFilesFolder, PathsAreApartAndStayInside) {
  const RunFiles files(folder_);
  std::set<std::string> seen;
  uint64_t serial = 0;
  for (const std::string deployment :
       {"m", "M", "../..", "/etc/passwd", "a b", "a\nb", "", "\xff\xfe", "caf\xc3\xa9"}) {
    for (const uint32_t rank : {0U, 1U, 4'000'000'000U}) {
      const RunPaths paths = files.PathsOf(++serial, deployment, rank);
      for (const std::string& path : {paths.spec, paths.socket, paths.note}) {
        EXPECT_TRUE(seen.insert(path).second) << path;
        EXPECT_EQ(fs::path(path).parent_path(), folder_ + "/ranks");
      }
      const fs::path log = paths.log;
      EXPECT_EQ(log.parent_path(), folder_ + "/logs");
      for (const char letter : log.filename().string()) {
        EXPECT_TRUE(letter > ' ' && letter <= '~') << log;
      }
      EXPECT_TRUE(log.filename().string().ends_with("-rank" + std::to_string(rank) + ".log"));
    }
  }
  const RunPaths longest = files.PathsOf(1, std::string(100'000, 'x'), 7);
  EXPECT_LT(fs::path(longest.log).filename().string().size(), 100u);
}

TEST_F(RunFilesFolder, SpecsAndNotesAreTheUsersAloneWhateverWasThere) {
  const RunFiles files = Prepared();
  const RunPaths paths = files.PathsOf(1, "m", 0);
  for (const std::string& path : {paths.spec, paths.note}) {
    std::ofstream(path) << std::string(10'000, 'x');
    chmod(path.c_str(), 0666);
  }
  v1::LaunchSpec spec;
  spec.set_gang_secret("0123456789abcdef0123456789abcdef");
  ASSERT_TRUE(files.WriteSpec(paths.spec, spec).ok());
  ASSERT_TRUE(files.WriteNote(paths.note, {77, "then", "m", 5, 2}).ok());
  EXPECT_EQ(ModeOf(paths.spec), 0600u);
  EXPECT_EQ(ModeOf(paths.note), 0600u);
  std::ifstream file(paths.spec, std::ios::binary);
  v1::LaunchSpec read;
  ASSERT_TRUE(read.ParseFromIstream(&file)) << "nothing of the longer file is left";
  EXPECT_EQ(read.gang_secret(), spec.gang_secret());
}

// Somebody may have put it there to have the secret written elsewhere.
TEST_F(RunFilesFolder, ALinkIsNotFollowed) {
  const RunFiles files = Prepared();
  const RunPaths paths = files.PathsOf(1, "m", 0);
  fs::create_symlink(folder_ + "/elsewhere", paths.spec);
  const absl::Status written = files.WriteSpec(paths.spec, v1::LaunchSpec());
  EXPECT_TRUE(absl::IsUnavailable(written)) << written;
  EXPECT_NE(written.message().find(paths.spec), absl::string_view::npos);
  EXPECT_FALSE(fs::exists(folder_ + "/elsewhere"));
}

TEST_F(RunFilesFolder, RemovingTakesAllButTheLogAndMissesNothing) {
  const RunFiles files = Prepared();
  const RunPaths paths = files.PathsOf(1, "m", 0), other = files.PathsOf(2, "m", 1);
  for (const RunPaths& each : {paths, other}) {
    for (const std::string& path : {each.spec, each.socket, each.note, each.log}) {
      std::ofstream(path) << "x";
    }
  }
  files.Remove(paths);
  files.Remove(paths);
  EXPECT_EQ(Left(), 3u) << "the other rank's";
  EXPECT_TRUE(fs::exists(paths.log));
}

TEST_F(RunFilesFolder, ANoteComesBackWhole) {
  const RunFiles files = Prepared();
  const RunNote written{4242, "boot:1234", "caf\xc3\xa9 \"7b\"", uint64_t{1} << 60, 17};
  ASSERT_TRUE(files.WriteNote(files.PathsOf(1, "m", 0).note, written).ok());
  const auto notes = files.TakeLeftovers();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].pid, written.pid);
  EXPECT_EQ(notes[0].identity, written.identity);
  EXPECT_EQ(notes[0].deployment, written.deployment);
  EXPECT_EQ(notes[0].epoch, written.epoch);
  EXPECT_EQ(notes[0].rank, written.rank);
}

// What follows from a note is a signal to a process: what is not surely one is none.
TEST_F(RunFilesFolder, NotesThatAreNoneAreCleanedUpAndNotBelieved) {
  const RunFiles files = Prepared();
  const char* const wrong[] = {"",
                               "[",
                               "null",
                               "[1]",
                               "{}",
                               R"({"pid":"12","identity":"x"})",
                               R"({"pid":12})",
                               R"({"pid":12,"identity":7})",
                               R"({"pid":12.5,"identity":"x"})",
                               R"({"pid":null,"identity":"x"})"};
  int count = 0;
  for (const char* text : wrong) PutNote(std::to_string(++count) + ".json", text);
  PutNote("deep.json", std::string(16'000, '['));
  PutNote("large.json", R"({"pid":12,"identity":"x"})" + std::string(17'000, ' '));
  PutNote("other.spec", R"({"pid":12,"identity":"x"})");
  PutNote("other.sock", "");
  EXPECT_TRUE(files.TakeLeftovers().empty());
  EXPECT_EQ(Left(), 0u);
  EXPECT_TRUE(RunFiles(folder_ + "/nowhere").TakeLeftovers().empty());
}

TEST_F(RunFilesFolder, APidThatIsNoneIsNotCutToAnother) {
  const RunFiles files = Prepared();
  PutNote("1.json", R"({"pid":4294971538,"identity":"x"})");
  PutNote("2.json", R"({"pid":18446744073709551615,"identity":"x"})");
  PutNote("3.json", R"({"pid":-9223372036854775808,"identity":"x"})");
  for (const RunNote& note : files.TakeLeftovers()) {
    EXPECT_LE(note.pid, 1) << "none that is ever signalled";
  }
  EXPECT_EQ(Left(), 0u);
}

// Of an ended child that nobody waited for nothing runs any more.
TEST(ProcessIdentity, OneThatHasEndedHasNone) {
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char byte;
    close(gate[1]);
    _exit(read(gate[0], &byte, 1) < 0 ? 1 : 0);
  }
  close(gate[0]);
  const std::string alive = ProcessIdentity(pid);
  EXPECT_FALSE(alive.empty());
  EXPECT_NE(alive, "");
  close(gate[1]);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_NE(ProcessIdentity(pid), alive) << "ended, not reaped yet";
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(ProcessIdentity(pid), "");
  EXPECT_EQ(ProcessIdentity(-1), "");
}

TEST(ProcessIdentity, IsStableForOneProcessAndEmptyForNone) {
  EXPECT_FALSE(ProcessIdentity(getpid()).empty());
  EXPECT_EQ(ProcessIdentity(getpid()), ProcessIdentity(getpid()));
  EXPECT_EQ(ProcessIdentity(0x3fffffff), "");
}

}  // namespace
}  // namespace macrame::runtime
