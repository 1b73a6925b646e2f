#include "cli/completion.h"

#include <gtest/gtest.h>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"

namespace macrame::cli {
namespace {

class CompletionTest : public ::testing::Test {
 protected:
  // The words that a command line could go on with, by line.
  std::string Complete(const std::vector<std::string>& typed) {
    std::vector<std::string> arguments = {"__complete"};
    for (const std::string& word : typed) arguments.push_back(":" + word);
    CliWorld world;
    world.variables["MACRAME_SOCKET"] = socket_;
    const CliRun run = Clusterctl(arguments, world);
    EXPECT_EQ(run.exit_code, kExitOk);
    EXPECT_EQ(run.err, "");
    std::string words;
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) {
      words += line.substr(0, line.find('\t')) + "\n";
    }
    return words;
  }
  FakeAgent agent_;
  std::string socket_ = agent_.socket_path();
};

TEST_F(CompletionTest, CommandsAreOfferedAsFarAsTheyAreTyped) {
  EXPECT_EQ(Complete({"cordo"}), "cordon\n");
  EXPECT_EQ(Complete({"model", "un"}), "unload\n");
  EXPECT_NE(Complete({""}).find("run\n"), std::string::npos);
  EXPECT_EQ(Complete({""}).find("__complete"), std::string::npos);
  EXPECT_EQ(Complete({}).find("__complete"), std::string::npos);
}

TEST_F(CompletionTest, FlagsAndTheirValuesAreOffered) {
  EXPECT_EQ(Complete({"drain", "--dead"}), "--deadline\n");
  EXPECT_EQ(Complete({"status", "--outp"}), "--output\n") << "flags of every command, too";
  EXPECT_EQ(Complete({"model", "load", "m", "--parallelism", "t"}), "tensor\n");
  EXPECT_EQ(Complete({"-o", "j"}), "json\n");
  EXPECT_EQ(Complete({"completion", ""}), "bash\nzsh\nfish\n");
}

TEST_F(CompletionTest, NamesComeFromTheAgent) {
  EXPECT_EQ(Complete({"chat", ""}), "tiny\n");
  EXPECT_EQ(Complete({"run", "ti"}), "tiny\n");
  EXPECT_EQ(Complete({"drain", "mini-"}), "mini-1\nmini-2\nmini-3\n");
  EXPECT_EQ(Complete({"drain", "mini-1", ""}), "") << "one is all that it takes";
  EXPECT_EQ(Complete({"uncordon", ""}), "") << "none is cordoned";
  EXPECT_EQ(Complete({"model", "load", "x", "--nodes", "mini-1,mini-3"}), "mini-1,mini-3\n");
}

TEST_F(CompletionTest, WithoutAnAgentItIsSilent) {
  socket_ = "/nowhere/agentd.sock";
  EXPECT_EQ(Complete({"chat", ""}), "");
  EXPECT_EQ(Complete({"cordo"}), "cordon\n");
}

TEST_F(CompletionTest, EachShellHasItsScriptAndNoOtherDoes) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const CliRun run = Clusterctl({"completion", shell});
    EXPECT_EQ(run.exit_code, kExitOk);
    EXPECT_NE(run.out.find("__complete"), std::string::npos);
  }
  EXPECT_EQ(Clusterctl({"completion", "tcsh"}).exit_code, kExitUsage);
  EXPECT_EQ(Clusterctl({"--help"}).out.find("__complete"), std::string::npos);
  EXPECT_EQ(Clusterctl({"nonsense"}).err.find("__complete"), std::string::npos);
}

}  // namespace
}  // namespace macrame::cli
