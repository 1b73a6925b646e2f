// clusterctl key and clusterctl audit, against a fake agent.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"

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

}  // namespace
}  // namespace macrame::cli
