#include "agentd/gateway/dialects/input_items.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

using nlohmann::json;

constexpr char kChat[] =
    R"([{"role":"user","content":"Weather?"},
        {"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",
          "function":{"name":"get_weather","arguments":"{}"}}]},
        {"role":"tool","content":"sunny","tool_call_id":"c1"},
        {"role":"assistant","content":"It is sunny."}])";

json Listed(absl::string_view query) {
  auto body = InputItemsBody("resp_1", kChat, query);
  if (auto* error = std::get_if<ApiError>(&body)) return {{"error", error->param}};
  return json::parse(std::get<std::string>(body));
}

TEST(InputItems, TheConversationUpToTheAnswerIsListed) {
  const json list = Listed("order=asc");
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 3u) << "the answer is no input";
  EXPECT_EQ(list["data"][0]["content"][0]["text"], "Weather?");
  EXPECT_EQ(list["data"][1]["type"], "function_call");
  EXPECT_EQ(list["data"][1]["call_id"], "c1");
  EXPECT_EQ(list["data"][2]["output"], "sunny");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(Listed("")["data"][0]["type"], "function_call_output") << "the newest first";
}

TEST(InputItems, PagesFollowOneAnother) {
  const json first = Listed("order=asc&limit=1");
  EXPECT_EQ(first["has_more"], true);
  const json next = Listed("order=asc&limit=2&after=" + first["last_id"].get<std::string>());
  EXPECT_EQ(next["data"][0]["type"], "function_call");
  EXPECT_EQ(next["has_more"], false);
}

TEST(InputItems, WrongPagesAreRefusedByName) {
  EXPECT_EQ(Listed("limit=0")["error"], "limit");
  EXPECT_EQ(Listed("order=up")["error"], "order");
  EXPECT_EQ(Listed("after=x")["error"], "after");
}

}  // namespace
}  // namespace macrame::agentd
