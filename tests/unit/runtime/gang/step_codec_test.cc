// Steps and reports as bytes: any that can be made come back, at every limit, and damaged ones are
// refused or are steps that keep the limits.

#include "runtime/gang/step_codec.h"

#include <gtest/gtest.h>

#include <random>

#include "proto/utf8.h"

namespace macrame::runtime::engine {
namespace {

template <typename T>
std::string Raw(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
  }
  return bytes;
}

template <typename T>
std::vector<T> Numbers(std::mt19937_64& random, size_t most) {
  std::vector<T> numbers(random() % (most + 1));
  for (T& number : numbers) number = static_cast<T>(random());
  return numbers;
}

BlockName Name(std::mt19937_64& random) {
  BlockName name;
  for (uint8_t& byte : name) byte = static_cast<uint8_t>(random());
  return name;
}

ColdOrders RandomCold(std::mt19937_64& random) {
  ColdOrders cold;
  for (size_t i = random() % 4; i > 0; --i) {
    cold.fills.push_back({random(), Numbers<int32_t>(random, 9)});
    ColdStore store;
    store.block = static_cast<BlockId>(random());
    store.content.parent = Name(random);
    store.content.depth = static_cast<uint32_t>(random());
    for (int32_t& token : store.content.tokens) token = static_cast<int32_t>(random());
    cold.stores.push_back(store);
    cold.drops.push_back(Name(random));
    if (random() % 2 == 0) cold.touches.push_back(Name(random));
    cold.loads.push_back({random(), Name(random), static_cast<uint32_t>(random()),
                          std::vector<int32_t>(kBlockTokens * (1 + random() % 3), -7)});
  }
  return cold;
}

Step RandomStep(std::mt19937_64& random) {
  Step step;
  step.kind = static_cast<StepKind>(1 + random() % 7);
  step.number = random();
  step.wire_type = static_cast<WireType>(random() % 3);
  if (step.kind == StepKind::kForward) {
    step.forward.closed_slots = Numbers<uint32_t>(random, 5);
    for (size_t i = random() % 4; i > 0; --i) {
      step.forward.copies.push_back(
          {static_cast<int32_t>(random()), static_cast<int32_t>(random())});
    }
    for (size_t i = random() % 5; i > 0; --i) {
      Segment segment;
      segment.slot = static_cast<uint32_t>(random());
      segment.begin = static_cast<uint32_t>(random());
      segment.tokens = Numbers<int32_t>(random, 40);
      segment.logit_rows = static_cast<LogitRows>(random() % 6);
      segment.new_blocks = Numbers<int32_t>(random, 6);
      segment.state_from = static_cast<SnapshotId>(random());
      segment.state_to = random() % 2 == 0 ? kNoSnapshot : static_cast<SnapshotId>(random());
      segment.salt = random();
      if (segment.logit_rows == LogitRows::kChosen) {
        const auto real = [&] { return static_cast<double>(random()) / 7.0; };
        segment.choice = {real(),  static_cast<uint32_t>(random()), real(), real(), random(),
                          random()};
      }
      step.forward.segments.push_back(std::move(segment));
    }
  }
  if (step.kind == StepKind::kVerify) {
    step.verify_rounds = static_cast<uint32_t>(random());
    step.verify_kib = Numbers<uint32_t>(random, kVerifySizesInStepMax);
  }
  if (step.kind == StepKind::kCold) step.cold = RandomCold(random);
  return step;
}

TEST(StepCodec, AnyStepComesBackAndNoPartOfItIsOne) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const Step step = RandomStep(random);
    const std::string bytes = EncodeStep(step);
    const auto decoded = DecodeStep(bytes);
    ASSERT_TRUE(decoded.ok()) << "seed " << seed << decoded.status();
    ASSERT_EQ(*decoded, step) << "seed " << seed;
    for (int cut = 0; cut < 20; ++cut) {
      ASSERT_FALSE(DecodeStep(bytes.substr(0, random() % bytes.size())).ok()) << "seed " << seed;
    }
    ASSERT_FALSE(DecodeStep(bytes + bytes).ok()) << "seed " << seed;
  }
}

