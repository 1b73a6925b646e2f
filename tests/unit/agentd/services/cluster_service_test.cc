#include "agentd/services/cluster_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "agentd/base/version.h"
#include "agentd/cores/cordon.h"
#include "proto/replicas.h"
#include "tests/sim/asked_agents.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClusterServiceTest : public sim::AskedAgents {
 protected:
  absl::StatusOr<v1::SetCordonResponse> Cordon(int at, const std::string& node,
                                               v1::CordonOrder order, uint32_t deadline_ms = 0) {
    v1::SetCordonRequest request;
    request.set_node_id(node);
    request.set_order(order);
    request.set_deadline_ms(deadline_ms);
    return Ask(at, kSetCordon, request);
  }
  static v1::MarkNodeRequest Marks(const std::string& node, const std::string& key,
                                   const std::string& value) {
    v1::MarkNodeRequest request;
    request.set_node_id(node);
    v1::NodeLabel& label = *request.add_labels();
    label.set_key(key);
    label.set_value(value);
    return request;
  }
  static v1::LoadModelRequest LoadOf(const std::string& model, uint32_t replicas = 0) {
    v1::LoadModelRequest request;
    request.set_name_or_path(model);
    request.set_replicas(replicas);
    request.set_timeout_ms(20'000);
    request.mutable_placement()->set_world_size(1);
    return request;
  }
  absl::StatusOr<v1::UnloadModelResponse> Unload(int at, const std::string& name) {
    v1::UnloadModelRequest request;
    request.set_name(name);
    return Ask(at, kUnloadModel, request);
  }
  const v1::NodeStatus* Find(const v1::ClusterStatus& status, const NodeId& node) {
    for (const v1::NodeStatus& one : status.nodes()) {
      if (one.identity().node_id() == node.value()) return &one;
    }
    return nullptr;
  }
};

// --- what callers on other machines name ---------------------------------------------------------

TEST_F(ClusterServiceTest, AnAccessFileNamesModelsAndLearnsNothingOfPaths) {
  Begin(2);
  const transport::Caller reader{NodeId(), /*local=*/false, "10.0.0.99", "0123456789ab"};
  const auto plan = [&](int at, const std::string& model, const std::string& draft = "") {
    v1::PlanModelRequest request;
    request.set_name_or_path(model);
    request.mutable_placement()->set_world_size(1);
    request.mutable_placement()->set_draft_model(draft);
    return Wait(StartAs(reader, at, kPlanModel, request));
  };
  const std::string folder = FreshFolder();
  std::ofstream(folder + "/config.json") << "{}";
  for (const int at : LeaderAndFollower()) {
    EXPECT_TRUE(plan(at, "m1").ok()) << plan(at, "m1").status();
    EXPECT_TRUE(plan(at, "/models/m1").ok()) << "a model folder's";
    const absl::Status answer = plan(at, "/no/such/folder").status();
    EXPECT_EQ(ReasonOf(answer).code(), reasons::kModelNotFound);
    for (const std::string& path : {folder, folder + "/config.json", std::string("/models"),
                                    std::string("/root"), std::string("../m1")}) {
      EXPECT_EQ(plan(at, path).status(), answer) << path;
      EXPECT_EQ(plan(at, "m1", path).status(), answer) << path << " as a draft model";
      v1::LoadModelRequest load = LoadOf(path);
      EXPECT_EQ(Wait(StartAs(reader, at, kLoadModel, load)).status(), answer) << path;
      v1::VerifyModelRequest verify;
      verify.set_name_or_path(path);
      EXPECT_EQ(Wait(StartAs(reader, at, kVerifyModel, verify)).status(), answer) << path;
    }
  }
}

// --- cordons -------------------------------------------------------------------------------------

