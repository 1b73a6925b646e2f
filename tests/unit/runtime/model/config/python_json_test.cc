// What Python's json module reads is read here, with the same values; what it refuses is refused.

#include "runtime/model/config/python_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "runtime/model/config/config_json.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

TEST(PythonJsonTest, NumbersThatAreNotFiniteKeepTheirValue) {
  const json read = ParsePythonJson(
      R"({"a": Infinity, "b": -Infinity, "c": [NaN, 1], "d": {"e": Infinity}, "f": 1e400})");
  ASSERT_TRUE(read.is_object());
  EXPECT_TRUE(std::isinf(read["a"].get<double>()) && read["a"] > 0);
  EXPECT_TRUE(std::isinf(read["b"].get<double>()) && read["b"] < 0);
  EXPECT_TRUE(std::isnan(read["c"][0].get<double>()));
  EXPECT_EQ(read["c"][1], 1);
  EXPECT_TRUE(std::isinf(read["d"]["e"].get<double>()));
  EXPECT_TRUE(std::isinf(read["f"].get<double>()));
}

TEST(PythonJsonTest, WordsInTextsAreText) {
  const json read = ParsePythonJson(R"({"NaN": "Infinity", "a": "say \"NaN\" and -Infinity"})");
  EXPECT_EQ(read, json({{"NaN", "Infinity"}, {"a", "say \"NaN\" and -Infinity"}}));
}

TEST(PythonJsonTest, BigIntegersAreNumbers) {
  const json read = ParsePythonJson(
      R"({"model_max_length": 1000000000000000019884624838656, "n": 18446744073709551615})");
  EXPECT_EQ(read["model_max_length"].get<double>(), 1e30);
  EXPECT_EQ(read["n"].get<uint64_t>(), UINT64_MAX);
  const json huge = ParsePythonJson("[1" + std::string(400, '0') + "]");
  ASSERT_TRUE(huge.is_array());
  EXPECT_TRUE(std::isinf(huge[0].get<double>()));
}

TEST(PythonJsonTest, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(ParsePythonJson("\xEF\xBB\xBF{\"a\": 1}"), json({{"a", 1}}));
  EXPECT_TRUE(IsPythonJson("\xEF\xBB\xBF{\"a\": NaN}"));
}

// Numbers that the table has no words for stand there as the nearest ones that it has.
void MakeStrict(json& value) {
  if (value.is_structured()) {
    for (json& member : value) MakeStrict(member);
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    if (std::isnan(number)) {
      value = nullptr;
    } else {
      value = std::copysign(std::numeric_limits<double>::max(), number);
    }
  }
}

// The table that the text library's reader is held to as well, and Python's own.
TEST(PythonJsonTest, WhatPythonReadsIsReadAndWhatItRefusesIsRefused) {
  std::ifstream file("tests/unit/runtime/text/testdata/python_json_cases.json");
  const json cases = json::parse(file);
  ASSERT_GT(cases.size(), 40u);
  for (const json& one : cases) {
    const std::string text = one["text"];
    json read = ParsePythonJson(text);
    EXPECT_EQ(IsPythonJson(text), !read.is_discarded()) << text;
    if (one.contains("refused")) {
      EXPECT_TRUE(read.is_discarded()) << text;
      continue;
    }
    MakeStrict(read);
    EXPECT_EQ(read, one["value"]) << text;
  }
}

TEST(PythonJsonTest, DepthIsBoundedWhereAsked) {
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_TRUE(ParsePythonJson(deep).is_array());
  bool is_too_deep = false;
  EXPECT_TRUE(ParsePythonJson(deep, kConfigDepthMax, &is_too_deep).is_discarded());
  EXPECT_TRUE(is_too_deep);
}

}  // namespace
}  // namespace macrame::runtime::engine
