// What holds for every setting, and for files of every kind, over many seeds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/config/config.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ListField = std::vector<std::string> Config::*;

std::string ErrorOf(const std::string& yaml) {
  LoadedConfig config = DefaultConfig();
  return std::string(ApplyYaml(yaml, "a.yaml", &config).message());
}

// A character of each kind that a file may hold, as UTF-8.
std::string Character(std::mt19937_64& random) {
  static const std::vector<std::string> kOdd = {"\"",
                                                "\\",
                                                "'",
                                                "#",
                                                ": ",
                                                "\n",
                                                "\r",
                                                "\t",
                                                " ",
                                                "%",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                "&a",
                                                "*",
                                                "!",
                                                "|",
                                                ">",
                                                "-",
                                                "?",
                                                "\x01",
                                                "~",
                                                "@",
                                                "\x1b",
                                                "\xc2\x85",
                                                "\xe2\x80\xa8",
                                                "\xf0\x9f\x98\x80",
                                                "é",
                                                "日",
                                                "\x7f",
                                                "`",
                                                "=",
                                                "\x0b",
                                                "\xef\xbf\xbd",
                                                "null"};
  if (random() % 2 == 0) return std::string(1, static_cast<char>('a' + random() % 26));
  return kOdd[random() % kOdd.size()];
}

std::string SomeText(std::mt19937_64& random, size_t most) {
  std::string text;
  for (size_t i = random() % (most + 1); i > 0; --i) text += Character(random);
  // A file's brackets are counted before it is read (kNestingMax).
  std::erase_if(
      text, [brackets = 0](char c) mutable { return (c == '[' || c == '{') && ++brackets > 1; });
  return text;
}

// A value within the key's bounds.
void SetAny(const ConfigKey& key, std::mt19937_64& random, Config* config) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.field)) {
    config->** text = key.choices.empty() ? SomeText(random, 3)
                                          : std::string(key.choices[random() % key.choices.size()]);
  } else if (const auto* number = std::get_if<int64_t Config::*>(&key.field)) {
    const auto span = static_cast<uint64_t>(key.max - key.min) + 1;
    config->** number = key.min + static_cast<int64_t>(random() % span);
  } else if (const auto* truth = std::get_if<bool Config::*>(&key.field)) {
    config->** truth = random() % 2 == 0;
  } else {
    std::vector<std::string>& list = config->*std::get<ListField>(key.field);
    list.clear();
    if (random() % 8 == 0) list.push_back(SomeText(random, 3));
    if (random() % 4 == 0) list.push_back("/a, b");
  }
}

bool AreSame(const ConfigKey& key, const Config& a, const Config& b) {
  return std::visit([&](const auto& field) { return a.*field == b.*field; }, key.field);
}

TEST(ConfigProperty, WhatIsPrintedIsReadBackWhateverTheValues) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 random(seed);
    LoadedConfig config = DefaultConfig();
    for (const ConfigKey& key : ConfigKeys()) {
      if (random() % 6 == 0) SetAny(key, random, &config.values);
    }
    LoadedConfig again = DefaultConfig();
    const std::string printed = PrintConfig(config);
    const absl::Status read = ApplyYaml(printed, "printed.yaml", &again);
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read << "\n" << printed;
    for (const ConfigKey& key : ConfigKeys()) {
      EXPECT_TRUE(AreSame(key, config.values, again.values)) << key.name << ", seed " << seed;
      EXPECT_TRUE(absl::StartsWith(again.origins.at(std::string(key.name)), "file printed.yaml:"))
          << key.name;
    }
    if (HasFailure()) return;
  }
}

// The page that is printed says of each value where it came from; that must not end its line.
TEST(ConfigProperty, AnOriginOfSeveralLinesStaysInItsComment) {
  LoadedConfig config = DefaultConfig();
  ASSERT_TRUE(
      SetFromText(*FindConfigKey("lease_ms"), "900", "file /a\nnode_name: b", &config).ok());
  LoadedConfig again = DefaultConfig();
  ASSERT_TRUE(ApplyYaml(PrintConfig(config), "a.yaml", &again).ok());
  EXPECT_EQ(again.values.node_name, config.values.node_name);
  EXPECT_EQ(again.values.lease_ms, 900);
}

