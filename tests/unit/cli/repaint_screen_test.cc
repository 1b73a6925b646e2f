// What stands on a terminal after blocks of lines were drawn over each other: held against a small
// terminal that does what real ones do at the ends of rows and of the window.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/repaint.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

// Rows of cells; a wide character takes two, of which the second is empty.
class Terminal {
 public:
  explicit Terminal(TerminalSize size) { Resize(size); }

  void Resize(TerminalSize size) {
    size_ = size;
    rows_.resize(static_cast<size_t>(size.rows));
    for (auto& row : rows_) row.resize(static_cast<size_t>(size.columns), " ");
    row_ = std::min(row_, size.rows - 1);
    column_ = 0;
    is_pending_ = false;
  }

  void Write(std::string_view text) {
    while (!text.empty()) {
      if (text[0] == '\x1b') {
        Control(text);
      } else if (text[0] == '\n') {
        column_ = 0;
        is_pending_ = false;
        NextRow();
        text.remove_prefix(1);
      } else {
        const Utf8Character point = FirstCharacter(text);
        ASSERT_GT(point.size, 0u);
        Put(std::string(text.substr(0, point.size)), ColumnsOf(point.value));
        text.remove_prefix(point.size);
      }
    }
  }

  // Without blanks at its end.
  std::string Row(int row) const {
    std::string text;
    for (const std::string& cell : rows_[static_cast<size_t>(row)]) text += cell;
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }
  int row() const { return row_; }
  bool shows_cursor() const { return shows_cursor_; }

 private:
  std::vector<std::string>& Cells() { return rows_[static_cast<size_t>(row_)]; }

  void NextRow() {
    if (++row_ < size_.rows) return;
    row_ = size_.rows - 1;
    rows_.erase(rows_.begin());
    rows_.emplace_back(static_cast<size_t>(size_.columns), " ");
  }

  // In the last column it stays there, and goes to the next row with the next character.
  void Put(const std::string& character, int width) {
    if (is_pending_ || column_ + width > size_.columns) {
      is_pending_ = false;
      column_ = 0;
      NextRow();
    }
    Cells()[static_cast<size_t>(column_)] = character;
    if (width == 2) Cells()[static_cast<size_t>(column_) + 1] = "";
    column_ += width;
    is_pending_ = column_ >= size_.columns;
    if (is_pending_) column_ = size_.columns - 1;
  }

  void ClearToEndOfRow() {
    for (int i = column_; i < size_.columns; ++i) Cells()[static_cast<size_t>(i)] = " ";
    is_pending_ = false;
  }

  void Control(std::string_view& text) {
    size_t end = 1;
    while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) == 0) ++end;
    ASSERT_LT(end, text.size()) << "a control sequence that does not end";
    const std::string sequence(text.substr(1, end));
    text.remove_prefix(end + 1);
    int rows = 0;
    if (sequence == "[?25l" || sequence == "[?25h") {
      shows_cursor_ = sequence.back() == 'h';
    } else if (sequence == "[K") {
      ClearToEndOfRow();
    } else if (sequence == "[J") {
      ClearToEndOfRow();
      for (int below = row_ + 1; below < size_.rows; ++below) Clear(below);
    } else if (sequence == "[2J") {
      for (int i = 0; i < size_.rows; ++i) Clear(i);
    } else if (sequence == "[H") {
      row_ = column_ = 0;
      is_pending_ = false;
    } else if (std::sscanf(sequence.c_str(), "[%dF", &rows) == 1 && sequence.back() == 'F') {
      row_ = std::max(row_ - rows, 0);
      column_ = 0;
      is_pending_ = false;
    } else {
      ASSERT_EQ(sequence.back(), 'm') << "what is this: " << sequence;
    }
  }
  void Clear(int row) {
    rows_[static_cast<size_t>(row)].assign(static_cast<size_t>(size_.columns), " ");
  }

  TerminalSize size_;
  std::vector<std::vector<std::string>> rows_;
  int row_ = 0, column_ = 0;
  bool is_pending_ = false;
  bool shows_cursor_ = true;
};

// A repainter on such a terminal.
class Screen {
 public:
  explicit Screen(TerminalSize size) : size_(size), terminal_(size) {
    environment_.out = &out_;
    environment_.err = &out_;
    environment_.out_is_terminal = true;
    environment_.terminal_size = [this] { return size_; };
    repainter_ = std::make_unique<Repainter>(environment_);
  }
  void Show(const std::string& text) {
    repainter_->Show(text);
    Flush();
  }
  void Clear() {
    repainter_->Clear();
    Flush();
  }
  void Resize(TerminalSize size) {
    size_ = size;
    terminal_.Resize(size);
  }
  void Leave() {
    repainter_.reset();
    Flush();
  }
  void Print(const std::string& text) { terminal_.Write(text); }

  // The last rows before the cursor's.
  std::vector<std::string> Above(size_t count) const {
    std::vector<std::string> rows;
    for (int i = terminal_.row() - static_cast<int>(count); i < terminal_.row(); ++i) {
      rows.push_back(i < 0 ? "(above the window)" : terminal_.Row(i));
    }
    return rows;
  }
  // From the cursor's row on.
  std::string Below() const {
    std::string text;
    for (int i = terminal_.row(); i < size_.rows; ++i) text += terminal_.Row(i);
    return text;
  }
  const Terminal& terminal() const { return terminal_; }

