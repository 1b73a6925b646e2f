// What `clusterctl service` writes and does, on a machine of each kind, word by word.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/service/service_plan.h"
#include "cli/service/service_state.h"
#include "tests/golden/golden_files.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

ServiceSettings OnLinux() {
  ServiceSettings settings;
  settings.manager = ServiceManager::kSystemd;
  settings.user = "macrame";
  settings.group = "macrame";
  settings.member = "ada";
  settings.built = "/home/ada/macrame/build/release";
  return settings;
}

ServiceSettings OnAMac() {
  ServiceSettings settings;
  settings.manager = ServiceManager::kLaunchd;
  settings.user = "bess";
  settings.group = "admin";
  settings.built = "/Users/bess/macrame/build/release";
  settings.model_folders = {"/Users/bess/My & \"their\" models"};
  return settings;
}

ServiceFound Installed() {
  ServiceFound found;
  found.user = found.group = found.member = found.settings = true;
  found.programs = found.unit = found.loaded = found.mlx = found.mlx_libs = true;
  return found;
}

ServiceFound Fresh() {
  ServiceFound found;
  found.mlx = found.mlx_libs = true;
  return found;
}

TEST(ServiceFiles, OfLinux) {
  ServiceSettings settings = OnLinux();
  ExpectGolden("service/macrame.service", SystemdUnit(settings));
  ExpectGolden("service/linux-agentd.yaml", AgentSettings(settings));
  settings.model_folders = {"/srv/models", "/home/ada/models"};
  EXPECT_NE(SystemdUnit(settings).find("ProtectHome=read-only"), std::string::npos);
  EXPECT_NE(AgentSettings(settings).find("\"/home/ada/models\""), std::string::npos);
}

TEST(ServiceFiles, OfAMac) {
  ExpectGolden("service/macrame.agentd.plist", LaunchdPlist(OnAMac()));
  ServiceSettings odd = OnAMac();
  odd.user = "a<b>&\"c\"";
  ExpectGolden("service/odd-user.plist", LaunchdPlist(odd));
  ExpectGolden("service/macos-agentd.yaml", AgentSettings(OnAMac()));
  ExpectGolden("service/macos-newsyslog.conf", NewsyslogRules(OnAMac()));
}

TEST(ServiceSteps, InstallUpgradeUninstall) {
  ServiceSettings linux_settings = OnLinux();
  linux_settings.secret_file = "desk's.secret";
  ExpectGolden("service/linux-install.txt", StepsText(InstallSteps(linux_settings, Fresh())));
  ExpectGolden("service/linux-upgrade.txt", StepsText(InstallSteps(OnLinux(), Installed())));
  ExpectGolden("service/linux-uninstall.txt",
               StepsText(UninstallSteps(ServiceManager::kSystemd, Installed())));
  ExpectGolden("service/macos-install.txt", StepsText(InstallSteps(OnAMac(), Fresh())));
  ExpectGolden("service/macos-upgrade.txt", StepsText(InstallSteps(OnAMac(), Installed())));
  ExpectGolden("service/macos-uninstall.txt",
               StepsText(UninstallSteps(ServiceManager::kLaunchd, Installed())));
}

TEST(ServiceSteps, RestartStartsWhatLaunchdDoesNotKnow) {
  EXPECT_EQ(StepsText(RestartSteps(ServiceManager::kLaunchd, Installed())),
            "# restart the agent\nlaunchctl kickstart -k system/macrame.agentd\n");
  const std::string fresh = StepsText(RestartSteps(ServiceManager::kLaunchd, Fresh()));
  EXPECT_NE(fresh.find("launchctl bootstrap system /Library/LaunchDaemons/macrame.agentd.plist"),
            std::string::npos);
}

// Every failure on the way: what is taken back is what was done, last thing first.
TEST(ServiceSteps, UndoNamesWhatWasDone) {
  EXPECT_EQ(UndoText({}), "nothing was done before it\n");
  ExpectGolden("service/linux-install-undo.txt", UndoText(InstallSteps(OnLinux(), Fresh())));
  ExpectGolden("service/linux-upgrade-undo.txt", UndoText(InstallSteps(OnLinux(), Installed())));
  ExpectGolden("service/macos-upgrade-undo.txt", UndoText(InstallSteps(OnAMac(), Installed())));
}

