// `rdma guide`, and errors that commands find themselves: what is said, what is next, and that a
// document is a document.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/exit_codes.h"
#include "macrame/v1/link.pb.h"
#include "tests/unit/cli/any_agent.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The links of a cluster as an agent tells them at its first answer and at later ones.
using Views = std::function<v1::LinksView(int answer)>;

class LinksAgent {
 public:
  explicit LinksAgent(Views views)
      : views_(std::move(views)), agent_([this](const std::string& method) {
          if (Has(method, "GetStatus")) {
            return AnyAnswer{{HealthyCluster().SerializeAsString()}, grpc::Status::OK};
          }
          if (Has(method, "GetLinks")) {
            return AnyAnswer{{views_(answers_++).SerializeAsString()}, grpc::Status::OK};
          }
          return AnyAnswer{{}, {grpc::StatusCode::UNIMPLEMENTED, ""}};
        }) {}
  CliRun Guide(std::vector<std::string> further) const {
    std::vector<std::string> words = {"rdma", "guide", "mini-1"};
    words.insert(words.end(), further.begin(), further.end());
    CliWorld world;
    world.variables["MACRAME_SOCKET"] = agent_.socket_path();
    return Clusterctl(words, world);
  }

 private:
  std::atomic<int> answers_{0};
  const Views views_;
  AnyAgent agent_;
};

// A Mac whose RDMA is off, and could be on.
v1::LinkFacts Mac(const std::string& hostname) {
  v1::LinkFacts facts;
  facts.set_hostname(hostname);
  facts.set_is_mac(v1::FACT_YES);
  facts.set_is_virtual_machine(v1::FACT_NO);
  facts.set_os_version("26.3");
  facts.set_rdma_enabled(v1::FACT_NO);
  facts.add_ports()->set_is_thunderbolt5(v1::FACT_YES);
  return facts;
}

v1::LinksView ViewOf(const std::vector<v1::LinkFacts>& facts) {
  v1::LinksView view;
  const v1::ClusterStatus cluster = HealthyCluster();
  for (size_t i = 0; i < facts.size(); ++i) {
    v1::NodeLinks& node = *view.add_nodes();
    node.set_node_id(cluster.nodes(static_cast<int>(i)).identity().node_id());
    *node.mutable_facts() = facts[i];
  }
  return view;
}

struct Walk {
  const char* why_not;  // empty: it is worth it
  std::function<void(v1::LinkFacts&)> change;
};

const Walk kWalks[] = {
    {"", [](v1::LinkFacts&) {}},
    {"it is not a Mac", [](v1::LinkFacts& facts) { facts.set_is_mac(v1::FACT_NO); }},
    {"it is a virtual machine",
     [](v1::LinkFacts& facts) { facts.set_is_virtual_machine(v1::FACT_YES); }},
    {"update to 26.2 or later",
     [](v1::LinkFacts& facts) {
       facts.set_rdma_ctl_missing(true);
       facts.set_os_version("26.1");
     }},
    {"older than Thunderbolt 5",
     [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO); }},
    // Its rdma_ctl changes nothing before the update; and no update changes a controller.
    {"update to 26.2 or later", [](v1::LinkFacts& facts) { facts.set_os_version("26.1"); }},
    {"older than Thunderbolt 5",
     [](v1::LinkFacts& facts) {
       facts.mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO);
       facts.set_rdma_ctl_missing(true);
       facts.set_os_version("15.7");
     }},
    {"older than Thunderbolt 5",
     [](v1::LinkFacts& facts) {
       facts.clear_ports();
       facts.set_kernel_refuses_rdma(v1::FACT_YES);
     }},
    {"RDMA is on already", [](v1::LinkFacts& facts) { facts.set_rdma_enabled(v1::FACT_YES); }},
    // One port of the newer kind is enough, and what nobody knows may be one.
    {"", [](v1::LinkFacts& facts) { facts.add_ports()->set_is_thunderbolt5(v1::FACT_NO); }},
    {"",
     [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_is_thunderbolt5(v1::FACT_UNKNOWN); }},
    {"", [](v1::LinkFacts& facts) { facts.clear_ports(); }},
    // A line of an earlier boot: the devices are there.
    {"",
     [](v1::LinkFacts& facts) {
       facts.set_kernel_refuses_rdma(v1::FACT_YES);
       facts.add_rdma_devices();
     }},
};

