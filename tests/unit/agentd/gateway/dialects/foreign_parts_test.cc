// Sessions that were begun with another provider and go on here: what can be told is told as text,
// the rest is left out and named.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/messages_request.h"
#include "agentd/gateway/dialects/ollama_request.h"
#include "agentd/gateway/dialects/response_request.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

const json kImage = {{"type", "image"}, {"source", {{"type", "base64"}, {"data", "AA=="}}}};
constexpr char kSentence[] = "An image was here";

ChatRequest Taken(std::variant<ChatRequest, ApiError> read) {
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::move(std::get<ChatRequest>(read));
}

std::string Refused(std::variant<ChatRequest, ApiError> read) {
  auto* error = std::get_if<ApiError>(&read);
  return error == nullptr ? "" : error->message;
}

std::variant<ChatRequest, ApiError> Messages(const json& messages) {
  return ParseMessagesRequest(
      json{{"model", "tiny"}, {"max_tokens", 8}, {"messages", messages}}.dump(), 64);
}

std::variant<ChatRequest, ApiError> Chat(const json& messages) {
  return ParseChatRequest(json{{"model", "tiny"}, {"messages", messages}}.dump(), 64);
}

std::variant<ResponseRequest, ApiError> Response(const json& input) {
  return ParseResponseRequest(json{{"model", "tiny"}, {"input", input}}.dump(), 64, "", true);
}

bool Names(const std::vector<std::string>& ignored, const std::string& name) {
  return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
}

TEST(ForeignParts, BlocksOfAnthropicsServersAreToldAsText) {
  const ChatRequest read =
      Taken(Messages({{{"role", "user"}, {"content", "Who won?"}},
                      {{"role", "assistant"},
                       {"content",
                        {{{"type", "redacted_thinking"}, {"data", "c2VjcmV0"}},
                         {{"type", "server_tool_use"},
                          {"id", "srvtoolu_1"},
                          {"name", "web_search"},
                          {"input", {{"query", "cup final"}}}},
                         {{"type", "web_search_tool_result"},
                          {"tool_use_id", "srvtoolu_1"},
                          {"content",
                           {{{"type", "web_search_result"},
                             {"title", "Final"},
                             {"url", "https://a.example"},
                             {"encrypted_content", "c2VjcmV0"}}}}},
                         {{"type", "compaction"}, {"content", "They spoke of football."}},
                         {{"type", "text"}, {"text", "Oslo won."}}}}},
                      {{"role", "user"}, {"content", "Thanks"}}}));
  const std::string& told = read.generate.messages(1).content();
  EXPECT_NE(told.find("web_search was called with {\"query\":\"cup final\"}"), std::string::npos)
      << told;
  EXPECT_NE(told.find("Final\nhttps://a.example"), std::string::npos) << told;
  EXPECT_NE(told.find("They spoke of football."), std::string::npos) << told;
  EXPECT_NE(told.find("Oslo won."), std::string::npos) << told;
  EXPECT_EQ(told.find("c2VjcmV0"), std::string::npos) << told;
  for (const char* type :
       {"redacted_thinking", "server_tool_use", "web_search_tool_result", "compaction"}) {
    EXPECT_TRUE(Names(read.ignored, type)) << type;
  }
}

TEST(ForeignParts, AnImageInAHistoryIsASentence) {
  const json image_url = {{"type", "image_url"},
                          {"image_url", {{"url", "data:image/png;base64,"}}}};
  const json input_image = {{"type", "input_image"}, {"image_url", "data:image/png;base64,"}};
  const json answer = {{"role", "assistant"}, {"content", "A cat."}};
  const json more = {{"role", "user"}, {"content", "And?"}};
  const ChatRequest messages =
      Taken(Messages({{{"role", "user"}, {"content", {kImage}}}, answer, more}));
  EXPECT_NE(messages.generate.messages(0).content().find(kSentence), std::string::npos);
  EXPECT_TRUE(Names(messages.ignored, "image"));
  const ChatRequest chat =
      Taken(Chat({{{"role", "user"}, {"content", {image_url}}}, answer, more}));
  EXPECT_NE(chat.generate.messages(0).content().find(kSentence), std::string::npos);
  EXPECT_TRUE(Names(chat.ignored, "image_url"));
  auto response = Response({{{"role", "user"}, {"content", {input_image}}}, answer, more});
  ASSERT_TRUE(std::holds_alternative<ResponseRequest>(response))
      << std::get<ApiError>(response).message;
  const ChatRequest& of_response = std::get<ResponseRequest>(response).chat;
  EXPECT_NE(of_response.generate.messages(0).content().find(kSentence), std::string::npos);
  auto ollama = ParseOllamaChat(
      json{{"model", "tiny"},
           {"messages", {{{"role", "user"}, {"content", "x"}, {"images", {"AA=="}}}, answer, more}}}
          .dump(),
      64);
  ASSERT_TRUE(std::holds_alternative<OllamaRequest>(ollama)) << std::get<ApiError>(ollama).message;
  EXPECT_NE(std::get<OllamaRequest>(ollama).chat.generate.messages(0).content().find(kSentence),
            std::string::npos);
}

TEST(ForeignParts, AnImageInTheLastUserTurnIsRefusedByName) {
  EXPECT_NE(Refused(Messages({{{"role", "user"}, {"content", {kImage}}}})).find("image"),
            std::string::npos);
  EXPECT_NE(
      Refused(Chat({{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}})).find("image_url"),
      std::string::npos);
  auto response = Response({{{"role", "user"}, {"content", {{{"type", "input_image"}}}}}});
  ASSERT_TRUE(std::holds_alternative<ApiError>(response));
  EXPECT_NE(std::get<ApiError>(response).message.find("input_image"), std::string::npos);
}

