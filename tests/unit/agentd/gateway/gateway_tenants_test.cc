// What others' models are answered as, by every request that names or lists models: as what does
// not exist, word for word.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agentd/gateway/gateway.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"
#include "tests/unit/agentd/scope_table.h"

namespace macrame::agentd {
namespace {

const std::string kSecret(64, 'c');
constexpr char kAsker[] = "000000000001";      // infer and read, of no tenant
constexpr char kLaw[] = "000000000002";        // infer and read, of the tenant law
constexpr char kArtOrders[] = "000000000003";  // operate, of the tenant art
constexpr char kOperator[] = "000000000004";
constexpr char kAdmin[] = "000000000005";
constexpr char kArtReads[] = "000000000006";  // read, of the tenant art

// "law-chat" is the tenant law's; "loading" is everybody's, and its failure names law's.
class TenantsBackend : public FakeBackend {
 public:
  std::vector<ServedModel> ListModels() override {
    return {{"law-chat", 1, 4096, "law"},
            {"narrow", 2, 4096},
            {"tiny", 3, 4096},
            {"art-chat", 4, 4096, "art"}};
  }
  std::map<std::string, std::string> Aliases() override {
    return {{"law-best", "law-chat"}, {"gone-best", "was-unloaded"}, {"open-best", "tiny"}};
  }
  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override {
    const std::string name = request.deployment();
    if (name == "tiny" || name == "law-chat" || name == "law-chat#1") {
      return FakeBackend::StartGenerate(std::move(request), std::move(on_chunk),
                                        std::move(on_done));
    }
    auto call =
        std::make_shared<FakeCall>(std::move(request), std::move(on_chunk), std::move(on_done));
    call->Done(name == "narrow"
                   ? ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                                  "law-chat#2 holds the memory; unload law-chat")
                   : ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                                  "no such model; loaded: law-chat, tiny"));
    return call;
  }
};

class GatewayTenantsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::map<std::string, v1::ApiKey> keys;
    const auto add = [&](const char* id, std::vector<std::string> scopes, const char* tenant) {
      keys[id].set_id(id);
      keys[id].set_secret_digest(KeyDigest(kSecret));
      keys[id].set_tenant(tenant);
      for (const std::string& scope : scopes) keys[id].add_scopes(scope);
    };
    add(kAsker, {"infer", "read"}, "");
    add(kLaw, {"infer", "read"}, "law");
    add(kArtOrders, {"operate"}, "art");
    add(kOperator, {"operate"}, "");
    add(kAdmin, {"admin"}, "");
    add(kArtReads, {"read"}, "art");
    auto access = std::make_shared<GatewayAccess>();
    access->SetKeys(keys);
    GatewayOptions options;
    options.port = 0;
    options.aliases = ModelAliases({"gpt-law=law-chat", "gpt-l*=law-chat#2", "gpt-none=no-such"});
    options.ask_status = [](const auto& told) {
      v1::ClusterStatus status;
      for (const char* name : {"law-chat", "tiny"}) {
        auto& deployment = *status.add_deployments();
        deployment.mutable_deployment()->set_name(name);
        deployment.add_ranks()->set_deployment(absl::StrCat(name, "#2"));
      }
      *status.add_problems() = MakeReason(reasons::kMemoryShort, "'law-chat' is not served");
      told(status);
    };
    options.latencies = [] {
      return std::make_shared<const std::string>(
          R"({"models":[{"model":"law-chat"},{"model":"tiny"}]})");
    };
    options.metrics = [](const std::string&, const auto& reply) {
      reply({"text/plain", std::make_shared<const std::string>(
                               "# TYPE a gauge\na{model=\"law-chat\"} 1\na{model=\"tiny\"} 2\n"
                               "b{model_name=\"law-chat\",engine=\"0\"} 3\n"
                               "# TYPE macrame_key_energy_tokens_total counter\n"
                               "macrame_key_energy_tokens_total{key=\"none\"} 4\n"
                               "macrame_key_energy_tokens_total{key=\"000000000001\"} 5\n"
                               "macrame_key_energy_tokens_total{key=\"000000000002\"} 6\n"
                               "macrame_key_energy_tokens_total{key=\"000000000003\"} 7\n"
                               "macrame_key_energy_tokens_total{key=\"000000000004\"} 8\n"
                               "macrame_key_energy_tokens_total{key=\"000000000005\"} 9\n"
                               "macrame_key_energy_tokens_total{key=\"000000000006\"} 10\n"
                               "a{model=\"art-chat\"} 11\nmacrame_node_up{node=\"mini\"} 1\n")});
    };
    options.give_order = [](const Orderer&, const ClusterOrder& order, const auto& done) {
      if (const auto* unload = std::get_if<v1::UnloadModelRequest>(&order)) {
        return done(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                                 absl::StrCat("no model is served as '", unload->name(),
                                              "'; served are: law-chat, tiny")));
      }
      const auto* load = std::get_if<v1::LoadModelRequest>(&order);
      const auto* asked = std::get_if<v1::PlanModelRequest>(&order);
      const std::string model = load != nullptr ? load->name_or_path() : asked->name_or_path();
      if (model != "new") {
        return done(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                                 absl::StrCat("no model '", model, "' on this node")));
      }
      auto plan = std::make_shared<v1::PlanResult>();
      plan->add_evicted("law-chat");
      plan->add_evicted("tiny");
      *plan->mutable_failure() = MakeReason(reasons::kMemoryShort, "law-chat has 4 GiB");
      done(plan);
    };
    auto gateway = Gateway::Start(options, &backend_, access);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }

  RawResponse Send(const char* key, const std::string& method, const std::string& path,
                   const std::string& body = "") {
    RawHttpClient client(gateway_->port());
    client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n",
                             "x-request-id: r1\r\nAuthorization: Bearer ",
                             FormatApiKey(key, kSecret), "\r\nContent-Type: application/json\r\n",
                             "Content-Length: ", body.size(), "\r\n\r\n", body));
    return client.ReadResponse();
  }

  TenantsBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

