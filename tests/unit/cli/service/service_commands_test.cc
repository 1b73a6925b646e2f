// `clusterctl service`: what it refuses before anything is done, what it would do, what it makes of
// the manager's words; and the runner that carries steps out.

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/exit_codes.h"
#include "cli/service/service_plan.h"
#include "cli/service_runner.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

namespace fs = std::filesystem;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ServiceCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    fs::create_directories(folder_ / "commands");
    fs::create_directories(folder_ / "built" / "bin");
    for (const char* program : {"agentd", "rankd", "planner", "clusterctl"}) {
      Program(folder_ / "built" / "bin" / program, "exit 0");
    }
  }

  static void Program(const fs::path& path, const std::string& script) {
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0755);
  }
  // A command of the system's, as this test wants it.
  void Command(const std::string& name, const std::string& script) {
    Program(folder_ / "commands" / name, script);
  }
  Environment World() {
    Environment environment;
    environment.variable = [this](const char* name) {
      return std::string(name) == "MACRAME_COMMANDS_FOLDER" ? (folder_ / "commands").string() : "";
    };
    return environment;
  }
  CliRun Run(std::vector<std::string> words, const std::string& sudo_user = "ada") {
    words.insert(words.begin(), "service");
    CliWorld world;
    world.variables["MACRAME_COMMANDS_FOLDER"] = (folder_ / "commands").string();
    world.variables["SUDO_USER"] = sudo_user;
    world.variables["HOME"] = home_.string();
    return Clusterctl(words, world);
  }
  CliRun Install(const std::string& manager, const std::vector<std::string>& more,
                 const std::string& sudo_user = "ada") {
    std::vector<std::string> words = {"install", "--dry-run",        "--manager",
                                      manager,   "--from",           (folder_ / "built").string(),
                                      "--user",  "no-such-user-here"};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words, sudo_user);
  }

  fs::path folder_;
  fs::path home_;
};

TEST_F(ServiceCommandsTest, ADryRunPrintsEachStepAndTakesNone) {
  const CliRun run = Install("systemd", {});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.out, "install -m 0755 " + (folder_ / "built/bin/agentd").string()));
  EXPECT_TRUE(Has(run.out, "\nUser=no-such-user-here\n")) << run.out;
  EXPECT_TRUE(Has(run.out, "systemctl restart macrame.service")) << run.out;
  EXPECT_FALSE(fs::exists("/opt/macrame.new"));
}

TEST_F(ServiceCommandsTest, AProgramThatIsMissingIsNamedBeforeAnythingIsDone) {
  fs::remove(folder_ / "built/bin/rankd");
  const CliRun run = Install("systemd", {});
  EXPECT_EQ(run.exit_code, kExitNotFound);
  EXPECT_TRUE(Has(run.err, (folder_ / "built/bin/rankd").string())) << run.err;
  EXPECT_TRUE(Has(run.err, "build it: ")) << run.err;
  EXPECT_EQ(run.out, "");
}

TEST_F(ServiceCommandsTest, AProgramThatCanNotBeRunIsNone) {
  ::chmod((folder_ / "built/bin/planner").c_str(), 0644);
  EXPECT_EQ(Install("systemd", {}).exit_code, kExitNotFound);
}

// A Mac's program: a header of 32 bytes that says how long the load commands are, these, then the
// rest.
std::string MachProgram(const std::string& load_commands, const std::string& rest) {
  std::string header = "\xcf\xfa\xed\xfe" + std::string(28, '\0');
  header[20] = static_cast<char>(load_commands.size());
  return header + load_commands + rest;
}

