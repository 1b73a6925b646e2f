// clusterctl key and clusterctl audit, against a fake agent.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/duration.h"
#include "cli/exit_codes.h"
#include "proto/reasons.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

class AccessCommandsTest : public ::testing::Test {
 protected:
  CliRun Run(std::vector<std::string> arguments) {
    CliWorld world;
    world.variables["MACRAME_SOCKET"] = agent_.socket_path();
    return Clusterctl(arguments, world);
  }
  FakeAgent agent_;
};

TEST_F(AccessCommandsTest, ATenantsLimitsAreSetListedAndCleared) {
  EXPECT_NE(Run({"tenant", "list"}).out.find("No tenant has limits"), std::string::npos);
  const CliRun set = Run({"tenant", "set", "law", "--limit", "60", "--tokens-per-minute", "0"});
  EXPECT_EQ(set.exit_code, kExitOk) << set.err;
  EXPECT_EQ(set.out, "tenant law: 60 requests/min\n");
  const v1::SetTenantRequest& sent = agent_.access.last_tenant;
  EXPECT_TRUE(sent.has_tokens_per_minute()) << "0 takes a limit away";
  EXPECT_FALSE(sent.has_concurrent_requests()) << "what is not named stays";
  EXPECT_FALSE(sent.clear());
  EXPECT_EQ(Run({"tenant", "clear", "law"}).out, "tenant law: none\n");
  EXPECT_TRUE(agent_.access.last_tenant.clear());
  v1::TenantLimits& tenant = *agent_.access.tenants.add_tenants();
  tenant.set_name("law");
  tenant.set_concurrent_requests(4);
  EXPECT_NE(Run({"tenant", "list"}).out.find("4 at once"), std::string::npos);
  EXPECT_EQ(json::parse(Run({"tenant", "list", "--json"}).out)["tenants"][0]["name"], "law");
  EXPECT_EQ(Run({"tenant", "set", "law"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"tenant", "set", "law", "--limit", "-1"}).exit_code, kExitUsage);
}

TEST_F(AccessCommandsTest, CreatePrintsTheKeyAloneOnStdout) {
  const CliRun run = Run({"key",
                          "create",
                          "--name",
                          "app",
                          "--scope",
                          "infer,read",
                          "--expires",
                          "30d",
                          "--limit",
                          "60",
                          "--tokens-per-minute",
                          "1000",
                          "--concurrent",
                          "4",
                          "--model",
                          "a",
                          "--model",
                          "b",
                          "--tenant",
                          "law"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(run.out, "mk-0123456789ab-secret\n");
  EXPECT_NE(run.err.find("shown once"), std::string::npos);
  const v1::ApiKey& key = agent_.access.last_created;
  EXPECT_EQ(key.scopes_size(), 2);
  EXPECT_EQ(key.models_size(), 2);
  EXPECT_EQ(key.requests_per_minute(), 60u);
  EXPECT_EQ(key.tokens_per_minute(), 1000u);
  EXPECT_EQ(key.concurrent_requests(), 4u);
  EXPECT_EQ(key.tenant(), "law");
  EXPECT_GT(key.expires_unix_ms(), 29ull * 86'400'000);
  EXPECT_EQ(Run({"-q", "key", "create"}).err, "");
  EXPECT_EQ(agent_.access.last_created.scopes(0), "infer");
  EXPECT_EQ(agent_.access.last_created.expires_unix_ms(), 0u);
}

TEST_F(AccessCommandsTest, AnAccessFileIsWrittenForItsOwnerAlone) {
  const std::string folder = FreshFolder();
  const std::string path = folder + "/new/laptop.access";
  const CliRun run = Run({"key", "create", "--name", "laptop", "--access-file", path});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("scopes infer, operate"), std::string::npos) << run.out;
  EXPECT_EQ((run.out + run.err).find("the private key"), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const v1::ApiKey& key = agent_.access.last_created;
  const uint64_t days = (key.expires_unix_ms() - NowUnixMs() + 3'600'000) / 86'400'000;
  EXPECT_EQ(days, 90u);
  // What is there stays, and nothing is made for it.
  agent_.access.last_created.Clear();
  const CliRun again = Run({"key", "create", "--access-file", path});
  EXPECT_NE(again.exit_code, kExitOk);
  EXPECT_NE(again.err.find("is there already"), std::string::npos) << again.err;
  EXPECT_EQ(agent_.access.last_created.scopes_size(), 0);
  // A key whose file can't be written is ended.
  std::ofstream(folder + "/file") << "no folder";
  const CliRun unwritten = Run({"key", "create", "--access-file", folder + "/file/x.access"});
  EXPECT_NE(unwritten.exit_code, kExitOk);
  EXPECT_EQ(agent_.access.last_revoked, "0123456789ab");
  EXPECT_EQ(Run({"key", "create", "--access-file", folder + "/y", "--tenant", "law"}).exit_code,
            kExitUsage);
  const json document = json::parse(
      Run({"key", "create", "--scope", "admin", "--access-file", folder + "/z", "--json"}).out);
  EXPECT_EQ(document["scopes"][0], "admin");
}

// Which agent is asked: flags, variables, and what is there.
TEST_F(AccessCommandsTest, OneAgentIsMeant) {
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = agent_.socket_path();
  EXPECT_EQ(Clusterctl({"key", "list"}, world).exit_code, kExitOk);
  const CliRun both =
      Clusterctl({"key", "list", "--socket", agent_.socket_path(), "--access", "/x"}, world);
  EXPECT_EQ(both.exit_code, kExitUsage);
  EXPECT_NE(both.err.find("--access"), std::string::npos) << both.err;
  const CliRun missing = Clusterctl({"key", "list", "--access", "/nowhere/x.access"}, world);
  EXPECT_NE(missing.exit_code, kExitOk);
  EXPECT_NE(missing.err.find("no access file at /nowhere/x.access"), std::string::npos)
      << missing.err;
  world.variables["MACRAME_ACCESS"] = "/elsewhere/x.access";
  EXPECT_NE(Clusterctl({"key", "list"}, world).err.find("/elsewhere/x.access"), std::string::npos)
      << "the variable names another cluster than this machine's";
  EXPECT_EQ(Clusterctl({"key", "list", "--socket", agent_.socket_path()}, world).exit_code, kExitOk)
      << "a flag comes first";
  EXPECT_NE(
      Clusterctl({"version", "--access", "/nowhere/x.access", "--host", "ada"}).out.find("ada"),
      std::string::npos);
}

TEST_F(AccessCommandsTest, WrongFlagsDoNothing) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"key", "create", "--expires", "soon"},
        {"key", "create", "--limit", "0"},
        {"key", "create", "--scope", ""},
        {"key", "create", "--limits", "5"},
        {"key", "revoke"},
        {"key"},
        {"audit", "show", "--since", "ever"},
        {"audit", "show", "--limit", "100000"},
        {"audit"}}) {
    EXPECT_EQ(Run(wrong).exit_code, kExitUsage) << wrong.back();
  }
  EXPECT_EQ(agent_.access.last_created.scopes_size(), 0);
}

