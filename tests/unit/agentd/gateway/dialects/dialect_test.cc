#include "agentd/gateway/dialects/dialect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

using nlohmann::json;

TEST(Dialect, ThePathSaysWhoseItIs) {
  EXPECT_EQ(DialectOfPath("/v1/messages"), Dialect::kAnthropic);
  EXPECT_EQ(DialectOfPath("/v1/messages/count_tokens"), Dialect::kAnthropic);
  EXPECT_EQ(DialectOfPath("/api/chat"), Dialect::kOllama);
  EXPECT_EQ(DialectOfPath("/api/nothing"), Dialect::kOllama);
  for (const char* path : {"/v1/messagesx", "/v1/responses", "/", "/apix", "/health"}) {
    EXPECT_EQ(DialectOfPath(path), Dialect::kOpenAi) << path;
  }
}

TEST(Dialect, ErrorsHaveTheShapeThatItsClientsRead) {
  const ApiError error = BadRequest("Too \"hot\".", "temperature", "invalid_value");
  const json anthropic = json::parse(DialectErrorBody(Dialect::kAnthropic, error, "req_1"));
  EXPECT_EQ(anthropic,
            (json{{"type", "error"},
                  {"error", {{"type", "invalid_request_error"}, {"message", "Too \"hot\"."}}},
                  {"request_id", "req_1"}}));
  EXPECT_EQ(json::parse(DialectErrorBody(Dialect::kOllama, error, "req_1")),
            (json{{"error", "Too \"hot\"."}}));
  EXPECT_EQ(DialectErrorBody(Dialect::kOpenAi, error, "req_1"), ErrorBody(error));
}

// Claude Code and LangChain shorten the conversation where they read these words.
TEST(Dialect, APromptThatIsTooLongIsToldInAnthropicsWords) {
  ApiError error = BadRequest("Too long.", "messages", "context_length_exceeded");
  error.prompt_tokens = 9001;
  error.context_tokens = 8192;
  EXPECT_EQ(json::parse(DialectErrorBody(Dialect::kAnthropic, error, "r"))["error"]["message"],
            "prompt is too long: 9001 tokens > 8192 maximum");
}

// Anthropic's packages then send the conversation whole.
TEST(Dialect, AThreadThatIsNotHeldHasItsCode) {
  const ApiError error = BadRequest("No.", "thread", std::string(kThreadUnsupported));
  EXPECT_EQ(json::parse(DialectErrorBody(Dialect::kAnthropic, error, "r"))["error"]["details"],
            (json{{"error_code", "thread_unsupported_request"}, {"unsupported", {"thread"}}}));
}

TEST(Dialect, AnthropicsTypesFollowTheStatus) {
  const std::pair<int, const char*> kTypes[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {413, "request_too_large"},     {415, "invalid_request_error"},
      {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"},      {504, "timeout_error"}};
  for (const auto& [status, type] : kTypes) {
    const std::string body =
        DialectErrorBody(Dialect::kAnthropic, HttpError(status, "x", "y"), "r");
    EXPECT_EQ(json::parse(body)["error"]["type"], type) << status;
  }
}

}  // namespace
}  // namespace macrame::agentd
