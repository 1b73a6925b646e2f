// Rank 0's ends of a pipeline over real connections: messages that no buffer holds, as many steps
// on their way as there are stages.

#include "runtime/gang/step_pipeline.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "tests/unit/transport/collectives/loopback_ranks.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kLargeFloats = 8 << 20;  // 32 MiB: more than both ends of a connection buffer
constexpr int kSteps = 7;

size_t ResultFloats(int step) { return step % 3 == 1 ? 1 : kLargeFloats; }

// What each later rank does: a step's hidden states in, the next thing out.
void Follow(transport::Group& group) {
  std::vector<float> hidden(kLargeFloats);
  const bool is_last = group.rank() + 1 == group.size();
  for (int step = 0; step < kSteps; ++step) {
    const auto in = std::as_writable_bytes(std::span<float>(hidden));
    ASSERT_TRUE(group.ReceiveFrom(in, group.rank() - 1).ok());
    EXPECT_EQ(hidden.back(), static_cast<float>(step));
    const size_t floats = is_last ? ResultFloats(step) : kLargeFloats;
    hidden[0] = static_cast<float>(step);
    const absl::Status sent =
        group.SendTo(std::as_bytes(std::span<const float>(hidden.data(), floats)),
                     is_last ? 0 : group.rank() + 1);
    ASSERT_TRUE(sent.ok()) << sent;
  }
}

class StepPipelineTest : public testing::TestWithParam<int> {};

TEST_P(StepPipelineTest, LargeStepsAndResultsPassEachOther) {
  const int stages = GetParam();
  transport::LoopbackRanks ranks(stages);
  ranks.Run([&](int rank, std::unique_ptr<transport::Wire> wire) {
    const auto group = transport::MakeGroup(std::move(wire), Topology::kMesh);
    if (rank > 0) return Follow(*group);
    StepPipeline pipeline(*group, 1, stages - 1, stages);
    std::vector<float> hidden(kLargeFloats);
    int sent = 0;
    size_t most = 0;
    for (int step = 0; step < kSteps; ++step) {
      for (; sent < kSteps && pipeline.steps() < pipeline.steps_max(); ++sent) {
        hidden.back() = static_cast<float>(sent);
        const absl::Status status =
            pipeline.Send(std::as_bytes(std::span<const float>(hidden)), ResultFloats(sent));
        ASSERT_TRUE(status.ok()) << status;
        most = std::max(most, pipeline.steps());
      }
      const auto result = pipeline.Await();
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->size(), ResultFloats(step));
      EXPECT_EQ(result->front(), static_cast<float>(step));
    }
    EXPECT_EQ(most, static_cast<size_t>(stages));
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, StepPipelineTest, testing::Values(2, 3, 4));

// The other stages, as rank 0 sees them: hidden states are held in as many places as there are
// other stages, and a result takes its step's place until rank 0 takes it. A send for which there
// is no place would wait for ever.
class FakeStages : public transport::Group {
 public:
  FakeStages(int next, int last, size_t places) : next_(next), last_(last), places_(places) {}

  absl::Status SendTo(std::span<const std::byte> bytes, int peer) override {
    EXPECT_EQ(peer, next_);
    if (fails_) return absl::UnavailableError("the next stage is gone");
    EXPECT_LT(held_.size(), places_) << "rank 0 and the last stage wait for each other";
    Hold(bytes);
    return absl::OkStatus();
  }
  absl::Status ReceiveFrom(std::span<std::byte> bytes, int peer) override {
    EXPECT_EQ(peer, last_);
    if (fails_) return absl::UnavailableError("the last stage is gone");
    if (held_.empty()) return absl::InternalError("nothing is on its way");
    EXPECT_EQ(bytes.size() % sizeof(float), 0u);
    std::vector<float> floats(bytes.size() / sizeof(float), held_.front());
    std::memcpy(bytes.data(), floats.data(), bytes.size());
    held_.pop_front();
    return absl::OkStatus();
  }
  absl::Status SendAndReceive(std::span<const std::byte> out, int to, std::span<std::byte> in,
                              int from) override {
    EXPECT_EQ(to, next_);
    const absl::Status received = ReceiveFrom(in, from);
    if (received.ok()) Hold(out);
    return received;
  }
  void Fail() { fails_ = true; }
  void Mend() { fails_ = false; }

  int rank() const override { return 0; }
  int size() const override { return last_ + 1; }
  Backend backend() const override { return Backend::kRing; }
  bool sums_in_rank_order() const override { return true; }
  absl::Status AllReduce(const void*, void*, size_t, transport::Element,
                         transport::Reduction) override {
    return absl::UnimplementedError("");
  }
  absl::Status AllGather(std::span<const std::byte>, std::span<std::byte>) override {
    return absl::UnimplementedError("");
  }
  absl::Status ReduceScatter(const void*, void*, size_t, transport::Element,
                             transport::Reduction) override {
    return absl::UnimplementedError("");
  }
  transport::WireStats stats() const override { return {}; }
  void ShutDown() override {}

 private:
  void Hold(std::span<const std::byte> bytes) {
    float number = 0;
    ASSERT_EQ(bytes.size(), sizeof(number));
    std::memcpy(&number, bytes.data(), sizeof(number));
    held_.push_back(number);
  }

  const int next_, last_;
  const size_t places_;
  std::deque<float> held_;  // the steps on their way, oldest first
  bool fails_ = false;
};

absl::Status SendNumber(StepPipeline& pipeline, float number, size_t floats) {
  return pipeline.Send(std::as_bytes(std::span<const float>(&number, 1)), floats);
}

TEST(StepPipeline, ResultsComeInOrderAndNobodyWaitsInARing) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const int stages = 2 + static_cast<int>(random() % 5);
    FakeStages group(1, stages - 1, static_cast<size_t>(stages - 1));
    StepPipeline pipeline(group, 1, stages - 1, stages);
    EXPECT_EQ(pipeline.steps_max(), static_cast<size_t>(stages));
    std::deque<std::pair<float, size_t>> expected;
    for (float number = 0; number < 100;) {
      const bool may_send = pipeline.steps() < pipeline.steps_max();
      if (expected.empty() || (may_send && random() % 2 == 0)) {
        const size_t floats = 1 + random() % 50;
        ASSERT_TRUE(SendNumber(pipeline, number, floats).ok()) << "seed " << seed;
        expected.emplace_back(number++, floats);
      } else {
        const auto result = pipeline.Await();
        ASSERT_TRUE(result.ok()) << "seed " << seed << result.status();
        ASSERT_EQ(*result, std::vector<float>(expected.front().second, expected.front().first))
            << "seed " << seed;
        expected.pop_front();
      }
      ASSERT_EQ(pipeline.steps(), expected.size()) << "seed " << seed;
    }
  }
}

