#include "agentd/services/alert_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// An alert service beside each agent, as it would be with a webhook; what is posted is noted.
class AlertServiceTest : public sim::AskedAgents {
 protected:
  void BeginWithAlerts(int nodes) {
    Begin(nodes);
    for (int at = 0; at < nodes; ++at) Watch(at);
  }
  void Watch(int at) {
    AgentParts& agent = parts(at);
    services_[at] = std::make_unique<AlertService>(
        AlertService::Parts{agent.dispatcher, agent.election, agent.reporter, agent.self,
                            [this, at] { return own_[at]; }},
        url_, [this, at](std::string text, const auto& done) {
          posted_[at].push_back(json::parse(text));
          done(delivery_);
        });
  }
  void Crash(int at) {
    services_.erase(at);
    sim().Crash(at);
  }
  // Ticks as the agents do.
  void Pass(int ms) {
    for (int passed = 0; passed < ms; passed += 100) {
      sim().RunFor(100);
      for (const auto& [at, service] : services_) service->Tick();
    }
  }
  // Of this kind and state, over all agents.
  int CountOf(std::string_view code, const std::string& state) const {
    int count = 0;
    for (const auto& [at, messages] : posted_) {
      for (const json& message : messages) {
        count += message["code"] == code && message["state"] == state;
      }
    }
    return count;
  }

  std::map<int, std::unique_ptr<AlertService>> services_;
  std::map<int, std::vector<json>> posted_;
  std::map<int, std::vector<v1::Reason>> own_;
  absl::Status delivery_ = absl::OkStatus();
  std::string url_ = "https://hooks.example.com/T0/secret";
};

