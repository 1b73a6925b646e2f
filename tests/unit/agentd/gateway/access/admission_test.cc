#include "agentd/gateway/access/admission.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/access/gateway_access.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/endpoints/endpoints.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr uint64_t kNow = 1'790'000'000'000;
const std::string kSecret(64, 'a');

v1::ApiKey Key(const std::string& id, std::vector<std::string> scopes = {"infer"}) {
  v1::ApiKey key;
  key.set_id(id);
  key.set_secret_digest(KeyDigest(kSecret));
  for (const std::string& scope : scopes) key.add_scopes(scope);
  return key;
}

KeyTable Table(std::vector<v1::ApiKey> keys) {
  std::map<std::string, v1::ApiKey> all;
  for (v1::ApiKey& key : keys) all[key.id()] = std::move(key);
  return KeyTable(std::move(all));
}

const std::string kId = "0123456789ab";
const std::string kBearer = "Bearer " + FormatApiKey(kId, kSecret);

// The status that a request is answered with: 200 when it is let in.
int StatusOf(const std::string& method, const std::string& path, const std::string& authorization,
             const KeyTable& keys, AccessRules rules = {}, bool from_loopback = true) {
  const auto answer = DecideAccess(
      {Endpoints().AccessOf(method, path), authorization, "", from_loopback}, keys, rules, kNow);
  const auto* refusal = std::get_if<AccessRefusal>(&answer);
  return refusal == nullptr ? 200 : refusal->error.http_status;
}

TEST(Admission, BeforeAnyKeyThisMachineIsServedAndOthersAreNot) {
  const KeyTable none;
  EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "", none), 200);
  EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "Bearer sk-whatever", none), 200);
  EXPECT_EQ(StatusOf("GET", "/metrics", "", none), 200);
  EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "", none, {}, false), 401);
  EXPECT_EQ(StatusOf("GET", "/health", "", none, {}, false), 200);
  EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "", none, {false, true}, false), 200);
  EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "", none, {true, false}), 401);
  EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "", none, {true, true}, false), 401);
  EXPECT_EQ(StatusOf("POST", "/dashboard/api/load", "", none), 401) << "loading models takes a key";
}

TEST(Admission, ThisMachinesOwnPageMayOperateWhileThereAreNoKeys) {
  const auto status = [](const std::string& path, const KeyTable& keys, AccessRules rules,
                         bool from_loopback) {
    const auto answer = DecideAccess(
        {Endpoints().AccessOf("POST", path), "", "", from_loopback, /*by_own_page=*/true}, keys,
        rules, kNow);
    return std::holds_alternative<Principal>(answer) ? 200 : 401;
  };
  const KeyTable none;
  EXPECT_EQ(status("/dashboard/api/load", none, {}, true), 200);
  EXPECT_EQ(status("/dashboard/api/keys/create", none, {}, true), 401) << "the first key is not";
  EXPECT_EQ(status("/dashboard/api/audit", none, {}, true), 401) << "nor the audit log";
  EXPECT_EQ(status("/dashboard/api/load", none, {}, false), 401);
  EXPECT_EQ(status("/dashboard/api/load", none, {false, true}, true), 401) << "everybody may come";
  EXPECT_EQ(status("/dashboard/api/load", none, {true, false}, true), 401);
  EXPECT_EQ(status("/dashboard/api/load", Table({Key(kId)}), {}, true), 401);
}

TEST(Admission, KeysAndTheAuditLogAreAnAdminsAlone) {
  for (const auto& [scope, status] : {std::pair{"operate", 403}, std::pair{"admin", 200}}) {
    const KeyTable keys = Table({Key(kId, {scope})});
    EXPECT_EQ(StatusOf("GET", "/dashboard/api/keys", kBearer, keys), status);
    EXPECT_EQ(StatusOf("POST", "/dashboard/api/keys/create", kBearer, keys), status);
    EXPECT_EQ(StatusOf("POST", "/dashboard/api/keys/revoke", kBearer, keys), status);
    EXPECT_EQ(StatusOf("GET", "/dashboard/api/audit", kBearer, keys), status);
  }
}

