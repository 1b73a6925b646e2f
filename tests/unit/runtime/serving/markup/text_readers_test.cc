// The small readers below those of the families: JSON and Python as models write them, and text
// that comes in pieces. What each finds is what a plain look at the whole text finds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/python_text.h"
#include "runtime/serving/markup/text_source.h"

namespace macrame::runtime::markup {
namespace {

using nlohmann::json;
using Random = std::mt19937_64;

// Text of everything that is hard to quote.
std::string RandomText(Random& random) {
  static const std::vector<std::string> parts = {"a",  "Z",  "\"", "'",  "\\", "\n", "\r",  "\t",
                                                 "\b", "{",  "}",  "[",  "]",  ",",  ":",   " ",
                                                 "é",  "漢", "😀",  "//", "u0", "x",  "\x1f"};
  std::string text;
  for (size_t i = random() % 8; i > 0; --i) text += parts[random() % parts.size()];
  return text;
}

json RandomJson(Random& random, int depth) {
  switch (random() % (depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random() % 100000) - 50000;
    case 3:
      return static_cast<double>(static_cast<int64_t>(random() % 4000) - 2000) / 64.0;
    case 4:
    case 5:
      return RandomText(random);
    case 6: {
      json list = json::array();
      for (size_t i = random() % 4; i > 0; --i) list.push_back(RandomJson(random, depth - 1));
      return list;
    }
    default: {
      json object = json::object();
      for (size_t i = random() % 4; i > 0; --i) {
        object[RandomText(random)] = RandomJson(random, depth - 1);
      }
      return object;
    }
  }
}

// `text` in pieces of random sizes.
std::vector<std::string_view> Pieces(std::string_view text, Random& random) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t size = 1 + random() % std::min<size_t>(text.size(), 5);
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

struct Spanned {
  std::string out;
  size_t read = 0;
  JsonSpan::State state = JsonSpan::State::kInside;
};

Spanned Span(const std::vector<std::string_view>& pieces) {
  JsonSpan span;
  Spanned spanned;
  for (const std::string_view piece : pieces) {
    if (span.state() != JsonSpan::State::kInside) break;
    const size_t read = span.Read(piece, spanned.out);
    spanned.read += read;
    if (read < piece.size()) break;
  }
  span.End();
  spanned.state = span.state();
  return spanned;
}

TEST(JsonSpanTest, EndsWhereTheValueEndsWhateverStandsBehindIt) {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    const json value = RandomJson(random, 3);
    const std::string text = value.dump(random() % 2 == 0 ? -1 : 2);
    const char* const tails[] = {"", " ", ",", "]", "}", "\n{\"a\": 1}", "</tool_call>", " 12"};
    const std::string all = text + tails[random() % std::size(tails)];
    const Spanned spanned = Span(Pieces(all, random));
    ASSERT_EQ(spanned.state, JsonSpan::State::kOver) << all;
    EXPECT_EQ(spanned.read, text.size()) << all;
    EXPECT_EQ(json::parse(spanned.out, nullptr, false), value) << all;
  }
}

// A model that forgets to escape a line's end within a string has said the line's end.
TEST(JsonSpanTest, ControlCharactersWithinStringsAreEscaped) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    std::string meant, written = "{\"code\": \"";
    for (size_t i = random() % 12; i > 0; --i) {
      const auto control = static_cast<char>(1 + random() % 31);
      const bool has_backslash = random() % 4 == 0 && control == '\n';
      meant += "x";
      meant += control;
      written += "x";
      if (has_backslash) written += '\\';
      written += control;
    }
    written += "\"}";
    const Spanned spanned = Span(Pieces(written, random));
    ASSERT_EQ(spanned.state, JsonSpan::State::kOver) << written;
    const json value = json::parse(spanned.out, nullptr, false);
    ASSERT_TRUE(value.is_object()) << spanned.out;
    EXPECT_EQ(value["code"], meant) << spanned.out;
  }
}

TEST(JsonSpanTest, WhatCannotBeAValueIsBrokenAtThatByte) {
  const struct {
    const char* text;
    size_t read;
  } cases[] = {{"}", 0},          {"]", 0},        {"@", 0},  {"{]", 1},         {"[1}", 2},
               {"{\"a\": 1]", 7}, {"[1, 'a']", 4}, {",1", 0}, {"{\"a\" = 1}", 5}};
  for (const auto& one : cases) {
    JsonSpan span;
    std::string out;
    EXPECT_EQ(span.Read(one.text, out), one.read) << one.text;
    EXPECT_EQ(span.state(), JsonSpan::State::kBroken) << one.text;
    EXPECT_EQ(out, std::string(one.text).substr(0, one.read)) << "what stood there till then";
  }
}