// Flag over environment over file over default, for each key by itself.
TEST(ConfigProperty, EachKeyHasTheValueOfItsHighestSource) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    std::map<std::string, std::string> file, environment, flags;
    std::map<std::string, std::string> expected, origin;
    for (const ConfigKey& key : ConfigKeys()) {
      if (!std::holds_alternative<int64_t Config::*>(key.field)) continue;
      const std::string name(key.name);
      const auto values = static_cast<uint64_t>(std::min<int64_t>(50, key.max - key.min + 1));
      const auto value = [&] {
        return absl::StrCat(key.min + static_cast<int64_t>(random() % values));
      };
      const auto give = [&](std::map<std::string, std::string>& source, const std::string& from) {
        if (random() % 3 != 0) return;
        const std::string text = value();
        source[name] = text;
        expected[name] = text;
        origin[name] = from;
      };
      give(file, "file");
      give(environment, "environment");
      give(flags, "flag");
    }
    LoadedConfig config = DefaultConfig();
    std::string yaml;
    for (const auto& [name, text] : file) absl::StrAppend(&yaml, name, ": ", text, "\n");
    ASSERT_TRUE(ApplyYaml(yaml, "a.yaml", &config).ok()) << yaml;
    std::map<std::string, std::string> variables;
    for (const auto& [name, text] : environment) {
      variables[EnvironmentName(*FindConfigKey(name))] = text;
    }
    ASSERT_TRUE(ApplyEnvironment(
                    [&](const char* name) -> const char* {
                      const auto found = variables.find(name);
                      return found == variables.end() ? nullptr : found->second.c_str();
                    },
                    &config)
                    .ok());
    for (const auto& [name, text] : flags) {
      ASSERT_TRUE(SetFromText(*FindConfigKey(name), text, "flag", &config).ok()) << name;
    }
    for (const auto& [name, text] : expected) {
      const auto field = std::get<int64_t Config::*>(FindConfigKey(name)->field);
      EXPECT_EQ(absl::StrCat(config.values.*field), text) << name << ", seed " << seed;
      EXPECT_TRUE(absl::StartsWith(config.origins.at(name), origin.at(name)))
          << name << " says " << config.origins.at(name);
    }
  }
}

// Flags and variables are made of the keys' names: no two keys may meet in one.
TEST(ConfigProperty, NoTwoKeysShareAFlagOrAVariable) {
  std::set<std::string> flags, variables;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_TRUE(flags.insert(FlagName(key)).second) << FlagName(key);
    EXPECT_TRUE(variables.insert(EnvironmentName(key)).second) << EnvironmentName(key);
    EXPECT_EQ(FindConfigKey(key.name), &key);
  }
}

// Whoever mistypes a key by one letter is told the one that they meant, or another as near.
TEST(ConfigProperty, ASlipOfOneLetterIsUnderstood) {
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string name(key.name);
    for (size_t at = 0; at < name.size(); ++at) {
      for (std::string slip : {name.substr(0, at) + name.substr(at + 1),
                               name.substr(0, at) + "x" + name.substr(at + 1),
                               name.substr(0, at) + "q" + name.substr(at)}) {
        if (FindConfigKey(slip) != nullptr) continue;
        const std::string error = ErrorOf(absl::StrCat("\n", slip, ": 1\n"));
        EXPECT_THAT(error, HasSubstr("a.yaml:2: unknown key")) << slip;
        EXPECT_THAT(error, HasSubstr("did you mean '")) << slip;
      }
    }
  }
}

// --- lists ---------------------------------------------------------------------------------------

// Folders and addresses go to the system, which reads up to the first NUL: an entry that holds one
// would be another than the one that is shown.
TEST(ConfigLists, EntriesAreHeldToTheBoundsOfTexts) {
  const std::string longest(kConfigTextBytesMax, 'x');
  LoadedConfig config = DefaultConfig();
  EXPECT_TRUE(
      ApplyYaml(absl::StrCat("model_folders: [/a, ", longest, "]\n"), "a.yaml", &config).ok());
  EXPECT_THAT(config.values.model_folders, ElementsAre("/a", longest));
  for (const std::string& yaml : {absl::StrCat("model_folders: [/a, x", longest, "]\n"),
                                  absl::StrCat("model_folders:\n  - /a\n  - x", longest, "\n"),
                                  std::string("model_folders: [/a, \"/secret\\0/b\"]\n"),
                                  absl::StrCat("model_folders: /a, x", longest, "\n")}) {
    LoadedConfig refused = DefaultConfig();
    const absl::Status status = ApplyYaml(yaml, "a.yaml", &refused);
    EXPECT_FALSE(status.ok()) << yaml.substr(0, 60);
    EXPECT_THAT(std::string(status.message()), HasSubstr("a.yaml:1: model_folders: '"));
    EXPECT_LT(status.message().size(), 300u) << "a message is no copy of the file";
    EXPECT_EQ(refused.values.model_folders, DefaultConfig().values.model_folders);
    EXPECT_EQ(refused.origins.at("model_folders"), "default");
  }
  const absl::Status by_flag =
      SetFromText(*FindConfigKey("discovery_seeds"), std::string("a\0b", 3), "flag", &config);
  EXPECT_THAT(std::string(by_flag.message()), HasSubstr("discovery_seeds"));
}

