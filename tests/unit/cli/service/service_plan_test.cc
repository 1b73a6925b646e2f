#include "cli/service/service_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/service/service_state.h"

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ServiceSettings SettingsOf(ServiceManager manager) {
  ServiceSettings settings;
  settings.manager = manager;
  settings.user = "ada";
  settings.group = "staff";
  settings.built = "/build/release";
  return settings;
}

constexpr ServiceManager kManagers[] = {ServiceManager::kSystemd, ServiceManager::kLaunchd};

// The eight things that may be there, by the bits of a number.
ServiceFound FoundOf(unsigned bits) {
  ServiceFound found;
  bool* const all[] = {&found.user,     &found.group, &found.member, &found.settings,
                       &found.programs, &found.unit,  &found.loaded, &found.mlx};
  for (size_t i = 0; i < std::size(all); ++i) *all[i] = (bits >> i & 1) != 0;
  found.mlx_libs = found.mlx;
  return found;
}

int IndexOf(const std::vector<ServiceStep>& steps, const std::string& part) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string text =
        steps[i].command.empty() ? "write " + steps[i].path : ShellLine(steps[i].command);
    if (Has(text, part)) return static_cast<int>(i);
  }
  return -1;
}

// ---- words of a shell

TEST(ShellLine, QuotesWhatAShellWouldTakeForSomethingElse) {
  struct Case {
    const char* word;
    const char* quoted;
  };
  const Case cases[] = {{"plain-word_1.2/a:b=c,d@e+f%g", "plain-word_1.2/a:b=c,d@e+f%g"},
                        {"", "''"},
                        {"a b", "'a b'"},
                        {"it's", "'it'\\''s'"},
                        {"$(reboot)", "'$(reboot)'"},
                        {"a;b", "'a;b'"},
                        {"*", "'*'"},
                        {"~", "'~'"},
                        {"a\nb", "'a\nb'"},
                        {"\xC3\xA4", "'\xC3\xA4'"},
                        {"#c", "'#c'"}};
  for (const Case& one : cases) EXPECT_EQ(ShellLine({one.word}), one.quoted);
  EXPECT_EQ(ShellLine({"rm", "-rf", "/Library/Application Support/Macrame"}),
            "rm -rf '/Library/Application Support/Macrame'");
  EXPECT_EQ(ShellLine({}), "");
}

// ---- files

TEST(AgentSettings, FoldersOfAnyNameAreOneYamlStringEach) {
  ServiceSettings settings = SettingsOf(ServiceManager::kLaunchd);
  struct Case {
    const char* folder;
    const char* written;
  };
  const Case cases[] = {{"/Users/ada/My models", "\"/Users/ada/My models\""},
                        {"/a\"b", "\"/a\\\"b\""},
                        {"/a\\b", "\"/a\\\\b\""},
                        {"/a: b # c", "\"/a: b # c\""},
                        {"/a\nport: 1", "\"/a\\nport: 1\""},
                        {"/a\tb", "\"/a\\tb\""},
                        {"/a\x01", "\"/a\\x01\""}};
  for (const Case& one : cases) {
    settings.model_folders = {one.folder};
    const std::string yaml = AgentSettings(settings);
    EXPECT_TRUE(Has(yaml, std::string("models\", ") + one.written + "]\n")) << yaml;
    // Nothing that a name holds is a line of its own.
    EXPECT_FALSE(Has(yaml, "\nport: 1")) << yaml;
  }
}

TEST(LaunchdPlist, NamesAreEscapedAndTagsAreClosed) {
  ServiceSettings settings = SettingsOf(ServiceManager::kLaunchd);
  settings.user = "<b>&\"x'";
  const std::string plist = LaunchdPlist(settings);
  EXPECT_TRUE(Has(plist, "<string>&lt;b&gt;&amp;\"x'</string>")) << plist;
  for (const char* tag : {"dict", "array", "key", "string", "integer", "plist"}) {
    const auto count = [&](const std::string& what) {
      size_t times = 0;
      for (size_t at = 0; (at = plist.find(what, at)) != std::string::npos; ++at) ++times;
      return times;
    };
    const std::string name = tag;
    EXPECT_EQ(count("<" + name + ">") + count("<" + name + " "), count("</" + name + ">")) << tag;
  }
}

TEST(SystemdUnit, RunsTheAgentAsTheUserAndStopsWhatStaysWrong) {
  const std::string unit = SystemdUnit(SettingsOf(ServiceManager::kSystemd));
  EXPECT_TRUE(Has(unit, "\nExecStart=/opt/macrame/bin/agentd --config /etc/macrame/agentd.yaml\n"));
  EXPECT_TRUE(Has(unit, "\nUser=ada\nGroup=staff\n"));
  EXPECT_TRUE(Has(unit, "\nRestartPreventExitStatus=2\n"));
  EXPECT_TRUE(Has(unit, "\nReadWritePaths=/var/lib/macrame /var/log/macrame\n"));
  for (const char* section : {"[Unit]\n", "[Service]\n", "[Install]\n"}) {
    EXPECT_EQ(unit.find(section), unit.rfind(section)) << section;
  }
}