TEST(RdmaGuide, SendsNobodyToAMachineThatItCanNotHelp) {
  for (const Walk& walk : kWalks) {
    v1::LinkFacts facts = Mac("mini-1");
    walk.change(facts);
    const LinksAgent agent([&](int) { return ViewOf({facts, Mac("mini-2")}); });
    const CliRun run = agent.Guide({"--no-wait"});
    EXPECT_EQ(run.exit_code, kExitOk) << run.err;
    const bool is_worth_it = walk.why_not[0] == '\0';
    EXPECT_EQ(Has(run.out, "type: rdma_ctl enable"), is_worth_it) << run.out;
    EXPECT_EQ(Has(run.out, "Mind:"), is_worth_it) << "what it costs is said beside how";
    EXPECT_TRUE(Has(run.out, walk.why_not)) << run.out;
    EXPECT_TRUE(Has(run.out, "Macs that still need it:\n")) << run.out;
    EXPECT_TRUE(Has(run.out, "  mini-2\n")) << run.out;
    const json document = json::parse(agent.Guide({"--json"}).out);
    EXPECT_EQ(document["worth_it"], is_worth_it);
    EXPECT_TRUE(Has(document["why_not"], walk.why_not)) << document;
    EXPECT_EQ(document["node"], "mini-1");
  }
}

TEST(RdmaGuide, WaitsUntilItIsOnAndCountsWhatIsListed) {
  for (const int devices : {0, 3}) {
    v1::LinkFacts on = Mac("mini-1");
    on.set_rdma_enabled(v1::FACT_YES);
    for (int i = 0; i < devices; ++i) on.add_rdma_devices();
    const LinksAgent agent([&](int answer) {
      return ViewOf({answer == 0 ? Mac("mini-1") : on, Mac("mini-2")});
    });
    const CliRun run = agent.Guide({});
    EXPECT_TRUE(Has(run.err, "waiting for it to come back")) << run.err;
    EXPECT_TRUE(Has(run.out, "RDMA is on; " + std::to_string(devices) + " RDMA devices"))
        << run.out;
    EXPECT_EQ(run.exit_code, devices > 0 ? kExitOk : kExitFailure)
        << "on, and nothing to show for it";
  }
}

TEST(RdmaGuide, AMachineThatDoesNotComeBackIsToldWithWhatIsNext) {
  const LinksAgent agent([](int) { return ViewOf({Mac("mini-1")}); });
  const CliRun run = agent.Guide({"--timeout", "1ms"});
  EXPECT_EQ(run.exit_code, kExitTimedOut);
  EXPECT_TRUE(Has(run.err, "RDMA was not seen on within the time")) << run.err;
  EXPECT_TRUE(Has(run.err, "next:")) << run.err;
  EXPECT_TRUE(Has(run.err, "clusterctl doctor")) << run.err;
}

TEST(RdmaGuide, OfANodeThatToldNothingYetSaysWhichAndWhatIsNext) {
  const LinksAgent agent([](int) { return v1::LinksView(); });
  const CliRun run = agent.Guide({});
  EXPECT_EQ(run.exit_code, kExitConflict);
  EXPECT_TRUE(Has(run.err, "nothing is known of the ports of mini-1 yet")) << run.err;
  EXPECT_TRUE(Has(run.err, "next:")) << run.err;
  const json document = json::parse(agent.Guide({"-o", "json"}).err);
  EXPECT_TRUE(Has(document["error"]["message"], "mini-1")) << document;
  EXPECT_NE(document["error"]["node"], "");
}

TEST(RdmaGuide, ANameCannotSteerTheTerminal) {
  v1::LinkFacts facts = Mac("mini\x1b[2J");
  facts.set_os_version("26\x1b]0;x\x07");
  for (const bool is_missing : {false, true}) {
    facts.set_rdma_ctl_missing(is_missing);
    const LinksAgent agent([&](int) { return ViewOf({facts, facts}); });
    EXPECT_EQ(WhatSteers(agent.Guide({"--no-wait"}).out), "");
  }
}

// --- errors that need no agent -------------------------------------------------------------------

struct OwnError {
  std::vector<std::string> words;
  int exit_code;
  const char* said;
};

