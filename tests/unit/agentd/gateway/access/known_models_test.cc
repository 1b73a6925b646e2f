#include "agentd/gateway/access/known_models.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

Principal With(uint32_t scopes, const std::string& tenant = "",
               std::vector<std::string> models = {}) {
  Principal principal;
  principal.key_id = "0123456789ab";
  principal.scopes = scopes;
  principal.tenant = tenant;
  principal.models = std::move(models);
  return principal;
}

// "law-chat" is law's, "old-law" was; "open" is everybody's, "old-open" was.
std::shared_ptr<const ModelOwners> Owners() {
  auto owners = std::make_shared<ModelOwners>();
  owners->Take({{"old-law", "law"}, {"old-open", ""}, {"law-chat", "law"}});
  owners->Take({{"law-chat", "law"}, {"open", ""}});
  return owners;
}

KnownModels Reader() { return KnownModels(With(kScopeRead), Owners(), {"disk"}); }

TEST(KnownModels, EachKnowsWhatIsItsOwnAndEverybodys) {
  struct Row {
    Principal who;
    bool law, open, old_law, old_open, never, disk;
  };
  for (const Row& row : {
           Row{With(kScopeRead), false, true, false, true, false, true},
           Row{With(kScopeInfer | kScopeRead), false, true, false, true, false, true},
           Row{With(kScopeRead, "law"), true, true, true, true, false, true},
           Row{With(kScopeRead, "art"), false, true, false, true, false, true},
           Row{With(kScopeRead | kScopeOperate), true, true, true, true, true, true},
           Row{With(kScopeRead | kScopeOperate, "art"), false, true, false, true, false, true},
           Row{With(kScopeRead | kScopeOperate, "", {"open"}), false, true, false, false, false,
               false},
           Row{With(kScopeAdmin, "art"), true, true, true, true, true, true},
       }) {
    const KnownModels known(row.who, Owners(), {"disk"});
    EXPECT_EQ(known.KnowsOf("law-chat"), row.law);
    EXPECT_EQ(known.Knows("law-chat#2"), row.law);
    EXPECT_EQ(known.KnowsOf("open"), row.open);
    EXPECT_EQ(known.KnowsOf("old-law"), row.old_law);
    EXPECT_EQ(known.KnowsOf("old-open"), row.old_open);
    EXPECT_EQ(known.KnowsOf("never"), row.never);
    EXPECT_EQ(known.KnowsOf("disk"), row.disk);
    // Text is its tenant's alone.
    EXPECT_EQ(known.MayUse("law-chat#1"), row.who.tenant == "law");
  }
}

TEST(KnownModels, AMessageLosesOthersAndTextsTheirNames) {
  v1::ClusterStatus status;
  for (const char* name : {"law-chat", "open"}) {
    auto& deployment = *status.add_deployments();
    deployment.mutable_deployment()->set_name(name);
    deployment.set_state(v1::DEPLOYMENT_STATE_READY);
    deployment.add_ranks()->set_deployment(absl::StrCat(name, "#2"));
    *deployment.mutable_failure() =
        MakeReason(reasons::kMemoryShort, "law-chat#2 holds 4 GiB. unload law-chat.");
  }
  *status.add_problems() = MakeReason(reasons::kMemoryShort, "'law-chat' is not served");
  Reader().Filter(&status);
  ASSERT_EQ(status.deployments_size(), 1);
  EXPECT_EQ(status.deployments(0).deployment().name(), "open");
  EXPECT_EQ(status.deployments(0).ranks_size(), 1);
  EXPECT_EQ(status.deployments(0).failure().message(),
            "another tenant's model holds 4 GiB. unload another tenant's model.");
  EXPECT_EQ(status.problems_size(), 0);
  EXPECT_TRUE(status.healthy()) << "nothing that it knows of is amiss";

  v1::PlanResult plan;
  for (const char* name : {"open", "law-chat#1", "law-chat"}) plan.add_evicted(name);
  Reader().Filter(&plan);
  ASSERT_EQ(plan.evicted_size(), 1);
  EXPECT_EQ(plan.evicted(0), "open");
}

TEST(KnownModels, WhoseANodeIsIsToldToItsTenantAndToWhoeverKnowsAll) {
  for (const auto& [who, told] : std::vector<std::pair<Principal, std::string>>{
           {With(kScopeRead), "another tenant"},
           {With(kScopeRead | kScopeOperate, "art"), "another tenant"},
           {With(kScopeRead, "law"), "law"},
           {With(kScopeOperate), "law"},
           {With(kScopeAdmin, "art"), "law"}}) {
    v1::ClusterStatus status;
    status.add_nodes()->mutable_marks()->set_tenant("law");
    status.add_nodes();
    KnownModels(who, Owners()).Filter(&status);
    EXPECT_EQ(status.nodes(0).marks().tenant(), told);
    EXPECT_FALSE(status.nodes(1).has_marks());
  }
}

TEST(KnownModels, EvidenceAndListsOfNamesLoseOthersToo) {
  v1::PlanResult plan;
  *plan.mutable_failure() = MakeReason(reasons::kTransportUnavailable, "no way");
  plan.mutable_failure()->set_evidence("rank 1 of law-chat (epoch 3): refused");
  Reader().Filter(&plan);
  EXPECT_EQ(plan.failure().evidence(), "rank 1 of another tenant's model (epoch 3): refused");
  v1::ClusterStatus status;
  *status.add_problems() = plan.failure();
  status.mutable_problems(0)->set_evidence("law-chat#1 ended");
  Reader().Filter(&status);
  EXPECT_EQ(status.problems_size(), 0);
  v1::PauseClusterResponse paused;
  for (const char* name : {"law-chat", "open"}) paused.add_models(name);
  Reader().Filter(&paused);
  ASSERT_EQ(paused.models_size(), 1);
  EXPECT_EQ(paused.models(0), "open");
}