TEST(Admission, OnceThereIsAKeyItIsAskedFor) {
  const KeyTable keys = Table({Key(kId)});
  for (const bool is_open : {false, true}) {
    for (const bool loopback : {false, true}) {
      const AccessRules rules{false, is_open};
      EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", "", keys, rules, loopback), 401);
      EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", kBearer, keys, rules, loopback), 200);
      EXPECT_EQ(StatusOf("GET", "/health", "", keys, rules, loopback), 200);
      EXPECT_EQ(StatusOf("GET", "/version", "", keys, rules, loopback), 200);
      EXPECT_EQ(StatusOf("GET", "/nowhere", "", keys, rules, loopback), 401);
    }
  }
  EXPECT_EQ(StatusOf("GET", "/nowhere", kBearer, keys), 200) << "the route says that it is none";
}

TEST(Admission, KeysOfAnotherShapeOrSecretAreUnknown) {
  const KeyTable keys = Table({Key(kId)});
  std::string other = kBearer;
  other.back() = 'b';
  for (const std::string& sent :
       {std::string("Bearer"), std::string("Bearer "), std::string("Bearer sk-1234"), other,
        "Bearer " + FormatApiKey("ffffffffffff", kSecret), kBearer + "0", "Basic " + kSecret,
        "Bearer mk-" + kId + "-" + std::string(64, 'A'), std::string(5000, 'x')}) {
    const auto answer =
        DecideAccess({Endpoints().AccessOf("GET", "/v1/models"), sent, "", true}, keys, {}, kNow);
    const auto* refusal = std::get_if<AccessRefusal>(&answer);
    ASSERT_NE(refusal, nullptr) << sent;
    EXPECT_EQ(refusal->error.http_status, 401);
    EXPECT_EQ(refusal->error.code, "invalid_api_key");
    EXPECT_EQ(refusal->error.type, "invalid_request_error");
    EXPECT_EQ(refusal->headers.at(0).first, "www-authenticate");
    EXPECT_EQ(refusal->key_id, "") << "who has no secret is not taken for the key's owner";
  }
}

TEST(Admission, TheOtherHeaderCountsWhereThereIsNoAuthorization) {
  const KeyTable keys = Table({Key(kId)});
  const std::string text = FormatApiKey(kId, kSecret);
  const auto let_in = [&](const std::string& authorization, const std::string& x_api_key) {
    return std::holds_alternative<Principal>(
        DecideAccess({Endpoints().AccessOf("GET", "/v1/models"), authorization, x_api_key, true},
                     keys, {}, kNow));
  };
  EXPECT_TRUE(let_in("", text));
  EXPECT_TRUE(let_in("bearer " + text, ""));
  EXPECT_FALSE(let_in("Bearer wrong", text));
}

TEST(Admission, RevokedAndExpiredKeysAreNamedAsSuch) {
  v1::ApiKey revoked = Key(kId), expired = Key("aaaaaaaaaaaa"), later = Key("bbbbbbbbbbbb");
  revoked.set_revoked_unix_ms(1);
  expired.set_expires_unix_ms(kNow);
  later.set_expires_unix_ms(kNow + 1);
  const KeyTable keys = Table({revoked, expired, later});
  const auto told = [&](const std::string& id) {
    const auto answer = DecideAccess({Endpoints().AccessOf("GET", "/v1/models"),
                                      "Bearer " + FormatApiKey(id, kSecret), "", true},
                                     keys, {}, kNow);
    const auto* refusal = std::get_if<AccessRefusal>(&answer);
    return refusal == nullptr ? std::string("let in") : refusal->error.message;
  };
  EXPECT_EQ(told(kId), "This API key was revoked.");
  EXPECT_EQ(told("aaaaaaaaaaaa"), "This API key has expired.");
  EXPECT_EQ(told("bbbbbbbbbbbb"), "let in");
}

