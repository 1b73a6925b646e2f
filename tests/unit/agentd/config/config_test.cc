#include "agentd/config/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

namespace macrame::agentd {
namespace {

absl::Status Apply(const std::string& yaml, LoadedConfig* config) {
  return ApplyYaml(yaml, "a.yaml", config);
}

std::string ErrorOf(const std::string& yaml) {
  LoadedConfig config = DefaultConfig();
  const absl::Status status = Apply(yaml, &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
  return std::string(status.message());
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ConfigTest, KeysAreUniqueAndTheirDefaultsWithinBounds) {
  std::set<std::string_view> names;
  const Config defaults;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.text.empty());
    if (const auto* field = std::get_if<int64_t Config::*>(&key.field)) {
      EXPECT_GE(defaults.**field, key.min) << key.name;
      EXPECT_LE(defaults.**field, key.max) << key.name;
    }
  }
  EXPECT_TRUE(CheckConfig(DefaultConfig().values).ok());
}

TEST(ConfigTest, TextsAreShortAndBeginWithAVerbOrANoun) {
  const std::set<std::string_view> retired = {"What", "Of",  "Whether", "Where", "How",
                                              "Who",  "By",  "As",      "For",   "At",
                                              "A",    "The", "Most",    "Whose", "Which"};
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_LE(key.text.size(), 80u) << key.text;
    EXPECT_TRUE(key.text[0] >= 'A' && key.text[0] <= 'Z') << key.text;
    EXPECT_EQ(retired.count(key.text.substr(0, key.text.find(' '))), 0u) << key.text;
  }
}

TEST(ConfigTest, NamesOfFlagAndEnvironmentFollowTheKey) {
  const ConfigKey* key = FindConfigKey("heartbeat_interval_ms");
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(FlagName(*key), "--heartbeat-interval-ms");
  EXPECT_EQ(EnvironmentName(*key), "MACRAME_HEARTBEAT_INTERVAL_MS");
}

TEST(ConfigTest, AFileSetsValuesAndTheirOrigin) {
  LoadedConfig config = DefaultConfig();
  ASSERT_TRUE(Apply("# comment\nnode_name: ada\nlease_ms: 900\nmodel_folders: [/a, \"/b, c\"]\n"
                    "discovery_loopback: yes\n",
                    &config)
                  .ok());
  EXPECT_EQ(config.values.node_name, "ada");
  EXPECT_EQ(config.values.lease_ms, 900);
  EXPECT_EQ(config.values.model_folders, (std::vector<std::string>{"/a", "/b, c"}));
  EXPECT_TRUE(config.values.discovery_loopback);
  EXPECT_EQ(config.origins.at("lease_ms"), "file a.yaml:3");
  EXPECT_EQ(config.origins.at("gateway_port"), "default");
}

TEST(ConfigTest, LaterSourcesWin) {
  LoadedConfig config = DefaultConfig();
  ASSERT_TRUE(Apply("gateway_port: 1\ncontrol_port: 1\nlease_ms: 1000\n", &config).ok());
  ASSERT_TRUE(ApplyEnvironment(
                  [](const char* name) -> const char* {
                    if (std::string_view(name) == "MACRAME_GATEWAY_PORT") return "2";
                    if (std::string_view(name) == "MACRAME_CONTROL_PORT") return "2";
                    return nullptr;
                  },
                  &config)
                  .ok());
  ASSERT_TRUE(SetFromText(*FindConfigKey("control_port"), "3", "flag", &config).ok());
  EXPECT_EQ(config.values.lease_ms, 1000);
  EXPECT_EQ(config.values.gateway_port, 2);
  EXPECT_EQ(config.values.control_port, 3);
  EXPECT_EQ(config.origins.at("gateway_port"), "environment MACRAME_GATEWAY_PORT");
}

TEST(ConfigTest, AnUnknownKeyIsNamedWithItsLineAndTheNearestOne) {
  EXPECT_EQ(
      ErrorOf("node_name: a\nheartbeat_intervall_ms: 5\n"),
      "a.yaml:2: unknown key 'heartbeat_intervall_ms'; did you mean 'heartbeat_interval_ms'?");
  EXPECT_TRUE(Holds(ErrorOf("Gateway-Port: 5\n"), "did you mean 'gateway_port'?"));
  EXPECT_FALSE(Holds(ErrorOf("zzzzzzzzzzzzzzz: 5\n"), "did you mean"));
}