TEST(ServiceFiles, EndInALineFeed) {
  for (const ServiceManager manager : kManagers) {
    const ServiceSettings settings = SettingsOf(manager);
    for (const std::string& text : {SystemdUnit(settings), LaunchdPlist(settings),
                                    AgentSettings(settings), NewsyslogRules(settings)}) {
      ASSERT_FALSE(text.empty());
      EXPECT_EQ(text.back(), '\n');
    }
  }
}

// ---- steps, whatever is there already

template <typename Check>
void ForEachMachine(const Check& check) {
  for (const ServiceManager manager : kManagers) {
    for (unsigned bits = 0; bits < 256; ++bits) check(manager, FoundOf(bits));
  }
}

TEST(InstallSteps, NeverWriteOverSettingsOrRemoveWhatIsTheUsers) {
  ForEachMachine([](ServiceManager manager, const ServiceFound& found) {
    const ServicePlaces places = PlacesOf(manager);
    for (const auto& steps : {InstallSteps(SettingsOf(manager), found),
                              UninstallSteps(manager, found), RestartSteps(manager, found)}) {
      for (const ServiceStep& step : steps) {
        EXPECT_FALSE(step.path == places.settings && found.settings) << step.what;
        if (step.command.empty() || step.command[0] != "rm") continue;
        for (const std::string& word : step.command) {
          for (const std::string& kept : {places.settings, places.data, places.state, places.models,
                                          places.logs, places.log}) {
            EXPECT_NE(word, kept) << step.what;
          }
        }
      }
    }
  });
}

// The webhook's URL is written into it later, and is a secret.
TEST(InstallSteps, TheSettingsAreReadByTheAgentsUserAlone) {
  ForEachMachine([](ServiceManager manager, const ServiceFound& found) {
    const ServiceSettings settings = SettingsOf(manager);
    for (const ServiceStep& step : InstallSteps(settings, found)) {
      if (step.path != PlacesOf(manager).settings) continue;
      EXPECT_EQ(step.mode, 0600);
      EXPECT_EQ(step.user, settings.user);
      EXPECT_EQ(step.group, settings.group);
      const std::string line = settings.user + ":" + settings.group + " " + step.path;
      EXPECT_TRUE(Has(StepsText({step}), "\nchmod 0600 " + step.path + "\nchown " + line + "\n"));
    }
  });
}

TEST(InstallSteps, TheProgramsAreCopiedBeforeAnythingThatRunsIsTouched) {
  ForEachMachine([](ServiceManager manager, const ServiceFound& found) {
    const std::vector<ServiceStep> steps = InstallSteps(SettingsOf(manager), found);
    const int copy = IndexOf(steps, "/build/release/bin/agentd");
    const int swap = IndexOf(steps, "mv /opt/macrame.new /opt/macrame");
    ASSERT_GE(copy, 0);
    ASSERT_GT(swap, copy);
    for (const char* touches : {"bootout", "mv /opt/macrame /opt/macrame.previous",
                                "write /etc/sys", "systemctl", "launchctl bootstrap"}) {
      const int at = IndexOf(steps, touches);
      if (at >= 0) {
        EXPECT_GT(at, copy) << touches;
      }
    }
    const int keep = IndexOf(steps, "mv /opt/macrame /opt/macrame.previous");
    EXPECT_EQ(keep >= 0, found.programs);
    if (keep >= 0) {
      EXPECT_LT(keep, swap);
    }
    // What starts it is the last of all.
    EXPECT_GT(IndexOf(steps, manager == ServiceManager::kSystemd ? "systemctl restart"
                                                                 : "launchctl bootstrap"),
              swap);
  });
}

TEST(InstallSteps, MakeUsersOnLinuxOnlyAndOnlyThoseThatAreMissing) {
  ForEachMachine([](ServiceManager manager, const ServiceFound& found) {
    ServiceSettings settings = SettingsOf(manager);
    settings.member = "bess";
    const std::vector<ServiceStep> steps = InstallSteps(settings, found);
    const bool linux_machine = manager == ServiceManager::kSystemd;
    EXPECT_EQ(IndexOf(steps, "useradd") >= 0, linux_machine && !found.user);
    EXPECT_EQ(IndexOf(steps, "groupadd") >= 0, linux_machine && !found.group);
    EXPECT_EQ(IndexOf(steps, "usermod") >= 0, linux_machine && !found.member);
    if (linux_machine && !found.user && !found.group) {
      EXPECT_LT(IndexOf(steps, "groupadd"), IndexOf(steps, "useradd"));
    }
  });
}