// An agent that reads a picture can't take its tool's result back.
TEST(ForeignParts, AnImageInAToolsResultIsASentenceAlways) {
  const ChatRequest read = Taken(Messages(
      {{{"role", "user"}, {"content", "Look"}},
       {{"role", "assistant"},
        {"content",
         {{{"type", "tool_use"}, {"id", "t1"}, {"name", "see"}, {"input", json::object()}}}}},
       {{"role", "user"},
        {"content", {{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {kImage}}}}}}}));
  EXPECT_NE(read.generate.messages(2).content().find(kSentence), std::string::npos);
}

TEST(ForeignParts, ItemsOfOpenAisToolsAreTold) {
  auto read = Response(
      {{{"role", "user"}, {"content", "Go"}},
       {{"type", "reasoning"}, {"summary", json::array()}, {"encrypted_content", "c2VjcmV0"}},
       {{"type", "web_search_call"},
        {"id", "ws_1"},
        {"status", "completed"},
        {"action", {{"type", "search"}, {"query", "oslo"}}}},
       {{"type", "custom_tool_call"},
        {"call_id", "c1"},
        {"name", "apply_patch"},
        {"input", "*** A"}},
       {{"type", "custom_tool_call_output"}, {"call_id", "c1"}, {"output", "done"}},
       {{"type", "local_shell_call"},
        {"call_id", "c2"},
        {"action", {{"type", "exec"}, {"command", {"ls"}}}}},
       {{"type", "local_shell_call_output"}, {"call_id", "c2"}, {"output", "a.txt"}},
       {{"type", "compaction"}, {"encrypted_content", "c2VjcmV0"}},
       {{"role", "user"}, {"content", "Next"}}});
  ASSERT_TRUE(std::holds_alternative<ResponseRequest>(read)) << std::get<ApiError>(read).message;
  const ChatRequest& chat = std::get<ResponseRequest>(read).chat;
  const std::string all = chat.generate.DebugString();
  EXPECT_NE(all.find("web_search was called with"), std::string::npos) << all;
  EXPECT_NE(all.find("apply_patch"), std::string::npos) << all;
  EXPECT_NE(all.find("*** A"), std::string::npos) << all;
  EXPECT_NE(all.find("local_shell"), std::string::npos) << all;
  EXPECT_NE(all.find("a.txt"), std::string::npos) << all;
  EXPECT_EQ(all.find("c2VjcmV0"), std::string::npos) << all;
  EXPECT_TRUE(Names(chat.ignored, "web_search_call"));
  EXPECT_TRUE(Names(chat.ignored, "compaction"));
}

TEST(ForeignParts, PartsOfReasoningAreReasoning) {
  const ChatRequest read =
      Taken(Chat({{{"role", "user"}, {"content", "Hi"}},
                  {{"role", "assistant"},
                   {"content",
                    {{{"type", "thinking"}, {"thinking", {{{"type", "text"}, {"text", "Hm."}}}}},
                     {{"type", "text"}, {"text", "Hello"}}}}},
                  {{"role", "user"}, {"content", "So?"}}}));
  EXPECT_EQ(read.generate.messages(1).reasoning(), "Hm.");
  EXPECT_EQ(read.generate.messages(1).content(), "Hello");
}

TEST(ForeignParts, APastPartOfAnotherTypeIsToldByItsText) {
  const ChatRequest read =
      Taken(Chat({{{"role", "user"}, {"content", {{{"type", "novel_text"}, {"text", "Hi"}}}}},
                  {{"role", "assistant"},
                   {"content",
                    {{{"type", "redacted_thinking"}, {"text", "c2VjcmV0"}},
                     {{"type", "summary_text"}, {"text", "Hello"}}}}},
                  {{"role", "user"}, {"content", "So?"}}}));
  EXPECT_EQ(read.generate.messages(0).content(), "Hi");
  EXPECT_EQ(read.generate.messages(1).content(), "Hello");
  for (const char* type : {"novel_text", "summary_text", "redacted_thinking"}) {
    EXPECT_TRUE(Names(read.ignored, type)) << type;
  }
}

TEST(ForeignParts, NoContentIsEmptyContent) {
  EXPECT_EQ(
      Taken(Chat({{{"role", "user"}, {"content", json::array()}}})).generate.messages(0).content(),
      "");
}

TEST(ForeignParts, NoLimitAndFormatsThatNobodyKnowsAreTaken) {
  const json body = {{"model", "tiny"},
                     {"messages", {{{"role", "user"}, {"content", "x"}}}},
                     {"max_tokens", -1},
                     {"response_format",
                      {{"type", "json_schema"},
                       {"json_schema",
                        {{"name", "a"},
                         {"schema",
                          {{"type", "object"},
                           {"properties",
                            {{"format", {{"type", "string"}, {"format", "iban"}}},
                             {"day", {{"type", "string"}, {"format", "date"}}}}}}}}}}}};
  const ChatRequest read = Taken(ParseChatRequest(body.dump(), 64));
  EXPECT_EQ(read.generate.max_tokens(), 0u);
  const json schema = json::parse(read.generate.structure().json_schema());
  EXPECT_FALSE(schema["properties"]["format"].contains("format"));
  EXPECT_EQ(schema["properties"]["day"]["format"], "date");
}

}  // namespace
}  // namespace macrame::agentd