TEST(ConfigLists, TheirLengthIsBoundedInEveryForm) {
  for (const bool is_block : {false, true}) {
    for (const size_t entries : {kConfigListEntriesMax, kConfigListEntriesMax + 1}) {
      std::string yaml = is_block ? "gateway_hosts:\n" : "gateway_hosts: [";
      for (size_t i = 0; i < entries; ++i) {
        absl::StrAppend(&yaml, is_block ? "  - h" : i == 0 ? "h" : ", h", i, is_block ? "\n" : "");
      }
      absl::StrAppend(&yaml, is_block ? "" : "]\n");
      LoadedConfig config = DefaultConfig();
      const absl::Status status = ApplyYaml(yaml, "a.yaml", &config);
      EXPECT_EQ(status.ok(), entries == kConfigListEntriesMax) << yaml;
      if (!status.ok()) {
        EXPECT_THAT(std::string(status.message()), HasSubstr("at most 64 entries"));
      }
    }
  }
}

// --- files ---------------------------------------------------------------------------------------

// Files come from every editor.
TEST(ConfigFiles, AreReadAsEditorsWriteThem) {
  for (const std::string& yaml : {std::string("lease_ms: 900\r\nnode_name: ada\r\n"),
                                  std::string("\xef\xbb\xbflease_ms: 900\nnode_name: ada\n"),
                                  std::string("---\nlease_ms: 900\nnode_name: ada\n...\n"),
                                  std::string("lease_ms: '900'\nnode_name: \"ada\""),
                                  std::string("{lease_ms: 900, node_name: ada}"),
                                  std::string("lease_ms: 900   # a comment\nnode_name:   ada   \n"),
                                  std::string("\"lease_ms\": 900\nnode_name: >-\n  ada\n")}) {
    LoadedConfig config = DefaultConfig();
    const absl::Status read = ApplyYaml(yaml, "a.yaml", &config);
    ASSERT_TRUE(read.ok()) << read << "\n" << yaml;
    EXPECT_EQ(config.values.lease_ms, 900) << yaml;
    EXPECT_EQ(config.values.node_name, "ada") << yaml;
  }
}

// People write intervals and halves of JSON into comments, as many as they like.
TEST(ConfigFiles, BracketsInCommentsAreNoNesting) {
  std::string yaml;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&yaml, "# from [0, 5) { of ", i, "\n");
  absl::StrAppend(&yaml, "lease_ms: 900\n");
  for (int i = 0; i < 100; ++i) absl::StrAppend(&yaml, "    # [[[ indented\n");
  LoadedConfig config = DefaultConfig();
  const absl::Status read = ApplyYaml(yaml, "a.yaml", &config);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(config.values.lease_ms, 900);
}

// A comment's sign within a text hides no brackets from the parser's own limit.
TEST(ConfigFiles, BracketsBehindATextThatLooksLikeACommentDoNoHarm) {
  for (const size_t depth : {40u, 2'000u, 30'000u}) {
    const std::string brackets(depth, '[');
    for (const std::string& yaml :
         {absl::StrCat("node_name: \"\n# x\", ", brackets), absl::StrCat("? \"\n# \" ", brackets),
          absl::StrCat("[\"\n# \", ", brackets), absl::StrCat("a: # \r", brackets)}) {
      LoadedConfig config = DefaultConfig();
      EXPECT_TRUE(absl::IsInvalidArgument(ApplyYaml(yaml, "a.yaml", &config))) << depth;
    }
  }
}

TEST(ConfigFiles, ValuesThatAreMissingAreToldByTheirKey) {
  EXPECT_EQ(ErrorOf("node_name:\n"), "") << "a text may be empty";
  for (const char* name : {"lease_ms", "insecure_dev", "consistency"}) {
    const std::string error = ErrorOf(absl::StrCat("# one\n", name, ":\n"));
    EXPECT_THAT(error, HasSubstr(absl::StrCat("a.yaml:2: ", name, ": '' is not"))) << name;
  }
  for (const char* yaml : {"? [a]\n: b\n", "{a: b}: c\n", "lease_ms: {a: 1}\n", "lease_ms\n"}) {
    EXPECT_THAT(ErrorOf(yaml), HasSubstr("a.yaml:1: ")) << yaml;
  }
}

