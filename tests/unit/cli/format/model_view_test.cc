#include "cli/format/model_view.h"

#include <gtest/gtest.h>

#include "proto/reason_codes.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::DeploymentStatus Tiny() {
  const v1::ClusterStatus cluster = HealthyCluster();
  return cluster.deployments(0);
}

std::string ViewOf(const v1::DeploymentStatus& deployment) {
  v1::ClusterStatus status;
  *status.add_deployments() = deployment;
  return DeploymentsView(status, 140, Style());
}

void SetReason(std::string_view code, const std::string& message, v1::Reason* reason) {
  reason->set_code(std::string(code));
  reason->set_message(message);
}

TEST(ShapeText, SaysHowTheRanksShareTheModel) {
  struct Case {
    uint32_t world, tp, pp;
    const char* backend;
    const char* text;
  };
  const Case cases[] = {{1, 1, 1, "", "one node"},
                        {0, 0, 0, "", "one node"},
                        {1, 1, 1, "ring", "one node"},
                        {3, 1, 3, "ring", "pipeline over 3 via ring"},
                        {2, 2, 1, "verbs", "tensor over 2 via verbs"},
                        {4, 2, 2, "jaccl", "tensor 2 x pipeline 2 via jaccl"},
                        {2, 2, 1, "", "tensor over 2"}};
  for (const Case& one : cases) {
    v1::Plan plan;
    plan.set_world_size(one.world);
    plan.set_tp(one.tp);
    plan.set_pp(one.pp);
    plan.set_backend(one.backend);
    EXPECT_EQ(ShapeText(plan), one.text);
  }
  v1::Plan drafted;
  drafted.set_world_size(1);
  drafted.mutable_draft_model()->set_name("small");
  EXPECT_EQ(ShapeText(drafted), "one node, drafts by small");
}

TEST(DeploymentWords, AreKnownForEachStateAndForThoseOfNewerAgents) {
  EXPECT_EQ(DeploymentWord(v1::DEPLOYMENT_STATE_PENDING), "pending");
  EXPECT_EQ(DeploymentWord(v1::DEPLOYMENT_STATE_LAUNCHING), "loading");
  EXPECT_EQ(DeploymentWord(v1::DEPLOYMENT_STATE_READY), "ready");
  EXPECT_EQ(DeploymentWord(v1::DEPLOYMENT_STATE_BACKING_OFF), "recovering");
  EXPECT_EQ(DeploymentWord(v1::DEPLOYMENT_STATE_REMOVING), "removing");
  EXPECT_EQ(DeploymentWord(v1::DEPLOYMENT_STATE_UNSPECIFIED), "unknown");
  EXPECT_EQ(DeploymentWord(static_cast<v1::DeploymentState>(77)), "unknown");
}

TEST(DeploymentsView, CountsTheRanksThatWereAskedFor) {
  v1::DeploymentStatus model = Tiny();
  EXPECT_TRUE(Has(ViewOf(model), "  3/3  "));
  model.mutable_deployment()->mutable_placement()->set_world_size(5);
  EXPECT_TRUE(Has(ViewOf(model), "  3/5  ")) << "served by fewer: " << ViewOf(model);
  model.mutable_ranks(1)->set_phase(v1::RANK_PHASE_LOADING);
  EXPECT_TRUE(Has(ViewOf(model), "  2/5  "));
}

TEST(DeploymentsView, AModelWithoutAPlanHasDashesAndItsFailure) {
  v1::DeploymentStatus model;
  model.mutable_deployment()->set_name("huge");
  model.set_state(v1::DEPLOYMENT_STATE_PENDING);
  SetReason(reasons::kMemoryShort, "it needs 812 GiB", model.mutable_failure());
  const std::string text = ViewOf(model);
  EXPECT_TRUE(Has(text, "huge   pending    0/0  -            -      -       0+0")) << text;
  EXPECT_TRUE(Has(text, "failure of huge: it needs 812 GiB\n")) << text;
}

