#include "agentd/gateway/routes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"

namespace macrame::agentd {
namespace {

TEST(Routes, OnlyWhatIsInTheTableIsServed) {
  for (const char* path : {"", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/models/",
                           "/health/x", "/../health", "//health", "/V1/models"}) {
    EXPECT_EQ(FindRoute(path), nullptr) << path;
  }
  ASSERT_NE(FindRoute("/dashboard/app.css"), nullptr);
  EXPECT_EQ(FindRoute("/dashboard/app.css"), FindRoute("/"));
  EXPECT_EQ(FindRoute("/dashboard/api"), nullptr);
  ASSERT_NE(FindRoute("/v1/models/a/b"), nullptr);
  EXPECT_EQ(FindRoute("/v1/models/a/b")->kind, RouteKind::kModel);
}

TEST(Routes, MethodsAreHeldAgainstTheTable) {
  const Route& chat = *FindRoute("/v1/chat/completions");
  EXPECT_TRUE(MethodFits(chat, "POST"));
  for (const char* method : {"GET", "post", "POS", "OPTIONS", ""}) {
    EXPECT_FALSE(MethodFits(chat, method)) << method;
  }
  EXPECT_TRUE(MethodFits(*FindRoute("/health"), "HEAD"));
}

TEST(Routes, ModelIdsMayHoldSlashesPlainOrEscaped) {
  FakeBackend backend;
  for (const char* path :
       {"/v1/models/mlx-community/Tiny-4bit", "/v1/models/mlx-community%2FTiny-4bit"}) {
    auto reply = AnswerSimpleRoute(*FindRoute(path), path, {}, backend);
    ASSERT_TRUE(std::holds_alternative<HttpReply>(reply)) << path;
    EXPECT_EQ(nlohmann::json::parse(std::get<HttpReply>(reply).body)["id"],
              "mlx-community/Tiny-4bit");
  }
}

// Clients try a 503 again, and a 404 never.
TEST(Routes, AWantedModelIsNever404) {
  FakeBackend backend;
  const absl::Status none =
      ReasonStatus(absl::StatusCode::kNotFound, "MODEL_NOT_LOADED", "no entry rank is here");
  for (const char* model : {"tiny", "tiny#2"}) {
    const ApiError error = DescribeFailure(none, model, backend);
    EXPECT_EQ(error.http_status, 503) << model;
    EXPECT_GT(error.retry_after_seconds, 0);
  }
  EXPECT_EQ(DescribeFailure(none, "other", backend).http_status, 404);
}

// A node that was just started.
class LookingBackend : public FakeBackend {
 public:
  bool IsLooking() override { return true; }
};

TEST(Routes, AnUnknownModelIsNo404WhileTheNodeIsLooking) {
  LookingBackend backend;
  const ApiError error = UnknownModel("nope", backend);
  EXPECT_EQ(error.http_status, 503);
  EXPECT_GT(error.retry_after_seconds, 0);
  EXPECT_NE(error.message.find("still looking"), std::string::npos);
}

TEST(Routes, ModelsAreListedInAnthropicsFormForItsClients) {
  FakeBackend backend;
  const char* path = "/v1/models";
  auto reply = AnswerSimpleRoute(*FindRoute(path), path, {}, backend, Dialect::kAnthropic);
  ASSERT_TRUE(std::holds_alternative<HttpReply>(reply));
  const auto body = nlohmann::json::parse(std::get<HttpReply>(reply).body);
  const auto& model = body["data"][0];
  EXPECT_EQ(model["type"], "model");
  EXPECT_EQ(model["id"], model["display_name"]);
  EXPECT_TRUE(model["created_at"].is_string());
  EXPECT_EQ(body["first_id"], model["id"]);
  EXPECT_EQ(body["has_more"], false);
}

TEST(Routes, AnUnknownModelIsToldWithThoseThereAre) {
  FakeBackend backend;
  const char* path = "/v1/models/nope";
  auto reply = AnswerSimpleRoute(*FindRoute(path), path, {}, backend);
  ASSERT_TRUE(std::holds_alternative<ApiError>(reply));
  const ApiError& error = std::get<ApiError>(reply);
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_NE(error.message.find("tiny"), std::string::npos);
}

}  // namespace
}  // namespace macrame::agentd