TEST_F(AlertServiceTest, ADeadNodeIsToldOnceByTheCoordinatorAloneAndItsReturnOnce) {
  BeginWithAlerts(3);
  const int dead = Follower();
  const std::string name = absl::StrCat("node-", sim::Letter(id(dead)));
  Crash(dead);
  Pass(40'000);
  ASSERT_EQ(CountOf(reasons::kNodeDead, "raised"), 1);
  EXPECT_THAT(posted_[Leader()], SizeIs(1)) << json(posted_[Leader()]).dump();
  const json& told = posted_[Leader()].front();
  EXPECT_EQ(told["node"], name);
  EXPECT_EQ(told["node_id"], id(dead).value());
  EXPECT_THAT(told["text"].get<std::string>(), HasSubstr("Next: "));
  sim().Start(dead);
  Pass(60'000);
  EXPECT_EQ(CountOf(reasons::kNodeDead, "over"), 1);
  EXPECT_EQ(CountOf(reasons::kNodeDead, "raised"), 1);
}

// What it had to tell may have gone with it.
TEST_F(AlertServiceTest, TheNextCoordinatorTellsWhatIsThereStill) {
  BeginWithAlerts(4);
  Crash(Follower());
  Pass(20'000);
  ASSERT_EQ(CountOf(reasons::kNodeDead, "raised"), 1);
  const int first = Leader();
  const NodeId gone = id(first);
  Crash(first);
  Pass(30'000);
  ASSERT_NE(Leader(), -1);
  EXPECT_THAT(posted_[Leader()], SizeIs(2)) << "the one from before, and the coordinator itself";
  EXPECT_EQ(CountOf(reasons::kNodeDead, "raised"), 3);
}

TEST_F(AlertServiceTest, AHealthyClusterIsQuiet) {
  BeginWithAlerts(3);
  Pass(60'000);
  for (const auto& [at, messages] : posted_) EXPECT_THAT(messages, IsEmpty()) << at;
}

TEST_F(AlertServiceTest, WhereNobodyLeadsWhoeverSeesItTells) {
  Begin(3, [](auto& options) { options.consistency = Consistency::kQuorum; });
  const int left = Follower();
  Watch(left);
  for (int other = 0; other < 3; ++other) {
    if (other != left) sim().Crash(other);
  }
  Pass(30'000);
  EXPECT_EQ(CountOf(reasons::kMinority, "raised"), 1);
  EXPECT_EQ(CountOf(reasons::kNodeDead, "raised"), 2);
}

// Its disk, its own port: no other node sees that.
TEST_F(AlertServiceTest, AFollowerTellsWhatItAloneSees) {
  BeginWithAlerts(3);
  const int at = Follower();
  sim().FillDisk(at, true);
  Pass(2000);
  own_[at] = parts(at).reporter.Problems();
  Pass(20'000);
  for (const json& message : posted_[at]) {
    EXPECT_EQ(message["node_id"], id(at).value()) << message.dump();
  }
  sim().FillDisk(at, false);
  Pass(3000);
}

TEST_F(AlertServiceTest, WhatCantBeDeliveredIsAProblemWithoutTheSecretOfItsUrl) {
  BeginWithAlerts(2);
  const int at = Leader();
  EXPECT_EQ(services_[at]->trouble().code(), "");
  delivery_ = absl::UnavailableError("connection refused");
  Crash(Follower());
  Pass(25'000);
  const v1::Reason trouble = services_[at]->trouble();
  EXPECT_EQ(trouble.code(), reasons::kAlertUndelivered);
  EXPECT_THAT(trouble.message(), HasSubstr("https://hooks.example.com: connection refused"));
  EXPECT_THAT(trouble.ShortDebugString(), Not(HasSubstr("secret")));
  EXPECT_THAT(trouble.remedy(), HasSubstr("alert_webhook"));
  delivery_ = absl::OkStatus();
  sim().StartAll();
  Pass(60'000);
  EXPECT_EQ(services_[at]->trouble().code(), "") << "the next one came through";
}

TEST_F(AlertServiceTest, AQueryRightBehindTheHostIsSecretToo) {
  url_ = "https://hooks.example.com:8443?token=secret/x";
  BeginWithAlerts(2);
  delivery_ = absl::UnavailableError("connection refused");
  const int at = Leader();
  Crash(Follower());
  Pass(25'000);
  const v1::Reason trouble = services_[at]->trouble();
  EXPECT_THAT(trouble.message(), HasSubstr("https://hooks.example.com:8443: connection refused"));
  EXPECT_THAT(trouble.ShortDebugString(), Not(HasSubstr("token")));
  EXPECT_THAT(trouble.ShortDebugString(), Not(HasSubstr("secret")));
}

TEST_F(AlertServiceTest, WithoutAWebhookNobodyLooks) {
  Begin(2);
  AgentParts& agent = parts(Leader());
  AlertService service({agent.dispatcher, agent.election, agent.reporter, agent.self, nullptr}, "",
                       nullptr);
  sim().Crash(Follower());
  for (int ms = 0; ms < 20'000; ms += 1000) {
    sim().RunFor(1000);
    service.Tick();
  }
  EXPECT_EQ(service.trouble().code(), "");
}

// --- what is posted ------------------------------------------------------------------------------

Alert AlertOf(bool is_over, const std::string& message) {
  Alert alert;
  alert.is_over = is_over;
  alert.reason = MakeReason(reasons::kNodeDead, message, std::string(32, 'a'));
  alert.since_unix_ms = 1'790'000'000'000;
  return alert;
}

TEST(AlertJson, ProgramsFindItsPartsAndPeopleALine) {
  const json told =
      json::parse(AlertJson(AlertOf(false, "b is dead"), "home", "b", 1'790'000'060'000));
  EXPECT_EQ(told["text"], absl::StrCat("[home] b is dead (", reasons::kNodeDead,
                                       "). Next: start agentd on it again"));
  EXPECT_EQ(told["content"], told["text"]);
  EXPECT_EQ(told["state"], "raised");
  EXPECT_EQ(told["cluster"], "home");
  EXPECT_EQ(told["code"], reasons::kNodeDead);
  EXPECT_EQ(told["message"], "b is dead");
  EXPECT_EQ(told["node"], "b");
  EXPECT_EQ(told["node_id"], std::string(32, 'a'));
  EXPECT_EQ(told["since"], "2026-09-21T14:13:20Z");
  EXPECT_EQ(told["at"], "2026-09-21T14:14:20Z");
}

TEST(AlertJson, WhatIsOverNeedsNothingDone) {
  const json told = json::parse(AlertJson(AlertOf(true, "b is dead"), "", "", 0));
  EXPECT_EQ(told["text"], absl::StrCat("Over: b is dead (", reasons::kNodeDead, ")"));
  EXPECT_EQ(told["state"], "over");
}

// Names of machines and models come from outside.
TEST(AlertJson, WhateverANameHoldsItIsJson) {
  for (const std::string& name :
       {std::string("a\"b\\c\n\t"), std::string("\xff\xfe"), std::string("a\0b", 3)}) {
    const std::string text = AlertJson(AlertOf(false, name), name, name, 0);
    EXPECT_TRUE(json::accept(text)) << text;
  }
}

}  // namespace
}  // namespace macrame::agentd