TEST_F(ServiceCommandsTest, ProgramsThatLoadHomebrewsLibrariesAreInstalledWithAWarning) {
  const std::string library = "/opt/homebrew/opt/grpc/lib/libgrpc++.1.80.dylib";
  const fs::path agentd = folder_ / "built/bin/agentd";
  std::ofstream(agentd) << MachProgram("....." + library + std::string("\0/other", 7), "code");
  const CliRun run = Install("launchd", {});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.err, "(" + library + " and others)")) << run.err;
  EXPECT_TRUE(Has(run.err, "brew pin")) << run.err;
  EXPECT_FALSE(Has(Install("systemd", {}).err, "brew")) << "a Linux machine's are its packages'";

  // What it only speaks of, it does not load.
  std::ofstream(agentd) << MachProgram("/usr/lib/libSystem.B.dylib", library);
  EXPECT_FALSE(Has(Install("launchd", {}).err, "brew"));
  std::ofstream(agentd) << MachProgram("", "").substr(0, 20);
  EXPECT_FALSE(Has(Install("launchd", {}).err, "brew")) << "cut off";
}

TEST_F(ServiceCommandsTest, ASecretFileThatIsNotThereIsSaid) {
  const CliRun run = Install("systemd", {"--secret", "/nowhere/cluster.secret"});
  EXPECT_EQ(run.exit_code, kExitNotFound);
  EXPECT_TRUE(Has(run.err, "/nowhere/cluster.secret")) << run.err;
  EXPECT_TRUE(Has(run.err, "cluster init")) << run.err;
}

