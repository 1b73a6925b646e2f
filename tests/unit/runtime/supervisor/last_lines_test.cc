#include "runtime/supervisor/last_lines.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "proto/utf8.h"

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

// By the definition: whole lines, in their order, without empty ones; each cut, its bytes made
// text.
std::string Expected(const std::string& bytes, size_t lines_max) {
  std::deque<std::string> lines;
  std::string line;
  const auto finish = [&](bool is_whole) {
    if (!line.empty()) lines.push_back(AsUtf8(line.substr(0, kLineBytesMax), "?"));
    if (is_whole && lines.size() > lines_max) lines.pop_front();
    line.clear();
  };
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      finish(true);
    } else {
      line += (byte < 0x20 && c != '\t') || byte == 0x7f ? '?' : c;
    }
  }
  finish(false);
  std::string text;
  for (const std::string& each : lines) text += (text.empty() ? "" : "\n") + each;
  return text;
}

// Where a pipe happened to be cut changes nothing.
TEST(LastLines, PiecesOfAnySizeGiveTheSameText) {
  const std::string alphabet("ab \t\n\n\r\x1b\x7f\0\xc3\xa9\xe6\xa9\x9f\xf0\x9f\x98\x80\xff", 22);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const size_t lines_max = 1 + random() % 5;
    std::string bytes;
    for (size_t size = random() % 3000; bytes.size() < size;) {
      if (random() % 50 == 0) bytes += std::string(random() % 1200, 'x');
      bytes += alphabet[random() % alphabet.size()];
    }
    LastLines lines(lines_max);
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % 700;
      lines.Add(std::string_view(bytes).substr(at, size));
      at += size;
    }
    const std::string text = lines.Text();
    ASSERT_EQ(text, Expected(bytes, lines_max)) << "seed " << seed;
    ASSERT_EQ(FirstNonUtf8(text), text.size()) << "seed " << seed;
  }
}

TEST(LastLines, OfNothingAreNothing) {
  LastLines none(3);
  EXPECT_EQ(none.Text(), "");
  none.Add("");
  none.Add("\n\n\n");
  EXPECT_EQ(none.Text(), "");
  none.Add("\r\n");
  EXPECT_EQ(none.Text(), "?");
}

}  // namespace
}  // namespace macrame::runtime
