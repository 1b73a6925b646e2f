#include "runtime/serving/structure/ignorable_keywords.h"

#include <gtest/gtest.h>

#include <string>

namespace macrame::runtime::engine {
namespace {

std::string Left(const char* text) {
  auto schema = nlohmann::ordered_json::parse(text);
  DropIgnorableKeywords(&schema);
  return schema.dump();
}

TEST(IgnorableKeywordsTest, FormatsThatNobodyKnowsAreDropped) {
  EXPECT_EQ(Left(R"({"type":"string","format":"path"})"), R"({"type":"string"})");
  EXPECT_EQ(Left(R"({"type":"string","format":"date-time"})"),
            R"({"type":"string","format":"date-time"})");
  EXPECT_EQ(Left(R"({"anyOf":[{"type":"string","format":"binary"},{"type":"null"}]})"),
            R"({"anyOf":[{"type":"string"},{"type":"null"}]})");
  EXPECT_EQ(Left(R"({"type":"array","items":{"format":"password"}})"),
            R"({"type":"array","items":{}})");
  EXPECT_EQ(Left(R"({"format":7})"), R"({"format":7})") << "the library says what is wrong";
}

TEST(IgnorableKeywordsTest, NamesOfPropertiesAreNoKeywords) {
  for (const char* name : {"default", "enum", "const", "examples", "format", "properties"}) {
    for (const char* map : {"properties", "patternProperties", "$defs", "definitions"}) {
      const std::string begin = std::string("{\"") + map + "\":{\"" + name + "\":{";
      EXPECT_EQ(Left((begin + R"("format":"iban"}}})").c_str()), begin + "}}}");
    }
  }
  const char* named = R"({"properties":{"uniqueItems":false,"propertyNames":true}})";
  EXPECT_EQ(Left(named), named);
}

TEST(IgnorableKeywordsTest, ValuesStayAsTheyAre) {
  for (const char* schema :
       {R"({"enum":[{"format":"iban"}]})", R"({"const":{"uniqueItems":false}})",
        R"({"default":{"format":"iban"}})", R"({"examples":[{"propertyNames":{}}]})"}) {
    EXPECT_EQ(Left(schema), schema);
  }
}

TEST(IgnorableKeywordsTest, FormsThatAllFitsAreDroppedAndOthersStay) {
  EXPECT_EQ(Left(R"({"type":"object","propertyNames":{"type":"string"}})"), R"({"type":"object"})");
  EXPECT_EQ(Left(R"({"items":{"propertyNames":{}},"uniqueItems":false})"), R"({"items":{}})");
  for (const char* schema : {R"({"propertyNames":{"pattern":"^a"}})", R"({"uniqueItems":true})",
                             R"({"propertyNames":{"type":"string","maxLength":3}})", "true", "7"}) {
    EXPECT_EQ(Left(schema), schema);
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
