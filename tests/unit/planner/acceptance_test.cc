// Loads that people ran or tried on real Macs, and what the planner must say to each. A Mac lets
// its GPU wire about three quarters of its memory.

#include <gtest/gtest.h>

#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGB = 1'000'000'000;

v1::PlanResult Plan(uint64_t weights_bytes, const std::vector<uint64_t>& memory_gib) {
  std::vector<v1::PlannerNode> nodes;
  for (size_t i = 0; i < memory_gib.size(); ++i) {
    nodes.push_back(Node("mac-" + std::to_string(i), memory_gib[i] * kGiB / 4 * 3));
  }
  return PlanModel(Request(LargeModel("model", weights_bytes, 64), nodes));
}

TEST(PlannerAcceptance, TrillionParametersAt4Bit) {
  EXPECT_FALSE(Plan(658 * kGB, {512}).has_plan());
  EXPECT_EQ(Plan(658 * kGB, {512, 512}).plan().world_size(), 2u);
  EXPECT_FALSE(Plan(658 * kGB, {256, 256}).has_plan());
  EXPECT_TRUE(Plan(658 * kGB, {512, 512, 256, 256}).has_plan());
  // 86 % of all memory: refused, because the GPUs may not wire so much.
  EXPECT_FALSE(Plan(658 * kGB, {512, 256}).has_plan());
}

TEST(PlannerAcceptance, DeepSeekAt4Bit) {
  EXPECT_EQ(Plan(378 * kGB, {512}).plan().world_size(), 1u);
  EXPECT_FALSE(Plan(378 * kGB, {256}).has_plan());
  EXPECT_EQ(Plan(378 * kGB, {256, 256}).plan().world_size(), 2u);
}

TEST(PlannerAcceptance, Qwen235At8Bit) {
  EXPECT_EQ(Plan(242 * kGB, {512}).plan().world_size(), 1u);
  const v1::PlanResult refused = Plan(242 * kGB, {256});
  ASSERT_FALSE(refused.has_plan());
  EXPECT_NE(refused.failure().remedy().find("bit copy"), std::string::npos)
      << refused.failure().remedy();
}

TEST(PlannerAcceptance, OneTerabyteOnlyUnevenly) {
  const v1::PlanResult result = Plan(1000 * kGB, {512, 512, 256, 256});
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 4u);
  const auto layers = [&](int i) {
    return result.plan().assignments(i).layer_end() - result.plan().assignments(i).layer_begin();
  };
  EXPECT_GT(layers(0), layers(3));
  bool equal_slices_refused = false;
  for (const v1::Rejection& rejection : result.rejections()) {
    equal_slices_refused |= rejection.subject() == "tensor parallel over 4" &&
                            rejection.reason().code() == "MEMORY_SHORT";
  }
  EXPECT_TRUE(equal_slices_refused);
}

TEST(PlannerAcceptance, LaptopsOf24GiB) {
  const v1::PlanResult fits = Plan(40'500'000'000, {24, 24, 24});
  ASSERT_TRUE(fits.has_plan()) << fits.failure().message();
  EXPECT_EQ(fits.plan().pp(), 3u);
  EXPECT_FALSE(Plan(65'600'000'000, {24, 24, 24}).has_plan());
  EXPECT_FALSE(Plan(228 * kGB, {24, 24, 24}).has_plan());
}

TEST(PlannerAcceptance, LargeOnSeveral) {
  EXPECT_EQ(Plan(74'400'000'000, {64, 64}).plan().world_size(), 2u);
  EXPECT_TRUE(Plan(713 * kGB, {512, 512, 512, 512}).has_plan());
  EXPECT_FALSE(Plan(713 * kGB, {192, 192, 192, 192}).has_plan());
  EXPECT_TRUE(Plan(378 * kGB, {192, 192, 192, 192}).has_plan());
}

}  // namespace
}  // namespace macrame::planner
