#include "discovery/base/plain_text.h"

#include <gtest/gtest.h>

#include <random>

namespace macrame::discovery {
namespace {

TEST(PlainText, TextPassesAndControlsDoNot) {
  EXPECT_TRUE(IsPlainText(""));
  EXPECT_TRUE(IsPlainText("Jürgen's Mac Studio 東京 🧶"));
  for (const char* bad : {"a\nb", "a\x1b[31m", "\x7f", "\xc2\x85", "\xff", "\xc0\xaf", "\xe2\x82",
                          "\xed\xa0\x80", "\xf4\x90\x80\x80", "tab\t"}) {
    EXPECT_FALSE(IsPlainText(bad)) << bad;
  }
  EXPECT_FALSE(IsPlainText(std::string_view("a\0b", 3)));
}

TEST(PlainText, RepairsAndCutsAtCharacters) {
  EXPECT_EQ(ToPlainText("a\nb\xff", 10), "a?b?");
  EXPECT_EQ(ToPlainText("aé東", 3), "aé");
  EXPECT_EQ(ToPlainText("aé東", 5), "aé");
  EXPECT_EQ(ToPlainText("aé東", 6), "aé東");
}

TEST(PlainText, WhateverComesOutIsPlain) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string noise(random() % 24, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    const std::string plain = ToPlainText(noise, 12);
    ASSERT_TRUE(IsPlainText(plain));
    ASSERT_LE(plain.size(), 12u);
    if (IsPlainText(noise) && noise.size() <= 12) {
      ASSERT_EQ(plain, noise);
    }
  }
}

}  // namespace
}  // namespace macrame::discovery