TEST(JsonSpanTest, WhatTheTextEndsWithinIsBrokenButANumberOrWord) {
  for (const char* text : {"{", "[1, 2", "\"abc", "{\"a\":", "\"a\\"}) {
    EXPECT_EQ(Span({text}).state, JsonSpan::State::kBroken) << text;
  }
  for (const char* text : {"12", "-1.5e3", "true", "null"}) {
    EXPECT_EQ(Span({text}).state, JsonSpan::State::kOver) << text;
  }
}

TEST(JsonSpanTest, BracketsWithinBracketsAreBounded) {
  const std::string within(256, '[');
  EXPECT_EQ(Span({within + std::string(256, ']')}).state, JsonSpan::State::kOver);
  const Spanned beyond = Span({within + "[" + std::string(257, ']')});
  EXPECT_EQ(beyond.state, JsonSpan::State::kBroken);
  EXPECT_EQ(beyond.read, 256u);
}

TEST(JsonTextTest, AnyTextComesBackFromItsQuotes) {
  Random random(3);
  for (int round = 0; round < 1000; ++round) {
    const std::string text = RandomText(random) + '\0' + RandomText(random);
    EXPECT_EQ(DecodeJsonString(QuotedJson(text)), text);
  }
  for (const char* no_string : {"", "abc", "12", "null", "\"a", "\"a\"b", "[\"a\"]", "\"\xff\""}) {
    EXPECT_EQ(DecodeJsonString(no_string), std::nullopt) << no_string;
  }
}

// A literal as Python writes it, in one of the ways that there are.
class PythonWriter {
 public:
  explicit PythonWriter(Random& random) : random_(random) {}

  std::string Of(const json& value) {
    if (value.is_null()) return "None";
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    if (value.is_number_integer()) return Integer(value.get<int64_t>());
    if (value.is_number()) return value.dump();
    if (value.is_string()) return Text(value.get<std::string>());
    const bool is_list = value.is_array();
    const bool is_tuple = is_list && value.size() != 1 && random_() % 3 == 0;
    std::string text = is_tuple ? "(" : is_list ? "[" : "{";
    size_t left = value.size();
    for (const auto& [key, one] : value.items()) {
      if (!is_list) text += Text(key) + ": ";
      text += Of(one);
      if (--left > 0 || random_() % 4 == 0) text += random_() % 2 == 0 ? ", " : " ,\n";
    }
    return text + (is_tuple ? ")" : is_list ? "]" : "}");
  }

 private:
  std::string Integer(int64_t value) {
    return (value >= 0 && random_() % 4 == 0 ? "+" : "") + std::to_string(value);
  }

  std::string Text(const std::string& text) {
    const char quote = random_() % 2 == 0 ? '\'' : '"';
    const std::string around(random_() % 4 == 0 ? 3 : 1, quote);
    std::string written = around;
    for (const char c : text) {
      if (c == '\\' || c == quote) {
        written += std::string("\\") + c;
      } else if (c == '\n') {
        written += "\\n";
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char hex[8];
        std::snprintf(hex, sizeof(hex), random_() % 2 == 0 ? "\\x%02x" : "\\u%04X",
                      static_cast<unsigned>(c));
        written += hex;
      } else {
        written += c;
      }
    }
    return written + around;
  }

  Random& random_;
};

TEST(PythonTextTest, LiteralsBecomeTheJsonOfTheSameValue) {
  Random random(4);
  PythonWriter writer(random);
  for (int round = 0; round < 3000; ++round) {
    const json value = RandomJson(random, 3);
    const std::string text = writer.Of(value);
    const auto read = PythonAsJson(" " + text + "\n");
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_EQ(json::parse(*read, nullptr, false), value) << text << "\n" << *read;
  }
}

TEST(PythonTextTest, AnArgumentsEndIsFoundHoweverItIsCut) {
  Random random(5);
  PythonWriter writer(random);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = writer.Of(RandomJson(random, 3));
    const char* const tails[] = {")", ", b=1)", "]", "}"};
    const std::string all = text + tails[random() % std::size(tails)];
    PythonSpan span;
    size_t read = 0;
    for (const std::string_view piece : Pieces(all, random)) {
      if (!span.is_over()) read += span.Read(piece);
    }
    EXPECT_TRUE(span.is_over()) << all;
    EXPECT_EQ(read, text.size()) << all;
  }
}