bool KeepsTheLimits(const Step& step) {
  size_t tokens = 0, blocks = 0;
  for (const Segment& segment : step.forward.segments) {
    tokens += segment.tokens.size();
    blocks += segment.new_blocks.size();
  }
  const ColdOrders& cold = step.cold;
  bool loads_are_whole = true;
  for (const ColdLoad& load : cold.loads) {
    loads_are_whole = loads_are_whole && !load.tokens.empty() &&
                      load.tokens.size() <= kColdLoadTokensMax &&
                      load.tokens.size() % kBlockTokens == 0;
  }
  return tokens <= kStepTokensMax && blocks <= kStepBlocksMax &&
         step.forward.segments.size() <= kStepSegmentsMax &&
         step.forward.closed_slots.size() <= kStepSlotsMax &&
         step.forward.copies.size() <= kStepBlocksMax &&
         step.verify_kib.size() <= kVerifySizesInStepMax && cold.fills.size() <= kColdOrdersMax &&
         cold.stores.size() <= kColdOrdersMax && cold.drops.size() <= kColdOrdersMax &&
         cold.touches.size() <= kColdOrdersMax && cold.loads.size() <= kColdOrdersMax &&
         loads_are_whole;
}

// One form for each step: what was read can be sent on, and is read as the same.
TEST(StepCodec, WhatComesOfDamageIsAStepOrAnError) {
  size_t good = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    std::mt19937_64 random(seed);
    std::string bytes = EncodeStep(RandomStep(random));
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      bytes[at] =
          random() % 3 == 0 ? static_cast<char>(random()) : static_cast<char>(bytes[at] ^ 1);
    }
    const auto step = DecodeStep(bytes);
    if (!step.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(step.status())) << step.status();
      continue;
    }
    ++good;
    ASSERT_TRUE(KeepsTheLimits(*step)) << "seed " << seed;
    ASSERT_EQ(EncodeStep(*step), bytes) << "seed " << seed;
  }
  EXPECT_GT(good, 100u) << "many bytes are only numbers";
}

// Kind, number and wire type come first, then the closed slots, the copies and the
// segments.
constexpr size_t kHeadBytes = 10;

std::string SegmentOf(size_t tokens, size_t blocks) {
  Step step;
  step.forward.segments.push_back(
      {.tokens = std::vector<int32_t>(tokens, 5), .new_blocks = std::vector<int32_t>(blocks, 6)});
  return EncodeStep(step).substr(kHeadBytes + 12);
}

std::string StepOf(const std::vector<std::string>& segments) {
  std::string bytes = EncodeStep(Step()).substr(0, kHeadBytes) + Raw<uint32_t>(0) +
                      Raw<uint32_t>(0) + Raw(static_cast<uint32_t>(segments.size()));
  for (const std::string& segment : segments) bytes += segment;
  return bytes;
}

TEST(StepCodec, LimitsHoldForAllSegmentsTogether) {
  EXPECT_TRUE(DecodeStep(StepOf({SegmentOf(kStepTokensMax, 0)})).ok());
  EXPECT_TRUE(DecodeStep(StepOf({SegmentOf(kStepTokensMax - 3, 0), SegmentOf(3, 0)})).ok());
  EXPECT_FALSE(DecodeStep(StepOf({SegmentOf(kStepTokensMax - 3, 0), SegmentOf(4, 0)})).ok());
  EXPECT_FALSE(DecodeStep(StepOf({SegmentOf(kStepTokensMax, 0), SegmentOf(1, 0)})).ok());
  EXPECT_TRUE(DecodeStep(StepOf({SegmentOf(1, kStepBlocksMax - 1), SegmentOf(1, 1)})).ok());
  EXPECT_FALSE(DecodeStep(StepOf({SegmentOf(1, kStepBlocksMax), SegmentOf(1, 1)})).ok());
  std::vector<std::string> segments(kStepSegmentsMax, SegmentOf(1, 0));
  EXPECT_TRUE(DecodeStep(StepOf(segments)).ok());
  segments.push_back(segments.front());
  EXPECT_FALSE(DecodeStep(StepOf(segments)).ok());
}

