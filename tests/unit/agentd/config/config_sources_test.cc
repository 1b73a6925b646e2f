// What settings may be made of: texts, numbers, lists, paths, files and the environment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "agentd/config/config.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status Set(LoadedConfig* config, const std::string& name, const std::string& text) {
  const ConfigKey* key = FindConfigKey(name);
  if (key == nullptr) return absl::NotFoundError(name);
  return SetFromText(*key, text, "test", config);
}

class HomeTest : public ::testing::Test {
 protected:
  HomeTest() : before_(std::getenv("HOME") == nullptr ? "" : std::getenv("HOME")) {
    ::setenv("HOME", "/home/somebody", 1);
  }
  ~HomeTest() override { ::setenv("HOME", before_.c_str(), 1); }
  const std::string before_;
};

// In a file no shell expands it: each setting that names a file or folder of the agent's own does.
TEST_F(HomeTest, EveryPathMayBeginWithTheHomeFolder) {
  const std::pair<const char*, std::string Config::*> paths[] = {
      {"cluster_secret_file", &Config::cluster_secret_file},
      {"state_folder", &Config::state_folder},
      {"machine_id_file", &Config::machine_id_file},
      {"socket_path", &Config::socket_path},
      {"rankd_path", &Config::rankd_path},
      {"mlx_lm_python", &Config::mlx_lm_python},
      {"log_file", &Config::log_file},
      {"gateway_tls_certificate", &Config::gateway_tls_certificate},
      {"gateway_tls_key", &Config::gateway_tls_key},
  };
  LoadedConfig config = DefaultConfig();
  for (const auto& [name, field] : paths) {
    ASSERT_TRUE(Set(&config, name, absl::StrCat("~/", name)).ok()) << name;
  }
  ExpandPaths(&config.values);
  for (const auto& [name, field] : paths) {
    EXPECT_EQ(config.values.*field, absl::StrCat("/home/somebody/", name));
  }
}

TEST_F(HomeTest, OnlyTheBeginningOfAPathIsTheHomeFolder) {
  EXPECT_EQ(ExpandHome("~"), "/home/somebody");
  EXPECT_EQ(ExpandHome("~/a"), "/home/somebody/a");
  for (const std::string& path :
       {std::string(), std::string("/a/~"), std::string("~other/a"), std::string("a~/b")}) {
    EXPECT_EQ(ExpandHome(path), path);
  }
  ::setenv("HOME", "relative", 1);
  EXPECT_EQ(ExpandHome("~/a")[0], '/') << "an agent's paths are absolute";
  ::unsetenv("HOME");
  EXPECT_EQ(ExpandHome("~/a")[0], '/');
}

// --- texts ---------------------------------------------------------------------------------------

TEST(ConfigText, TruthHasManyWordsAndNoOthers) {
  for (const auto& [word, truth] :
       {std::pair("true", true), std::pair("Yes", true), std::pair("ON", true),
        std::pair("1", true), std::pair("false", false), std::pair("No", false),
        std::pair("off", false), std::pair("0", false)}) {
    LoadedConfig config = DefaultConfig();
    config.values.insecure_dev = !truth;
    EXPECT_TRUE(Set(&config, "insecure_dev", word).ok()) << word;
    EXPECT_EQ(config.values.insecure_dev, truth) << word;
  }
  for (const char* word : {"", " ", "2", "y", "tru", "true ", "nein"}) {
    LoadedConfig config = DefaultConfig();
    const absl::Status refused = Set(&config, "insecure_dev", word);
    EXPECT_FALSE(refused.ok()) << word;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("insecure_dev"));
    EXPECT_EQ(config.origins.at("insecure_dev"), "default") << "nothing was set";
  }
}

TEST(ConfigText, EveryNumberHoldsItsBoundsAndNamesThem) {
  for (const ConfigKey& key : ConfigKeys()) {
    const auto* field = std::get_if<int64_t Config::*>(&key.field);
    if (field == nullptr) continue;
    LoadedConfig config = DefaultConfig();
    for (const int64_t value : {key.min, key.max}) {
      EXPECT_TRUE(SetFromText(key, absl::StrCat(value), "test", &config).ok()) << key.name;
      EXPECT_EQ(config.values.**field, value) << key.name;
    }
    std::vector<std::string> bad = {"", "one", "1.5", "1 2", "0x10", "99999999999999999999"};
    if (key.min > INT64_MIN) bad.push_back(absl::StrCat(key.min - 1));
    if (key.max < INT64_MAX) bad.push_back(absl::StrCat(key.max + 1));
    for (const std::string& text : bad) {
      const absl::Status refused = SetFromText(key, text, "test", &config);
      EXPECT_FALSE(refused.ok()) << key.name << " took " << text;
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr(absl::StrCat(key.min, " to ", key.max)));
      EXPECT_EQ(config.values.**field, key.max) << "it stays as it was";
    }
  }
}