TEST(PythonTextTest, NumbersAreAsJsonWantsThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"007", "7"},   {"-0", "-0"},   {".5", "0.5"},    {"5.", "5.0"},
      {"+1.", "1.0"}, {"1e5", "1e5"}, {"2E-3", "2e-3"}, {"-00.25", "-0.25"}};
  for (const auto& [python, as_json] : cases) EXPECT_EQ(PythonAsJson(python), as_json) << python;
}

TEST(PythonTextTest, CharactersByTheirNumbersAreUtf8) {
  const std::pair<const char*, const char*> cases[] = {
      {R"('\x41\u00e9\u6f22\U0001F600')", "\"Aé漢😀\""},
      {R"('\ud83d\ude00')", "\"😀\""},
      // Half a pair is no character, and what stands behind it stays.
      {R"('\ud83d')", "\"\uFFFD\""},
      {R"('\ude00')", "\"\uFFFD\""},
      {R"('\ud83dA')", "\"\uFFFDA\""},
      {R"('\ud83d\u0041')", "\"\uFFFDA\""},
      {R"('\ud83d\ud83d\ude00')", "\"\uFFFD😀\""},
      {R"('\U00110000')", "\"\uFFFD\""}};
  for (const auto& [python, as_json] : cases) EXPECT_EQ(PythonAsJson(python), as_json) << python;
}