TEST(StepCodec, CopiesOfBlocksHaveALimit) {
  Step step;
  step.forward.copies.assign(kStepBlocksMax, {3, 4});
  const std::string most = EncodeStep(step);
  const auto read = DecodeStep(most);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->forward.copies, step.forward.copies);
  step.forward.copies.push_back({5, 6});
  EXPECT_FALSE(DecodeStep(EncodeStep(step)).ok());
  // Half a copy.
  const std::string head = EncodeStep(Step()).substr(0, kHeadBytes) + Raw<uint32_t>(0);
  EXPECT_FALSE(DecodeStep(head + Raw<uint32_t>(1) + Raw<uint32_t>(7) + Raw<uint32_t>(0)).ok());
}

TEST(StepCodec, SlotsAndOrdersOfTheColdTierHaveLimitsToo) {
  Step step;
  step.forward.closed_slots.assign(kStepSlotsMax, 3);
  EXPECT_TRUE(DecodeStep(EncodeStep(step)).ok());
  step.forward.closed_slots.push_back(3);
  EXPECT_FALSE(DecodeStep(EncodeStep(step)).ok());
  Step cold;
  cold.kind = StepKind::kCold;
  cold.cold.touches.assign(kColdOrdersMax, BlockName{});
  std::string bytes = EncodeStep(cold);
  EXPECT_TRUE(DecodeStep(bytes).ok());
  // Behind the counts of fills, stores and drops.
  bytes.replace(kHeadBytes + 12, 4, Raw(static_cast<uint32_t>(kColdOrdersMax + 1)));
  bytes.insert(kHeadBytes + 16, std::string(32, 'n'));
  EXPECT_FALSE(DecodeStep(bytes).ok());
  cold.cold.touches.clear();
  cold.cold.loads = {{1, {}, 0, std::vector<int32_t>(kColdLoadTokensMax, 1)}};
  EXPECT_TRUE(DecodeStep(EncodeStep(cold)).ok());
  cold.cold.loads[0].tokens.resize(kColdLoadTokensMax + kBlockTokens);
  EXPECT_FALSE(DecodeStep(EncodeStep(cold)).ok());
  cold.cold.loads[0].tokens.clear();
  EXPECT_FALSE(DecodeStep(EncodeStep(cold)).ok()) << "a load of nothing";
}

TEST(StepCodec, EachReportComesBackAndNothingElseIsOne) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    Report report;
    report.kind = static_cast<ReportKind>(1 + random() % 4);
    if (report.kind == ReportKind::kColdLoaded) {
      report.cold_load = random();
      report.cold_blocks = static_cast<uint32_t>(random());
    } else {
      report.text = std::string(random() % (kReportTextBytesMax + 1), 'x');
    }
    const std::string bytes = EncodeReport(report);
    const auto decoded = DecodeReport(bytes);
    ASSERT_TRUE(decoded.ok()) << "seed " << seed << decoded.status();
    ASSERT_EQ(*decoded, report) << "seed " << seed;
    if (report.kind != ReportKind::kColdLoaded) continue;
    for (size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_FALSE(DecodeReport(bytes.substr(0, size)).ok()) << size;
    }
  }
  for (const char kind : {'\0', '\x05', '\xff'}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeReport(std::string(1, kind) + "text").status()));
  }
  EXPECT_FALSE(DecodeReport("\x02" + std::string(kReportTextBytesMax + 1, 'x')).ok());
}

}  // namespace
}  // namespace macrame::runtime::engine