// What stands before a fault was taken, but a file that has one is refused: nobody goes on with it.
TEST(ConfigFiles, TheFirstFaultIsTheOneThatIsTold) {
  EXPECT_THAT(ErrorOf("lease_ms: 1\nlease_mss: 2\n"), HasSubstr("a.yaml:1: lease_ms"));
  EXPECT_THAT(ErrorOf("lease_ms: 900\nlease_mss: 2\ncontrol_port: x\n"), HasSubstr("a.yaml:2: "));
  EXPECT_THAT(ErrorOf("a b c: d\n\tlease_ms: 2\n"), HasSubstr("a.yaml:"));
}

TEST(ConfigFiles, LongNamesAndValuesAreCutInMessages) {
  const std::string name(3'000, 'n');
  EXPECT_LT(ErrorOf(absl::StrCat(name, ": 1\n")).size(), 200u);
  EXPECT_LT(ErrorOf(absl::StrCat("lease_ms: ", name, "\n")).size(), 200u);
  EXPECT_LT(ErrorOf(absl::StrCat("consistency: ", name, "\n")).size(), 200u);
}

// --- settings against each other -----------------------------------------------------------------

// Whatever is refused is named, so that people know what to change.
TEST(ConfigChecks, EachRefusalBeginsWithOrNamesItsKey) {
  struct Row {
    const char* key;
    void (*change)(Config& config);
  };
  for (const Row& row : {
           Row{"ring_bind", [](Config& c) { c.ring_bind = "10.0.0.256"; }},
           Row{"ring_bind", [](Config& c) { c.ring_bind = "10.0.0.1:80"; }},
           Row{"control_bind", [](Config& c) { c.control_bind = ""; }},
           Row{"gateway_bind", [](Config& c) { c.gateway_bind = "::1%lo0"; }},
           Row{"alert_webhook", [](Config& c) { c.alert_webhook = "hooks.example/x"; }},
           Row{"alert_webhook", [](Config& c) { c.alert_webhook = "https://a/\nx: y"; }},
           Row{"gateway_tls_certificate",
               [](Config& c) {
                 c.gateway_tls_certificate = "/c.pem";
                 c.gateway_tls_key = "/k.pem";
                 c.gateway_tls_authority = true;
               }},
           Row{"gateway_tls_authority",
               [](Config& c) {
                 c.gateway_tls_authority = true;
                 c.insecure_dev = true;
                 c.control_bind = "127.0.0.1";
               }},
           Row{"suspect_after_ms", [](Config& c) { c.heartbeat_interval_ms = 1500; }},
           Row{"dead_after_ms", [](Config& c) { c.suspect_after_ms = 3000; }},
           Row{"state_folder", [](Config& c) { c.state_folder = ""; }},
           Row{"state_folder", [](Config& c) { c.state_folder = "~/state"; }},
           Row{"insecure_dev",
               [](Config& c) {
                 c.insecure_dev = true;
                 c.control_bind = "::";
               }},
       }) {
    Config config = DefaultConfig().values;
    row.change(config);
    const absl::Status refused = CheckConfig(config);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << row.key;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(row.key));
  }
}

TEST(ConfigChecks, EveryAddressOfThisMachineIsLoopback) {
  for (const char* ip : {"127.0.0.1", "127.0.0.2", "127.255.255.254", "::1"}) {
    EXPECT_TRUE(IsLoopbackAddress(ip)) << ip;
    Config config = DefaultConfig().values;
    config.insecure_dev = true;
    config.control_bind = ip;
    EXPECT_TRUE(CheckConfig(config).ok()) << ip;
  }
  for (const char* ip : {"0.0.0.0", "128.0.0.1", "12.7.0.1", "::", "::2", "fe80::1", "1.127.0.0"}) {
    EXPECT_FALSE(IsLoopbackAddress(ip)) << ip;
  }
}

// A ratio is taken as it is written, or not at all: never as another one.
TEST(ConfigChecks, ATraceRatioIsReadWholeOrRefused) {
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    std::mt19937_64 random(seed);
    std::string text;
    for (uint64_t i = random() % 7; i > 0; --i) text += "0123456789.e-+x "[random() % 16];
    const std::optional<double> ratio = ParseTraceRatio(text);
    if (!ratio.has_value()) continue;
    EXPECT_EQ(text.find_first_not_of("0123456789."), std::string::npos) << text;
    EXPECT_LE(std::count(text.begin(), text.end(), '.'), 1) << text;
    EXPECT_EQ(*ratio, std::stod(text)) << text;
    EXPECT_GE(*ratio, 0);
    EXPECT_LE(*ratio, 1);
  }
}

}  // namespace
}  // namespace macrame::agentd
