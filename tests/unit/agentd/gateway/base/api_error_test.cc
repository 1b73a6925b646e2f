#include "agentd/gateway/base/api_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

ApiError FromReason(absl::StatusCode status, const char* code) {
  return ApiErrorFromStatus(ReasonStatus(status, code, "what happened"));
}

TEST(ApiError, ReasonsDecideTheStatus) {
  EXPECT_EQ(FromReason(absl::StatusCode::kInvalidArgument, "PROMPT_TOO_LONG").code,
            "context_length_exceeded");
  EXPECT_EQ(FromReason(absl::StatusCode::kNotFound, "MODEL_NOT_LOADED").http_status, 404);
  const ApiError full = FromReason(absl::StatusCode::kResourceExhausted, "QUEUE_FULL");
  EXPECT_EQ(full.http_status, 429);
  EXPECT_EQ(full.type, "rate_limit_error");
  EXPECT_GT(full.retry_after_seconds, 0);
  const ApiError loading = FromReason(absl::StatusCode::kUnavailable, "NOT_READY");
  EXPECT_EQ(loading.http_status, 503);
  EXPECT_GT(loading.retry_after_seconds, 0);
}

// SDKs try 429 and 503 again, some for ever: what stays as it is must be neither.
TEST(ApiError, PermanentFailuresAreNotWorthAnotherTry) {
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  for (const char* code : {"TOKENIZER_INVALID", "MEMORY_SHORT", "DISK_SHORT", "MODEL_FILE_BROKEN",
                           "MODEL_ARCHITECTURE_UNKNOWN", "ENGINE_MISSING"}) {
    for (const auto status :
         {exhausted, absl::StatusCode::kFailedPrecondition, absl::StatusCode::kUnavailable}) {
      const ApiError error = FromReason(status, code);
      EXPECT_EQ(error.http_status, 400) << code;
      EXPECT_EQ(error.retry_after_seconds, 0) << code;
    }
  }
  EXPECT_EQ(ApiErrorFromStatus(absl::FailedPreconditionError("no")).http_status, 400);
}

TEST(ApiError, AMessageBeyondGrpcsSizeIsTooLarge) {
  for (const char* message : {"Received message larger than max (9437191 vs. 8388608)",
                              "Sent message larger than max (9437191 vs. 8388608)",
                              "SERVER: Received message larger than max (9 vs. 8)"}) {
    const ApiError error = ApiErrorFromStatus(absl::ResourceExhaustedError(message));
    EXPECT_EQ(error.http_status, 413) << message;
    EXPECT_EQ(error.retry_after_seconds, 0);
  }
  EXPECT_EQ(ApiErrorFromStatus(absl::ResourceExhaustedError("too many calls are open")).http_status,
            503);
}

// litellm and others look for these words, and shorten the conversation.
TEST(ApiError, APromptThatIsTooLongIsToldInOpenAisWords) {
  const std::pair<const char*, const char*> cases[] = {
      {"the prompt has 9001 tokens, the model was loaded with a context of 8192",
       "This model's maximum context length is 8192 tokens. However, your prompt has 9001 tokens."},
      {"the prompt has 9001 tokens, the context 8192",
       "This model's maximum context length is 8192 tokens. However, your prompt has 9001 tokens."},
      {"the prompt has 3500000 bytes, at least 9001 tokens, the model was loaded with a context of "
       "8192",
       "However, your prompt has at least 9001 tokens."}};
  for (const auto& [said, told] : cases) {
    const ApiError error = ApiErrorFromStatus(
        ReasonStatus(absl::StatusCode::kInvalidArgument, "PROMPT_TOO_LONG", said));
    EXPECT_NE(error.message.find(told), std::string::npos) << error.message;
    EXPECT_EQ(error.prompt_tokens, 9001u);
    EXPECT_EQ(error.context_tokens, 8192u);
    EXPECT_EQ(error.code, "context_length_exceeded");
  }
}

TEST(ApiError, FoldersOfTheServerAreNotTold) {
  const std::pair<const char*, const char*> cases[] = {
      {"/root/.macrame/models/qwen/tokenizer.json: no JSON", "tokenizer.json: no JSON"},
      {"read '/srv/models/a' failed", "read 'a' failed"},
      {"look at ~/.macrame/agentd.log.", "look at agentd.log."},
      {"in /Users/ann/Models/x/, which", "in x, which"},
      {"send it to /v1/responses or https://a.example/b/c", nullptr},
      {"acme/model either/or 3/4", nullptr},
      {"folder:/opt/models/x", "folder:x"}};
  for (const auto& [said, told] : cases) {
    const ApiError error = ApiErrorFromStatus(
        ReasonStatus(absl::StatusCode::kInvalidArgument, "TEMPLATE_REFUSED", said));
    EXPECT_TRUE(error.message.starts_with(told == nullptr ? said : told)) << error.message;
  }
}

TEST(ApiError, NothingBecomes409WhichClientsTryAgain) {
  for (int code = 1; code <= 16; ++code) {
    const auto status = absl::Status(static_cast<absl::StatusCode>(code), "x");
    const int http_status = ApiErrorFromStatus(status).http_status;
    EXPECT_NE(http_status, 409) << code;
    EXPECT_GE(http_status, 400) << code;
  }
}

TEST(ApiError, InternalCausesAreNotToldToClients) {
  const std::string body = ErrorBody(ApiErrorFromStatus(absl::InternalError("/var/x: gone")));
  EXPECT_EQ(body.find("/var/x"), std::string::npos);
}

TEST(ApiError, TheBodyHasAllFourFields) {
  const auto body = nlohmann::json::parse(ErrorBody(BadRequest("bad \xFF byte", "", "")));
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(body["error"]["param"].is_null());
  EXPECT_TRUE(body["error"]["code"].is_null());
  EXPECT_EQ(body["error"]["message"], "bad \xEF\xBF\xBD byte");
}

}  // namespace
}  // namespace macrame::agentd