TEST_F(ClusterServiceTest, ACordonIsWrittenOnceAndShownByEveryNode) {
  Begin(3);
  const std::string node = id(Follower()).value();
  const auto cordoned = Cordon(Follower(), node, v1::CORDON_ORDER_CORDON);
  ASSERT_TRUE(cordoned.ok()) << cordoned.status();
  EXPECT_TRUE(cordoned->changed());
  const auto again = Cordon(Leader(), node, v1::CORDON_ORDER_CORDON);
  EXPECT_FALSE(again->changed());
  EXPECT_EQ(again->cordon().since_unix_ms(), cordoned->cordon().since_unix_ms());
  sim().RunFor(2000);
  for (int at = 0; at < 3; ++at) {
    const auto status = Ask(at, kGetStatus, v1::GetStatusRequest());
    ASSERT_TRUE(status.ok());
    ASSERT_NE(Find(*status, NodeId(node)), nullptr);
    EXPECT_EQ(Find(*status, NodeId(node))->cordon().node_id(), node);
  }
  EXPECT_TRUE(Cordon(Follower(), node, v1::CORDON_ORDER_UNCORDON)->changed());
  EXPECT_FALSE(Cordon(Follower(), node, v1::CORDON_ORDER_UNCORDON)->changed());
  EXPECT_THAT(desired(Leader()).cordons(), IsEmpty());
}

