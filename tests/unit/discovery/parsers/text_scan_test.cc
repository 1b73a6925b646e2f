#include "discovery/parsers/text_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace macrame::discovery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string RandomText(std::mt19937& random, const std::string& letters, size_t longest) {
  std::string text;
  for (size_t left = random() % (longest + 1); left > 0; --left) {
    text += letters[random() % letters.size()];
  }
  return text;
}

TEST(WholeLinesTest, OnlyWhatEndsIsALine) {
  EXPECT_THAT(WholeLines(std::string_view("")), IsEmpty());
  EXPECT_THAT(WholeLines(std::string_view("half")), IsEmpty());
  EXPECT_THAT(WholeLines(std::string_view("\n")), ElementsAre(""));
  EXPECT_THAT(WholeLines(std::string_view("a\n\nb\nhalf")), ElementsAre("a", "", "b"));
  EXPECT_THAT(WholeLines(std::string_view("a\r\n")), ElementsAre("a\r"));
}

TEST(WholeLinesTest, JoinedTheyAreWhatWasThereUpToTheLastEnd) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(random, std::string("ab\n\r\0", 5), 40);
    std::string joined;
    for (const std::string_view line : WholeLines(std::string_view(text))) {
      EXPECT_EQ(line.find('\n'), line.npos);
      joined.append(line).push_back('\n');
    }
    EXPECT_EQ(joined, text.substr(0, text.rfind('\n') + 1));
  }
}

TEST(WholeLinesTest, MoreLinesThanAreScannedAreLeftOut) {
  const std::string text(2 * kScannedLinesMax, '\n');
  EXPECT_EQ(WholeLines(std::string_view(text)).size(), kScannedLinesMax);
}

TEST(WordsTest, AreWhatIsLeftWithoutWhiteSpace) {
  EXPECT_THAT(Words(std::string_view("")), IsEmpty());
  EXPECT_THAT(Words(std::string_view(" \t\r\n\v\f ")), IsEmpty());
  EXPECT_THAT(Words(std::string_view(" a\tbc  d\r")), ElementsAre("a", "bc", "d"));
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(random, " \tab\xc2\xa0", 30);
    std::string joined, expected;
    for (const std::string_view word : Words(std::string_view(text))) {
      EXPECT_FALSE(word.empty());
      EXPECT_EQ(Trim(word), word);
      joined.append(word);
    }
    for (const char c : text) {
      if (c != ' ' && c != '\t') expected += c;
    }
    EXPECT_EQ(joined, expected);
  }
}

TEST(SplitOnceTest, TheFirstSeparatorDecides) {
  std::string_view before, after;
  ASSERT_TRUE(SplitOnce(" a : b : c ", ":", before, after));
  EXPECT_EQ(before, "a");
  EXPECT_EQ(after, "b : c");
  ASSERT_TRUE(SplitOnce(" = ", "=", before, after));
  EXPECT_TRUE(before.empty());
  EXPECT_TRUE(after.empty());
  EXPECT_FALSE(SplitOnce("a b", ":", before, after));
  EXPECT_FALSE(SplitOnce("", ":", before, after));
  EXPECT_FALSE(SplitOnce("a =b", " = ", before, after));
}

TEST(ParseUnsignedTest, OnlyDigitsThatFitAreANumber) {
  const std::vector<std::pair<std::string, uint64_t>> numbers = {
      {"0", 0}, {"007", 7}, {"18446744073709551615", std::numeric_limits<uint64_t>::max()}};
  for (const auto& [text, number] : numbers) {
    ASSERT_TRUE(ParseUnsigned(text).has_value()) << text;
    EXPECT_EQ(*ParseUnsigned(text), number);
  }
  for (const char* text : {"", " ", "-1", "+1", " 1", "1 ", "1.", "0x1", "1e3", "1,000",
                           "18446744073709551616", "99999999999999999999999", "\xd9\xa1"}) {
    EXPECT_FALSE(ParseUnsigned(text).has_value()) << text;
  }
}

TEST(ParseRealTest, WhatIsNoFigureIsNone) {
  EXPECT_DOUBLE_EQ(ParseReal("2.50").value(), 2.5);
  EXPECT_DOUBLE_EQ(ParseReal("-1e3").value(), -1000);
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "1.2.3", "2,5", "two", "1.0x"}) {
    EXPECT_FALSE(ParseReal(text).has_value()) << text;
  }
}

TEST(MultiplyTest, IsTheProductOrNothing) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    const uint64_t a = random() >> random() % 64, b = random() >> random() % 64;
    const auto product = Multiply(a, b);
    const bool fits = a == 0 || b <= std::numeric_limits<uint64_t>::max() / a;
    EXPECT_EQ(product.has_value(), fits) << a << " " << b;
    if (!product || a == 0) continue;
    EXPECT_EQ(*product / a, b);
    EXPECT_EQ(*product % a, 0u);
  }
  EXPECT_EQ(Multiply(0, std::numeric_limits<uint64_t>::max()).value(), 0u);
}

}  // namespace
}  // namespace macrame::discovery