TEST(ConfigText, AChoiceIsOneOfItsWordsAndTheOthersAreTold) {
  int choices = 0;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.choices.empty()) continue;
    ++choices;
    LoadedConfig config = DefaultConfig();
    for (const auto& choice : key.choices) {
      EXPECT_TRUE(SetFromText(key, std::string(choice), "test", &config).ok()) << key.name;
    }
    const absl::Status refused = SetFromText(key, "something else", "test", &config);
    EXPECT_FALSE(refused.ok()) << key.name;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(std::string(key.choices.front())));
  }
  EXPECT_GT(choices, 2);
}

TEST(ConfigText, ATextHasABoundAndNoNul) {
  LoadedConfig config = DefaultConfig();
  EXPECT_TRUE(Set(&config, "node_name", std::string(kConfigTextBytesMax, 'a')).ok());
  EXPECT_FALSE(Set(&config, "node_name", std::string(kConfigTextBytesMax + 1, 'a')).ok());
  EXPECT_FALSE(Set(&config, "node_name", std::string("a\0b", 3)).ok());
}

TEST(ConfigText, AListIsCutAtCommas) {
  LoadedConfig config = DefaultConfig();
  ASSERT_TRUE(Set(&config, "model_folders", " /a , /b,, ,/c").ok());
  EXPECT_THAT(config.values.model_folders, ElementsAre("/a", "/b", "/c"));
  ASSERT_TRUE(Set(&config, "model_folders", "").ok());
  EXPECT_THAT(config.values.model_folders, IsEmpty());
  std::string many;
  for (size_t i = 0; i < kConfigListEntriesMax; ++i) absl::StrAppend(&many, "/f", i, ",");
  ASSERT_TRUE(Set(&config, "model_folders", many).ok());
  EXPECT_FALSE(Set(&config, "model_folders", many + "/one-more").ok());
  EXPECT_THAT(config.values.model_folders, SizeIs(kConfigListEntriesMax));
}

// --- sources -------------------------------------------------------------------------------------

TEST(ConfigSources, TheEnvironmentIsReadByItsNamesAndErrorsNameTheVariable) {
  std::map<std::string, std::string> variables = {{"MACRAME_NODE_NAME", "mini"},
                                                  {"MACRAME_NODE_NAMES", "other"}};
  const auto lookup = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  LoadedConfig config = DefaultConfig();
  ASSERT_EQ(EnvironmentName(*FindConfigKey("node_name")), "MACRAME_NODE_NAME");
  ASSERT_TRUE(ApplyEnvironment(lookup, &config).ok());
  EXPECT_EQ(config.values.node_name, "mini");
  EXPECT_THAT(config.origins.at("node_name"), HasSubstr("MACRAME_NODE_NAME"));
  variables[EnvironmentName(*FindConfigKey("lease_ms"))] = "soon";
  const absl::Status refused = ApplyEnvironment(lookup, &config);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(EnvironmentName(*FindConfigKey("lease_ms"))));
}

TEST(ConfigSources, AFileIsReadWholeOrRefusedWithItsName) {
  const std::string path = FreshFolder() + "/agentd.yaml";
  EXPECT_TRUE(absl::IsNotFound(ReadConfigFile(path).status()));
  std::ofstream(path).flush();
  const auto empty = ReadConfigFile(path);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(*empty, "");
  std::ofstream(path) << std::string(kConfigFileBytesMax, '#');
  ASSERT_TRUE(ReadConfigFile(path).ok());
  EXPECT_THAT(*ReadConfigFile(path), SizeIs(kConfigFileBytesMax));
  std::ofstream(path, std::ios::app) << '#';
  EXPECT_TRUE(absl::IsInvalidArgument(ReadConfigFile(path).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadConfigFile(FreshFolder()).status()));
}

TEST(ConfigSources, AnEmptyFileSetsNothing) {
  for (const char* text : {"", "# nothing but words\n", "---\n", "~\n"}) {
    LoadedConfig config = DefaultConfig();
    EXPECT_TRUE(ApplyYaml(text, "a.yaml", &config).ok()) << text;
    EXPECT_EQ(PrintConfig(config), PrintConfig(DefaultConfig()));
  }
}

TEST(ConfigSources, ListsMayBeWrittenAsListsOrInOneLine) {
  for (const char* text :
       {"model_folders: [/a, /b]", "model_folders:\n  - /a\n  - /b\n", "model_folders: /a, /b"}) {
    LoadedConfig config = DefaultConfig();
    ASSERT_TRUE(ApplyYaml(text, "a.yaml", &config).ok()) << text;
    EXPECT_THAT(config.values.model_folders, ElementsAre("/a", "/b")) << text;
  }
  for (const char* text : {"model_folders: [[/a]]", "model_folders: {a: b}", "node_name: [a]"}) {
    LoadedConfig config = DefaultConfig();
    const absl::Status refused = ApplyYaml(text, "a.yaml", &config);
    EXPECT_FALSE(refused.ok()) << text;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("a.yaml:1: "));
  }
}

TEST(ConfigSources, ASettingThatIsGivenTwiceIsRefused) {
  LoadedConfig config = DefaultConfig();
  const absl::Status refused =
      ApplyYaml("node_name: a\nlease_ms: 2000\nnode_name: b\n", "a.yaml", &config);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a.yaml:3: node_name is given twice"));
}

}  // namespace
}  // namespace macrame::agentd
