#include "runtime/supervisor/memory_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "proto/reasons.h"

namespace macrame::runtime {
namespace {

TEST(MemoryAdmission, PromisesAddUp) {
  const NodeMemory memory{Bytes(100), Bytes(100)};
  EXPECT_TRUE(AdmitMemory(Bytes(100), {}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(101), {}, memory, "n").ok());
  EXPECT_TRUE(AdmitMemory(Bytes(40), {{Bytes(60), Bytes(0)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(41), {{Bytes(60), Bytes(0)}}, memory, "n").ok());
}

TEST(MemoryAdmission, WhatIsResidentIsNotCountedTwice) {
  // 60 are promised, 50 of them already taken from what was free.
  const NodeMemory memory{Bytes(100), Bytes(45)};
  EXPECT_TRUE(AdmitMemory(Bytes(35), {{Bytes(60), Bytes(50)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(36), {{Bytes(60), Bytes(50)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(1), {{Bytes(60), Bytes(10)}}, memory, "n").ok());
  EXPECT_TRUE(AdmitMemory(Bytes(1), {{Bytes(60), Bytes(80)}}, memory, "n").ok());
}

TEST(MemoryAdmission, ARefusalSaysWhatIsShortOnWhichNode) {
  const auto refused = [](uint64_t need, const std::vector<AdmittedRank>& admitted,
                          const NodeMemory& memory) {
    const absl::Status status = AdmitMemory(Bytes::GiB(need), admitted, memory, "node-7");
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    const v1::Reason reason = ReasonOf(status);
    EXPECT_EQ(reason.code(), "MEMORY_SHORT");
    EXPECT_EQ(reason.node_id(), "node-7");
    EXPECT_NE(reason.remedy(), "");
    return reason.message();
  };
  const std::vector<AdmittedRank> others = {{Bytes::GiB(20), Bytes::GiB(8)}};
  EXPECT_THAT(refused(13, others, {Bytes::GiB(32), Bytes::GiB(64)}),
              testing::AllOf(testing::HasSubstr("needs 13.0 GiB"), testing::HasSubstr("32.0 GiB"),
                             testing::HasSubstr("20.0 GiB are promised")));
  EXPECT_THAT(
      refused(5, others, {Bytes::GiB(64), Bytes::GiB(16)}),
      testing::AllOf(testing::HasSubstr("needs 5.0"), testing::HasSubstr("16.0 GiB are free"),
                     testing::HasSubstr("12.0 GiB go to ranks that are loading")));
}

// A plan from elsewhere may name any need: sums that wrap around would let all of them in.
TEST(MemoryAdmission, NeedsBeyondAllNumbersAreRefused) {
  const Bytes huge(std::numeric_limits<uint64_t>::max());
  const NodeMemory memory{Bytes(100), Bytes(100)};
  EXPECT_FALSE(AdmitMemory(huge, {}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(huge, {{Bytes(60), Bytes(0)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(1), {{huge, Bytes(0)}}, memory, "n").ok());
}

// Ranks come, load and go in any order. What was let in never adds up to more than models may take,
// nor to more than was free; and nothing is refused that would have fitted.
TEST(MemoryAdmission, WhatIsLetInAlwaysFits) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t usable = 1 + random() % 1000;
    const uint64_t other_programs = random() % 300;  // that hold memory beside the models
    const uint64_t all = usable + 50;
    std::vector<AdmittedRank> ranks;
    for (int event = 0; event < 200; ++event) {
      uint64_t promised = 0, resident = 0;
      for (const AdmittedRank& rank : ranks) {
        promised += rank.need.count();
        resident += rank.resident.count();
      }
      const uint64_t taken = other_programs + resident;
      const uint64_t available = all > taken ? all - taken : 0;
      const uint64_t need = 1 + random() % 300;
      const bool fits_promise = promised + need <= usable;
      const bool fits_free = available == 0 || promised - resident + need <= available;
      const bool is_let_in =
          AdmitMemory(Bytes(need), ranks, {Bytes(usable), Bytes(available)}, "n").ok();
      ASSERT_EQ(is_let_in, fits_promise && fits_free)
          << "seed " << seed << ": " << need << " with " << promised << " promised, " << resident
          << " resident, " << usable << " usable, " << available << " free";
      if (is_let_in) ranks.push_back({Bytes(need), Bytes(0)});
      for (AdmittedRank& rank : ranks) {  // loading
        const uint64_t left = rank.need.count() - rank.resident.count();
        rank.resident += Bytes(left == 0 ? 0 : random() % (left + 1));
      }
      if (!ranks.empty() && random() % 3 == 0) {
        ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(random() % ranks.size()));
      }
    }
  }
}

NewRank Coming(uint64_t gib) { return {"qwen-30b", "studio-1", "node-7", Bytes::GiB(gib)}; }

// A Mac of 128 GiB that reports a working set of 107.5 GiB, with two models loaded.
TEST(WiredAdmission, AllRanksTogetherStayWithinTheWorkingSet) {
  const NodeMemory mac{Bytes::GiB(128), Bytes::GiB(60), Bytes(uint64_t{110'100} << 20)};
  const std::vector<AdmittedRank> two = {{Bytes::GiB(42), Bytes::GiB(42), Bytes::GiB(40)},
                                         {Bytes::GiB(31), Bytes::GiB(1), Bytes::GiB(30)}};
  EXPECT_TRUE(AdmitWired(Coming(107), {}, mac).ok());
  EXPECT_FALSE(AdmitWired(Coming(108), {}, mac).ok());
  EXPECT_TRUE(AdmitWired(Coming(37), two, mac).ok());
  EXPECT_FALSE(AdmitWired(Coming(38), two, mac).ok());
}

TEST(WiredAdmission, ARefusalNamesNodeModelBytesAndWhatToDo) {
  const NodeMemory mac{Bytes::GiB(128), Bytes::GiB(60), Bytes::GiB(96)};
  const absl::Status status =
      AdmitWired(Coming(60), {{Bytes::GiB(42), Bytes::GiB(42), Bytes::GiB(40)}}, mac);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  const v1::Reason reason = ReasonOf(status);
  EXPECT_EQ(reason.code(), "MEMORY_SHORT");
  EXPECT_EQ(reason.node_id(), "node-7");
  EXPECT_THAT(reason.message(),
              testing::AllOf(testing::HasSubstr("qwen-30b"), testing::HasSubstr("studio-1"),
                             testing::HasSubstr("60.0 GiB"), testing::HasSubstr("96.0 GiB"),
                             testing::HasSubstr("56.0 GiB are left")));
  EXPECT_THAT(reason.remedy(), testing::AllOf(testing::HasSubstr("studio-1"),
                                              testing::HasSubstr("iogpu.wired_limit_mb")));
}

TEST(WiredAdmission, ANodeWithoutAGpuHasNoSuchLimit) {
  const NodeMemory server{Bytes::GiB(128), Bytes::GiB(60)};
  EXPECT_TRUE(AdmitWired(Coming(4096), {}, server).ok());
}

// Sums that wrap around would let all of them in.
TEST(WiredAdmission, PlansBeyondAllNumbersAreRefused) {
  const Bytes huge(std::numeric_limits<uint64_t>::max());
  const NodeMemory mac{Bytes(100), Bytes(100), Bytes(100)};
  EXPECT_FALSE(AdmitWired({"m", "", "n", huge}, {}, mac).ok());
  EXPECT_FALSE(AdmitWired({"m", "", "n", Bytes(1)},
                          {{huge, Bytes(0), huge}, {Bytes(9), Bytes(0), Bytes(9)}}, mac)
                   .ok());
}

TEST(MemoryAdmission, UnknownFreeMemoryIsNotZero) {
  EXPECT_TRUE(AdmitMemory(Bytes(10), {}, {Bytes(100), Bytes(0)}, "n").ok());
}

}  // namespace
}  // namespace macrame::runtime
