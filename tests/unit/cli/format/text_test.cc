#include "cli/format/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace macrame::cli {
namespace {

TEST(Text, NothingPrintableSteersTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\n\t\x07"), "a?[2Jb????");
  EXPECT_EQ(Printable("a\n\tb\r", true), "a\n\tb?");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "?31m");
  EXPECT_EQ(Printable("\xE2\x80\xAE"
                      "abc"),
            "?abc");
  EXPECT_EQ(Printable("\xFFx\xC3"), "\xEF\xBF\xBDx\xEF\xBF\xBD");
  EXPECT_EQ(Printable("\xC0\x9B"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Printable("h\xC3\xA9llo \xE4\xB8\xAD"), "h\xC3\xA9llo \xE4\xB8\xAD");
}

TEST(Text, WidthsCountColumns) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("\xE4\xB8\xAD\xE6\x96\x87"), 4);
  EXPECT_EQ(DisplayWidth("e\xCC\x81"), 1);
  EXPECT_EQ(DisplayWidth("ที่นี่"), 2) << "Thai vowels and tones stand above";
  EXPECT_EQ(DisplayWidth("हिन्दी"), 5) << "the joiner takes no column, the vowels do";
  EXPECT_EQ(DisplayWidth("مُحَمَّد"), 4) << "Arabic vowel signs";
  EXPECT_EQ(DisplayWidth("한글"), 4);
  EXPECT_EQ(DisplayWidth("\u1112\u1161\u11ab"), 2) << "a syllable in three parts";
  EXPECT_EQ(DisplayWidth("\u200b\u2060"), 0);
  EXPECT_EQ(DisplayWidth("🚀"), 2);
  EXPECT_EQ(CutToWidth("abcdef", 4), "abc~");
  EXPECT_EQ(CutToWidth("abcd", 4), "abcd");
  EXPECT_EQ(CutToWidth("\xE4\xB8\xAD\xE6\x96\x87", 3), "\xE4\xB8\xAD~");
  EXPECT_EQ(CutToWidth("abc", 0), "");
}

TEST(Text, FiguresForPeople) {
  EXPECT_EQ(Percent(0.426), "43%");
  EXPECT_EQ(Percent(-1), "-");
  EXPECT_EQ(Percent(std::nan("")), "-");
  EXPECT_EQ(Milliseconds(35.4), "35 ms");
  EXPECT_EQ(Milliseconds(1234), "1.2 s");
  EXPECT_EQ(Rate(0), "-");
  EXPECT_EQ(Plural(1, "node"), "1 node");
  EXPECT_EQ(Plural(0, "node"), "0 nodes");
  EXPECT_EQ(Bar(0.5, 12), "[#####.....]");
  EXPECT_EQ(Bar(7, 4), "[##]");
  EXPECT_EQ(Bar(std::nan(""), 4), "[..]");
}

}  // namespace
}  // namespace macrame::cli