TEST(KnownModels, ANameWithinAnotherIsAnother) {
  for (const char* text : {"law-chat2 is loaded", "my-law-chat", "org/law-chat", "law-chat/x",
                           "law-chat.v2", "law-chat:latest"}) {
    const absl::Status status =
        ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, text);
    EXPECT_EQ(Reader().Filter(status), status);
  }
  for (const char* text : {"law-chat", "'law-chat'", "is it law-chat?", "law-chat: short",
                           "(law-chat#16)", "open, law-chat, more", "old-law was unloaded"}) {
    const absl::Status status =
        ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, text);
    const absl::Status told = Reader().Filter(status);
    EXPECT_FALSE(absl::StrContains(told.message(), "law")) << told;
    EXPECT_EQ(told.code(), status.code());
    EXPECT_EQ(ReasonOf(told).code(), reasons::kModelNotLoaded);
  }
}

TEST(KnownModels, AnswersAndLogsAreLeftAsTheyAre) {
  v1::GenerateChunk chunk;
  chunk.set_text("law-chat");
  v1::LogsChunk logs;
  logs.set_text("law-chat");
  Reader().Filter(&chunk);
  Reader().Filter(&logs);
  EXPECT_EQ(chunk.text() + logs.text(), "law-chatlaw-chat");
}

TEST(KnownModels, MetricsLoseOthersSeriesInEachFormat) {
  const std::string page =
      "# HELP a all\n# TYPE a gauge\na{model=\"law-chat\",x=\"1\"} 1\na{model=\"open\"} 2\n"
      "# HELP b theirs\n# TYPE b counter\nb_total{engine=\"0\",model_name=\"law-chat#2\"} 3\n"
      "# HELP c none yet\n# TYPE c gauge\n"
      "# HELP d machine\n# TYPE d gauge\nd 4\nd{node=\"model=law-chat\"} 5\n# EOF\n";
  EXPECT_EQ(Reader().FilterMetrics(page),
            "# HELP a all\n# TYPE a gauge\na{model=\"open\"} 2\n# HELP c none yet\n# TYPE c gauge\n"
            "# HELP d machine\n# TYPE d gauge\nd 4\nd{node=\"model=law-chat\"} 5\n# EOF\n");
  EXPECT_EQ(KnownModels(With(kScopeOperate), Owners()).FilterMetrics(page), page);
  const std::string json =
      R"({"metrics":[{"name":"a","samples":[{"labels":{"model":"law-chat"},"value":1},)"
      R"({"labels":{"model":"open"},"value":2}]},{"name":"b","samples":[)"
      R"({"labels":{"model_name":"law-chat"},"value":3}]},{"name":"c","samples":[]}]})";
  const auto told = nlohmann::json::parse(Reader().FilterMetrics(json));
  ASSERT_EQ(told["metrics"].size(), 2u);
  EXPECT_EQ(told["metrics"][0]["samples"].size(), 1u);
  EXPECT_EQ(told["metrics"][1]["name"], "c");
  const std::string latencies = R"({"span":1,"models":[{"model":"law-chat"},{"model":"open"}]})";
  EXPECT_EQ(Reader().FilterJson(latencies), R"({"span":1,"models":[{"model":"open"}]})");
}

// Also where no model is hidden.
TEST(KnownModels, MetricsLoseOtherKeysSeriesInEachFormat) {
  const std::string own = "0123456789ab";
  const std::string page = absl::StrCat("# TYPE k gauge\nk{key=\"none\"} 1\nk{key=\"", own,
                                        "\"} 2\nk{key=\"another\"} 3\n# EOF\n");
  const std::string json = absl::StrCat(
      R"({"metrics":[{"name":"k","samples":[{"labels":{"key":"none"},"value":1},)",
      R"({"labels":{"key":")", own, R"("},"value":2},{"labels":{"key":"another"},"value":3}]}]})");
  auto open = std::make_shared<ModelOwners>();
  open->Take({{"open", ""}});
  for (const auto& owners : {Owners(), std::shared_ptr<const ModelOwners>(open)}) {
    const KnownModels reader(With(kScopeRead), owners);
    EXPECT_EQ(reader.FilterMetrics(page),
              absl::StrCat("# TYPE k gauge\nk{key=\"none\"} 1\nk{key=\"", own, "\"} 2\n# EOF\n"));
    const auto told = nlohmann::json::parse(reader.FilterMetrics(json));
    EXPECT_EQ(told["metrics"][0]["samples"].size(), 2u);
    EXPECT_EQ(KnownModels(With(kScopeOperate), owners).FilterMetrics(page), page);
    EXPECT_EQ(KnownModels(With(kScopeAdmin), owners).FilterMetrics(json), json);
  }
}

TEST(KnownModels, WhatIsRememberedIsBounded) {
  ModelOwners owners;
  for (size_t i = 0; i < kPastModelsMax + 10; ++i) {
    owners.Take({{absl::StrCat("m", i), "law"}, {"stays", "law"}});
  }
  EXPECT_EQ(owners.past().size(), kPastModelsMax);
  EXPECT_TRUE(owners.past().contains("stays"));
}

}  // namespace
}  // namespace macrame::agentd