TEST(OwnErrors, AreDocumentsWhereDocumentsAreAskedForAndSayWhatIsNext) {
  const std::string nowhere = FreshFolder() + "/nowhere/at/all";
  const std::string folder = FreshFolder();
  const OwnError errors[] = {
      {{"validate", "hostfile", nowhere}, kExitNotFound, "can't read "},
      {{"validate", "hostfile", folder}, kExitNotFound, "can't read "},
      {{"doctor", "--explain", "NO_SUCH_CODE_AT_ALL"}, kExitNotFound, "NO_SUCH_CODE_AT_ALL"},
      {{"run", "tiny"}, kExitUsage, "no question"},
      {{"chat"}, kExitUsage, "no question"},
      {{"plan", "x", "--cluster", nowhere}, kExitUsage, "can't be read"},
  };
  for (const OwnError& error : errors) {
    CliWorld world;
    world.variables["MACRAME_SOCKET"] = "/nowhere/agentd.sock";
    const CliRun run = Clusterctl(error.words, world);
    const std::string line = error.words[0] + " " + error.words[1 % error.words.size()];
    EXPECT_EQ(run.exit_code, error.exit_code) << line << "\n" << run.err;
    EXPECT_TRUE(Has(run.err, error.said)) << line << "\n" << run.err;
    EXPECT_TRUE(Has(run.err, "error: ")) << line << "\n" << run.err;
    EXPECT_TRUE(Has(run.err, "next: ")) << line << "\n" << run.err;
    std::vector<std::string> as_json = error.words;
    as_json.insert(as_json.end(), {"-o", "json"});
    const CliRun document = Clusterctl(as_json, world);
    EXPECT_EQ(document.exit_code, run.exit_code) << line;
    EXPECT_EQ(document.out, "") << line;
    const json parsed = json::parse(document.err, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << line << "\n" << document.err;
    EXPECT_NE(parsed["error"]["message"], "") << line;
    EXPECT_NE(parsed["error"]["hint"], "") << line;
  }
}

TEST(OwnErrors, AReportThatCanNotBeWrittenIsSaidWithItsPath) {
  AnyAgent agent([](const std::string&) { return AnyAnswer{{""}, grpc::Status::OK}; });
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = agent.socket_path();
  const std::string path = FreshFolder() + "/nowhere/at/all/report.md";
  const CliRun run = Clusterctl({"doctor", "--report", path, "-o", "json"}, world);
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_EQ(run.out, "") << "no findings beside the error";
  const json parsed = json::parse(run.err, nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << run.err;
  EXPECT_TRUE(Has(parsed["error"]["message"], path)) << run.err;
}

// A bundle of an agent that answers nothing is one all the same.
TEST(DebugBundle, IsWrittenUnderAnyNameInThisFolder) {
  AnyAgent agent([](const std::string&) {
    return AnyAnswer{{}, {grpc::StatusCode::UNIMPLEMENTED, ""}};
  });
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = agent.socket_path();
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder = FreshFolder();
  std::filesystem::current_path(folder);
  for (const char* name : {"bundle.tar.gz", "at 10:30.tar.gz", "é.tar.gz"}) {
    const CliRun run = Clusterctl({"debug", "bundle", "--out", name}, world);
    EXPECT_EQ(run.exit_code, kExitPartial) << name << "\n" << run.err;
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name << "\n" << run.err;
    EXPECT_TRUE(Has(run.out, name)) << run.out;
    EXPECT_TRUE(Has(run.err, "status: ")) << "what is missing is named: " << run.err;
  }
  const CliRun refused = Clusterctl({"debug", "bundle", "--out", "no/such/b.tar.gz"}, world);
  EXPECT_NE(refused.exit_code, kExitOk);
  EXPECT_TRUE(Has(refused.err, "error: ")) << refused.err;
  std::filesystem::current_path(before);
}

TEST(OwnErrors, TooManyCasesOfABenchmarkAreRefusedBeforeAnythingIsAsked) {
  AnyAgent agent([](const std::string&) { return AnyAnswer{{""}, grpc::Status::OK}; });
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = agent.socket_path();
  const CliRun run = Clusterctl({"bench", "tiny", "--users", "1,2,3,4,5", "--prompt-tokens",
                                 "1,2,3,4,5", "--answer-tokens", "1,2,3,4,5"},
                                world);
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_TRUE(Has(run.err, "125 cases; at most 64")) << run.err;
  EXPECT_TRUE(agent.Called().empty());
}

}  // namespace
}  // namespace macrame::cli