TEST(DeploymentsView, AFailureSaysWhenItIsTriedAgainAndIsPastWhenServed) {
  v1::DeploymentStatus model = Tiny();
  SetReason(reasons::kRankExited, "rank 1 ended", model.mutable_failure());
  model.set_retry_in_ms(4000);
  model.set_attempts(2);
  EXPECT_TRUE(Has(ViewOf(model), "last failure of tiny: rank 1 ended\n")) << ViewOf(model);
  EXPECT_FALSE(Has(ViewOf(model), "tried again"));
  model.set_state(v1::DEPLOYMENT_STATE_BACKING_OFF);
  EXPECT_TRUE(
      Has(ViewOf(model), "failure of tiny: rank 1 ended (tried again in 4.0 s, attempt 3)\n"));
  model.set_retry_in_ms(0);
  EXPECT_TRUE(Has(ViewOf(model), "failure of tiny: rank 1 ended\n"));
  // Launched anew with other options: no failure.
  model.set_state(v1::DEPLOYMENT_STATE_READY);
  model.mutable_failure()->set_code(std::string(reasons::kSnapshotStale));
  EXPECT_FALSE(Has(ViewOf(model), "failure"));
}

TEST(DeploymentsView, TheLastFallbackStandsFirst) {
  v1::DeploymentStatus model = Tiny();
  model.add_fallbacks()->set_message("not over jaccl");
  model.add_fallbacks()->set_message("not over verbs");
  const std::string text = ViewOf(model);
  EXPECT_LT(text.find("transport: not over verbs"), text.find("transport: not over jaccl")) << text;
}

TEST(DeploymentsView, ARankThatIsNotStartedIsSaidAndOneThatLoadsHasItsShare) {
  v1::DeploymentStatus model = Tiny();
  model.mutable_ranks()->DeleteSubrange(2, 1);
  model.mutable_ranks(1)->set_phase(v1::RANK_PHASE_LOADING);
  model.mutable_ranks(1)->set_progress(0.426);
  const std::string text = ViewOf(model);
  EXPECT_TRUE(Has(text, "not started")) << text;
  EXPECT_TRUE(Has(text, "loading      ") && Has(text, "43%")) << text;
}

TEST(DeploymentsView, SlicesAndWholeExpertsAreTold) {
  v1::DeploymentStatus model = Tiny();
  v1::Assignment& part = *model.mutable_plan()->mutable_assignments(0);
  part.set_slice_begin(2);
  part.set_slice_end(8);
  part.set_slice_count(8);
  EXPECT_TRUE(Has(ViewOf(model), "[0, 4) 6/8  "));
  part.set_whole_experts(true);
  EXPECT_TRUE(Has(ViewOf(model), "[0, 4) 6/8, whole experts"));
}

TEST(BalanceView, SharesAreOfAllWeightsAndMeasuresOnlyWhereThereAreSome) {
  v1::DeploymentStatus model = Tiny();
  model.mutable_plan()->mutable_assignments(0)->mutable_need()->set_weights_bytes(6 * kGiB);
  model.mutable_ranks(2)->set_memory_bytes(0);
  const std::string text = BalanceView(model, 140, Style());
  EXPECT_TRUE(Has(text, "60%")) << text;
  EXPECT_TRUE(Has(text, "20%")) << text;
  const std::string last = text.substr(text.rfind("mini-3"));
  EXPECT_TRUE(Has(last, "  2.5 GiB         -  40.0 GiB")) << last;
  EXPECT_EQ(BalanceView(v1::DeploymentStatus(), 140, Style()), "");
  model.mutable_plan()->clear_assignments();
  model.mutable_plan()->add_assignments();
  EXPECT_TRUE(Has(BalanceView(model, 140, Style()), "  -  ")) << "no share of nothing";
}