TEST(ConfigTest, WrongValuesNameTheBounds) {
  EXPECT_EQ(ErrorOf("gateway_port: 70000\n"),
            "a.yaml:1: gateway_port: '70000' is not a whole number from 0 to 65535");
  EXPECT_TRUE(Holds(ErrorOf("gateway_port: 80.5\n"), "whole number"));
  EXPECT_TRUE(Holds(ErrorOf("gateway_port: [1]\n"), "single value"));
  EXPECT_TRUE(Holds(ErrorOf("insecure_dev: perhaps\n"), "true or false"));
  EXPECT_TRUE(Holds(ErrorOf("consistency: strong\n"), "one of available, quorum"));
  EXPECT_TRUE(Holds(ErrorOf("model_folders: [[a]]\n"), "list of texts"));
  EXPECT_TRUE(
      Holds(ErrorOf("lease_ms: 1000\nlease_ms: 2000\n"), "a.yaml:2: lease_ms is given twice"));
}

TEST(ConfigTest, WhatIsNoConfigIsRefused) {
  EXPECT_TRUE(Holds(ErrorOf("- a\n- b\n"), "'key: value' lines"));
  EXPECT_TRUE(Holds(ErrorOf("a: [\n"), "a.yaml:"));
  EXPECT_TRUE(Holds(ErrorOf("a: {b: c\n"), "a.yaml:"));
  EXPECT_TRUE(Holds(ErrorOf(std::string(40, '[')), "nested too deeply"));
  std::string dashes;
  for (int i = 0; i < 2000; ++i) dashes += "- ";
  EXPECT_TRUE(Holds(ErrorOf(dashes), "nested too deeply"));
  EXPECT_TRUE(Holds(ErrorOf(std::string(kConfigFileBytesMax + 1, '#')), "bytes"));
  LoadedConfig config = DefaultConfig();
  EXPECT_TRUE(Apply("", &config).ok());
}

TEST(ConfigTest, WhatIsPrintedIsReadBackTheSame) {
  LoadedConfig config = DefaultConfig();
  config.values.node_name = "a \"quoted\" \\ name\nwith: #odd things\t\x01 é";
  config.values.model_folders = {"/with space", "/with,comma", "- dash", "~/x"};
  config.values.discovery_seeds = {};
  config.values.lease_ms = 1234;
  config.values.insecure_dev = true;
  const std::string printed = PrintConfig(config);
  LoadedConfig again = DefaultConfig();
  const absl::Status read = Apply(printed, &again);
  ASSERT_TRUE(read.ok()) << read << "\n" << printed;
  EXPECT_EQ(again.values.node_name, config.values.node_name);
  EXPECT_EQ(again.values.model_folders, config.values.model_folders);
  EXPECT_EQ(again.values.discovery_seeds, config.values.discovery_seeds);
  again.origins = config.origins;
  EXPECT_EQ(PrintConfig(again), printed);
}