struct Call {
  const char* method;
  const char* path;  // MODEL stands for the name
  const char* body;
};
constexpr Call kCalls[] = {
    {"POST", "/v1/chat/completions",
     R"({"model":"MODEL","messages":[{"role":"user","content":"a"}]})"},
    {"POST", "/v1/chat/completions",
     R"({"model":"MODEL","stream":true,"messages":[{"role":"user","content":"a"}]})"},
    {"POST", "/v1/completions", R"({"model":"MODEL","prompt":"a"})"},
    {"POST", "/v1/embeddings", R"({"model":"MODEL","input":"a"})"},
    {"POST", "/v1/messages",
     R"({"model":"MODEL","max_tokens":2,"messages":[{"role":"user","content":"a"}]})"},
    {"POST", "/v1/messages/count_tokens",
     R"({"model":"MODEL","messages":[{"role":"user","content":"a"}]})"},
    {"POST", "/v1/responses", R"({"model":"MODEL","input":"a"})"},
    {"POST", "/api/chat", R"({"model":"MODEL","messages":[{"role":"user","content":"a"}]})"},
    {"POST", "/api/chat", R"({"model":"MODEL","messages":[]})"},
    {"POST", "/api/generate", R"({"model":"MODEL","prompt":"a"})"},
    {"POST", "/api/generate", R"({"model":"MODEL"})"},
    {"POST", "/api/embed", R"({"model":"MODEL","input":"a"})"},
    {"POST", "/api/embeddings", R"({"model":"MODEL","prompt":"a"})"},
    {"POST", "/api/show", R"({"model":"MODEL"})"},
    {"POST", "/tokenize", R"({"model":"MODEL","prompt":"a"})"},
    {"POST", "/detokenize", R"({"model":"MODEL","tokens":[1]})"},
    {"GET", "/v1/models/MODEL", ""},
};

TEST_F(GatewayTenantsTest, OthersModelsAreAnsweredAsThoseThatDoNotExist) {
  for (const Call& call : kCalls) {
    const auto answer = [&](const std::string& model) {
      const bool in_path = std::string(call.method) == "GET";
      const std::string name = in_path ? absl::StrReplaceAll(model, {{"#", "%23"}}) : model;
      const RawResponse response =
          Send(kAsker, call.method, absl::StrReplaceAll(call.path, {{"MODEL", name}}),
               absl::StrReplaceAll(call.body, {{"MODEL", name}}));
      return absl::StrCat(response.status, " ",
                          absl::StrReplaceAll(response.body, {{model, "MODEL"}}));
    };
    const std::string missing = answer("no-such");
    EXPECT_FALSE(absl::StrContains(missing, "law")) << call.path << missing;
    EXPECT_TRUE(absl::StartsWith(missing, "404")) << call.path << missing;
    // By its own name, its replicas' and every alias, of the cluster and of this gateway.
    for (const char* name : {"law-chat", "law-chat#1", "law-chat#2", "law-best", "gpt-law",
                             "gpt-lx", "gone-best", "gpt-none"}) {
      EXPECT_EQ(answer(name), missing) << call.path << " " << name;
    }
  }
}