TEST(LoadedView, ANodeWithTwoRanksIsNamedOnce) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_deployments(0)->mutable_plan()->mutable_assignments(1)->set_hostname("mini-1");
  EXPECT_TRUE(Has(LoadedView(status, 140, Style()), "  mini-1, mini-3  "));
  status.mutable_deployments(0)->mutable_ranks(0)->set_requests_running(2);
  status.mutable_deployments(0)->mutable_ranks(0)->set_requests_queued(7);
  status.mutable_deployments(0)->mutable_plan()->set_kv_bits(8);
  const std::string text = LoadedView(status, 140, Style());
  EXPECT_TRUE(Has(text, "4096 (8 bit)   41.2        2       7")) << text;
}

TEST(ModelsView, NodesWhoseTextFilesDifferAreTold) {
  v1::ListModelsResponse models = SampleModels();
  EXPECT_FALSE(Has(ModelsView(models, 140, Style()), "same weights"));
  models.mutable_models(0)->set_fingerprint("0123456789abcdef.aaaa");
  v1::ModelEntry& other = *models.add_models();
  other = models.models(0);
  other.clear_deployment();
  other.set_fingerprint("0123456789abcdef.bbbb");
  const std::string told = ModelsView(models, 140, Style());
  EXPECT_TRUE(Has(told, "tiny has the same weights and 2 different sets of text files")) << told;
  EXPECT_TRUE(Has(told, "01234567.aaaa")) << told;
  other.set_fingerprint("fedcba9876543210.bbbb");
  EXPECT_FALSE(Has(ModelsView(models, 140, Style()), "same weights")) << "another model";
}

TEST(ModelsView, SaysWhereToPutAModelWhenThereIsNone) {
  EXPECT_TRUE(Has(ModelsView(v1::ListModelsResponse(), 80, Style()), "model folders"));
  EXPECT_TRUE(Has(ModelsView(SampleModels(), 140, Style()), "not loaded"));
  EXPECT_TRUE(Has(ModelsView(SampleModels(), 140, Style()), "3 nodes"));
}

TEST(PlanView, AMisfitIsToldFromAnyOtherFailure) {
  v1::PlanResult result = MisfitPlan();
  EXPECT_EQ(PlanView(result, 100, Style()).rfind("Does not fit: 'huge' needs 812 GiB", 0), 0u);
  result.mutable_failure()->set_code(std::string(reasons::kBadRequest));
  EXPECT_EQ(PlanView(result, 100, Style()).rfind("No plan: ", 0), 0u);
  EXPECT_EQ(PlanView(v1::PlanResult(), 100, Style()), "No plan: no reason is given\n");
}

TEST(PlanView, WhatCanBePredictedOnlySaysSoInItsFirstLine) {
  v1::PlanResult result = FittingPlan();
  result.mutable_not_served()->set_message("no engine knows it");
  EXPECT_EQ(PlanView(result, 100, Style()).rfind("Predicted only: no engine knows it\n\n", 0), 0u);
}

TEST(PlanView, WouldWorkTooStandsFastestFirstAndApartFromWhatDoesNot) {
  v1::PlanResult result = FittingPlan();
  v1::Rejection& faster = *result.mutable_plan()->add_rejections();
  faster.set_subject("tensor parallel over 2");
  faster.mutable_reason()->set_message("24 tokens/s, more machines");
  faster.mutable_prediction()->set_tokens_per_second(24);
  const std::string text = PlanView(result, 100, Style());
  const size_t too = text.find("Would work too:"), not_taken = text.find("Not taken:");
  ASSERT_NE(too, std::string::npos) << text;
  ASSERT_NE(not_taken, std::string::npos) << text;
  EXPECT_LT(text.find("tensor parallel over 2"), text.find("pipeline parallel over 2"));
  EXPECT_LT(text.find("pipeline parallel over 2"), not_taken);
  EXPECT_GT(text.find("tensor parallel over 3: 8 heads"), not_taken);
}