TEST(PythonTextTest, WhatIsNoLiteralIsNone) {
  for (const char* text :
       {"",        " ",       "abc",      "f(1)",    "[1, 2", "(",           "{1}",
        "{'a'}",   "{'a': }", "[1 2]",    "'a' 'b'", "'a",    "\"\"\"a\"\"", "1 + 2",
        "0x10",    "1_000",   "--1",      "-",       "1e",    "1e+",         "'\\x4'",
        "'\\u12'", "'\\xzz'", "nonesuch", "[,]",     "{,}",   "'\\"}) {
    EXPECT_EQ(PythonAsJson(text), std::nullopt) << text;
  }
  EXPECT_EQ(PythonAsJson(std::string(100'000, '[')), std::nullopt) << "without end";
  EXPECT_EQ(PythonAsJson("[" + std::string(100'000, '(')), std::nullopt);
}

// One reader over text in pieces; what it gave, once it did.
template <typename T, typename Make>
std::optional<T> Ran(const std::vector<std::string_view>& pieces, TextSource& source,
                     const Make& make) {
  ReadingStack stack;
  std::optional<T> result;
  Reading<bool> reading = make(source, result);
  reading.StartOn(stack);
  for (const std::string_view piece : pieces) {
    source.Append(piece);
    stack.Run();
  }
  source.End();
  stack.Run();
  EXPECT_TRUE(stack.done());
  return result;
}

const std::vector<std::string_view> kEnds = {"</a>", "</bc>", "<|x|>"};

std::string RandomMarkers(Random& random) {
  static const std::vector<std::string> parts = {
      "</a>", "</bc>", "<|x|>", "<", "/", "a", "b", "|", "x", ">", "</", "<|", "</b", "c", "word"};
  std::string text;
  for (size_t i = random() % 14; i > 0; --i) text += parts[random() % parts.size()];
  return text;
}

// The first of kEnds in a text, by one look at all of it.
std::pair<size_t, size_t> FirstEnd(std::string_view text) {
  std::pair<size_t, size_t> first{text.size(), TextSource::kNone};
  for (size_t i = 0; i < kEnds.size(); ++i) {
    const size_t at = text.find(kEnds[i]);
    if (at < first.first) first = {at, i};
  }
  return first;
}

struct Copied {
  std::string text;
  size_t which = 0;
};

Reading<bool> CopyAll(TextSource& source, bool takes_end, std::optional<Copied>& result) {
  std::string text;
  const auto take = [&text](std::string_view piece) { text += piece; };
  size_t which = 0;
  if (takes_end) {
    which = co_await source.CopyUntil(kEnds, take);
  } else {
    which = co_await source.CopyTo(kEnds, take);
  }
  result = Copied{text, which};
  co_return true;
}

TEST(TextSourceTest, CopiesUpToTheFirstEndHoweverTheTextComes) {
  Random random(6);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = RandomMarkers(random);
    const auto [at, which] = FirstEnd(text);
    const bool takes_end = random() % 2 == 0;
    TextSource source;
    const auto copied = Ran<Copied>(Pieces(text, random), source,
                                    [&](TextSource& in, std::optional<Copied>& result) {
                                      return CopyAll(in, takes_end, result);
                                    });
    ASSERT_TRUE(copied.has_value()) << text;
    EXPECT_EQ(copied->which, which) << text;
    EXPECT_EQ(copied->text, text.substr(0, at)) << text;
    const size_t taken =
        which == TextSource::kNone ? at : at + (takes_end ? kEnds[which].size() : 0);
    EXPECT_EQ(source.rest(), text.substr(taken)) << text;
  }
}

Reading<bool> TakeTo(TextSource& source, size_t bytes_max,
                     std::optional<std::optional<std::string>>& result) {
  std::optional<std::string> text = co_await source.TextTo(kEnds, bytes_max);
  result = std::move(text);
  co_return true;
}

TEST(TextSourceTest, TakesAShortTextBeforeAnEndOrNothing) {
  Random random(7);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = RandomMarkers(random);
    const auto [at, which] = FirstEnd(text);
    const size_t bytes_max = random() % 16;
    TextSource source;
    const auto taken = Ran<std::optional<std::string>>(
        Pieces(text, random), source,
        [&](TextSource& in, std::optional<std::optional<std::string>>& result) {
          return TakeTo(in, bytes_max, result);
        });
    ASSERT_TRUE(taken.has_value()) << text;
    const bool fits = which != TextSource::kNone && at <= bytes_max;
    EXPECT_EQ(*taken, fits ? std::optional(text.substr(0, at)) : std::nullopt)
        << text << " within " << bytes_max;
    EXPECT_EQ(source.rest(), fits ? text.substr(at) : text);
  }
}

Reading<bool> LookBehind(TextSource& source, size_t bytes, std::optional<bool>& result) {
  const bool follows = co_await source.IsFollowedBy(bytes, kEnds);
  result = follows;
  co_return true;
}

TEST(TextSourceTest, LooksBehindWhiteSpaceAndTakesNothing) {
  const struct {
    const char* text;
    bool follows;
  } cases[] = {{"12</a>", true},  {"12 \n </bc> x", true}, {"12<b>", false},
               {"12", true},      {"12  \n", true},        {"12 </", true},
               {"12 </x", false}, {"12 <|x", true},        {"12 word", false},
               {"1", true},       {"12 </a></a>", true}};
  Random random(8);
  for (const auto& one : cases) {
    for (int round = 0; round < 5; ++round) {
      TextSource source;
      const auto follows = Ran<bool>(
          Pieces(one.text, random), source,
          [](TextSource& in, std::optional<bool>& result) { return LookBehind(in, 2, result); });
      EXPECT_EQ(follows, one.follows) << one.text;
      EXPECT_EQ(source.rest(), one.text);
    }
  }
}

Reading<bool> AcceptWord(TextSource& source, std::optional<bool>& result) {
  co_await source.SkipSpace();
  const bool accepted = co_await source.Accept("<tool>");
  result = accepted;
  co_return true;
}

TEST(TextSourceTest, AcceptsALiteralWholeOrTakesNothingOfIt) {
  const struct {
    const char* text;
    bool accepted;
    const char* rest;
  } cases[] = {{"<tool>x", true, "x"},      {" \n<tool>", true, ""}, {"<tool", false, "<tool"},
               {"<too1>", false, "<too1>"}, {"", false, ""},         {"  ", false, ""}};
  Random random(9);
  for (const auto& one : cases) {
    TextSource source;
    const auto accepted = Ran<bool>(Pieces(one.text, random), source, AcceptWord);
    EXPECT_EQ(accepted, one.accepted) << one.text;
    EXPECT_EQ(source.rest(), one.rest) << one.text;
  }
}

// What was taken since a mark comes back whole, however much it is; without one it is let go.
TEST(TextSourceTest, RewindsOverAnyLengthAndKeepsNothingWithoutAMark) {
  TextSource source;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i) + "\n";
  source.Append(text);
  source.Skip(10);
  source.Mark();
  for (int i = 0; i < 100; ++i) source.Skip(300);
  EXPECT_EQ(source.rest(), text.substr(10 + 30'000));
  source.Rewind();
  EXPECT_EQ(source.rest(), text.substr(10));
  EXPECT_FALSE(source.is_marked());
  source.Rewind();
  EXPECT_EQ(source.rest(), text.substr(10)) << "a mark counts once";
  source.Skip(text.size());
  EXPECT_EQ(source.rest(), "") << "more than there is";
  source.Append("more");
  EXPECT_EQ(source.rest(), "more");
}

}  // namespace
}  // namespace macrame::runtime::markup
