// What a layer that pools groups of positions keeps of a sequence's last ones: which steps are
// refused for want of it, and that it stays while the sequence is open.

#include "runtime/model/cpu/open_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace macrame::runtime::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kLayers = 3, kWidth = 5;

Segment Part(uint32_t slot, uint32_t begin, size_t count) {
  Segment segment;
  segment.slot = slot;
  segment.begin = begin;
  segment.tokens.assign(count, 1);
  return segment;
}

std::string Refusal(const OpenGroups& groups, const ForwardStep& step) {
  const absl::Status status = groups.Check(step);
  EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
  return std::string(status.message());
}

void Take(OpenGroups& groups, const ForwardStep& step) {
  const absl::Status good = groups.Check(step);
  ASSERT_TRUE(good.ok()) << good;
  groups.Apply(step);
}

TEST(OpenGroupsTest, ASequenceBeginsWhereABlockDoes) {
  OpenGroups groups(kLayers, kWidth);
  for (const uint32_t begin : {0U, 32U, 320U}) {
    EXPECT_EQ(Refusal(groups, {{}, {Part(4, begin, 1)}}), "") << begin;
  }
  for (const uint32_t begin : {1U, 31U, 33U}) {
    EXPECT_THAT(Refusal(groups, {{}, {Part(2, 0, 5), Part(4, begin, 1)}}),
                AllOf(HasSubstr("slot 4"), HasSubstr("within a block that it did not compute")))
        << begin;
  }
}

TEST(OpenGroupsTest, GoesOnAndBackAsFarAsIsKept) {
  OpenGroups groups(kLayers, kWidth);
  Take(groups, {{}, {Part(4, 0, 101)}});
  for (const uint32_t begin : {101U, 100U, 90U, 69U, 96U, 64U, 32U, 0U}) {
    EXPECT_EQ(Refusal(groups, {{}, {Part(4, begin, 1)}}), "") << begin;
  }
  EXPECT_THAT(Refusal(groups, {{}, {Part(4, 68, 1)}}),
              AllOf(HasSubstr("slot 4"), HasSubstr("goes back from 101 to 68, more than " +
                                                   std::to_string(OpenPositions::kBackMax))));
  // Drafts that were wrong count as far as they were run.
  Take(groups, {{}, {Part(4, 90, 4)}});
  EXPECT_NE(Refusal(groups, {{}, {Part(4, 68, 1)}}), "");
}

TEST(OpenGroupsTest, AClosedSequenceHasNothingLeft) {
  OpenGroups groups(kLayers, kWidth);
  Take(groups, {{}, {Part(4, 0, 40), Part(5, 0, 40)}});
  EXPECT_NE(Refusal(groups, {{4}, {Part(4, 40, 1)}}), "") << "in the step that closes it";
  EXPECT_EQ(Refusal(groups, {{4}, {Part(4, 0, 1), Part(5, 40, 1)}}), "");
  Take(groups, {{4}, {Part(5, 40, 1)}});
  EXPECT_NE(Refusal(groups, {{}, {Part(4, 40, 1)}}), "");
}

TEST(OpenGroupsTest, NumbersStayWhileTheSequenceIsOpen) {
  OpenGroups groups(kLayers, kWidth);
  Take(groups, {{}, {Part(4, 0, 3), Part(5, 0, 3)}});
  const size_t floats = OpenGroups::kPositions * kWidth;
  for (const uint32_t slot : {4U, 5U}) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (size_t i = 0; i < floats; ++i) {
        groups.Layer(slot, layer)[i] = static_cast<float>(slot * 10000 + layer * 1000 + i);
      }
    }
  }
  Take(groups, {{}, {Part(5, 3, 60), Part(6, 0, 1)}});
  for (const uint32_t slot : {4U, 5U}) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (size_t i = 0; i < floats; ++i) {
        ASSERT_EQ(groups.Layer(slot, layer)[i], static_cast<float>(slot * 10000 + layer * 1000 + i))
            << "slot " << slot << ", layer " << layer;
      }
    }
  }
}

TEST(OpenGroupsTest, MemoryIsThatOfOpenSequences) {
  OpenGroups groups(kLayers, kWidth);
  EXPECT_EQ(groups.memory_bytes(), 0u);
  Take(groups, {{}, {Part(4, 0, 3), Part(5, 0, 3)}});
  const uint64_t each = uint64_t{kLayers} * OpenGroups::kPositions * kWidth * sizeof(float);
  EXPECT_EQ(groups.memory_bytes(), 2 * each);
  Take(groups, {{5}, {}});
  EXPECT_EQ(groups.memory_bytes(), each);
}

TEST(OpenGroupsTest, ARankWithoutSuchLayersKeepsAndRefusesNothing) {
  OpenGroups groups(0, kWidth);
  EXPECT_TRUE(groups.empty());
  Take(groups, {{}, {Part(4, 17, 3)}});
  EXPECT_EQ(groups.memory_bytes(), 0u);
}

}  // namespace
}  // namespace macrame::runtime::engine