TEST(Admission, ScopesSayWhatAKeyMayDo) {
  struct Case {
    std::vector<std::string> scopes;
    int chat, models, metrics, board_data, board_load;
  };
  for (const Case& one :
       {Case{{"infer"}, 200, 200, 403, 403, 403}, Case{{"read"}, 403, 200, 200, 200, 403},
        Case{{"operate"}, 403, 200, 200, 200, 200},
        Case{{"infer", "read"}, 200, 200, 200, 200, 403},
        Case{{"admin"}, 200, 200, 200, 200, 200}}) {
    const KeyTable keys = Table({Key(kId, one.scopes)});
    EXPECT_EQ(StatusOf("POST", "/v1/chat/completions", kBearer, keys), one.chat);
    EXPECT_EQ(StatusOf("POST", "/v1/messages", kBearer, keys), one.chat);
    EXPECT_EQ(StatusOf("POST", "/api/chat", kBearer, keys), one.chat);
    EXPECT_EQ(StatusOf("GET", "/v1/models/a%2Fb", kBearer, keys), one.models);
    EXPECT_EQ(StatusOf("GET", "/metrics", kBearer, keys), one.metrics);
    EXPECT_EQ(StatusOf("GET", "/dashboard/api/snapshot", kBearer, keys), one.board_data);
    EXPECT_EQ(StatusOf("GET", "/dashboard/api/latency", kBearer, keys), one.board_data);
    EXPECT_EQ(StatusOf("POST", "/dashboard/api/load", kBearer, keys), one.board_load);
  }
  EXPECT_EQ(StatusOf("GET", "/", "", Table({Key(kId)})), 200) << "the page itself is open";
  EXPECT_EQ(StatusOf("GET", "/dashboard/app.js", "", Table({Key(kId)})), 200);
  EXPECT_EQ(StatusOf("GET", "/dashboard/api/snapshot", "", Table({Key(kId)})), 401);
}

TEST(Admission, AnotherSpellingOfAnOpenPathIsNotOpen) {
  const KeyTable keys = Table({Key(kId)});
  for (const char* path :
       {"/HEALTH", "/health/", "//health", "/health%2f", "/%68ealth", "/./health", "/health/../v1",
        "/health;a", "/health/../v1/models", "/dashboard/../api/snapshot",
        "/dashboard/%2e%2e/state", "/dashboard//x", "/dashboard/..\\state", "/Dashboard/x", "",
        "health", "https://host/health", "/version\t", "*"}) {
    EXPECT_EQ(StatusOf("GET", path, "", keys), 401) << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get", "TRACE"}) {
    EXPECT_EQ(StatusOf(method, "/health", "", keys), 401) << method;
  }
}

v1::ApiKey AccessFileKey(std::vector<std::string> scopes) {
  v1::ApiKey key = Key(kId, std::move(scopes));
  key.set_has_access_file(true);
  key.set_expires_unix_ms(kNow + 1000);
  return key;
}

TEST(Admission, AnAccessFileMayWhatItsKeysScopesSay) {
  const auto may = [](const v1::ApiKey& key, Remote needed, uint64_t now = kNow) {
    return CheckRemoteCall({{kId, key}}, kId, needed, now);
  };
  const v1::ApiKey operating = AccessFileKey({"operate"});
  EXPECT_TRUE(may(operating, Remote::kRead).ok());
  EXPECT_TRUE(may(operating, Remote::kOperate).ok());
  const absl::Status beyond = may(operating, Remote::kAdmin);
  EXPECT_EQ(ReasonOf(beyond).code(), reasons::kBeyondScope) << beyond;
  EXPECT_NE(beyond.message().find("lacks the scope admin"), absl::string_view::npos) << beyond;
  EXPECT_FALSE(may(operating, Remote::kInfer).ok());
  EXPECT_TRUE(may(AccessFileKey({"infer"}), Remote::kInfer).ok());
  EXPECT_FALSE(may(AccessFileKey({"infer", "read"}), Remote::kOperate).ok());
  const v1::ApiKey admin = AccessFileKey({"admin"});
  for (const Remote each : {Remote::kInfer, Remote::kRead, Remote::kOperate, Remote::kAdmin}) {
    EXPECT_TRUE(may(admin, each).ok());
  }
  EXPECT_FALSE(may(admin, Remote::kNobody).ok());
}

TEST(Admission, AnAccessFileEndsWithItsKey) {
  v1::ApiKey key = AccessFileKey({"admin"});
  const auto code = [&](const std::string& id, uint64_t now = kNow) {
    const absl::Status status = CheckRemoteCall({{kId, key}}, id, Remote::kRead, now);
    return status.ok() ? "" : absl::StrCat(ReasonOf(status).code(), " ", status.message());
  };
  EXPECT_EQ(code(kId), "");
  EXPECT_NE(code("ffffffffffff").find("is not known here"), std::string::npos);
  EXPECT_NE(code(kId, kNow + 1000).find("has expired"), std::string::npos);
  key.set_revoked_unix_ms(kNow);
  EXPECT_NE(code(kId).find("was revoked"), std::string::npos);
  EXPECT_EQ(code(kId).find(reasons::kKeyNotFound), 0u);
  key = Key(kId, {"admin"});
  EXPECT_NE(code(kId).find("is not known here"), std::string::npos)
      << "a key that is shown as text has no certificate";
}