TEST_F(ClusterServiceTest, ADrainedNodeGivesItsRanksAway) {
  Begin(3);
  LoadAndWait("m1");  // on two of three
  int holder = 0;
  while (sim().RanksOn(holder, "m1") == 0) ++holder;
  const uint64_t epoch = sim().EpochOf("m1");
  const auto drained =
      Cordon(Follower(), id(holder).value(), v1::CORDON_ORDER_DRAIN, /*deadline_ms=*/3000);
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_EQ(drained->cordon().deadline_ms(), 3000u);
  EXPECT_TRUE(RunUntil([&] { return sim().RanksOn(holder, "m1") == 0; }, 20'000));
  EXPECT_TRUE(RunUntil([&] { return sim().IsReady("m1"); }, 20'000));
  EXPECT_GT(sim().EpochOf("m1"), epoch);
}

TEST_F(ClusterServiceTest, ACordonOfNobodyOrWithoutAnOrderIsRefused) {
  Begin(2);
  const std::string node = id(0).value();
  for (const int at : LeaderAndFollower()) {
    const auto unknown = Cordon(at, std::string(32, 'f'), v1::CORDON_ORDER_CORDON);
    EXPECT_EQ(CodeOf(unknown), reasons::kNodeNotFound);
    EXPECT_THAT(ReasonOf(unknown.status()).message(), HasSubstr(std::string(32, 'f')));
    EXPECT_EQ(CodeOf(Cordon(at, "", v1::CORDON_ORDER_UNCORDON)), reasons::kNodeNotFound);
    EXPECT_EQ(CodeOf(Cordon(at, node, v1::CORDON_ORDER_UNSPECIFIED)), reasons::kBadRequest);
    EXPECT_EQ(CodeOf(Cordon(at, node, v1::CORDON_ORDER_DRAIN, kDrainDeadlineMaxMs + 1)),
              reasons::kBadRequest);
  }
  EXPECT_THAT(desired(Leader()).cordons(), IsEmpty());
}

// It is known while it is dead: a broken machine is cordoned before it is switched on again.
TEST_F(ClusterServiceTest, ADeadNodeCanBeCordonedAndTakesNothingWhenItIsBack) {
  Begin(3);
  const int dead = Follower();
  sim().Crash(dead);
  sim().RunFor(6000);
  ASSERT_TRUE(Cordon(Leader(), id(dead).value(), v1::CORDON_ORDER_CORDON).ok());
  sim().Start(dead);
  sim().RunFor(6000);
  LoadAndWait("m1");
  EXPECT_EQ(sim().RanksOn(dead, "m1"), 0);
  EXPECT_NE(desired(dead).FindCordon(id(dead).value()), nullptr);
}

// --- labels --------------------------------------------------------------------------------------

TEST_F(ClusterServiceTest, LabelsAndTenantsAreMergedIntoWhatIsThere) {
  Begin(2);
  const std::string node = id(Follower()).value();
  ASSERT_TRUE(Ask(Follower(), kMarkNode, Marks(node, "rack", "2"))->changed());
  v1::MarkNodeRequest dedicate;
  dedicate.set_node_id(node);
  dedicate.set_tenant("ads");
  const auto marked = Ask(Follower(), kMarkNode, dedicate);
  ASSERT_TRUE(marked.ok());
  EXPECT_EQ(marked->marks().tenant(), "ads");
  ASSERT_EQ(marked->marks().labels_size(), 1);
  EXPECT_FALSE(Ask(Leader(), kMarkNode, dedicate)->changed());
  v1::MarkNodeRequest nothing;
  nothing.set_node_id(node);
  nothing.set_tenant("");
  nothing.add_removed("rack");
  EXPECT_TRUE(Ask(Leader(), kMarkNode, nothing)->changed());
  EXPECT_EQ(desired(Leader()).FindMarks(node), nullptr);
}

TEST_F(ClusterServiceTest, MarksOfNobodyAndBadLabelsAreRefused) {
  Begin(2);
  EXPECT_EQ(CodeOf(Ask(Follower(), kMarkNode, Marks(std::string(32, 'f'), "rack", "2"))),
            reasons::kNodeNotFound);
  for (const auto& [key, value] :
       {std::pair("", "2"), std::pair("a b", "2"), std::pair("rack", "a/b")}) {
    EXPECT_EQ(CodeOf(Ask(Follower(), kMarkNode, Marks(id(0).value(), key, value))),
              reasons::kBadRequest)
        << key << "=" << value;
  }
  EXPECT_EQ(desired(Leader()).FindMarks(id(0).value()), nullptr);
}

TEST_F(ClusterServiceTest, ModelsOfOthersAreNotPlacedOnATenantsNode) {
  Begin(3);
  const int theirs = Follower();
  v1::MarkNodeRequest dedicate;
  dedicate.set_node_id(id(theirs).value());
  dedicate.set_tenant("ads");
  ASSERT_TRUE(Ask(Leader(), kMarkNode, dedicate).ok());
  LoadAndWait("m1");
  EXPECT_EQ(sim().RanksOn(theirs, "m1"), 0);
}

// What was said of a node that is forgotten goes with it: nobody could name it to take it back.
TEST_F(ClusterServiceTest, AForgottenNodeLeavesNothingBehind) {
  Begin(3);
  const int gone = Follower();
  const std::string node = id(gone).value();
  ASSERT_TRUE(Cordon(Leader(), node, v1::CORDON_ORDER_CORDON).ok());
  ASSERT_TRUE(Ask(Leader(), kMarkNode, Marks(node, "rack", "2")).ok());
  v1::ForgetNodeRequest forget;
  forget.set_node_id(node);
  const auto alive = Ask(Leader(), kForgetNode, forget);
  EXPECT_FALSE(alive.ok()) << "a live node is not forgotten";
  sim().Crash(gone);
  sim().RunFor(6000);
  absl::StatusOr<v1::ForgetNodeResponse> forgotten = Ask(Follower(), kForgetNode, forget);
  ASSERT_TRUE(forgotten.ok()) << forgotten.status();
  EXPECT_THAT(forgotten->member_ids(), Each(::testing::Ne(node)));
  EXPECT_EQ(forgotten->member_ids_size(), 2);
  sim().RunFor(2000);
  EXPECT_EQ(desired(Leader()).FindCordon(node), nullptr);
  EXPECT_EQ(desired(Leader()).FindMarks(node), nullptr);
  for (const std::string& bad : {std::string("node-c"), std::string(32, 'z'), std::string()}) {
    forget.set_node_id(bad);
    const auto refused = Ask(Follower(), kForgetNode, forget);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(CodeOf(refused), reasons::kNodeNotFound);
  }
}

// --- loads ---------------------------------------------------------------------------------------

TEST_F(ClusterServiceTest, ALoadIsToldFromItsPlanToReady) {
  Begin(3);
  const auto asked = Start(Follower(), kLoadModel, LoadOf("m1"));
  ASSERT_TRUE(Wait(asked).ok()) << *asked->end;
  EXPECT_GT(asked->messages.size(), 1u);
  const v1::LoadModelProgress& last = asked->messages.back();
  EXPECT_EQ(last.status().state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(last.resolved_name(), "m1");
  EXPECT_EQ(last.plan().assignments_size(), 1);
  EXPECT_TRUE(sim().IsReady("m1"));
}

TEST_F(ClusterServiceTest, ALoadThatIsRepeatedLaunchesNothingAnew) {
  Begin(2);
  ASSERT_TRUE(Ask(Follower(), kLoadModel, LoadOf("m1")).ok());
  const uint64_t epoch = sim().EpochOf("m1");
  const auto again = Ask(Leader(), kLoadModel, LoadOf("m1"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(sim().EpochOf("m1"), epoch);
}

// Replicas come and go by the same order with another number.
TEST_F(ClusterServiceTest, ADeploymentIsScaled) {
  Begin(3);
  ASSERT_TRUE(Ask(Follower(), kLoadModel, LoadOf("m1", 2)).ok());
  EXPECT_TRUE(sim().IsReady("m1"));
  EXPECT_TRUE(sim().IsReady(ReplicaName("m1", 1)));
  const uint64_t epoch = sim().EpochOf("m1");
  ASSERT_TRUE(Ask(Follower(), kLoadModel, LoadOf("m1", 3)).ok());
  EXPECT_TRUE(sim().IsReady(ReplicaName("m1", 2)));
  ASSERT_TRUE(Ask(Leader(), kLoadModel, LoadOf("m1", 1)).ok());
  EXPECT_TRUE(RunUntil(
      [&] {
        return desired(Leader()).FindGang(ReplicaName("m1", 1)) == nullptr &&
               desired(Leader()).FindGang(ReplicaName("m1", 2)) == nullptr;
      },
      30'000));
  EXPECT_EQ(sim().EpochOf("m1"), epoch) << "the first replica is not disturbed";
}

TEST_F(ClusterServiceTest, WhatNoDeploymentCanBeIsRefusedAtOnce) {
  Begin(2);
  std::vector<v1::LoadModelRequest> bad(4, LoadOf("m1"));
  bad[0].set_deployment_name("chat#2");
  bad[1].set_deployment_name(std::string(kDeploymentNameBytesMax + 1, 'a'));
  bad[2].set_replicas(kReplicasMax + 1);
  bad[3].mutable_placement()->set_kv_bits(3);
  for (const int at : LeaderAndFollower()) {
    for (const v1::LoadModelRequest& request : bad) {
      const auto refused = Ask(at, kLoadModel, request);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument)
          << request.ShortDebugString();
      EXPECT_EQ(CodeOf(refused), reasons::kBadRequest);
    }
    EXPECT_EQ(CodeOf(Ask(at, kLoadModel, LoadOf("m9"))), reasons::kModelNotFound);
  }
  EXPECT_THAT(desired(Leader()).deployments(), IsEmpty());
}

// More ranks than there are nodes: nothing is wanted that can't be, and the caller is told why.
TEST_F(ClusterServiceTest, WhatFitsNowhereIsRefusedWithTheReason) {
  Begin(2);
  v1::LoadModelRequest request = LoadOf("m1");
  request.mutable_placement()->set_world_size(5);
  const auto refused = Ask(Follower(), kLoadModel, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(CodeOf(refused), reasons::kInternal) << refused.status();
  EXPECT_THAT(desired(Leader()).deployments(), IsEmpty());
}

// Where the nodes have files of its name, too: "m0". "chat" is what the deployment alone is called.
TEST_F(ClusterServiceTest, WhatOthersHaveIsLeftAndAnsweredAboutAsWhatNoNodeHas) {
  Begin(2);
  v1::LoadModelRequest law = LoadOf("m0");
  law.mutable_placement()->set_tenant("law");
  ASSERT_TRUE(Ask(Leader(), kLoadModel, law).ok());
  law.set_name_or_path("m1");
  law.set_deployment_name("chat");
  ASSERT_TRUE(Ask(Leader(), kLoadModel, law).ok());
  const std::string before = desired(Leader()).FindDeployment("chat")->SerializeAsString();
  const auto load = [&](int at, const std::string& name, const std::string& deployment,
                        const std::string& tenant) {
    v1::LoadModelRequest request = LoadOf(name);
    request.set_deployment_name(deployment);
    request.mutable_placement()->set_tenant(tenant);
    request.set_keeps_others(true);
    return Ask(at, kLoadModel, request).status();
  };
  for (const int at : LeaderAndFollower()) {
    for (const char* tenant : {"art", ""}) {
      const absl::Status missing = load(at, "m9", "m9", tenant);
      EXPECT_EQ(ReasonOf(missing).code(), reasons::kModelNotFound);
      for (const char* name : {"chat", "chat#2", "m0", "m0#2", "m9#2"}) {
        EXPECT_EQ(load(at, name, name, tenant), missing) << name;
      }
      EXPECT_EQ(load(at, "m0", "#", tenant), missing) << "as gateways name what others have";
      v1::PlanModelRequest plan;
      plan.set_name_or_path("chat");
      plan.mutable_placement()->set_tenant(tenant);
      plan.set_keeps_others(true);
      EXPECT_EQ(Ask(at, kPlanModel, plan).status(), missing);
    }
    EXPECT_EQ(ReasonOf(load(at, "chat#2", "chat#2", "law")).code(), reasons::kBadRequest)
        << "its own is told what is amiss";
    EXPECT_TRUE(load(at, "chat", "chat", "law").ok());
  }
  EXPECT_EQ(desired(Leader()).FindDeployment("chat")->SerializeAsString(), before);
  EXPECT_EQ(desired(Leader()).deployments().size(), 2u);
  // Whoever has no limits changes it as any other.
  law.mutable_placement()->set_tenant("art");
  EXPECT_TRUE(Ask(Leader(), kLoadModel, law).ok());
  EXPECT_EQ(desired(Leader()).FindDeployment("chat")->placement().tenant(), "art");
}

TEST_F(ClusterServiceTest, WhoWaitsForALoadIsToldWhenSomebodyUnloadsIt) {
  Begin(2);
  const auto asked = Start(Follower(), kLoadModel, LoadOf("m1"));
  ASSERT_TRUE(RunUntil([&] { return desired(Leader()).FindDeployment("m1") != nullptr; }, 5000));
  ASSERT_TRUE(Unload(Leader(), "m1").ok());
  const auto ended = Wait(asked);
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("m1 was unloaded"));
  EXPECT_EQ(sim().RanksOn(0, "m1") + sim().RanksOn(1, "m1"), 0);
}

TEST_F(ClusterServiceTest, WhoWaitsForALoadIsToldWhenTheCoordinatorDies) {
  Begin(3);
  const int at = Follower();
  const auto asked = Start(at, kLoadModel, LoadOf("m1"));
  ASSERT_TRUE(RunUntil([&] { return desired(Leader()).FindDeployment("m1") != nullptr; }, 5000));
  sim().Crash(Leader());
  const auto ended = Wait(asked);
  EXPECT_FALSE(ended.ok());
  EXPECT_TRUE(asked->end.has_value()) << "the caller hangs";
  // The order itself is not lost.
  EXPECT_TRUE(RunUntil([&] { return sim().IsReady("m1"); }, 20'000));
}

TEST_F(ClusterServiceTest, AnUnloadedModelHasNoRanksWhenTheAnswerComes) {
  Begin(3);
  LoadAndWait("m0");
  ASSERT_TRUE(Unload(Follower(), "m0").ok());
  for (int at = 0; at < 3; ++at) EXPECT_EQ(sim().RanksOn(at, "m0"), 0) << at;
  EXPECT_EQ(desired(Leader()).FindDeployment("m0"), nullptr);
  for (const std::string& name : {std::string("m0"), std::string("m0#2"), std::string()}) {
    const auto refused = Unload(Follower(), name);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(CodeOf(refused), reasons::kModelNotLoaded);
    EXPECT_THAT(ReasonOf(refused.status()).remedy(),
                ::testing::Not(::testing::HasSubstr("load it")));
  }
  LoadAndWait("m1");
  const auto refused = Unload(Follower(), "m2");
  EXPECT_THAT(ReasonOf(refused.status()).message(), ::testing::HasSubstr("served are: m1"));
}

// A node with a rank died a moment ago: the model is unloaded all the same, and does not come back
// with the node.
TEST_F(ClusterServiceTest, AModelIsUnloadedWhileOneOfItsNodesIsDead) {
  Begin(3);
  LoadAndWait("m0");
  const int dead = Follower();
  sim().Crash(dead);
  sim().RunFor(100);
  ASSERT_TRUE(Unload(Leader(), "m0").ok());
  sim().Start(dead);
  sim().RunFor(10'000);
  for (int at = 0; at < 3; ++at) EXPECT_EQ(sim().RanksOn(at, "m0"), 0) << at;
}

TEST_F(ClusterServiceTest, APlanChangesNothing) {
  Begin(3);
  v1::PlanModelRequest request;
  request.set_name_or_path("m0");
  request.mutable_placement()->set_world_size(2);
  for (const int at : LeaderAndFollower()) {
    const auto plan = Ask(at, kPlanModel, request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->plan().assignments_size(), 2);
  }
  request.set_name_or_path("m9");
  EXPECT_EQ(CodeOf(Ask(Follower(), kPlanModel, request)), reasons::kModelNotFound);
  EXPECT_THAT(desired(Leader()).deployments(), IsEmpty());
  EXPECT_EQ(sim().RanksOn(0, "m0") + sim().RanksOn(1, "m0") + sim().RanksOn(2, "m0"), 0);
}

// --- reading -------------------------------------------------------------------------------------

TEST_F(ClusterServiceTest, StatusOfAnyNodeTellsOfAllAndOfTheCoordinator) {
  Begin(3);
  for (int at = 0; at < 3; ++at) {
    const auto status = Ask(at, kGetStatus, v1::GetStatusRequest());
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(status->nodes_size(), 3);
    int coordinators = 0;
    for (const v1::NodeStatus& node : status->nodes()) {
      coordinators += node.is_coordinator();
      EXPECT_EQ(node.is_self(), node.identity().node_id() == id(at).value());
      EXPECT_EQ(node.is_coordinator(), node.identity().node_id() == id(Leader()).value());
    }
    EXPECT_EQ(coordinators, 1);
  }
}

TEST_F(ClusterServiceTest, WhoWatchesTheStatusSeesAChangeAtOnceAndElseEachInterval) {
  Begin(2);
  v1::WatchStatusRequest request;
  request.set_interval_ms_max(5000);
  const auto asked = Start(Follower(), kWatchStatus, request);
  sim().RunFor(1000);
  const size_t first = asked->messages.size();
  ASSERT_GE(first, 1u) << "the present state comes at once";
  sim().RunFor(12'000);
  EXPECT_GE(asked->messages.size(), first + 2);
  const size_t before = asked->messages.size();
  ASSERT_TRUE(Cordon(Leader(), id(Leader()).value(), v1::CORDON_ORDER_CORDON).ok());
  EXPECT_TRUE(RunUntil(
      [&] {
        const v1::NodeStatus* node = Find(asked->messages.back(), id(Leader()));
        return asked->messages.size() > before && node != nullptr && node->has_cordon();
      },
      1500));
  EXPECT_FALSE(asked->end.has_value());
}

TEST_F(ClusterServiceTest, SoManyWatchTheStatusAndNoMore) {
  Begin(1);
  std::vector<sim::AskedPtr<v1::ClusterStatus>> watches;
  for (size_t i = 0; i < kStatusWatchesMax; ++i) {
    watches.push_back(Start(0, kWatchStatus, v1::WatchStatusRequest()));
  }
  const auto refused = Wait(Start(0, kWatchStatus, v1::WatchStatusRequest()));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  for (const auto& watch : watches) EXPECT_FALSE(watch->end.has_value());
}

TEST_F(ClusterServiceTest, ModelsAreListedWithWhoHasThemAndHowTheyAre) {
  Begin(2);
  LoadAndWait("m1");
  for (const int at : LeaderAndFollower()) {
    const auto models = Ask(at, kListModels, v1::ListModelsRequest());
    ASSERT_TRUE(models.ok());
    ASSERT_EQ(models->models_size(), 2);
    for (const v1::ModelEntry& entry : models->models()) {
      EXPECT_EQ(entry.node_ids_size(), 2) << entry.name();
      EXPECT_EQ(entry.deployment().state() == v1::DEPLOYMENT_STATE_READY, entry.name() == "m1");
    }
  }
}

TEST_F(ClusterServiceTest, TheVersionIsThatOfTheAgentThatIsAsked) {
  Begin(2);
  const auto version = Ask(Follower(), kVersion, v1::VersionRequest());
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(version->version(), kAgentVersion);
  EXPECT_EQ(version->node_id(), id(Follower()).value());
}

// --- logs ----------------------------------------------------------------------------------------

TEST_F(ClusterServiceTest, LogsOfAnyNodeAreReadThroughAny) {
  const std::string path = FreshFolder() + "/agentd.log";
  std::ofstream(path) << "one\ntwo\nthree\n";
  Begin(2, [&](auto& options) {
    options.configure = [path](Config& config) { config.log_file = path; };
  });
  v1::LogsRequest request;
  request.set_node_id(id(Leader()).value());
  request.set_lines(2);
  const auto told = Ask(Follower(), kLogs, request);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->text(), "two\nthree\n");
  request.set_follow(true);
  const auto followed = Start(Follower(), kLogs, request);
  sim().RunFor(500);
  std::ofstream(path, std::ios::app) << "four\n";
  sim().RunFor(1000);
  std::string text;
  for (const v1::LogsChunk& chunk : followed->messages) text += chunk.text();
  EXPECT_EQ(text, "two\nthree\nfour\n");
  EXPECT_FALSE(followed->end.has_value());
}

// The node whose log it is knows nothing of the key.
TEST_F(ClusterServiceTest, AKeyFollowsSoManyLogsOfOtherNodesAndReadsAll) {
  const std::string path = FreshFolder() + "/agentd.log";
  std::ofstream(path) << "one\n";
  Begin(2, [&](auto& options) {
    options.configure = [path](Config& config) { config.log_file = path; };
  });
  const transport::Caller person{NodeId(), /*local=*/false, "10.0.0.99", "0123456789ab"};
  v1::LogsRequest request;
  request.set_node_id(id(Leader()).value());
  request.set_follow(true);
  std::vector<sim::AskedPtr<v1::LogsChunk>> followed;
  for (size_t i = 0; i < kPassedLogsOfKeyMax; ++i) {
    followed.push_back(StartAs(person, Follower(), kLogs, request));
  }
  const auto refused = Wait(StartAs(person, Follower(), kLogs, request));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const auto of_socket = Start(Follower(), kLogs, request);
  sim().RunFor(500);
  followed.push_back(of_socket);
  for (const auto& one : followed) {
    EXPECT_EQ(one->messages.size(), 1u);
    EXPECT_FALSE(one->end.has_value());
  }
  request.set_follow(false);
  EXPECT_TRUE(Wait(StartAs(person, Follower(), kLogs, request)).ok());
}

TEST_F(ClusterServiceTest, LogsOfANodeThatIsGoneOrUnknownEndWithItsName) {
  Begin(3);
  const int dead = Follower();
  sim().Crash(dead);
  sim().RunFor(100);
  v1::LogsRequest request;
  request.set_node_id(id(dead).value());
  const auto gone = Ask(Leader(), kLogs, request);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(CodeOf(gone), reasons::kNodeDead) << gone.status();
  EXPECT_EQ(ReasonOf(gone.status()).node_id(), id(dead).value());
  request.set_node_id("nobody");
  const auto unknown = Ask(Leader(), kLogs, request);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(CodeOf(unknown), reasons::kNodeNotFound) << unknown.status();
  EXPECT_THAT(ReasonOf(unknown.status()).message(), HasSubstr("'nobody'"));
}

// Cut off, so that no connection says that it ended.
TEST_F(ClusterServiceTest, LogsThatAreFollowedEndWithTheirNode) {
  const std::string path = FreshFolder() + "/agentd.log";
  std::ofstream(path) << "one\n";
  Begin(3, [&](auto& options) {
    options.configure = [path](Config& config) { config.log_file = path; };
  });
  const int cut = Follower();
  v1::LogsRequest request;
  request.set_node_id(id(cut).value());
  request.set_follow(true);
  const auto followed = Start(Leader(), kLogs, request);
  sim().RunFor(500);
  EXPECT_EQ(followed->messages.size(), 1u);
  EXPECT_FALSE(followed->end.has_value());
  sim().Isolate(cut, true);
  const auto is_dead = [&] {
    const auto status = Ask(Leader(), kGetStatus, v1::GetStatusRequest());
    return status.ok() && Find(*status, id(cut))->state() == v1::NODE_STATE_DEAD;
  };
  ASSERT_TRUE(RunUntil(is_dead, 30'000));
  EXPECT_TRUE(RunUntil([&] { return followed->end.has_value(); }, 2'000));
  EXPECT_EQ(CodeOf(followed->Answer()), reasons::kNodeDead);
}

// --- the coordinator changes ---------------------------------------------------------------------

// An order is passed to a coordinator that has just died: whoever asked is told what that means,
// of which node, and not in the words of a socket.
TEST_F(ClusterServiceTest, AnOrderToACoordinatorThatIsGoneNamesIt) {
  Begin(3);
  const int dead = Leader(), at = Follower();
  sim().Crash(dead);
  const auto told = Cordon(at, id(at).value(), v1::CORDON_ORDER_CORDON);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(CodeOf(told), reasons::kNoCoordinator) << told.status();
  EXPECT_EQ(ReasonOf(told.status()).node_id(), id(dead).value());
  EXPECT_THAT(ReasonOf(told.status()).message(), HasSubstr(ShortId(id(dead))));
  EXPECT_FALSE(ReasonOf(told.status()).remedy().empty());
}

TEST_F(ClusterServiceTest, AcknowledgedOrdersOutliveTheCoordinator) {
  Begin(3);
  const std::string node = id(Follower()).value();
  ASSERT_TRUE(Cordon(Follower(), node, v1::CORDON_ORDER_CORDON).ok());
  ASSERT_TRUE(Ask(Leader(), kMarkNode, Marks(node, "rack", "2")).ok());
  sim().Crash(Leader());
  ASSERT_TRUE(RunUntil([&] { return Leader() != -1; }, 8000));
  sim().RunFor(1000);
  EXPECT_NE(desired(Leader()).FindCordon(node), nullptr);
  EXPECT_NE(desired(Leader()).FindMarks(node), nullptr);
}

}  // namespace
}  // namespace macrame::agentd
