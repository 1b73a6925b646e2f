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

}  // namespace
}  // namespace macrame::runtime