TEST(Admission, ModelsAreSeenByTheirKeysAndTenants) {
  Principal one;
  EXPECT_TRUE(MaySee(one, "a", ""));
  EXPECT_FALSE(MaySee(one, "a", "law"));
  one.tenant = "law";
  EXPECT_TRUE(MaySee(one, "a", "law"));
  EXPECT_FALSE(MaySee(one, "a", "Law"));
  EXPECT_TRUE(MaySee(one, "a", ""));
  one.models = {"a"};
  EXPECT_FALSE(MaySee(one, "b", ""));
  EXPECT_FALSE(CheckModel(one, "a").has_value());
  const auto refused = CheckModel(one, "b");
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->http_status, 403);
  EXPECT_EQ(refused->param, "model");
}

TEST(Admission, ATenantsKeysShareACacheAndOthersDoNot) {
  const auto salt = [](const char* tenant, const char* key) {
    v1::GenerateRequest request;
    SetTenant(AskerOfKey(tenant, key), &request);
    return request.cache_salt();
  };
  EXPECT_EQ(salt("law", "1"), salt("law", "2"));
  EXPECT_NE(salt("law", "1"), salt("tax", "1"));
  EXPECT_NE(salt("", "1"), salt("", "2"));
  EXPECT_NE(salt("1", "1"), salt("", "1")) << "a tenant with a key's id for a name";
}

TEST(ApiKeys, WhatIsAskedForIsChecked) {
  const auto why = [](auto change) {
    v1::ApiKey key;
    key.add_scopes("infer");
    change(key);
    return std::string(CheckNewKey(key, kNow).message());
  };
  EXPECT_EQ(why([](v1::ApiKey&) {}), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_scopes(0, "all"); }).find("'all'"),
            std::string::npos);
  EXPECT_NE(why([](v1::ApiKey& key) { key.clear_scopes(); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_name("a\nb"); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_name(std::string(101, 'a')); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_tenant("\x1b[31m"); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_expires_unix_ms(kNow); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.add_models(""); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_requests_per_minute(4'000'000'000u); }), "");
}

TEST(ApiKeys, AnAccessFilesKeyEndsAndHasNoLimits) {
  const auto why = [](auto change) {
    v1::ApiKey key = AccessFileKey({"operate"});
    key.set_expires_unix_ms(kNow + kAccessFileMsMax);
    change(key);
    return std::string(CheckNewKey(key, kNow).message());
  };
  EXPECT_EQ(why([](v1::ApiKey&) {}), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_expires_unix_ms(0); }), "") << "never";
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_expires_unix_ms(kNow + kAccessFileMsMax + 1); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_tenant("law"); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.add_models("a"); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_requests_per_minute(1); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_tokens_per_minute(1); }), "");
  EXPECT_NE(why([](v1::ApiKey& key) { key.set_concurrent_requests(1); }), "");
}

// A program with no key goes on as before: an access file is nothing that the HTTP API asks for.
TEST(ApiKeys, AccessFilesAreNoKeysOfTheHttpApi) {
  GatewayAccess access;
  access.SetKeys({{kId, AccessFileKey({"admin"})}});
  EXPECT_TRUE(access.keys()->empty());
  access.SetKeys({{kId, AccessFileKey({"admin"})}, {"ffffffffffff", Key("ffffffffffff")}});
  EXPECT_EQ(access.keys()->keys().size(), 1u);
}

TEST(ApiKeys, AKeyReadsAsItWasWritten) {
  const auto parsed = ParseApiKey(FormatApiKey(kId, kSecret));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->id, kId);
  EXPECT_EQ(parsed->secret, kSecret);
  v1::ApiKey without;
  without.set_id(kId);
  EXPECT_EQ(Table({without}).Find(FormatApiKey(kId, kSecret)), nullptr)
      << "a key without a digest is nobody's";
}

}  // namespace
}  // namespace macrame::agentd
