// What an access file's clusterctl is told of models that were loaded for a tenant: nothing, as of
// what does not exist, on whichever node it asks.

#include "agentd/services/caller_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agentd/cores/state_keys.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kInfer[] = "0000000000a1";
constexpr char kReader[] = "0000000000a2";
constexpr char kOperator[] = "0000000000a3";
constexpr char kAdmin[] = "0000000000a4";

class CallerViewTest : public sim::AskedAgents {
 protected:
  // "law-chat", two replicas of m1, is the tenant law's; m0 is everybody's. Both have a profile.
  void BeginWithTenant() {
    Begin(3);
    WriteKey(kInfer, "infer");
    WriteKey(kReader, "read");
    WriteKey(kOperator, "operate");
    WriteKey(kAdmin, "admin");
    LoadAndWait("m0");
    LoadForLaw();
    Profile("law-chat", "law-best");
    Profile("m0", "open-best");
    sim().RunFor(1000);
  }
  void WriteKey(const std::string& id, const std::string& scope) {
    v1::ApiKey key;
    key.set_id(id);
    key.add_scopes(scope);
    key.set_has_access_file(true);
    parts(Leader()).replicator.Write(absl::StrCat(kApiKeyPrefix, id), key.SerializeAsString(),
                                     [](const absl::Status&) {});
  }
  void LoadForLaw() {
    v1::LoadModelRequest request;
    request.set_name_or_path("m1");
    request.set_deployment_name("law-chat");
    request.set_replicas(2);
    request.set_timeout_ms(20'000);
    request.mutable_placement()->set_world_size(1);
    request.mutable_placement()->set_tenant("law");
    const auto loaded = Wait(Start(Leader(), kLoadModel, request));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
  }
  void Profile(const std::string& model, const std::string& alias) {
    v1::ChangeProfileRequest request;
    request.mutable_set()->set_model(model);
    request.mutable_set()->add_aliases(alias);
    const auto changed = Ask(Leader(), kChangeProfile, request);
    ASSERT_TRUE(changed.ok()) << changed.status();
  }
  static transport::Caller WithFile(const std::string& key) {
    return {NodeId(), /*local=*/false, "10.0.0.99", key};
  }
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  absl::StatusOr<Message> AskWith(const std::string& key, int at, const Rpc<Request, Message>& rpc,
                                  const std::type_identity_t<Request>& request) {
    return Wait(StartAs(WithFile(key), at, rpc, request));
  }
  absl::Status Infer(const std::string& key, int at, const std::string& model) {
    v1::GenerateRequest request;
    request.set_deployment(model);
    request.set_prompt("hi");
    request.set_max_tokens(2);
    return AskWith(key, at, macrame::agentd::kInfer, request).status();
  }
  // All that may be read, as one text.
  std::string AllThatIsRead(const std::string& key, int at) {
    std::string all;
    const auto add = [&](const auto& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (answer.ok()) absl::StrAppend(&all, answer->DebugString(), "\n");
    };
    add(AskWith(key, at, kGetStatus, {}));
    add(AskWith(key, at, kListModels, {}));
    add(AskWith(key, at, kListEvents, {}));
    add(AskWith(key, at, kListProfiles, {}));
    add(AskWith(key, at, kGetLinks, {}));
    add(AskWith(key, at, kDiagnose, {}));
    for (const char* format : {"prometheus", "openmetrics", "json"}) {
      v1::GetMetricsRequest request;
      request.set_format(format);
      add(AskWith(key, at, kGetMetrics, request));
    }
    const auto watched = StartAs(WithFile(key), at, kWatchStatus, v1::WatchStatusRequest());
    sim().RunFor(1500);
    EXPECT_FALSE(watched->messages.empty());
    for (const auto& message : watched->messages) absl::StrAppend(&all, message.DebugString());
    return all;
  }
};

TEST_F(CallerViewTest, AnotherTenantsModelIsAskedForAsOneThatDoesNotExist) {
  BeginWithTenant();
  for (const int at : LeaderAndFollower()) {
    // No scope opens a model for text: not even that of who may unload it.
    for (const char* key : {kInfer, kOperator, kAdmin}) {
      const absl::Status none = Infer(key, at, "no-such");
      EXPECT_EQ(ReasonOf(none).code(), reasons::kModelNotLoaded);
      EXPECT_THAT(std::string(none.message()), HasSubstr("loaded: m0"));
      EXPECT_THAT(std::string(none.message()), Not(HasSubstr("law")));
      for (const char* end : {"", "#1", "#2", "#0", "#", "##2", "#2#1"}) {
        const absl::Status hidden = Infer(key, at, absl::StrCat("law-chat", end));
        const absl::Status missing = Infer(key, at, absl::StrCat("no-such", end));
        EXPECT_EQ(hidden.code(), missing.code()) << end;
        EXPECT_EQ(absl::StrReplaceAll(std::string(hidden.message()), {{"law-chat", "no-such"}}),
                  std::string(missing.message()))
            << end;
        EXPECT_EQ(ReasonOf(hidden).code(), ReasonOf(missing).code());
        EXPECT_EQ(ReasonOf(hidden).remedy(), ReasonOf(missing).remedy());
      }
    }
    // It comes to the model's rank, whose answers are not simulated.
    EXPECT_TRUE(absl::IsUnimplemented(Infer(kInfer, at, "m0"))) << Infer(kInfer, at, "m0");
  }
}

TEST_F(CallerViewTest, AReaderIsToldNothingOfOthersModels) {
  BeginWithTenant();
  for (const int at : LeaderAndFollower()) {
    const std::string told = AllThatIsRead(kReader, at);
    EXPECT_THAT(told, Not(HasSubstr("law-")));
    EXPECT_THAT(told, HasSubstr("m0"));
    EXPECT_THAT(told, HasSubstr("open-best"));
    for (const char* key : {kOperator, kAdmin}) {
      const std::string all = AllThatIsRead(key, at);
      EXPECT_THAT(all, HasSubstr("law-chat")) << "whoever operates the cluster knows all";
      EXPECT_THAT(all, HasSubstr("law-best"));
    }
  }
}

TEST_F(CallerViewTest, AStreamUnderWayTellsNoMoreThanItsKeyMayKnowNow) {
  BeginWithTenant();
  v1::WatchStatusRequest often;
  often.set_interval_ms_max(1000);
  for (const int at : LeaderAndFollower()) {
    WriteKey(kAdmin, "admin");
    sim().RunFor(2000);
    const auto watched = StartAs(WithFile(kAdmin), at, kWatchStatus, often);
    sim().RunFor(2000);
    ASSERT_FALSE(watched->messages.empty());
    EXPECT_THAT(watched->messages.back().DebugString(), HasSubstr("law-chat"));
    WriteKey(kAdmin, "read");
    sim().RunFor(3000);
    const size_t told = watched->messages.size();
    sim().RunFor(3000);
    ASSERT_GT(watched->messages.size(), told);
    EXPECT_THAT(watched->messages.back().DebugString(), Not(HasSubstr("law-")));
  }
}

TEST_F(CallerViewTest, WhatIsGoneIsToldOfToThoseAloneWhoKnewOfIt) {
  BeginWithTenant();
  for (const char* name : {"law-chat", "m0"}) {
    v1::UnloadModelRequest request;
    request.set_name(name);
    ASSERT_TRUE(Ask(Leader(), kUnloadModel, request).ok());
  }
  sim().RunFor(2000);
  for (const int at : LeaderAndFollower()) {
    const auto events = AskWith(kReader, at, kListEvents, {});
    ASSERT_TRUE(events.ok()) << events.status();
    EXPECT_THAT(events->DebugString(), HasSubstr("was unloaded"));
    EXPECT_THAT(AllThatIsRead(kReader, at), Not(HasSubstr("law-")));
    EXPECT_THAT(AllThatIsRead(kOperator, at), HasSubstr("law-chat"));
  }
}

// "m0" had a rank there, and leaves; what is said of that is everybody's.
TEST_F(CallerViewTest, ANodeOfAnotherTenantsIsNamedByNoNameOfTheTenant) {
  Begin(3);
  WriteKey(kReader, "read");
  WriteKey(kOperator, "operate");
  sim().RunFor(1000);
  for (const int of : {0, 1}) {
    v1::MarkNodeRequest request;
    request.set_node_id(id(of).value());
    request.set_tenant("law-firm");
    ASSERT_TRUE(Ask(Leader(), kMarkNode, request).ok());
  }
  sim().RunFor(8000);
  v1::PlanModelRequest request;
  request.set_name_or_path("m1");
  request.mutable_placement()->set_world_size(1);
  for (const int at : LeaderAndFollower()) {
    const std::string told = AllThatIsRead(kReader, at);
    EXPECT_THAT(told, Not(HasSubstr("law-")));
    EXPECT_THAT(told, HasSubstr("\"another tenant\"")) << "that it is dedicated is seen";
    const auto plan = AskWith(kReader, at, kPlanModel, request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(plan->DebugString(), Not(HasSubstr("law-")));
    EXPECT_THAT(plan->DebugString(), HasSubstr("is dedicated to a tenant"));
    EXPECT_THAT(AllThatIsRead(kOperator, at), HasSubstr("\"law-firm\""));
  }
}

TEST_F(CallerViewTest, AReadersPlanKnowsNoNameOfOthers) {
  BeginWithTenant();
  const auto plan = [&](int at, const std::string& model) {
    v1::PlanModelRequest request;
    request.set_name_or_path(model);
    request.mutable_placement()->set_world_size(1);
    return AskWith(kReader, at, kPlanModel, request);
  };
  for (const int at : LeaderAndFollower()) {
    EXPECT_TRUE(plan(at, "m1").ok()) << "its files are everybody's";
    const absl::Status hidden = plan(at, "law-chat").status();
    const absl::Status missing = plan(at, "no-such1").status();
    EXPECT_EQ(ReasonOf(missing).code(), reasons::kModelNotFound) << missing;
    EXPECT_EQ(hidden.code(), missing.code()) << hidden;
    EXPECT_EQ(absl::StrReplaceAll(std::string(hidden.message()), {{"law-chat", "no-such1"}}),
              std::string(missing.message()));
  }
}

}  // namespace
}  // namespace macrame::agentd
