// What is learnt from measured speeds, whatever figures come in; and predictions that stay numbers.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "planner/planner.h"
#include "planner/prediction.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

TEST(Learning, ConvergesOnHowFastTheClusterReallyIs) {
  for (const double truth : {0.1, 0.6, 1.0, 1.7, 8.0}) {
    v1::SpeedCorrections corrections;
    for (int i = 0; i < 60; ++i) {
      const double applied = CorrectionOf(corrections, "ring");
      // A step takes `truth` of what is predicted without any correction.
      Learn(&corrections, "ring", /*measured=*/20 / truth, /*predicted=*/20 / applied, applied);
    }
    EXPECT_NEAR(CorrectionOf(corrections, "ring"), truth, 0.01 * truth);
  }
}

TEST(Learning, FollowsAClusterThatBecomesSlowerWithinSomeAnswers) {
  v1::SpeedCorrections corrections;
  for (int i = 0; i < 1000; ++i) Learn(&corrections, "ring", 20, 20, 1);
  EXPECT_NEAR(CorrectionOf(corrections, "ring"), 1, 1e-9);
  for (int i = 0; i < 100; ++i) Learn(&corrections, "ring", 10, 20, 1);
  EXPECT_NEAR(CorrectionOf(corrections, "ring"), 2, 0.05) << "a thousand answers weigh no more";
  EXPECT_LE(corrections.corrections(0).samples(), kCorrectionSamplesMax);
}

TEST(Learning, FiguresThatAreNoSpeedsTeachNothing) {
  constexpr double kWrong[] = {0, -1, kNone, -kNone, kEndless, -kEndless};
  v1::SpeedCorrections corrections;
  for (int i = 0; i < 5; ++i) Learn(&corrections, "ring", 10, 20, 1);
  const std::string before = corrections.SerializeAsString();
  for (const double wrong : kWrong) {
    Learn(&corrections, "ring", wrong, 20, 1);
    Learn(&corrections, "ring", 20, wrong, 1);
    Learn(&corrections, "ring", 20, 20, wrong);
    Learn(&corrections, "jaccl", wrong, wrong, wrong);
  }
  EXPECT_EQ(corrections.SerializeAsString(), before);
  // Too far off to be an estimate's fault.
  Learn(&corrections, "ring", 1, 20, 1);
  Learn(&corrections, "ring", 2000, 20, 1);
  EXPECT_EQ(corrections.SerializeAsString(), before);
  EXPECT_NEAR(CorrectionOf(corrections, "ring"), 2, 1e-9);
}

TEST(Learning, EachBackendIsLearntForItself) {
  v1::SpeedCorrections corrections;
  for (int i = 0; i < 4; ++i) {
    Learn(&corrections, "ring", 10, 20, 1);
    Learn(&corrections, "jaccl", 40, 20, 1);
  }
  EXPECT_NEAR(CorrectionOf(corrections, "ring"), 2, 1e-9);
  EXPECT_NEAR(CorrectionOf(corrections, "jaccl"), 0.5, 1e-9);
  EXPECT_NEAR(CorrectionOf(corrections, "verbs"), 1.25, 1e-9) << "as those that were measured err";
  EXPECT_EQ(CorrectionOf({}, "ring"), 1);
}

// What a state that was written by others holds is bounded when it is read.
TEST(Learning, CorrectionsOutOfBoundsAreTakenAtTheirBounds) {
  const std::pair<double, double> cases[] = {{-3, kCorrectionMin},
                                             {0, kCorrectionMin},
                                             {1e300, kCorrectionMax},
                                             {kEndless, kCorrectionMax}};
  for (const auto& [held, taken] : cases) {
    v1::SpeedCorrections corrections;
    v1::SpeedCorrection& one = *corrections.add_corrections();
    one.set_backend("ring");
    one.set_measured_to_predicted(held);
    one.set_samples(std::numeric_limits<uint32_t>::max());
    EXPECT_EQ(CorrectionOf(corrections, "ring"), taken) << held;
    EXPECT_EQ(CorrectionOf(corrections, "single"), taken) << held;
    // And the next answer moves it on.
    Learn(&corrections, "ring", 20, 20, 1);
    EXPECT_LE(corrections.corrections(0).samples(), kCorrectionSamplesMax);
  }
}

TEST(Learning, ManySamplesOfTwoBackendsDoNotOverflow) {
  v1::SpeedCorrections corrections;
  for (const char* backend : {"ring", "jaccl"}) {
    v1::SpeedCorrection& one = *corrections.add_corrections();
    one.set_backend(backend);
    one.set_measured_to_predicted(2);
    one.set_samples(std::numeric_limits<uint32_t>::max());
  }
  EXPECT_NEAR(CorrectionOf(corrections, "verbs"), 2, 1e-6);
}