TEST(ServicePlaces, SocketsAreWhereClusterctlLooks) {
  EXPECT_LT(PlacesOf(ServiceManager::kLaunchd).socket.size(), transport::kSocketPathBytesMax);
#ifdef __linux__
  EXPECT_EQ(PlacesOf(ServiceManager::kSystemd).socket, transport::ServiceSocketPath());
#endif
}

TEST(ServiceState, OfSystemd) {
  const ServiceState running =
      ReadState(ServiceManager::kSystemd,
                "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"
                "MainPID=4711\nNRestarts=2\nExecMainCode=0\nExecMainStatus=0\n"
                "StateChangeTimestamp=Mon 2026-11-23 20:00:00 UTC\n");
  EXPECT_TRUE(running.known && running.running && running.at_boot);
  EXPECT_EQ(running.pid, 4711);
  EXPECT_EQ(running.starts, 3);
  EXPECT_EQ(running.exit_code, -1);
  EXPECT_EQ(running.state, "active (running)");
  const ServiceState failed =
      ReadState(ServiceManager::kSystemd,
                "LoadState=loaded\nActiveState=failed\nSubState=failed\nUnitFileState=disabled\n"
                "MainPID=0\nNRestarts=0\nExecMainCode=1\nExecMainStatus=2\n");
  EXPECT_FALSE(failed.running || failed.at_boot);
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_FALSE(ReadState(ServiceManager::kSystemd, "LoadState=not-found\n").known);
  EXPECT_FALSE(ReadState(ServiceManager::kSystemd, "").known);
}

TEST(ServiceState, OfLaunchd) {
  const ServiceState running = ReadState(
      ServiceManager::kLaunchd,
      "system/macrame.agentd = {\n\tactive count = 1\n\tstate = running\n\n"
      "\tprogram = /opt/macrame/bin/agentd\n\tresource coalition = {\n\t\tstate = other\n"
      "\t\tpid = 1\n\t}\n\truns = 1\n\tpid = 333\n\tlast exit code = (never exited)\n}\n");
  EXPECT_TRUE(running.known && running.running);
  EXPECT_EQ(running.pid, 333);
  EXPECT_EQ(running.starts, 1);
  EXPECT_EQ(running.exit_code, -1);
  const ServiceState ended =
      ReadState(ServiceManager::kLaunchd,
                "system/macrame.agentd = {\n\tstate = not running\n\truns = 4\n"
                "\tlast exit code = 78: EX_CONFIG\n}\n");
  EXPECT_TRUE(ended.known);
  EXPECT_FALSE(ended.running);
  EXPECT_EQ(ended.exit_code, 78);
  EXPECT_FALSE(ReadState(ServiceManager::kLaunchd, "").known);
}

// Text and property list alone: a person installs it, and takes it back, with the commands of the
// page.
TEST(WiredLimitDaemon, SetsTheLimitOnceAtEachStartAndItsPageTakesItBack) {
  const auto read = [](const char* path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  };
  const std::string plist = read("deploy/macos/com.macrame.wired-limit.plist");
  for (const char* part :
       {"<string>com.macrame.wired-limit</string>", "<string>/usr/sbin/sysctl</string>",
        "<string>iogpu.wired_limit_mb=", "<key>RunAtLoad</key>\n\t<true/>",
        "<key>LaunchOnlyOnce</key>\n\t<true/>"}) {
    EXPECT_NE(plist.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(plist.find("KeepAlive"), std::string::npos) << "once, not for ever";
  const std::string page = read("docs/macs.md");
  for (const char* part :
       {"launchctl bootstrap system /Library/LaunchDaemons/com.macrame.wired-limit.plist",
        "launchctl bootout system/com.macrame.wired-limit", "sudo sysctl iogpu.wired_limit_mb=0",
        "lost at every restart", "rdma_ctl enable"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace macrame::cli