TEST_F(GatewayTenantsTest, NoListAndNoErrorNamesOthersModels) {
  for (const char* path : {"/v1/models", "/api/tags", "/api/ps", "/metrics",
                           "/dashboard/api/snapshot", "/dashboard/api/latency"}) {
    const RawResponse told = Send(kAsker, "GET", path);
    EXPECT_EQ(told.status, 200) << path;
    EXPECT_FALSE(absl::StrContains(told.body, "law")) << path << told.body;
    EXPECT_TRUE(absl::StrContains(told.body, "tiny")) << path << told.body;
    EXPECT_TRUE(absl::StrContains(Send(kLaw, "GET", path).body, "law-chat")) << path;
  }
  EXPECT_TRUE(absl::StrContains(Send(kOperator, "GET", "/metrics").body, "law-chat"))
      << "who operates the cluster knows all of it";
  const RawResponse failed =
      Send(kAsker, "POST", "/v1/completions", R"({"model":"narrow","prompt":"a"})");
  EXPECT_GE(failed.status, 400);
  EXPECT_FALSE(absl::StrContains(failed.body, "law")) << failed.body;
}

TEST_F(GatewayTenantsTest, FiguresAreToldAsTheTableSays) {
  struct Reader {
    const char* column;
    const char* key;
    const char* own_model;  // null: its tenant has none, or it has no tenant
  };
  constexpr Reader kReaders[] = {{"read of no tenant", kAsker, nullptr},
                                 {"read of a tenant", kArtReads, "art-chat"},
                                 {"operate of a tenant", kArtOrders, "art-chat"},
                                 {"operate of no tenant", kOperator, nullptr},
                                 {"admin", kAdmin, nullptr}};
  const std::map<std::string, tests::ScopeRow> rows = tests::ReadScopeTable("figures");
  ASSERT_EQ(rows.size(), 7u);
  for (const Reader& reader : kReaders) {
    const std::string page = Send(reader.key, "GET", "/metrics").body;
    const auto tells = [&](const char* label, const std::string& value) {
      return absl::StrContains(page, absl::StrCat("{", label, "=\"", value, "\"}"));
    };
    const auto holds = [&](const char* figures, bool is_told) {
      const std::string& word = rows.at(figures).at(reader.column);
      EXPECT_TRUE(word == "yes" || word == "no") << figures << " " << reader.column;
      EXPECT_EQ(is_told, word == "yes") << figures << " " << reader.column << "\n" << page;
    };
    holds("of everybody's models", tells("model", "tiny"));
    if (reader.own_model != nullptr) {
      holds("of the own tenant's models", tells("model", reader.own_model));
    } else {
      EXPECT_EQ(rows.at("of the own tenant's models").at(reader.column), "none");
    }
    holds("of another tenant's models", tells("model", "law-chat"));
    holds("of the own key", tells("key", reader.key));
    // Those of its tenant too.
    const char* other = reader.key == kArtReads ? kArtOrders : kArtReads;
    holds("of other keys", tells("key", other));
    holds("of other keys", tells("key", kLaw));
    holds("of requests without a key", tells("key", "none"));
    holds("of machines and gateways", tells("node", "mini"));
  }
}

TEST_F(GatewayTenantsTest, ATenantsOrdersKnowNothingOfOthers) {
  for (const Call& order :
       {Call{"POST", "/dashboard/api/plan", R"({"model":"MODEL"})"},
        Call{"POST", "/dashboard/api/load", R"({"model":"MODEL"})"},
        Call{"POST", "/dashboard/api/unload", R"({"model":"MODEL"})"},
        Call{"POST", "/dashboard/api/cordon", R"({"node":"MODEL","order":"cordon"})"}}) {
    const auto answer = [&](const std::string& model) {
      const RawResponse told = Send(kArtOrders, order.method, order.path,
                                    absl::StrReplaceAll(order.body, {{"MODEL", model}}));
      return absl::StrCat(told.status, " ", absl::StrReplaceAll(told.body, {{model, "MODEL"}}));
    };
    const std::string missing = answer("no-such");
    EXPECT_TRUE(absl::StartsWith(missing, "40")) << order.path << missing;
    EXPECT_FALSE(absl::StrContains(missing, "law")) << order.path << missing;
    for (const char* name : {"law-chat", "law-chat#1", "law-best"}) {
      EXPECT_EQ(answer(name), missing) << order.path << " " << name;
    }
  }
  const RawResponse plan = Send(kArtOrders, "POST", "/dashboard/api/plan", R"({"model":"new"})");
  EXPECT_EQ(plan.status, 200);
  EXPECT_FALSE(absl::StrContains(plan.body, "law")) << plan.body;
  EXPECT_TRUE(absl::StrContains(plan.body, "tiny")) << plan.body;
}

TEST_F(GatewayTenantsTest, ItsOwnTenantIsServed) {
  for (const char* name : {"law-chat", "law-chat#1", "law-best", "gpt-law"}) {
    const RawResponse told =
        Send(kLaw, "POST", "/tokenize", absl::StrCat(R"({"model":")", name, R"(","prompt":"a"})"));
    EXPECT_EQ(told.status, 200) << name << told.body;
  }
}

}  // namespace
}  // namespace macrame::agentd
