#include "agentd/gateway/api_error.h"

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
