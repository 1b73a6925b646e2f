#include "agentd/gateway/fields/bounded_json.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/answer_format.h"

namespace macrame::agentd {
namespace {

std::string ObjectOf(size_t members) {
  std::string text = "{";
  for (size_t i = 0; i < members; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"", i, "\":0");
  return text + "}";
}

std::string CodeOf(const std::string& text) {
  Json out;
  const auto error = ParseBoundedJson(text, 8, &out);
  return error.has_value() ? error->code : "";
}

TEST(BoundedJson, NestingIsCountedOutsideOfStrings) {
  EXPECT_EQ(ShapeOfJson("[[{\"a\":[1]}]]", 4), JsonShape::kFine);
  EXPECT_EQ(ShapeOfJson("[[{\"a\":[1]}]]", 3), JsonShape::kTooDeep);
  EXPECT_EQ(ShapeOfJson("[\"[[[[\\\"[[[\",[],[],{}]", 2), JsonShape::kFine);
  EXPECT_EQ(ShapeOfJson("]]]][", 1), JsonShape::kFine);
}

TEST(BoundedJson, TheEntriesOfEachListAreCountedByThemselves) {
  EXPECT_FALSE(HasLongerList("{\"a\":[1,2,3],\"b\":[4,5,6]}", 4, 3));
  EXPECT_TRUE(HasLongerList("{\"a\":[1,2,3],\"b\":[4,5,6,7", 4, 3));
  EXPECT_TRUE(HasLongerList("[[1,2],[3],[\"[,\\\",\"],9]", 4, 3));
  EXPECT_FALSE(HasLongerList("[{\"a\":1,\"b\":2,\"c\":3,\"d\":4},\",,,,\"]", 4, 3));
  EXPECT_FALSE(HasLongerList("[[[[[1,2,3,4]]]]]", 4, 3)) << "the parser refuses it";
}

TEST(BoundedJson, AnObjectHas4096MembersAndSeveralFewerEach) {
  EXPECT_EQ(CodeOf(ObjectOf(4096)), "");
  EXPECT_EQ(CodeOf(ObjectOf(4097)), "json_too_large");
  EXPECT_EQ(CodeOf(absl::StrCat("[", ObjectOf(4096), ",{\"a\":0}]")), "json_too_large");
  std::string small = "[";
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&small, i > 0 ? "," : "", ObjectOf(6));
  EXPECT_EQ(CodeOf(small + "]"), "") << "a long list of small objects";
  EXPECT_EQ(CodeOf(absl::StrCat("\"", std::string(100'000, ':'), "\"")), "") << "in a string";
}

// `value` so many times, in an array.
std::string ListOf(const std::string& value, size_t count) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&text, i > 0 ? "," : "", value);
  return text + "]";
}

TEST(BoundedJson, ManySmallValuesAreRefusedAndAMillionNumbersAreNot) {
  for (const char* value : {"{}", "[]", "\"\"", "{\"a\":{}}"}) {
    EXPECT_EQ(CodeOf(ListOf(value, 1'000'000)), "json_too_large") << value;
    EXPECT_EQ(CodeOf(ListOf(value, 100'000)), "") << value;
  }
  EXPECT_EQ(CodeOf(ListOf("7", 1'000'000)), "");
  EXPECT_EQ(CodeOf(absl::StrCat("\"", std::string(1'000'000, '['), "\"")), "") << "in a string";
}

// Agents in JavaScript cut what a tool printed within an emoji.
TEST(BoundedJson, HalfOfASurrogatePairIsAReplacementCharacter) {
  const std::pair<const char*, const char*> kTexts[] = {{R"("a\ud83d")", "a\uFFFD"},
                                                        {R"("\ude00b")", "\uFFFDb"},
                                                        {R"("\ud83d\ud83d\ude00")", "\uFFFD😀"},
                                                        {R"("\uD83Dx\uDE00")", "\uFFFDx\uFFFD"},
                                                        {R"("\ud83d\n")", "\uFFFD\n"},
                                                        {R"("\\ud83d \ud83d")", "\\ud83d \uFFFD"},
                                                        {R"("\\\ud83d\"\\")", "\\\uFFFD\"\\"},
                                                        {R"("\ud83d\ude00")", "😀"},
                                                        {R"("\\ud83d")", "\\ud83d"}};
  for (const auto& [text, expected] : kTexts) {
    Json out;
    EXPECT_FALSE(ParseBoundedJson(text, 8, &out).has_value()) << text;
    EXPECT_EQ(out, expected) << text;
  }
  Json object;
  EXPECT_FALSE(ParseJsonObject(R"({"\ud83d":["\udc00",1]})", 8, &object).has_value());
  EXPECT_EQ(object.dump(), "{\"\uFFFD\":[\"\uFFFD\",1]}");
  for (const char* text :
       {R"("\ud83")", R"("\ud83d)", R"("\ud83g")", R"(\ud83d)", R"("\ud83d",)", R"("\u-83d")"}) {
    EXPECT_EQ(CodeOf(text), "invalid_json") << text;
  }
}

TEST(BoundedJson, ArgumentsThatWouldTakeLongOrDeepStayText) {
  const std::string large = ObjectOf(100'000);
  EXPECT_EQ(ArgumentsObject(large)["invalid_json"], large);
  std::string deep = "{\"a\":";
  deep.append(100'000, '[').append(100'000, ']').push_back('}');
  EXPECT_EQ(ArgumentsObject(deep)["invalid_json"], deep);
  EXPECT_EQ(ArgumentsObject("{\"b\":1,\"a\":[2]}").dump(), "{\"b\":1,\"a\":[2]}");
}

}  // namespace
}  // namespace macrame::agentd
