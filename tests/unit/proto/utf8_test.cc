#include "proto/utf8.h"

#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(Utf8Test, CharactersOfEachLength) {
  EXPECT_EQ(FirstCharacter("a").size, 1U);
  EXPECT_EQ(FirstCharacter("é!").size, 2U);
  EXPECT_EQ(FirstCharacter("é!").value, U'é');
  EXPECT_EQ(FirstCharacter("中").size, 3U);
  EXPECT_EQ(FirstCharacter("🚀🚀").value, U'🚀');
  EXPECT_EQ(FirstCharacter(std::string_view("\0", 1)).size, 1U);
  EXPECT_EQ(FirstCharacter("").size, 0U);
}

TEST(Utf8Test, MalformedOnesAreNoCharacters) {
  for (const std::string_view bytes :
       {"\x80", "\xC0\xAF", "\xC1\x81", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\xAF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE4\xB8", "\xF0\x9F\x9A",
        "\xE4\xB8z", "\xC3\xC3"}) {
    EXPECT_EQ(FirstCharacter(bytes).size, 0U) << testing::PrintToString(bytes);
  }
}

TEST(Utf8Test, TheFirstWrongByteIsFoundAndReplaced) {
  EXPECT_EQ(FirstNonUtf8("né"), 3U);
  EXPECT_EQ(FirstNonUtf8("n\xE9"), 1U);
  EXPECT_EQ(AsUtf8("n\xE9\xE9 中", "?"), "n?? 中");
  EXPECT_EQ(AsUtf8("\xE4\xB8", "\uFFFD"), "\uFFFD\uFFFD");
}

TEST(Utf8Test, WhatIsCutEndsWithAWholeCharacter) {
  const std::string text = "aé中🚀z";  // 1, 2, 3, 4 and 1 bytes
  const std::pair<size_t, std::string_view> cuts[] = {
      {0, ""},     {1, "a"},    {2, "a"},      {3, "aé"},  {5, "aé"},
      {6, "aé中"}, {9, "aé中"}, {10, "aé中🚀"}, {11, text}, {999, text}};
  for (const auto& [bytes, left] : cuts) EXPECT_EQ(CutToBytes(text, bytes), left) << bytes;
  // What is no UTF-8 is cut, and not to nothing.
  EXPECT_EQ(CutToBytes(std::string(100, '\x80'), 50).size(), 46U);
  EXPECT_EQ(CutToBytes("ab\xFF\xFF", 3), "ab\xFF");
}

TEST(Utf8Test, ColumnsAreThoseOfTerminals) {
  for (const char32_t c : {U'a', U'é', U'–', U'✓', U'ก', U'\u093f', U'\u00ad'}) {
    EXPECT_EQ(ColumnsOf(c), 1) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'中', U'한', U'🚀', U'\u1112', U'\uff21'}) {
    EXPECT_EQ(ColumnsOf(c), 2) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'\u0301', U'\u0e31', U'\u094d', U'\u064f', U'\u200d', U'\ufe0f',
                           U'\u200b', U'\u1161', U'\u11ab'}) {
    EXPECT_EQ(ColumnsOf(c), 0) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace macrame
