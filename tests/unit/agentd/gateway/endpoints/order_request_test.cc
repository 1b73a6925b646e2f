// What the dashboard's page posts, read field by field: what becomes of it, and what is refused.

#include "agentd/gateway/endpoints/order_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/access/api_key.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

constexpr uint64_t kNow = 1'790'000'000'000;

const std::vector<ServedModel> kServed = {
    {"tiny", 1, 4096}, {"law-model", 2, 4096, "law"}, {"art-model", 3, 4096, "art"}};

using Parsed = std::variant<ClusterOrder, ApiError>;

Parsed Read(OrderKind kind, const std::string& body, const Principal& principal = {}) {
  return ParseOrder(kind, body, 16, principal, kServed, kNow);
}

template <typename Order>
Order Good(OrderKind kind, const json& body, const Principal& principal = {}) {
  const Parsed read = Read(kind, body.dump(), principal);
  if (const auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  const auto* order = std::get_if<Order>(&std::get<ClusterOrder>(read));
  EXPECT_NE(order, nullptr) << "another order than " << body;
  return order == nullptr ? Order() : *order;
}

ApiError Bad(OrderKind kind, const json& body, const Principal& principal = {}) {
  const Parsed read = Read(kind, body.dump(), principal);
  EXPECT_TRUE(std::holds_alternative<ApiError>(read)) << body;
  return std::holds_alternative<ApiError>(read) ? std::get<ApiError>(read) : ApiError();
}

Principal OfTenant(const std::string& tenant) {
  Principal principal;
  principal.key_id = "0123456789ab";
  principal.tenant = tenant;
  return principal;
}

Principal ForModels(std::vector<std::string> models) {
  Principal principal;
  principal.key_id = "0123456789ab";
  principal.models = std::move(models);
  return principal;
}

TEST(OrderRequest, WhatIsSaidOfAPlacementReachesTheOrder) {
  const json body = {
      {"model", "org/tiny"}, {"ranks", 3}, {"context_length", 8192}, {"parallelism", "pipeline"}};
  const auto load = Good<v1::LoadModelRequest>(OrderKind::kLoad, body);
  const auto plan = Good<v1::PlanModelRequest>(OrderKind::kPlan, body);
  for (const auto& placement : {load.placement(), plan.placement()}) {
    EXPECT_EQ(placement.world_size(), 3u);
    EXPECT_EQ(placement.context_length(), 8192u);
    EXPECT_EQ(placement.parallelism(), v1::PARALLELISM_PIPELINE);
    EXPECT_EQ(placement.tenant(), "");
  }
  EXPECT_EQ(load.name_or_path(), "org/tiny");
  EXPECT_EQ(load.deployment_name(), "") << "the cluster names it";
  // What is left out, or null, is left to the planner.
  for (const json& least :
       {json{{"model", "tiny"}},
        json{{"model", "tiny"}, {"ranks", nullptr}, {"parallelism", nullptr}}}) {
    const auto order = Good<v1::LoadModelRequest>(OrderKind::kLoad, least);
    EXPECT_EQ(order.placement().world_size(), 0u);
    EXPECT_EQ(order.placement().context_length(), 0u);
    EXPECT_EQ(order.placement().parallelism(), v1::PARALLELISM_AUTO);
  }
}

TEST(OrderRequest, EachOrderOfANodeIsTakenByItsWord) {
  for (const auto& [word, order] :
       {std::pair{"cordon", v1::CORDON_ORDER_CORDON}, std::pair{"drain", v1::CORDON_ORDER_DRAIN},
        std::pair{"uncordon", v1::CORDON_ORDER_UNCORDON}}) {
    const auto read =
        Good<v1::SetCordonRequest>(OrderKind::kCordon, {{"node", "studio-2"}, {"order", word}});
    EXPECT_EQ(read.node_id(), "studio-2");
    EXPECT_EQ(read.order(), order);
  }
  const ApiError unknown = Bad(OrderKind::kCordon, {{"node", "a"}, {"order", "Drain"}});
  EXPECT_EQ(unknown.param, "order");
  EXPECT_NE(unknown.message.find("cordon, drain, uncordon"), std::string::npos) << unknown.message;
}

TEST(OrderRequest, ErrorsNameTheFieldAndItsBounds) {
  struct Row {
    OrderKind kind;
    json body;
    const char* param;
    const char* words;
  };
  for (const Row& row : {
           Row{OrderKind::kLoad, {{"model", "tiny"}, {"ranks", 1025}}, "ranks", "1024"},
           Row{OrderKind::kLoad, {{"model", "tiny"}, {"ranks", UINT64_MAX}}, "ranks", "1024"},
           Row{OrderKind::kLoad, {{"model", "tiny"}, {"ranks", 1.5}}, "ranks", "integer"},
           Row{OrderKind::kPlan,
               {{"model", "tiny"}, {"context_length", 0}},
               "context_length",
               "at least 1"},
           Row{OrderKind::kPlan,
               {{"model", "tiny"}, {"context_length", 1 << 30}},
               "context_length",
               "at most"},
           Row{OrderKind::kPlan,
               {{"model", "tiny"}, {"parallelism", ""}},
               "parallelism",
               "auto, tensor, pipeline"},
           Row{OrderKind::kPlan, {{"model", "tiny"}, {"parallelism", 1}}, "parallelism", "string"},
           Row{OrderKind::kUnload, {{"model", std::string(201, 'm')}}, "model", "200"},
           Row{OrderKind::kUnload, {{"model", "a\nb"}}, "model", "control characters"},
           Row{OrderKind::kUnload, {{"model", "a\x7f"}}, "model", "control characters"},
           Row{OrderKind::kUnload, {{"model", "tiny"}, {"ranks", 1}}, "ranks", "not known"},
           Row{OrderKind::kUnload, json::object(), "model", "missing"},
           Row{OrderKind::kLoad, {{"model", "./tiny"}}, "model", "clusterctl model load"},
           Row{OrderKind::kPlan, {{"model", "~root/x"}}, "model", "clusterctl model load"},
           Row{OrderKind::kCordon, {{"order", "drain"}}, "node", "missing"},
           Row{OrderKind::kCordon, {{"node", "a"}}, "order", "one of"},
           Row{OrderKind::kRevokeKey, json::object(), "key", "missing"},
           Row{OrderKind::kRevokeKey, {{"key", 7}}, "key", "string"},
           Row{OrderKind::kCreateKey, {{"scopes", {"infer", 7}}}, "scopes", "list"},
           Row{OrderKind::kCreateKey,
               {{"scopes", json(std::vector<std::string>(9, "infer"))}},
               "scopes",
               "at most 8"},
           Row{OrderKind::kCreateKey, {{"expires_in_seconds", 0}}, "expires_in_seconds", "least 1"},
           Row{OrderKind::kCreateKey,
               {{"expires_in_seconds", INT64_MAX}},
               "expires_in_seconds",
               "at most"},
           Row{OrderKind::kCreateKey, {{"secret", "mine"}}, "secret", "not known"},
       }) {
    const ApiError error = Bad(row.kind, row.body);
    EXPECT_EQ(error.http_status, 400) << row.body;
    EXPECT_EQ(error.param, row.param) << row.body << "\n" << error.message;
    EXPECT_NE(error.message.find(row.words), std::string::npos) << error.message;
    EXPECT_LT(error.message.size(), 400u);
  }
}

TEST(OrderRequest, AKeyEndsSoLongAfterNow) {
  const auto read = Good<v1::CreateKeyRequest>(
      OrderKind::kCreateKey,
      {{"name", "laptop"}, {"scopes", {"infer", "read"}}, {"expires_in_seconds", 3600}});
  EXPECT_EQ(read.key().name(), "laptop");
  ASSERT_EQ(read.key().scopes_size(), 2);
  EXPECT_EQ(read.key().scopes(1), "read");
  EXPECT_EQ(read.key().expires_unix_ms(), kNow + 3'600'000);
  EXPECT_TRUE(CheckNewKey(read.key(), kNow).ok());
  EXPECT_EQ(Good<v1::CreateKeyRequest>(OrderKind::kCreateKey, {{"scopes", {"infer"}}})
                .key()
                .expires_unix_ms(),
            0u)
      << "it does not end";
}

// The page's own questions have no body, whatever somebody sends.
TEST(OrderRequest, QuestionsReadNoBody) {
  for (const char* body : {"", "no JSON", "{\"limit\": 1000000}"}) {
    const Parsed keys = Read(OrderKind::kListKeys, body);
    const Parsed audit = Read(OrderKind::kReadAudit, body);
    ASSERT_TRUE(std::holds_alternative<ClusterOrder>(keys)) << body;
    ASSERT_TRUE(std::holds_alternative<ClusterOrder>(audit)) << body;
    const auto& read = std::get<v1::ReadAuditRequest>(std::get<ClusterOrder>(audit));
    EXPECT_EQ(read.limit(), kAuditLinesShown);
  }
}

TEST(OrderRequest, BodiesAreBounded) {
  const std::string fits = R"({"model":"tiny"})";
  const std::string padded = fits + std::string(kOrderBytesMax - fits.size(), ' ');
  EXPECT_TRUE(std::holds_alternative<ClusterOrder>(Read(OrderKind::kLoad, padded)));
  const Parsed large = Read(OrderKind::kLoad, padded + " ");
  EXPECT_EQ(std::get<ApiError>(large).http_status, 413);
  const Parsed deep = Read(OrderKind::kLoad, std::string(40, '[') + std::string(40, ']'));
  EXPECT_EQ(std::get<ApiError>(deep).code, "json_too_deep");
}

// --- keys that are for some models, or for a tenant ----------------------------------------------

TEST(OrderRequest, ATenantsKeyOrdersItsOwnModelsAndNewOnes) {
  struct Row {
    const char* model;
    int load, unload;  // 0: it is taken
    const char* words;
  };
  for (const Row& row : {
           Row{"law-model", 0, 0, ""},
           Row{"law-model#1", 0, 0, ""},
           Row{"tiny", 403, 403, "everybody's"},
           // What another tenant has is asked for as if it were not there.
           Row{"art-model", 0, 0, ""},
           Row{"art-model#1", 0, 0, ""},
           Row{"new", 0, 0, ""},
       }) {
    for (const auto& [kind, status] :
         {std::pair{OrderKind::kLoad, row.load}, std::pair{OrderKind::kUnload, row.unload}}) {
      const Parsed read = Read(kind, json{{"model", row.model}}.dump(), OfTenant("law"));
      const auto* error = std::get_if<ApiError>(&read);
      ASSERT_EQ(error == nullptr ? 0 : error->http_status, status) << row.model;
      if (error != nullptr) {
        EXPECT_NE(error->message.find(row.words), std::string::npos) << error->message;
      }
    }
  }
  const auto load =
      Good<v1::LoadModelRequest>(OrderKind::kLoad, {{"model", "new"}}, OfTenant("law"));
  EXPECT_EQ(load.placement().tenant(), "law") << "what it loads is its own";
  EXPECT_EQ(load.deployment_name(), "new") << "no alias leads to what others have";
  EXPECT_TRUE(load.keeps_others());
  EXPECT_EQ(Good<v1::PlanModelRequest>(OrderKind::kPlan, {{"model", "new"}}, OfTenant("law"))
                .placement()
                .tenant(),
            "law");
}

// By the cluster, in the words for what is not there; an older coordinator refuses the load.
TEST(OrderRequest, WhatOthersHaveIsKeptByOrdersOfKeysWithLimits) {
  for (const Principal& principal : {OfTenant("law"), ForModels({"art-model"})}) {
    const json body = {{"model", "art-model"}};
    const auto load = Good<v1::LoadModelRequest>(OrderKind::kLoad, body, principal);
    EXPECT_EQ(load.name_or_path(), "art-model");
    EXPECT_EQ(load.deployment_name(), "#");
    EXPECT_TRUE(load.keeps_others());
    EXPECT_TRUE(Good<v1::PlanModelRequest>(OrderKind::kPlan, body, principal).keeps_others());
    for (const char* name : {"art-model", "no-such"}) {
      v1::UnloadModelRequest unload;
      unload.set_name(name);
      const auto missing = CheckUnload(principal, unload, kServed);
      ASSERT_TRUE(missing.has_value()) << name;
      EXPECT_EQ(missing->http_status, 404);
      EXPECT_EQ(missing->message, absl::StrCat("No model '", name, "' is loaded."));
    }
  }
  const json body = {{"model", "art-model"}};
  const auto load = Good<v1::LoadModelRequest>(OrderKind::kLoad, body);
  EXPECT_EQ(load.deployment_name(), "") << "without limits others' models are changed as any";
  EXPECT_FALSE(load.keeps_others());
  EXPECT_FALSE(Good<v1::PlanModelRequest>(OrderKind::kPlan, body).keeps_others());
}

TEST(OrderRequest, AKeyForSomeModelsKnowsNoOthersAndNoNodes) {
  const Principal principal = ForModels({"tiny", "new"});
  for (const OrderKind kind : {OrderKind::kPlan, OrderKind::kLoad, OrderKind::kUnload}) {
    EXPECT_TRUE(std::holds_alternative<ClusterOrder>(Read(kind, R"({"model":"tiny"})", principal)));
    for (const char* model : {"other", "art-model", "Tiny", "tiny "}) {
      const ApiError error = Bad(kind, {{"model", model}}, principal);
      EXPECT_EQ(error.http_status, 403) << model;
      EXPECT_EQ(error.code, "model_not_allowed");
      EXPECT_NE(error.message.find(model), std::string::npos);
    }
  }
  for (const char* order : {"cordon", "drain", "uncordon"}) {
    EXPECT_EQ(Bad(OrderKind::kCordon, {{"node", "a"}, {"order", order}}, principal).http_status,
              403);
  }
}

// A mistake in the body is told before what the key may not: it is what its owner can mend.
TEST(OrderRequest, AMistakeIsToldBeforeARefusal) {
  EXPECT_EQ(Bad(OrderKind::kCordon, {{"node", "a"}, {"order", "x"}}, OfTenant("law")).http_status,
            400);
  EXPECT_EQ(
      Bad(OrderKind::kLoad, {{"model", "other"}, {"ranks", 0}}, ForModels({"tiny"})).http_status,
      400);
}

// --- what the page is told -----------------------------------------------------------------------

TEST(OrderRequest, ARefusedOrderIsNeverOneThatClientsSendAgain) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "because of \"node\" \xff");
    const HttpReply reply = RefusedOrder(status);
    EXPECT_GE(reply.status, 400) << status;
    EXPECT_NE(reply.status, 409) << status;
    EXPECT_NE(reply.status, 429) << "the cluster says no; asking again changes nothing";
    const json body = json::parse(reply.body, nullptr, false);
    ASSERT_FALSE(body.is_discarded()) << reply.body;
    for (const char* field : {"message", "type", "param", "code", "remedy"}) {
      EXPECT_TRUE(body["error"].contains(field)) << field;
    }
  }
}

TEST(OrderRequest, ThePageIsToldEachScopeOnce) {
  for (uint32_t bits = 0; bits < 16; ++bits) {
    Principal principal;
    principal.scopes = bits;
    const json body = json::parse(AccessBody(principal));
    uint32_t told = 0;
    for (const json& name : body["scopes"]) told |= ScopeBit(name.get<std::string>());
    EXPECT_EQ(told, bits);
    EXPECT_TRUE(body["key_id"].is_null());
  }
  EXPECT_EQ(json::parse(AccessBody(OfTenant("law")))["key_id"], "0123456789ab");
}

}  // namespace
}  // namespace macrame::agentd