 private:
  void Flush() {
    terminal_.Write(out_.str());
    out_.str("");
  }
  TerminalSize size_;
  Terminal terminal_;
  std::ostringstream out_;
  Environment environment_;
  std::unique_ptr<Repainter> repainter_;
};

using Rows = std::vector<std::string>;

TEST(RepaintScreen, ALineThatFillsItsRowKeepsItsLastCharacter) {
  Screen screen({10, 6});
  screen.Show("0123456789\nshort\n");
  EXPECT_EQ(screen.Above(2), (Rows{"0123456789", "short"}));
  screen.Show("9876543210\nshort\n");
  EXPECT_EQ(screen.Above(2), (Rows{"9876543210", "short"}));
}

TEST(RepaintScreen, WideCharactersThatDontFitIntoARowAreCountedWhereTheyGo) {
  Screen screen({5, 8});
  for (int frame = 0; frame < 3; ++frame) {
    screen.Show("中中中中中中中中中中\nend\n");
    EXPECT_EQ(screen.Above(6), (Rows{"中中", "中中", "中中", "中中", "中中", "end"}));
    EXPECT_EQ(screen.terminal().row(), 6) << "each frame stands where the one before it stood";
  }
}

TEST(RepaintScreen, NothingOfAnEarlierFrameIsLeft) {
  Screen screen({8, 8});
  screen.Show("xxxxxxxxxxxxxxxx\nxxxxxxxx\nxxxx\n");
  screen.Show("中中中中a中\nb\n");
  EXPECT_EQ(screen.Above(3), (Rows{"中中中中", "a中", "b"}));
  EXPECT_EQ(screen.Below(), "");
}

TEST(RepaintScreen, AWindowThatIsLowAndNarrowSaysSoInOneRow) {
  Screen screen({9, 4});
  for (int frame = 0; frame < 3; ++frame) {
    screen.Show("one\ntwo\nthree\nfour\nfive\n");
    EXPECT_EQ(screen.Above(3), (Rows{"one", "two", "(the win~"}));
    EXPECT_EQ(screen.terminal().row(), 3);
  }
}

TEST(RepaintScreen, WhatStoodAboveStaysAndSoDoesTheLastFrame) {
  Screen screen({20, 6});
  screen.Print("$ clusterctl top\n");
  screen.Show("one\ntwo\n");
  EXPECT_FALSE(screen.terminal().shows_cursor());
  screen.Show("three\n");
  EXPECT_EQ(screen.Above(2), (Rows{"$ clusterctl top", "three"}));
  screen.Leave();
  EXPECT_EQ(screen.Above(2), (Rows{"$ clusterctl top", "three"}));
  EXPECT_TRUE(screen.terminal().shows_cursor());
}

TEST(RepaintScreen, ClearTakesTheFrameAwayAndNothingElse) {
  Screen screen({20, 6});
  screen.Print("before\n");
  screen.Show("one\ntwo\n");
  screen.Clear();
  EXPECT_EQ(screen.Above(1), (Rows{"before"}));
  EXPECT_EQ(screen.Below(), "");
  screen.Clear();
  EXPECT_EQ(screen.Above(1), (Rows{"before"})) << "there was nothing to take away";
}

TEST(RepaintScreen, AResizeStartsOnAClearedWindow) {
  Screen screen({20, 6});
  screen.Print("before\n");
  screen.Show("0123456789\n");
  screen.Resize({6, 6});
  screen.Show("0123456789\n");
  EXPECT_EQ(screen.terminal().row(), 2);
  EXPECT_EQ(screen.Above(2), (Rows{"012345", "6789"}));
  EXPECT_EQ(screen.Below(), "");
}

// --- at random -----------------------------------------------------------------------------------

// Rows that a terminal of so many columns makes of the line.
Rows Wrapped(const std::string& line, int columns) {
  Rows rows = {""};
  int used = 0;
  std::string_view rest = line;
  while (!rest.empty()) {
    const Utf8Character point = FirstCharacter(rest);
    const int width = ColumnsOf(point.value);
    if (used + width > columns) {
      rows.emplace_back();
      used = 0;
    }
    rows.back() += rest.substr(0, point.size);
    used += width;
    rest.remove_prefix(point.size);
  }
  return rows;
}

TEST(RepaintScreen, HoldsTheLastFrameAloneWhateverWasThereBefore) {
  const std::string characters[] = {"a", "#", ".", "中", "é", "🚀"};
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const TerminalSize size{static_cast<int>(2 + random() % 14),
                            static_cast<int>(4 + random() % 9)};
    Screen screen(size);
    for (uint64_t above = random() % 12; above > 0; --above) screen.Print("above\n");
    for (int frame = 0; frame < 12; ++frame) {
      std::string text;
      Rows expected;
      // As many rows as fit beside the one of the cursor.
      while (random() % 6 != 0) {
        std::string line;
        for (uint64_t n = random() % 20; n > 0; --n) line += characters[random() % 6];
        const Rows rows = Wrapped(line, size.columns);
        if (expected.size() + rows.size() > static_cast<size_t>(size.rows) - 1) break;
        expected.insert(expected.end(), rows.begin(), rows.end());
        const bool is_coloured = random() % 3 == 0;
        text += is_coloured ? "\x1b[31m" + line + "\x1b[0m\n" : line + "\n";
      }
      screen.Show(text);
      ASSERT_EQ(screen.Above(expected.size()), expected) << "seed " << seed << ", frame " << frame;
      ASSERT_EQ(screen.Below(), "") << "seed " << seed << ", frame " << frame;
    }
  }
}

}  // namespace
}  // namespace macrame::cli