TEST(UndoText, OfEachBeginningTakesBackNothingThatWasThere) {
  ForEachMachine([](ServiceManager manager, const ServiceFound& found) {
    const std::vector<ServiceStep> steps = InstallSteps(SettingsOf(manager), found);
    for (size_t count = 0; count <= steps.size(); ++count) {
      const std::string text = UndoText({steps.begin(), steps.begin() + count});
      EXPECT_EQ(Has(text, "nothing was done"), count == 0);
      if (found.user) {
        EXPECT_FALSE(Has(text, "userdel")) << text;
      }
      if (found.settings) {
        EXPECT_FALSE(Has(text, "rmdir")) << text;
      }
      if (found.settings) {
        EXPECT_FALSE(Has(text, "rm /etc/macrame/agentd.yaml")) << text;
      }
      EXPECT_FALSE(Has(text, "rm -r ")) << text;
    }
  });
}

TEST(UndoText, TakesBackTheLastThingFirst) {
  const std::vector<ServiceStep> steps =
      InstallSteps(SettingsOf(ServiceManager::kSystemd), FoundOf(0));
  const std::string text = UndoText(steps);
  const std::string undo = text.substr(text.find("to take it back"));
  EXPECT_LT(undo.find("systemctl stop"), undo.find("systemctl disable")) << undo;
  EXPECT_LT(undo.find("systemctl disable"), undo.find("rm /etc/systemd")) << undo;
  EXPECT_LT(undo.find("rm /etc/systemd"), undo.find("userdel ada")) << undo;
  EXPECT_LT(undo.find("userdel ada"), undo.find("groupdel staff")) << undo;
}

TEST(UninstallSteps, OfAMachineThatHasNothingFailAtNothing) {
  for (const ServiceManager manager : kManagers) {
    for (const ServiceStep& step : UninstallSteps(manager, ServiceFound())) {
      const bool is_harmless = step.may_fail || (step.command[0] == "rm" &&
                                                 step.command[1].find('f') != std::string::npos);
      EXPECT_TRUE(is_harmless || Has(ShellLine(step.command), "daemon-reload")) << step.what;
    }
  }
}

TEST(StepsText, AFileThatSaysEndIsStillWrittenWhole) {
  ServiceStep step;
  step.what = "write a file";
  step.path = "/tmp/a b";
  step.text = "one\nEND\nrm -rf /\n";
  step.mode = 0600;
  const std::string text = StepsText({step});
  // The word that ends the text is none of its lines.
  const size_t begin = text.find("<<'") + 3;
  const std::string word = text.substr(begin, text.find('\'', begin) - begin);
  EXPECT_FALSE(Has("\n" + step.text, "\n" + word + "\n")) << text;
  EXPECT_TRUE(Has(text, step.text + word + "\nchmod 0600 '/tmp/a b'\n")) << text;
}

TEST(StepsText, IsAScriptWithAWordOnEachStep) {
  for (const ServiceManager manager : kManagers) {
    for (const ServiceStep& step : InstallSteps(SettingsOf(manager), FoundOf(0xFF))) {
      EXPECT_NE(step.what, "");
      EXPECT_NE(step.command.empty(), step.path.empty()) << step.what;
    }
  }
}

// ---- what the managers say

TEST(ServiceState, OfNonsenseIsAServiceThatIsNotKnown) {
  for (const char* output :
       {"", "\n\n", "====", "LoadState", "=loaded", "LoadState=\nActiveState=",
        "Could not find service \"macrame.agentd\" in domain for system", "\t\t\t= = =\n"}) {
    for (const ServiceManager manager : kManagers) {
      const ServiceState state = ReadState(manager, output);
      EXPECT_FALSE(state.known) << output;
      EXPECT_FALSE(state.running) << output;
      EXPECT_EQ(state.pid, 0);
      EXPECT_EQ(state.starts, -1);
      EXPECT_EQ(state.exit_code, -1);
    }
  }
}

TEST(ServiceState, OfSystemdASignalIsNoExitCode) {
  const ServiceState killed = ReadState(ServiceManager::kSystemd,
                                        "LoadState=loaded\nActiveState=failed\nSubState=failed\n"
                                        "ExecMainCode=2\nExecMainStatus=9\nNRestarts=0\n");
  EXPECT_EQ(killed.exit_code, -1);
  EXPECT_EQ(killed.starts, 1);
  EXPECT_EQ(killed.state, "failed (failed)");
}

TEST(ServiceState, NumbersBeyondAllBoundsAreNone) {
  const ServiceState odd =
      ReadState(ServiceManager::kSystemd,
                "LoadState=loaded\nMainPID=99999999999999999999\nNRestarts=[not set]\n");
  EXPECT_EQ(odd.pid, 0);
  EXPECT_EQ(odd.starts, -1);
}

TEST(ServiceState, TheCommandAsksForEveryValueThatIsRead) {
  const std::string asked = ShellLine(StateCommand(ServiceManager::kSystemd));
  for (const char* value :
       {"LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts",
        "ExecMainCode", "ExecMainStatus", "StateChangeTimestamp"}) {
    EXPECT_TRUE(Has(asked, value)) << value;
  }
  EXPECT_EQ(ShellLine(StateCommand(ServiceManager::kLaunchd)),
            "launchctl print system/macrame.agentd");
}

}  // namespace
}  // namespace macrame::cli
