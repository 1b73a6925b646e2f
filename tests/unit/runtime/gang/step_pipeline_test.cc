// Rank 0's ends of a pipeline over real connections: messages that no buffer holds, as many steps
// on their way as there are stages.

#include "runtime/gang/step_pipeline.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace macrame::runtime::engine