TEST_F(AccessCommandsTest, ListShowsStateAndLimitsAndNoControlCharacters) {
  const CliRun run = Run({"key", "list"});
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_NE(run.out.find("60 requests/min"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("revoked"), std::string::npos);
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  const json document = json::parse(Run({"key", "list", "-o", "json"}).out);
  EXPECT_EQ(document["kind"], "KeyList");
  EXPECT_EQ(document["keys"].size(), 2u);
  EXPECT_NE(Run({"key", "revoke", "laptop"}).out.find("Revoked"), std::string::npos);
}

TEST_F(AccessCommandsTest, ListShowsWhatKeysTookWhereTheAgentKnowsIt) {
  EXPECT_EQ(Run({"key", "list"}).out.find("ENERGY"), std::string::npos);
  v1::KeyEnergy& key = *agent_.access.energy.emplace().add_keys();
  key.set_key_id("0123456789ab");
  key.set_joules(7200);
  EXPECT_NE(Run({"key", "list"}).out.find("2.0 Wh"), std::string::npos);
  const json document = json::parse(Run({"key", "list", "-o", "json"}).out);
  EXPECT_EQ(document["energy"]["keys"][0]["joules"], 7200);
}

TEST_F(AccessCommandsTest, AuditIsShownExportedAndVerified) {
  EXPECT_NE(Run({"audit", "show", "--limit", "5"}).out.find("LoadModel"), std::string::npos);
  EXPECT_EQ(agent_.access.last_read.limit(), 5u);
  EXPECT_EQ(json::parse(Run({"audit", "show", "-o", "json"}).out)["items"].size(), 1u);
  EXPECT_EQ(Run({"audit", "export"}).out,
            "{\"seq\":1,\"what\":\"LoadModel\",\"outcome\":\"ok\"}\n"
            "{\"seq\":2,\"what\":\"UnloadModel\",\"outcome\":\"ok\"}\n");
  EXPECT_EQ(Run({"audit", "verify"}).exit_code, kExitOk);
  agent_.access.broken = true;
  const CliRun broken = Run({"audit", "verify"});
  EXPECT_EQ(broken.exit_code, kExitFailure);
  EXPECT_NE(broken.out.find("audit.log:8"), std::string::npos);
}

TEST_F(AccessCommandsTest, NobodyAtTheSocketIsItsOwnExitCode) {
  for (const char* command : {"key", "audit"}) {
    const std::string last = std::string(command) == "key" ? "list" : "show";
    EXPECT_EQ(Clusterctl({command, last, "--socket", "/nowhere/a.sock"}).exit_code,
              kExitUnreachable);
  }
}

TEST_F(AccessCommandsTest, ATenantsRetentionIsSetAndShown) {
  const CliRun set = Run({"tenant", "set", "law", "--retention", "24h", "--memory-only", "on"});
  EXPECT_EQ(set.exit_code, kExitOk) << set.err;
  EXPECT_EQ(set.out, "tenant law: answers kept 24h, memory only\n");
  EXPECT_EQ(agent_.access.last_tenant.retention_s(), 86'400u);
  EXPECT_TRUE(agent_.access.last_tenant.memory_only());
  EXPECT_FALSE(agent_.access.last_tenant.has_requests_per_minute());
  EXPECT_EQ(Run({"tenant", "set", "law", "--retention", "0"}).out,
            "tenant law: no answers stored\n");
  EXPECT_TRUE(agent_.access.last_tenant.has_retention_s());
  EXPECT_FALSE(agent_.access.last_tenant.has_memory_only()) << "what is not named stays";
  EXPECT_EQ(Run({"tenant", "set", "law", "--retention", "off", "--memory-only", "off"}).out,
            "tenant law: none\n");
  EXPECT_FALSE(agent_.access.last_tenant.has_retention_s());
  EXPECT_TRUE(agent_.access.last_tenant.clear_retention());
  EXPECT_TRUE(agent_.access.last_tenant.has_memory_only());
  EXPECT_EQ(Run({"tenant", "set", "law", "--limit", "5"}).exit_code, kExitOk);
  EXPECT_FALSE(agent_.access.last_tenant.clear_retention());
  for (const char* length : {"soon", "-1", "500ms", "0h", "11000d"}) {
    EXPECT_EQ(Run({"tenant", "set", "law", "--retention", length}).exit_code, kExitUsage) << length;
  }
  EXPECT_EQ(Run({"tenant", "set", "law", "--memory-only", "maybe"}).exit_code, kExitUsage);
  v1::TenantLimits& tenant = *agent_.access.tenants.add_tenants();
  tenant.set_name("law");
  tenant.set_retention_s(30 * 86'400);
  EXPECT_NE(Run({"tenant", "list"}).out.find("answers kept 30d"), std::string::npos);
}

TEST_F(AccessCommandsTest, AnErasureTellsWhatEachNodeDroppedAndWhoWasNotAsked) {
  v1::ErasedAnswers& ada = *agent_.access.erased.add_nodes();
  ada.set_node_id("a1");
  ada.set_hostname("ada");
  ada.set_answers(3);
  ada.set_bytes(2048);
  const CliRun all = Run({"tenant", "erase", "law"});
  EXPECT_EQ(all.exit_code, kExitOk) << all.err;
  EXPECT_NE(all.out.find("tenant law: 3 stored answers dropped at 1 node\n"), std::string::npos)
      << all.out;
  v1::ErasedAnswers& bob = *agent_.access.erased.add_nodes();
  bob.set_node_id("b2");
  bob.set_hostname("bob");
  *bob.mutable_failure() = MakeReason(reasons::kNodeDead, "node b2 is not heard of");
  const CliRun partial = Run({"tenant", "erase", "law"});
  EXPECT_EQ(partial.exit_code, kExitPartial);
  EXPECT_NE(partial.out.find("1 node was not asked"), std::string::npos) << partial.out;
  EXPECT_NE(partial.out.find("not heard of"), std::string::npos) << partial.out;
  EXPECT_NE(partial.out.find("Not reached"), std::string::npos) << partial.out;
  const CliRun as_json = Run({"tenant", "erase", "law", "--json"});
  EXPECT_EQ(as_json.exit_code, kExitPartial);
  const json told = json::parse(as_json.out);
  EXPECT_EQ(told["nodes"][0]["answers"], 3);
  EXPECT_EQ(told["nodes"][1]["failure"]["code"], "NODE_DEAD");
  EXPECT_EQ(Run({"tenant", "erase"}).exit_code, kExitUsage);
}

}  // namespace
}  // namespace macrame::cli
