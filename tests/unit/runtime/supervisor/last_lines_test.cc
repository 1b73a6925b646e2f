#include "runtime/supervisor/last_lines.h"

#include <gtest/gtest.h>

namespace macrame::runtime {
namespace {

TEST(LastLines, KeepsTheLastOnes) {
  LastLines lines(2);
  lines.Add("one\ntwo\nthr");
  lines.Add("ee\n");
  EXPECT_EQ(lines.Text(), "two\nthree");
  lines.Add("unfinished");
  EXPECT_EQ(lines.Text(), "two\nthree\nunfinished");
}

TEST(LastLines, LongLinesAndControlCharactersAreTamed) {
  LastLines lines(3);
  lines.Add(std::string(100'000, 'x') + "\n\x1b[31mred\x7f\n\n\n");
  EXPECT_EQ(lines.Text(), std::string(kLineBytesMax, 'x') + "\n?[31mred?");
}

// The words travel in messages, whose strings must be UTF-8: one bad byte would make a whole
// heartbeat unreadable.
TEST(LastLines, TheTextIsAlwaysUtf8) {
  LastLines lines(5);
  lines.Add("caf\xc3\xa9 \xff\xfe \xc3( \xed\xa0\x80 \xf0\x9f\x98\x80 \xc0\xaf \xf5\x80\x80\x80\n");
  lines.Add(std::string(kLineBytesMax - 1, 'x') + "\xc3\xa9\n");  // cut within a letter
  lines.Add("half \xe2\x82");
  EXPECT_EQ(lines.Text(), "caf\xc3\xa9 ?? ?( ??? \xf0\x9f\x98\x80 ?? ????\n" +
                              std::string(kLineBytesMax - 1, 'x') + "?\nhalf ??");
}

}  // namespace
}  // namespace macrame::runtime
