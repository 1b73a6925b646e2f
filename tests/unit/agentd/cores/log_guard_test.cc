#include "agentd/cores/log_guard.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime(std::chrono::milliseconds(ms)); }

TEST(EscapeLine, NobodyForgesALineOrAColour) {
  EXPECT_EQ(EscapeLine("model 'a\n2026-11-23 info node left' gone"),
            "model 'a\\x0a2026-11-23 info node left' gone");
  EXPECT_EQ(EscapeLine("\x1b[2J\x7f\r"), "\\x1b[2J\\x7f\\x0d");
  EXPECT_EQ(EscapeLine(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(EscapeLine("\xc2\x9b"
                       "31m"),
            "\\xc2\\x9b31m")
      << "a C1 control is one too";
}

TEST(EscapeLine, WordsOfOtherLanguagesStayAndWhatIsNoTextIsShown) {
  EXPECT_EQ(EscapeLine("Rüdigers Mac – 日本 🙂"), "Rüdigers Mac – 日本 🙂");
  EXPECT_EQ(EscapeLine("\xff\xc0\xaf\xed\xa0\x80"), "\\xff\\xc0\\xaf\\xed\\xa0\\x80");
  EXPECT_EQ(EscapeLine("cut \xe6\x97"), "cut \\xe6\\x97");
}

TEST(EscapeLine, IsBounded) {
  EXPECT_LT(EscapeLine(std::string(100'000, 'x')).size(), kLineBytesMax + 8);
}

TEST(KindOfLine, NumbersIdsAndNamesDontCount) {
  EXPECT_EQ(KindOfLine("node 0123abcd (ada): 3 s"), KindOfLine("node deadbeef (ada): 17 s"));
  EXPECT_EQ(KindOfLine("deployment 'x' gone"), KindOfLine("deployment 'y z' gone"));
  EXPECT_NE(KindOfLine("node gone"), KindOfLine("rank gone"));
  EXPECT_EQ(KindOfLine("it's over"), "it's over");
}

TEST(KindOfLine, AddressesDontCountHoweverTheyAreSpelled) {
  const std::string kind = KindOfLine("a node at fd00::7 was not let in");
  for (const char* address : {"::1", "fe80::cafe:add", "2001:db8:face:bed:fade:dead:beef:abcd"}) {
    EXPECT_EQ(KindOfLine(absl::StrCat("a node at ", address, " was not let in")), kind);
  }
  EXPECT_EQ(KindOfLine("gateway: add a: b"), "gateway: add a: b");
}

TEST(LogGuard, ForgedIdsAreOneKindAndTheCountIsTold) {
  LogGuard guard;
  size_t written = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::string line = absl::StrCat("beacon of node ", 10'000'000 + i, " is refused");
    written += guard.Take(line, At(i / 10)).has_value();
  }
  EXPECT_EQ(written, kLinesPerKindMax);
  EXPECT_TRUE(guard.Take("this node is coordinator, term 4", At(5000)).has_value())
      << "other lines are not held back by it";
  const auto next = guard.Take("beacon of node 77 is refused", At(65'000));
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(*next, "beacon of node 77 is refused (and 49980 lines like this one were left out)");
}

// Three people's coding agents, for a minute.
TEST(LogGuard, RequestsAreWrittenAsOftenAsAFewPeopleAsk) {
  LogGuard guard;
  size_t written = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string line =
        absl::StrCat("POST /v1/messages 200 sent=", i, " request_id='r", i, "' model='m'");
    written += guard.Take(line, At(i * 50)).has_value();
    ASSERT_TRUE(i >= 100 || written == static_cast<size_t>(i + 1)) << i;
  }
  EXPECT_EQ(written, kRequestLinesMax);
  const auto next = guard.Take("POST /v1/messages 200 sent=1 request_id='a' model='m'", At(65'000));
  ASSERT_TRUE(next.has_value());
  EXPECT_NE(next->find("(and 900 lines like this one were left out)"), std::string::npos) << *next;
}

// One place of the program may log as many kinds, and as many lines of each, as a client likes.
TEST(LogGuard, AFloodFromOnePlaceKeepsNoOtherLineOut) {
  for (const int repeats : {1, 20}) {
    LogGuard guard;
    size_t written = 0;
    for (int i = 0; i < 50'000; ++i) {
      std::string name;
      for (int n = i / repeats; n > 0; n /= 16) name.push_back(static_cast<char>('g' + n % 16));
      written += guard.Take(absl::StrCat("gateway: GET ", name), At(i / 10)).has_value();
    }
    EXPECT_GT(written, 0u);
    EXPECT_LE(written, kLinesPerPlaceMax);
    EXPECT_TRUE(guard.Take("node 0123abcd (ada): dead", At(5001)).has_value());
    EXPECT_TRUE(guard.Take("launch of tiny (epoch 3): no answer", At(5002)).has_value());
    // What was left out is told by the next line that is written.
    const auto later = guard.Take("the end", At(66'000));
    ASSERT_TRUE(later.has_value());
    EXPECT_EQ(*later,
              absl::StrCat("the end (", 50'000 - written, " other lines were left out before)"));
  }
}

TEST(LogGuard, KindsThatNeverComeAgainPinNothing) {
  LogGuard guard;
  for (int minute = 0; minute < 20; ++minute) {
    for (int kind = 0; kind < 40; ++kind) {
      std::string name;
      for (int n = minute * 40 + kind + 1; n > 0; n /= 16) {
        name.push_back(static_cast<char>('g' + n % 16));
      }
      for (uint32_t i = 0; i < kLinesPerKindMax + 2; ++i) {
        guard.Take("host " + name + " is silent", At(minute * 61'000 + kind));
      }
    }
  }
  EXPECT_TRUE(guard.Take("the disk is full", At(20 * 61'000)).has_value());
}

TEST(LogGuard, ManyKindsAreBoundedTogether) {
  LogGuard guard;
  size_t bytes = 0;
  for (int i = 0; i < 200'000; ++i) {
    // Letters only, each line of a kind of its own.
    std::string name;
    for (int n = i; n > 0; n /= 16) name.push_back(static_cast<char>('g' + n % 16));
    const auto line = guard.Take(absl::StrCat("model ", name, " is unknown"), At(i / 100));
    bytes += line.has_value() ? line->size() : 0;
  }
  EXPECT_LT(bytes, 64 * 1024u);
  EXPECT_TRUE(guard.Take("another minute", At(70'000)).has_value());
}

}  // namespace
}  // namespace macrame::agentd