v1::PlanRequest RandomRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  constexpr double kFigures[] = {0, -5, 1e-3, 40, 3e9, 1e300, kNone, -kEndless};
  constexpr const char* kChips[] = {"", "Apple M4 Max", "NVIDIA L4", "Apple M1"};
  std::vector<v1::PlannerNode> nodes;
  for (uint64_t i = pick(1, 4); i > 0; --i) {
    v1::PlannerNode node = Node(absl::StrCat("node-", i), pick(8, 80) * kGiB);
    node.set_chip(kChips[random() % 4]);
    node.set_gpu_cores(random() % 3 == 0 ? 0 : static_cast<uint32_t>(pick(1, 80)));
    node.set_cpu_cores(static_cast<uint32_t>(pick(0, 64)));
    if (random() % 4 == 0) node.set_memory_bandwidth(kFigures[random() % 8]);
    if (random() % 4 == 0) node.set_compute_flops(kFigures[random() % 8]);
    if (random() % 3 == 0) node.set_disk_bytes_per_second(kFigures[random() % 8]);
    node.set_power_peak_watts(static_cast<double>(pick(0, 300)));
    node.set_power_idle_watts(static_cast<double>(pick(0, 400)));
    nodes.push_back(std::move(node));
  }
  v1::PlanRequest request = Request(random() % 2 == 0 ? LargeModel("m", pick(2, 60) * kGiB, 24)
                                                      : MixtureModel("m", pick(2, 60) * kGiB, 24),
                                    nodes);
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    AddLink(nodes[i].node_id(), nodes[i + 1].node_id(), {"ring", "jaccl"},
            static_cast<v1::LinkMedium>(pick(0, 5)), &request);
    for (int last = request.links_size() - 2; last < request.links_size(); ++last) {
      request.mutable_links(last)->set_round_trip_us(kFigures[random() % 8]);
      request.mutable_links(last)->set_bandwidth_bytes_per_second(kFigures[random() % 8]);
      request.mutable_links(last)->set_rdma_round_trip_us(kFigures[random() % 8]);
    }
  }
  v1::PlacementOptions& placement = *request.mutable_placement();
  placement.set_users(static_cast<uint32_t>(pick(0, 40)));
  placement.set_optimize(static_cast<v1::Optimize>(pick(0, 2)));
  placement.set_prompt_tokens(static_cast<uint32_t>(pick(0, 1) * pick(1, 100'000)));
  placement.set_world_size(static_cast<uint32_t>(pick(0, 1) * pick(1, nodes.size())));
  return request;
}

// Measurements come from machines, and machines say strange things.
TEST(Prediction, IsANumberWhateverTheMeasurementsSay) {
  int plans = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    const v1::PlanResult result = PlanModel(request);
    if (!result.has_plan()) continue;
    ++plans;
    const v1::Prediction& told = result.plan().prediction();
    for (const double figure :
         {told.tokens_per_second(), told.users_tokens_per_second(), told.first_token_ms(),
          told.weights_ms(), told.overhead_ms(), told.correction()}) {
      EXPECT_TRUE(std::isfinite(figure) && figure > 0) << told.ShortDebugString();
    }
    for (const double figure : {told.kv_ms(), told.communication_ms(), told.power_watts(),
                                told.joules_per_token(), told.load_seconds()}) {
      EXPECT_TRUE(std::isfinite(figure) && figure >= 0) << told.ShortDebugString();
    }
    const double parts =
        told.weights_ms() + told.kv_ms() + told.overhead_ms() + told.communication_ms();
    EXPECT_NEAR(parts, 1000 / told.tokens_per_second(), 1e-6 * parts);
    EXPECT_LE(told.prompt_tokens(), result.plan().context_length());
    EXPECT_GE(told.users(), 1u);
    EXPECT_LE(told.users(), result.plan().concurrent_sequences());
    if (told.published_figures() == 0) continue;
    EXPECT_LE(told.tokens_per_second_low(), told.tokens_per_second());
    EXPECT_GE(told.tokens_per_second_high(), told.tokens_per_second());
    EXPECT_LE(told.first_token_ms_low(), told.first_token_ms());
    EXPECT_GE(told.first_token_ms_high(), told.first_token_ms());
  }
  EXPECT_GT(plans, 250);
}

TEST(Prediction, SpeedsAreWrittenWithTheDigitsThatAnEstimateBears) {
  const std::pair<double, const char*> cases[] = {
      {0, "0.0 tokens/s"},      {0.04, "0.0 tokens/s"},  {31.64, "31.6 tokens/s"},
      {99.94, "99.9 tokens/s"}, {99.96, "100 tokens/s"}, {100, "100 tokens/s"},
      {1234.5, "1234 tokens/s"}};
  for (const auto& [speed, text] : cases) EXPECT_EQ(SpeedText(speed), text) << speed;
}

}  // namespace
}  // namespace macrame::planner
