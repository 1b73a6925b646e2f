#include "cli/repaint.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

namespace macrame::cli {
namespace {

class RepainterTest : public ::testing::Test {
 protected:
  RepainterTest() {
    environment_.out = &out_;
    environment_.err = &out_;
    environment_.out_is_terminal = true;
    environment_.terminal_size = [this] { return size_; };
  }

  // How far up the second frame went before it drew over the first.
  int RowsGoneUp(const std::string& text) {
    Repainter repainter(environment_, false);
    repainter.Show(text);
    out_.str("");
    repainter.Show(text);
    int rows = 0;
    EXPECT_EQ(std::sscanf(out_.str().c_str(), "\x1b[%dF", &rows), 1) << out_.str();
    return rows;
  }

  std::ostringstream out_;
  TerminalSize size_{20, 10};
  Environment environment_;
};

TEST_F(RepainterTest, ShortLinesTakeOneRowEach) { EXPECT_EQ(RowsGoneUp("one\ntwo\n\n"), 3); }

TEST_F(RepainterTest, ALineThatTheTerminalWrapsCountsAsItsRows) {
  EXPECT_EQ(RowsGoneUp("head\n" + std::string(45, 'x') + "\n"), 4);
  EXPECT_EQ(RowsGoneUp(std::string(20, 'x') + "\n"), 1);
}

TEST_F(RepainterTest, ColoursTakeNoRoom) {
  EXPECT_EQ(RowsGoneUp("\x1b[31m" + std::string(20, 'x') + "\x1b[0m\n"), 1);
}

TEST_F(RepainterTest, NeverMoreRowsThanTheWindowHas) {
  EXPECT_EQ(RowsGoneUp(std::string(500, 'x') + "\nend\n"), 1);
  std::string many;
  for (int i = 0; i < 50; ++i) many += "line\n";
  EXPECT_EQ(RowsGoneUp(many), 9);
}

}  // namespace
}  // namespace macrame::cli
