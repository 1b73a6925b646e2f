#pragma once

// What of templates nearly every source has the compiler make. Each precompiled header ends with
// this one, for the headers that it has; clang then makes it once (-fpch-instantiate-templates),
// not for each source.

#include <string>

namespace macrame::precompiled {

#ifdef NLOHMANN_JSON_VERSION_MAJOR
template <typename Json>
void UseJson(Json& json, std::string text, const char* word) {
  json = Json::parse(text);
  json = Json::parse(text, nullptr, false);
  json = Json::parse(word, nullptr, false);
  json[word] = {{word, 1}, {word, text}, {"c", true}, {"d", Json::array({1, 2.5, word})}};
  json[text] = text;
  json["a"] = json["b"] == word || json.at("c") == text || json == Json() || json.contains("d");
  json.push_back(word);
  for (const auto& [key, value] : json.items()) json[key] = value;
  for (const auto& value : json) json.push_back(value);
  if (json.find("e") != json.end()) json.erase("e");
  json.update(json);
  text = json.dump() + json["f"].template get<std::string>() + json.value("g", text);
  json["h"] = json["i"].template get<int>() + json["i"].template get<double>();
}
inline void UseJsons(nlohmann::json& json, nlohmann::ordered_json& ordered, std::string_view text) {
  UseJson(json, std::string(text), "j");
  UseJson(ordered, std::string(text), "j");
  json = nlohmann::json::parse(text, nullptr, false);
  ordered = nlohmann::ordered_json::parse(text, nullptr, false);
}
#endif

#ifdef SPDLOG_VERSION
inline void UseLog(const std::string& text, std::string_view view, int number,
                   unsigned long long count) {
  spdlog::info("");
  spdlog::info("{} {} {} {}", text, view, number, count);
  spdlog::warn("{}", text);
  spdlog::error("{}", text);
}
#endif

#ifdef EXPECT_EQ
inline void UseAssertions(const std::string& text, const char* word, std::string_view view,
                          int number, size_t size) {
  EXPECT_EQ(text, word) << text << word << view << number << size;
  EXPECT_EQ(text, "") << testing::PrintToString(text);
  EXPECT_EQ(text, text);
  EXPECT_EQ(view, word);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(size, 1u);
  EXPECT_NE(text, "");
  EXPECT_LT(number, 1);
  EXPECT_LE(size, 1u);
#ifdef NLOHMANN_JSON_VERSION_MAJOR
  const nlohmann::json json;
  EXPECT_EQ(json[word], text) << json;
  EXPECT_EQ(json[word], word);
  EXPECT_EQ(json[word], number);
  EXPECT_EQ(json[word], true);
  EXPECT_EQ(json[word], json);
#endif
#ifdef EXPECT_CALL
  EXPECT_THAT(text, testing::HasSubstr(text));
  EXPECT_THAT(text, testing::AllOf(testing::HasSubstr("a"), testing::Not(testing::HasSubstr("b"))));
#endif
}
#endif

}  // namespace macrame::precompiled
