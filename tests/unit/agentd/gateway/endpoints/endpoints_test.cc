#include "agentd/gateway/endpoints/endpoints.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agentd/gateway/base/model_failure.h"
#include "agentd/gateway/endpoints/model_lists.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"

namespace macrame::agentd {
namespace {

TEST(Endpoints, OnlyWhatIsInTheTableIsServed) {
  for (const char* path : {"", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/models/",
                           "/health/x", "/../health", "//health", "/V1/models"}) {
    EXPECT_EQ(Endpoints().Find(path), nullptr) << path;
  }
  ASSERT_NE(Endpoints().Find("/dashboard/app.css"), nullptr);
  EXPECT_EQ(Endpoints().Find("/dashboard/app.css"), Endpoints().Find("/"));
  EXPECT_EQ(Endpoints().Find("/dashboard/api"), nullptr);
  ASSERT_NE(Endpoints().Find("/v1/models/a/b"), nullptr);
  EXPECT_EQ(Endpoints().Find("/v1/models/a/b")->path, "/v1/models/");
}

// A path that is no endpoint's needs what its neighbours need.
TEST(Endpoints, UnknownPathsNeedWhatTheirNeighboursNeed) {
  struct Row {
    const char *unknown, *neighbour;
  };
  for (const Row& row :
       {Row{"/v1/nothing", "/v1/chat/completions"}, Row{"/v1/models/", "/v1/models"},
        Row{"/api/nothing", "/api/chat"}, Row{"/dashboard/api/nothing", "/dashboard/api/load"},
        Row{"/dashboard/api/keys/nothing", "/dashboard/api/keys/create"},
        Row{"/dashboard/nothing", "/dashboard/app.css"}}) {
    ASSERT_EQ(Endpoints().Find(row.unknown), nullptr) << row.unknown;
    for (const char* method : {"GET", "HEAD", "POST", "DELETE"}) {
      const RouteAccess unknown = Endpoints().AccessOf(method, row.unknown);
      const RouteAccess neighbour = Endpoints().AccessOf(method, row.neighbour);
      EXPECT_EQ(unknown.is_open, neighbour.is_open) << method << " " << row.unknown;
      EXPECT_EQ(unknown.scopes, neighbour.scopes) << method << " " << row.unknown;
    }
  }
  EXPECT_FALSE(Endpoints().AccessOf("GET", "/nothing").is_open);
  EXPECT_EQ(Endpoints().AccessOf("GET", "/nothing").scopes, 0u) << "any key will do";
}

TEST(Endpoints, MethodsAreHeldAgainstTheTable) {
  const Endpoint& chat = *Endpoints().Find("/v1/chat/completions");
  EXPECT_TRUE(MethodFits(chat, "POST"));
  for (const char* method : {"GET", "post", "POS", "OPTIONS", ""}) {
    EXPECT_FALSE(MethodFits(chat, method)) << method;
  }
  EXPECT_TRUE(MethodFits(*Endpoints().Find("/health"), "HEAD"));
}

TEST(Endpoints, ModelIdsMayHoldSlashes) {
  FakeBackend backend;
  auto told = ModelText("mlx-community/Tiny-4bit", {}, backend, Dialect::kOpenAi);
  ASSERT_TRUE(std::holds_alternative<std::string>(told));
  EXPECT_EQ(nlohmann::json::parse(std::get<std::string>(told))["id"], "mlx-community/Tiny-4bit");
}

// Clients try a 503 again, and a 404 never.
TEST(Endpoints, AWantedModelIsNever404) {
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

TEST(Endpoints, AnUnknownModelIsNo404WhileTheNodeIsLooking) {
  LookingBackend backend;
  const ApiError error = UnknownModel("nope", backend);
  EXPECT_EQ(error.http_status, 503);
  EXPECT_GT(error.retry_after_seconds, 0);
  EXPECT_NE(error.message.find("still looking"), std::string::npos);
}

TEST(Endpoints, ModelsAreListedInAnthropicsFormForItsClients) {
  FakeBackend backend;
  const auto body = nlohmann::json::parse(ModelsText({}, backend, Dialect::kAnthropic));
  const auto& model = body["data"][0];
  EXPECT_EQ(model["type"], "model");
  EXPECT_EQ(model["id"], model["display_name"]);
  EXPECT_TRUE(model["created_at"].is_string());
  EXPECT_EQ(body["first_id"], model["id"]);
  EXPECT_EQ(body["has_more"], false);
}

TEST(Endpoints, AnUnknownModelIsToldWithThoseThereAre) {
  FakeBackend backend;
  auto told = ModelText("nope", {}, backend, Dialect::kOpenAi);
  ASSERT_TRUE(std::holds_alternative<ApiError>(told));
  const ApiError& error = std::get<ApiError>(told);
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_NE(error.message.find("tiny"), std::string::npos);
}

}  // namespace
}  // namespace macrame::agentd