TEST_F(ServiceCommandsTest, AnAgentThatWasStartedByHandIsTakenOverWithItsMembership) {
  const fs::path home = folder_ / "home";
  const fs::path state = home / ".macrame/state";
  fs::create_directories(state);
  EXPECT_EQ(Install("systemd", {"--state", state.string()}).exit_code, kExitNotFound)
      << "a folder without a state";
  std::ofstream(state / "state.db") << "x";
  std::ofstream(home / "desk.secret") << "s";
  std::ofstream(home / "node.membership") << "m";
  std::ofstream(state / "membership.json")
      << R"({"cluster_secret_file": ")" << (home / "desk.secret").string() << R"("})";
  const CliRun run = Install("systemd", {"--state", state.string() + "/"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  const size_t copied = run.out.find("cp -R " + state.string() + "/. /var/lib/macrame/state\n");
  const size_t given = run.out.find("chown -R no-such-user-here:");
  const size_t started = run.out.find("systemctl restart");
  EXPECT_LT(copied, given) << run.out;
  EXPECT_LT(given, started) << run.out;
  EXPECT_TRUE(
      Has(run.out, (home / "desk.secret").string() + " /var/lib/macrame/state/cluster.secret\n"))
      << run.out;
  EXPECT_TRUE(Has(run.out, "/node.membership /var/lib/macrame/state/node.membership\n")) << run.out;
  // One node can't have two agents.
  const int lock = ::open((state / "state.lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  ASSERT_EQ(::pwrite(lock, "4711", 4, 0), 4);
  const CliRun held = Install("systemd", {"--state", state.string()});
  EXPECT_EQ(held.exit_code, kExitConflict) << held.err;
  EXPECT_TRUE(Has(held.err, "process 4711") && Has(held.err, "stop that agent first")) << held.err;
  ::close(lock);
}

TEST_F(ServiceCommandsTest, AStateThatWouldBeLeftBehindIsSaidBeforeAnythingIsDone) {
  const fs::path state = folder_ / "home/.macrame/state";
  fs::create_directories(state);
  std::ofstream(state / "state.db") << "x";
  home_ = folder_ / "home";
  const CliRun run = Install("systemd", {}, /*sudo_user=*/"");
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_TRUE(Has(run.err, state.string()) && Has(run.err, "--state FOLDER")) << run.err;
  EXPECT_EQ(Install("systemd", {"--new-state"}, "").err, "");
  EXPECT_EQ(Install("systemd", {"--state", state.string()}, "").err, "");
}

// As of a script's variable that is not set.
TEST_F(ServiceCommandsTest, AModelFolderWithoutANameIsAUsageErrorAndNoCrash) {
  const CliRun run = Install("systemd", {"--models", ""});
  EXPECT_EQ(run.exit_code, kExitUsage) << run.err;
  EXPECT_TRUE(Has(run.err, "--models")) << run.err;
}

TEST_F(ServiceCommandsTest, ModelFoldersAreWrittenAsTheServiceWillFindThem) {
  const CliRun run = Install("launchd", {"--models", "my models", "--models", "/srv/a&b"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.out, "\"" + (fs::current_path() / "my models").string() + "\"")) << run.out;
  EXPECT_TRUE(Has(run.out, "\"/srv/a&b\"")) << run.out;
}

TEST_F(ServiceCommandsTest, NobodyButASecondUserMayRunIt) {
  for (const char* user : {"root", ""}) {
    const CliRun run = Run(
        {"install", "--dry-run", "--manager", "launchd", "--from", (folder_ / "built").string()},
        user);
    EXPECT_EQ(run.exit_code, kExitFailure) << user << run.out;
    EXPECT_TRUE(Has(run.err, "doesn't run as root")) << run.err;
    EXPECT_TRUE(Has(run.err, "--user")) << run.err;
  }
  EXPECT_EQ(Run({"install", "--manager", "upstart"}).exit_code, kExitUsage);
}

TEST_F(ServiceCommandsTest, WhoTypedSudoMayOpenTheSocketOnLinux) {
  EXPECT_TRUE(Has(Install("systemd", {}).out, "usermod -a -G ")) << "ada";
  EXPECT_FALSE(Has(Install("systemd", {}, "root").out, "usermod"));
  EXPECT_FALSE(Has(Install("systemd", {}, "").out, "usermod"));
  EXPECT_FALSE(Has(Install("launchd", {}).out, "usermod"));
}

TEST_F(ServiceCommandsTest, StatusSaysWhatTheManagerSaysAndWhetherTheAgentAnswers) {
  Command("systemctl",
          "printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\n"
          "UnitFileState=enabled\\nMainPID=4711\\nNRestarts=2\\nExecMainCode=0\\n'");
  const CliRun run = Run({"status", "--manager", "systemd"});
  EXPECT_EQ(run.exit_code, kExitUnreachable) << run.err;
  EXPECT_TRUE(Has(run.out, "macrame.service: active (running), pid 4711, started 3 times\n"))
      << run.out;
  EXPECT_TRUE(Has(run.out, "At boot    started\n")) << run.out;
  EXPECT_TRUE(Has(run.out, "Agent      agentd does not answer at ")) << run.out;
  const auto document =
      nlohmann::json::parse(Run({"status", "--manager", "systemd", "--json"}).out);
  EXPECT_EQ(document["pid"], 4711);
  EXPECT_EQ(document["answers"], false);
}

TEST_F(ServiceCommandsTest, StatusOfOneThatFailedSaysHowItEnded) {
  Command(
      "systemctl",
      "printf 'LoadState=loaded\\nActiveState=failed\\nSubState=failed\\n"
      "UnitFileState=disabled\\nMainPID=0\\nNRestarts=0\\nExecMainCode=1\\nExecMainStatus=2\\n'");
  const CliRun run = Run({"status", "--manager", "systemd"});
  EXPECT_EQ(run.exit_code, kExitConflict);
  EXPECT_TRUE(Has(run.out, "failed (failed), ended with 2\n")) << run.out;
  EXPECT_TRUE(Has(run.out, "At boot    not started\n")) << run.out;
}

TEST_F(ServiceCommandsTest, LogsAreThoseOfTheManagerWithItsExitCode) {
  Command("systemctl", "echo LoadState=loaded");
  Command("journalctl", "exit 5");
  EXPECT_EQ(Run({"logs", "--manager", "systemd", "-n", "7"}).exit_code, 5);
  EXPECT_EQ(Run({"logs", "--manager", "systemd", "-n", "0"}).exit_code, kExitUsage);
}

// ---- the runner

TEST_F(ServiceCommandsTest, TheRunnerGivesOutputErrorsAndExitCode) {
  Command("told", "echo out; echo err >&2; exit 3");
  const CommandResult result = ServiceRunner(World()).Run({"told"});
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST_F(ServiceCommandsTest, TheRunnerUsesNoShell) {
  Command("told", "printf '%s|' \"$@\"");
  EXPECT_EQ(ServiceRunner(World()).Run({"told", "a b", "$(reboot)", "", "*"}).output,
            "a b|$(reboot)||*|");
}

TEST_F(ServiceCommandsTest, ACommandThatReadsFindsNothingAndOneThatIsKilledHasNoCode) {
  Command("reads", "cat; echo done");
  EXPECT_EQ(ServiceRunner(World()).Run({"reads"}).output, "done\n");
  Command("killed", "kill -9 $$");
  EXPECT_EQ(ServiceRunner(World()).Run({"killed"}).code, -1);
}

TEST_F(ServiceCommandsTest, ACommandThatIsNowhereIsNamed) {
  const ServiceRunner runner(World());
  EXPECT_EQ(runner.Find("no-such-command"), "");
  EXPECT_EQ(runner.Run({"no-such-command"}).code, -1);
  ServiceStep step;
  step.command = {"no-such-command", "a b"};
  const absl::Status status = runner.Carry(step);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(Has(std::string(status.message()), "no-such-command 'a b'")) << status;
  EXPECT_TRUE(Has(std::string(status.message()), "this machine has no command")) << status;
  step.may_fail = true;
  EXPECT_TRUE(runner.Carry(step).ok());
}

TEST_F(ServiceCommandsTest, AStepThatFailsSaysWhatTheCommandSaid) {
  Command("groupadd", "echo 'groupadd: no room' >&2; exit 10");
  ServiceStep step;
  step.command = {"groupadd", "--system", "macrame"};
  EXPECT_EQ(ServiceRunner(World()).Carry(step).message(),
            "groupadd --system macrame: exit 10: groupadd: no room");
}

TEST_F(ServiceCommandsTest, AStepOfPatienceIsTriedAgain) {
  const std::string mark = (folder_ / "mark").string();
  Command("later", "if [ -e '" + mark + "' ]; then exit 0; fi; touch '" + mark + "'; exit 1");
  ServiceStep step;
  step.command = {"later"};
  step.patience_s = 1;
  EXPECT_TRUE(ServiceRunner(World()).Carry(step).ok());
}

TEST_F(ServiceCommandsTest, AFileIsWrittenWholeWithItsMode) {
  ServiceStep step;
  step.path = (folder_ / "agentd.yaml").string();
  step.text = "port: 1\n";
  step.mode = 0640;
  std::ofstream(step.path) << "what was there, and longer than what comes";
  EXPECT_TRUE(ServiceRunner(World()).Carry(step).ok());
  std::stringstream text;
  text << std::ifstream(step.path).rdbuf();
  EXPECT_EQ(text.str(), step.text);
  EXPECT_FALSE(fs::exists(step.path + ".new"));
  struct stat info {};
  ASSERT_EQ(::stat(step.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(ServiceCommandsTest, AFileOfAnotherUserIsTheirsOrIsNotWritten) {
  ServiceStep step;
  step.path = (folder_ / "agentd.yaml").string();
  step.mode = 0600;
  step.user = ::getpwuid(::geteuid())->pw_name;
  step.group = ::getgrgid(::getegid())->gr_name;
  ASSERT_TRUE(ServiceRunner(World()).Carry(step).ok());
  struct stat info {};
  ASSERT_EQ(::stat(step.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  step.path = (folder_ / "other.yaml").string();
  step.user = "no-such-user-here";
  EXPECT_FALSE(ServiceRunner(World()).Carry(step).ok());
  EXPECT_FALSE(fs::exists(step.path));
}

TEST_F(ServiceCommandsTest, AFileThatCanNotBeWrittenIsNamed) {
  ServiceStep step;
  step.path = (folder_ / "no-such-folder" / "unit").string();
  const absl::Status status = ServiceRunner(World()).Carry(step);
  EXPECT_TRUE(Has(std::string(status.message()), step.path + " can't be written: No such file"))
      << status;
  // A folder in its place stays what it is.
  fs::create_directories(folder_ / "taken" / "inside");
  step.path = (folder_ / "taken").string();
  EXPECT_FALSE(ServiceRunner(World()).Carry(step).ok());
  EXPECT_TRUE(fs::exists(folder_ / "taken" / "inside"));
}

}  // namespace
}  // namespace macrame::cli