TEST(ConfigTest, SettingsThatContradictEachOtherAreRefused) {
  const auto check = [](auto&& change) {
    Config config = DefaultConfig().values;
    change(config);
    return std::string(CheckConfig(config).message());
  };
  EXPECT_TRUE(Holds(check([](Config& c) { c.suspect_after_ms = 400; }), "suspect_after_ms"));
  EXPECT_TRUE(Holds(check([](Config& c) { c.dead_after_ms = 1500; }), "dead_after_ms"));
  EXPECT_TRUE(Holds(check([](Config& c) { c.insecure_dev = true; }), "loopback"));
  EXPECT_TRUE(Holds(check([](Config& c) { c.control_bind = "localhost"; }), "IP address"));
  EXPECT_TRUE(Holds(check([](Config& c) { c.socket_path = "/" + std::string(120, 'x'); }), "103"));
  EXPECT_TRUE(Holds(check([](Config& c) { c.state_folder = "state"; }), "absolute"));
  for (const char* beyond : {"0.0.0.0", "192.0.2.7", "::"}) {
    EXPECT_EQ(check([&](Config& c) { c.gateway_bind = beyond; }), "")
        << "other machines need a key, which is asked for with each request";
  }
  EXPECT_TRUE(Holds(check([](Config& c) { c.gateway_bind = ""; }), "gateway_bind"));
  EXPECT_EQ(check([](Config& c) {
              c.gateway_bind = "";
              c.gateway_enabled = false;
            }),
            "");
  EXPECT_TRUE(Holds(check([](Config& c) {
                      c.gateway_open = true;
                      c.gateway_keys = "required";
                    }),
                    "set one of them"));
  EXPECT_EQ(check([](Config& c) { c.gateway_bind = "127.0.0.5"; }), "");
  for (const char* origin :
       {"*", "https://chat.example", "http://localhost:3000", "http://[::1]:3000"}) {
    EXPECT_EQ(check([&](Config& c) { c.gateway_cors_origins = {origin}; }), "") << origin;
  }
  for (const char* origin : {"", "chat.example", "https://", "https://chat.example/",
                             "ftp://chat.example", "https://a b", "https://a\r\nx: y"}) {
    EXPECT_TRUE(
        Holds(check([&](Config& c) { c.gateway_cors_origins = {origin}; }), "gateway_cors_origins"))
        << origin;
  }
  EXPECT_TRUE(Holds(check([](Config& c) { c.gateway_tls_key = "/k.pem"; }), "together"));
  for (const char* url : {"", "http://127.0.0.1:4318", "https://collector.example/otlp/"}) {
    EXPECT_EQ(check([&](Config& c) { c.otlp_endpoint = url; }), "") << url;
  }
  for (const char* url : {"127.0.0.1:4318", "grpc://a:4317", "http://a/?b=c", "http://u@a"}) {
    EXPECT_TRUE(Holds(check([&](Config& c) { c.otlp_endpoint = url; }), "otlp_endpoint")) << url;
  }
  for (const char* ratio : {"0", "1", "1.0", "0.05", ".5"}) {
    EXPECT_EQ(check([&](Config& c) { c.trace_ratio = ratio; }), "") << ratio;
  }
  for (const char* ratio : {"", ".", "-0.1", "1.01", "nan", "0x1", "1e-3", "half"}) {
    EXPECT_TRUE(Holds(check([&](Config& c) { c.trace_ratio = ratio; }), "trace_ratio")) << ratio;
  }
  for (const char* alias : {"gpt-4o=tiny", "claude-*=tiny", "*=tiny", "a=b=c"}) {
    EXPECT_EQ(check([&](Config& c) { c.gateway_aliases = {alias}; }), "") << alias;
  }
  for (const char* alias : {"", "tiny", "=tiny", "gpt-4o=", "a*b=tiny", "a=tiny*", "a**=tiny"}) {
    EXPECT_TRUE(Holds(check([&](Config& c) { c.gateway_aliases = {alias}; }), "gateway_aliases"))
        << alias;
  }
  EXPECT_EQ(check([](Config& c) {
              c.insecure_dev = true;
              c.control_bind = "127.0.0.1";
            }),
            "");
}

TEST(ConfigTest, DamagedFilesNeverCrash) {
  const std::string whole = PrintConfig(DefaultConfig());
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text = whole;
    for (int change = 0; change < 4; ++change) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    text.resize(random() % (text.size() + 1));
    LoadedConfig config = DefaultConfig();
    Apply(text, &config).IgnoreError();
  }
}

TEST(ConfigTest, RetentionIsBounded) {
  LoadedConfig config = DefaultConfig();
  EXPECT_EQ(config.values.response_retention_h, 0);
  EXPECT_EQ(config.values.kv_cache_disk_hours, 0);
  ASSERT_TRUE(Apply("response_retention_h: 24\nkv_cache_disk_hours: 720\n", &config).ok());
  EXPECT_EQ(config.values.response_retention_h, 24);
  EXPECT_EQ(config.values.kv_cache_disk_hours, 720);
  EXPECT_TRUE(Holds(ErrorOf("response_retention_h: -1\n"), "response_retention_h"));
  EXPECT_TRUE(Holds(ErrorOf("response_retention_h: 87601\n"), "87600"));
  EXPECT_TRUE(Holds(ErrorOf("kv_cache_disk_hours: -1\n"), "kv_cache_disk_hours"));
  EXPECT_TRUE(Holds(ErrorOf("kv_cache_disk_hours: 87601\n"), "87600"));
}

}  // namespace
}  // namespace macrame::agentd
