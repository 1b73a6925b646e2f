// What a sampler asks of a row of logits, against plain loops, on each instruction set: rows of
// every length around those of vectors and blocks, with numbers that are none among them.

#include "runtime/kernels/logit_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/runtime/kernels/targets.h"

namespace macrame::runtime::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Around whole vectors of 4, 8 and 16 lanes, two at a time, and around blocks.
const std::vector<size_t> kSizes = {0,  1,  2,  3,  4,   5,   7,   8,   9,    15,   16,
                                    17, 31, 32, 33, 255, 256, 257, 511, 1023, 5000, 32'000};

std::vector<float> Row(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> row(size);
  for (float& logit : row) logit = normal(random);
  return row;
}

// Some of a row's logits become `value`.
std::vector<float> With(std::vector<float> row, float value, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (float& logit : row) {
    if (random() % 5 == 0) logit = value;
  }
  return row;
}

class LogitScanTest : public testing::Test {
 protected:
  // `test` on each instruction set that this machine has.
  template <typename Test>
  static void OnEachTarget(Test&& test) {
    for (const int64_t target : Targets()) {
      const OnlyTarget only(target);
      SCOPED_TRACE(hwy::TargetName(target));
      test();
      if (HasFatalFailure()) return;
    }
  }
  // The highest of numbers that are some; no number below -inf.
  static float HighestOf(const float* begin, const float* end) {
    float highest = -kInfinity;
    for (; begin != end; ++begin) {
      if (!std::isnan(*begin)) highest = std::max(highest, *begin);
    }
    return highest;
  }
};

TEST_F(LogitScanTest, FindsTheHighestOfEachBlockAndOfAll) {
  OnEachTarget([] {
    for (const size_t size : kSizes) {
      for (const float special : {0.0F, kNan, kInfinity, -kInfinity, -0.0F}) {
        const std::vector<float> row = With(Row(size, size + 1), special, size);
        const size_t blocks = (size + kLogitBlock - 1) / kLogitBlock;
        constexpr float kUntouched = 12345.0F;
        std::vector<float> highest(blocks + 1, kUntouched);
        const LogitScan scan = ScanLogits(row.data(), size, highest.data());
        ASSERT_EQ(scan.highest, HighestOf(row.data(), row.data() + size)) << size;
        ASSERT_EQ(scan.has_nan,
                  std::any_of(row.begin(), row.end(), [](float x) { return std::isnan(x); }))
            << size << " with " << special;
        for (size_t block = 0; block < blocks; ++block) {
          const size_t begin = block * kLogitBlock, end = std::min(size, begin + kLogitBlock);
          ASSERT_EQ(highest[block], HighestOf(row.data() + begin, row.data() + end))
              << size << " with " << special;
        }
        ASSERT_EQ(highest[blocks], kUntouched) << "one for each block, and no more";
      }
    }
  });
}

// Alone among lower ones, in whatever lane or rest it stands.
TEST_F(LogitScanTest, NoPlaceInARowIsOverlooked) {
  OnEachTarget([] {
    constexpr size_t kSize = 300;
    std::vector<float> highest(2);
    for (size_t at = 0; at < kSize; ++at) {
      std::vector<float> row(kSize, -3.0F);
      row[at] = -2.0F;
      ASSERT_EQ(ScanLogits(row.data(), kSize, highest.data()).highest, -2.0F) << at;
      ASSERT_EQ(highest[at / kLogitBlock], -2.0F) << at;
      ASSERT_EQ(highest[1 - at / kLogitBlock], -3.0F) << at;
      row[at] = kNan;
      const LogitScan scan = ScanLogits(row.data(), kSize, highest.data());
      ASSERT_TRUE(scan.has_nan) << at;
      ASSERT_EQ(scan.highest, -3.0F) << at;
    }
  });
}

TEST_F(LogitScanTest, ARowWithoutNumbersHasNoHighest) {
  OnEachTarget([] {
    for (const size_t size : {1, 8, 40, 300}) {
      const std::vector<float> row(size, kNan);
      std::vector<float> highest(2, 0.0F);
      const LogitScan scan = ScanLogits(row.data(), size, highest.data());
      EXPECT_EQ(scan.highest, -kInfinity);
      EXPECT_TRUE(scan.has_nan);
      EXPECT_EQ(highest[0], -kInfinity);
    }
  });
}

// Long doubles for what is compared with: a sum of many terms, each to about 1e-15.
TEST_F(LogitScanTest, SumsAreThoseOfPlainLoops) {
  OnEachTarget([] {
    for (const size_t size : kSizes) {
      for (const float special : {0.0F, kNan, -kInfinity}) {
        for (const double scale : {1.0, 0.3, 5.0}) {
          const std::vector<float> row = With(Row(size, size + 7), special, size);
          const float highest = HighestOf(row.data(), row.data() + size) + (size % 2 == 0 ? 0 : 1);
          long double sum = 0;
          for (size_t i = 0; i < size; ++i) {
            sum += std::isnan(row[i]) ? 0.0 : std::exp((row[i] - highest) * scale);
          }
          ASSERT_NEAR(SumOfExps(row.data(), size, highest, scale), static_cast<double>(sum),
                      1e-12 * static_cast<double>(sum) + 1e-300)
              << size << " with " << special;
        }
      }
    }
  });
}

TEST_F(LogitScanTest, TheHighestWeighsOneAndWhatIsExcludedNothing) {
  OnEachTarget([] {
    for (const size_t size : {1, 5, 16, 67, 300}) {
      std::vector<float> row(size, -kInfinity);
      row[size / 2] = 88.5F;
      EXPECT_EQ(SumOfExps(row.data(), size, 88.5F, 1.25), 1.0) << size;
    }
  });
}

}  // namespace
}  // namespace macrame::runtime::kernels
