#include "cli/format/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace macrame::cli {
namespace {

const std::vector<Column> kColumns = {{"NAME", false, 5, 6}, {"SIZE", true}, {"NOTE", false, 0}};

TEST(Table, AlignsAndLeavesNoTrailingBlanks) {
  EXPECT_EQ(RenderTable(kColumns, {{"a", "1", "x"}, {"bcd", "1000", ""}}, 80, Style()),
            "NAME  SIZE  NOTE\n"
            "a        1  x\n"
            "bcd   1000\n");
}

TEST(Table, GivesWayWhereItIsNarrow) {
  EXPECT_EQ(RenderTable(kColumns, {{"a-long-name", "1", "a note"}}, 14, Style()),
            "NAME      SIZE\n"
            "a-long-~     1\n");
  std::istringstream lines(RenderTable(kColumns, {{"a-long-name", "1", "n"}}, 12, Style()));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), 12) << line;
}

TEST(Table, ColourDoesNotChangeTheWidths) {
  const std::string text =
      RenderTable(kColumns, {{Cell("a", Tone::kGood), "1", "x"}}, 80, Style(true));
  EXPECT_NE(text.find("\x1b[32ma\x1b[0m        1"), std::string::npos) << text;
}

TEST(Table, CellsCannotBreakTheirLine) {
  EXPECT_EQ(RenderTable({{"N"}}, {{Cell("a\nb\x1b")}}, 80, Style()), "N\na?b?\n");
}

}  // namespace
}  // namespace macrame::cli
