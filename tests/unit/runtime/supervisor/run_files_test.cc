#include "runtime/supervisor/run_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/supervisor/process_identity.h"

namespace macrame::runtime {
namespace {

TEST(RunFiles, NotesAreFoundAgainAndTakenOnce) {
  const std::string folder = testing::TempDir() + "run_files." + std::to_string(getpid());
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
  std::filesystem::remove_all(folder);
}

TEST(ProcessIdentity, IsStableForOneProcessAndEmptyForNone) {
  EXPECT_FALSE(ProcessIdentity(getpid()).empty());
  EXPECT_EQ(ProcessIdentity(getpid()), ProcessIdentity(getpid()));
  EXPECT_EQ(ProcessIdentity(0x3fffffff), "");
}

}  // namespace
}  // namespace macrame::runtime