TEST(StepPipeline, AStepThatWasNotSentIsNotOnItsWay) {
  FakeStages group(2, 4, 2);
  StepPipeline pipeline(group, 2, 4, 3);
  group.Fail();
  EXPECT_TRUE(absl::IsUnavailable(SendNumber(pipeline, 1, 4)));
  EXPECT_EQ(pipeline.steps(), 0u);
  group.Mend();
  ASSERT_TRUE(SendNumber(pipeline, 2, 4).ok());
  EXPECT_EQ(*pipeline.Await(), std::vector<float>(4, 2.0F));
}

// The result that a send was to take on its way did not come: zeros in its place would be logits.
TEST(StepPipeline, AResultThatDidNotComeIsNeverHandedOut) {
  FakeStages group(1, 2, 2);
  StepPipeline pipeline(group, 1, 2, 3);
  ASSERT_TRUE(SendNumber(pipeline, 1, 4).ok());
  ASSERT_TRUE(SendNumber(pipeline, 2, 4).ok());
  group.Fail();
  EXPECT_TRUE(absl::IsUnavailable(SendNumber(pipeline, 3, 4)));
  EXPECT_EQ(pipeline.steps(), 2u);
  const auto oldest = pipeline.Await();
  EXPECT_TRUE(absl::IsUnavailable(oldest.status())) << "the last stage is gone";
}

TEST(StepPipeline, ALostLastStageIsToldByTheResultsThatAreMissing) {
  FakeStages group(1, 3, 3);
  StepPipeline pipeline(group, 1, 3, 4);
  for (const float number : {1.0F, 2.0F, 3.0F, 4.0F}) {
    ASSERT_TRUE(SendNumber(pipeline, number, 2).ok());
  }
  group.Fail();
  EXPECT_EQ(*pipeline.Await(), std::vector<float>(2, 1.0F)) << "it came while the fourth went";
  EXPECT_TRUE(absl::IsUnavailable(pipeline.Await().status()));
  EXPECT_EQ(pipeline.steps(), 2u);
}

}  // namespace
}  // namespace macrame::runtime::engine
