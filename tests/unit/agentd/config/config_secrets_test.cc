#include "agentd/config/config_secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using testing::HasSubstr;

constexpr char kHook[] = "alert_webhook: https://hooks.example/T0/SECRET\n";

class ExposedSecrets : public ::testing::Test {
 protected:
  std::string Warning(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
    LoadedConfig config = DefaultConfig();
    EXPECT_TRUE(ApplyYaml(text, path_, &config).ok());
    return ExposedSecretsWarning(path_, config);
  }

  const std::string path_ = FreshFolder() + "/it's.yaml";
};

TEST_F(ExposedSecrets, AreWarnedOfWithTheCommandThatEndsIt) {
  for (const mode_t mode : {0644, 0640, 0604, 0620}) {
    const std::string warning = Warning(kHook, mode);
    EXPECT_THAT(warning,
                HasSubstr("may read " + path_ + ", which holds alert_webhook; run: chmod"));
    EXPECT_EQ(warning.find("SECRET"), std::string::npos);
    const std::string command = warning.substr(warning.find("chmod"));
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_EQ(ExposedSecretsWarning(path_,
                                    [&] {
                                      LoadedConfig config = DefaultConfig();
                                      EXPECT_TRUE(ApplyYaml(kHook, path_, &config).ok());
                                      return config;
                                    }()),
              "");
  }
  EXPECT_THAT(Warning("alert_webhook_authorization: Bearer abcdefgh\n", 0644),
              HasSubstr("alert_webhook_authorization"));
}

TEST_F(ExposedSecrets, AFileWithoutThemOrOfItsUserAloneIsFine) {
  EXPECT_EQ(Warning("node_name: mini\nalert_webhook: \"\"\n", 0644), "");
  EXPECT_EQ(Warning(kHook, 0600), "");
  EXPECT_EQ(Warning(kHook, 0400), "");
  EXPECT_EQ(ExposedSecretsWarning("", DefaultConfig()), "");
}

TEST_F(ExposedSecrets, OfAnotherUsersFileOnlyEverybodysReadingIsWarnedOf) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  std::ofstream(path_) << kHook;
  ASSERT_EQ(::chown(path_.c_str(), 65534, 0), 0);
  EXPECT_EQ(Warning(kHook, 0640), "");
  const std::string warning = Warning(kHook, 0644);
  EXPECT_THAT(warning, HasSubstr("sudo chown root '"));
  EXPECT_THAT(warning, HasSubstr(" && sudo chmod 600 '"));
}

TEST_F(ExposedSecrets, WhatComesFromElsewhereIsNotInTheFile) {
  std::ofstream(path_) << "node_name: mini\n";
  ::chmod(path_.c_str(), 0644);
  LoadedConfig config = DefaultConfig();
  ASSERT_TRUE(SetFromText(*FindConfigKey("alert_webhook"), "https://hooks.example/T0/SECRET",
                          "environment MACRAME_ALERT_WEBHOOK", &config)
                  .ok());
  EXPECT_EQ(ExposedSecretsWarning(path_, config), "");
}

}  // namespace
}  // namespace macrame::agentd