TEST(PlanView, SaysHowMuchIsKnownOfSuchPlans) {
  v1::PlanResult result = FittingPlan();
  v1::Prediction& prediction = *result.mutable_plan()->mutable_prediction();
  EXPECT_TRUE(Has(PlanView(result, 100, Style()), "an estimate alone"));
  prediction.set_tokens_per_second_low(1.34);
  prediction.set_tokens_per_second_high(2.46);
  for (const auto& [figures, words] :
       {std::pair<uint32_t, const char*>{1, "1 speed of such plans was published, 1.3 to 2.5"},
        {9, "9 speeds of such plans were published, 1.3 to 2.5"},
        {10, "1.3 to 2.5 by the errors of nine of ten of 10 published speeds"}}) {
    prediction.set_published_figures(figures);
    EXPECT_TRUE(Has(PlanView(result, 100, Style()), words)) << PlanView(result, 100, Style());
  }
  prediction.set_tokens_per_second_low(26.2);
  prediction.set_tokens_per_second_high(35.7);
  EXPECT_TRUE(Has(PlanView(result, 100, Style()), "26 to 36 by the errors"));
}

TEST(PlanView, TheFirstTokenIsSaidWithTwoDigits) {
  v1::PlanResult result = FittingPlan();
  v1::Prediction& prediction = *result.mutable_plan()->mutable_prediction();
  for (const auto& [ms, words] : {std::pair<double, const char*>{43'210, "about 43 s\n"},
                                  {1830, "about 1.8 s\n"},
                                  {96, "about 0.10 s\n"}}) {
    prediction.set_first_token_ms(ms);
    EXPECT_TRUE(Has(PlanView(result, 100, Style()), words)) << PlanView(result, 100, Style());
  }
  prediction.set_first_token_ms_low(80);
  prediction.set_first_token_ms_high(130);
  EXPECT_TRUE(Has(PlanView(result, 100, Style()), "about 0.10 s (0.08 to 0.13)\n"));
  prediction.set_tokens_per_second(0);
  EXPECT_FALSE(Has(PlanView(result, 100, Style()), "Predicted:")) << "nothing was predicted";
}

TEST(PlanView, ABudgetThatIsNotKnownHasNoShare) {
  v1::PlanResult result = FittingPlan();
  result.mutable_plan()->mutable_assignments(0)->set_budget_bytes(0);
  const std::string text = PlanView(result, 140, Style());
  EXPECT_TRUE(Has(text, "  0 B    -\n")) << text;
}

TEST(SpeedsView, SaysWhyThereAreNone) {
  EXPECT_TRUE(Has(SpeedsView(v1::SpeedCorrections(), 80, Style()), "at least 8 tokens"));
  v1::SpeedCorrections speeds;
  speeds.add_corrections()->set_measured_to_predicted(1.125);
  EXPECT_TRUE(Has(SpeedsView(speeds, 80, Style()), "1.1")) << SpeedsView(speeds, 80, Style());
}

TEST(LoadedSummary, SaysHowToAskIt) {
  v1::DeploymentStatus model = Tiny();
  EXPECT_EQ(LoadedSummary(model, 12.345),
            "tiny is ready: pipeline over 3 via ring (mini-1, mini-2, mini-3), context 4096, "
            "7.5 GiB planned, 12.3 s\n"
            "Ask it:  clusterctl model infer tiny --prompt \"...\"\n");
  model.mutable_deployment()->set_replicas(2);
  model.mutable_deployment()->set_name("tiny#2");
  EXPECT_TRUE(Has(LoadedSummary(model, 1), "tiny is ready: 2 replicas, the last one pipeline"));
  EXPECT_TRUE(Has(LoadedSummary(model, 1), "model infer tiny --prompt"));
  model.mutable_ranks(0)->set_phase_detail("no_chat_template");
  EXPECT_TRUE(Has(LoadedSummary(model, 1), "model infer tiny --raw --prompt"));
  EXPECT_TRUE(Has(LoadedSummary(model, 1), "no chat template: "));
  SetReason(reasons::kRankExited, "3 of 4 ranks", model.mutable_degraded());
  EXPECT_TRUE(Has(LoadedSummary(model, 1), "Less than asked for: 3 of 4 ranks\n"));
}

}  // namespace
}  // namespace macrame::cli
