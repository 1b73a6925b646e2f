// Who is let in, against a model of the keys, and the bytes of answers: over many seeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/access/model_aliases.h"
#include "agentd/gateway/base/http_reply.h"
#include "agentd/gateway/dialects/embedding_answer.h"
#include "agentd/gateway/endpoints/endpoints.h"

namespace macrame::agentd {
namespace {

constexpr uint64_t kNow = 1'790'000'000'000;

std::string Digits(std::mt19937_64& random, size_t count) {
  std::string text;
  while (text.size() < count) text += "0123456789abcdef"[random() % 16];
  return text;
}

// --- paths ---------------------------------------------------------------------------------------

std::string SomePath(std::mt19937_64& random) {
  const auto rows = Endpoints().rows();
  std::string path(rows[random() % rows.size()].path);
  if (path.back() == '/') path += "name";
  for (uint64_t i = random() % 3; i > 0; --i) {
    const size_t at = random() % (path.size() + 1);
    static const char* const kPieces[] = {"/",  "//", "/../", "/./",  "%2f", "%2e",
                                          "..", ".",  "?",    "#",    ";",   "\\",
                                          " ",  "A",  "\x01", "\xc3", "*",   "dashboard"};
    switch (random() % 3) {
      case 0:
        path.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 1:
        if (at < path.size()) path.erase(at, 1);
        break;
      default:
        if (at < path.size()) path[at] = static_cast<char>(path[at] ^ 0x20);
    }
  }
  return path;
}

// What is open shows nothing of the cluster, however a path is spelled.
TEST(AdmissionProperty, NoSpellingOpensWhatShowsTheCluster) {
  const std::set<absl::string_view> open = {"/health", "/version", "/"};
  int seen = 0;
  for (uint64_t seed = 1; seed <= 15'000; ++seed) {
    std::mt19937_64 random(seed);
    const std::string path = SomePath(random);
    for (const char* method : {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "get", ""}) {
      if (!Endpoints().AccessOf(method, path).is_open) continue;
      ++seen;
      EXPECT_TRUE(std::string(method) == "GET" || std::string(method) == "HEAD") << method << path;
      const Endpoint* endpoint = Endpoints().Find(path);
      EXPECT_TRUE(endpoint == nullptr || open.contains(endpoint->path)) << path;
      EXPECT_EQ(path.find("/.."), std::string::npos) << path;
    }
  }
  EXPECT_GT(seen, 300);
}

TEST(AdmissionProperty, EveryRouteThatIsNotOpenNeedsAScope) {
  for (const Endpoint& endpoint : Endpoints().rows()) {
    std::string path(endpoint.path);
    if (endpoint.has_name()) path += "name";
    for (const absl::string_view method : absl::StrSplit(endpoint.methods, ", ")) {
      const RouteAccess access = Endpoints().AccessOf(method, path);
      EXPECT_TRUE(access.is_open || access.scopes != 0) << method << " " << path;
      if (endpoint.body == BodyUse::kByItsOwn) {
        EXPECT_FALSE(access.is_open) << path;
        EXPECT_EQ(access.scopes & (kScopeInfer | kScopeRead), 0u) << path << " changes the cluster";
      }
    }
  }
}

// --- keys ----------------------------------------------------------------------------------------

struct KnownKey {
  v1::ApiKey key;
  std::string text;
};

KnownKey SomeKey(std::mt19937_64& random) {
  KnownKey known;
  const std::string secret = Digits(random, 2 * kKeySecretBytes);
  known.key.set_id(Digits(random, 2 * kKeyIdBytes));
  known.key.set_secret_digest(KeyDigest(secret));
  known.text = FormatApiKey(known.key.id(), secret);
  for (const char* scope : {"infer", "read", "operate", "admin"}) {
    if (random() % 3 == 0) known.key.add_scopes(scope);
  }
  if (random() % 2 == 0) known.key.set_tenant("law");
  if (random() % 5 == 0) known.key.set_revoked_unix_ms(kNow - random() % 1'000);
  if (random() % 2 == 0) known.key.set_expires_unix_ms(kNow - 500 + random() % 1'000);
  known.key.set_requests_per_minute(static_cast<uint32_t>(random() % 100));
  known.key.set_concurrent_requests(static_cast<uint32_t>(random() % 9));
  if (random() % 4 == 0) known.key.add_models("tiny");
  return known;
}

// 200, 401 or 403, as the header of admission describes it.
int ExpectedStatus(const KnownKey& known, const RouteAccess& access) {
  if (access.is_open) return 200;
  if (known.key.revoked_unix_ms() != 0) return 401;
  if (known.key.expires_unix_ms() != 0 && known.key.expires_unix_ms() <= kNow) return 401;
  return access.scopes == 0 || (access.scopes & ScopesOf(known.key)) != 0 ? 200 : 403;
}

TEST(AdmissionProperty, EachKeyIsLetInJustWhereItsScopesSay) {
  int statuses[3] = {0, 0, 0};
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    std::map<std::string, v1::ApiKey> all;
    std::vector<KnownKey> known;
    for (uint64_t i = 1 + random() % 5; i > 0; --i) {
      known.push_back(SomeKey(random));
      all[known.back().key.id()] = known.back().key;
    }
    const KeyTable table(all);
    for (int ask = 0; ask < 30; ++ask) {
      const KnownKey& one = known[random() % known.size()];
      const std::string path = SomePath(random);
      const char* method = random() % 2 == 0 ? "GET" : "POST";
      const bool by_bearer = random() % 2 == 0;
      const std::string bearer = by_bearer ? absl::StrCat("Bearer ", one.text) : "";
      const std::string plain = by_bearer ? "" : one.text;
      const RouteAccess needed = Endpoints().AccessOf(method, path);
      const AccessQuestion question{needed, bearer, plain, random() % 2 == 0};
      const auto answer = DecideAccess(question, table, {}, kNow);
      const int expected = ExpectedStatus(one, needed);
      ++statuses[expected == 200 ? 0 : expected == 401 ? 1 : 2];
      if (const auto* refusal = std::get_if<AccessRefusal>(&answer)) {
        EXPECT_EQ(refusal->error.http_status, expected) << path;
        EXPECT_EQ(refusal->key_id, one.key.id()) << "the audit log names it";
        EXPECT_EQ(refusal->error.message.find(one.text.substr(20)), std::string::npos)
            << "a secret is not repeated";
        EXPECT_FALSE(refusal->headers.empty()) << "www-authenticate says how to come in";
        continue;
      }
      EXPECT_EQ(200, expected) << method << " " << path;
      const Principal& principal = std::get<Principal>(answer);
      if (needed.is_open) continue;
      EXPECT_EQ(principal.key_id, one.key.id());
      EXPECT_EQ(principal.tenant, one.key.tenant());
      EXPECT_EQ(principal.requests_per_minute, one.key.requests_per_minute());
      EXPECT_EQ(principal.models.size(), static_cast<size_t>(one.key.models_size()));
    }
  }
  for (const int times : statuses) EXPECT_GT(times, 100);
}

TEST(AdmissionProperty, OnlyTheWholeTextOfAKeyIsTheKey) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const KnownKey known = SomeKey(random);
    const KeyTable table({{known.key.id(), known.key}});
    ASSERT_NE(table.Find(known.text), nullptr);
    std::string text = known.text;
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = text[at] == '0' ? '1' : '0';
        break;
      case 1:
        text.erase(at, 1);
        break;
      case 2:
        text.insert(at, 1, "0aA_-"[random() % 5]);
        break;
      default:
        text = text.substr(0, at);
    }
    if (text == known.text) continue;
    EXPECT_EQ(table.Find(text), nullptr) << text;
    const auto answer = DecideAccess({{}, "", text, true}, table, {}, kNow);
    ASSERT_TRUE(std::holds_alternative<AccessRefusal>(answer)) << text;
    EXPECT_EQ(std::get<AccessRefusal>(answer).key_id, "") << "nobody knows whose it is";
  }
  v1::ApiKey without_digest;
  without_digest.set_id("0123456789ab");
  const KeyTable damaged({{"0123456789ab", without_digest}});
  EXPECT_EQ(damaged.Find(FormatApiKey("0123456789ab", std::string(64, '0'))), nullptr);
}

// A key that gets one more scope loses nothing.
TEST(AdmissionProperty, AScopeMoreIsNothingLess) {
  const auto scopes_of = [](uint32_t bits) {
    v1::ApiKey key;
    for (const char* name : {"infer", "read", "operate", "admin"}) {
      if ((bits & ScopeBit(name)) != 0) key.add_scopes(name);
    }
    return ScopesOf(key);
  };
  for (uint32_t less = 0; less < 16; ++less) {
    for (uint32_t more = 0; more < 16; ++more) {
      if ((less & more) != less) continue;
      EXPECT_EQ(scopes_of(less) & scopes_of(more), scopes_of(less)) << less << ", " << more;
    }
    EXPECT_EQ(scopes_of(less) & less, less) << "a scope includes itself";
  }
  for (const char* name : {"", "Admin", "infer ", "all", "*"}) EXPECT_EQ(ScopeBit(name), 0u);
}

// --- aliases -------------------------------------------------------------------------------------

class Cluster : public InferenceBackend {
 public:
  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest, ChunkCallback,
                                              DoneCallback) override {
    return nullptr;
  }
  std::vector<ServedModel> ListModels() override {
    std::vector<ServedModel> models;
    for (const std::string& name : loaded) models.push_back({name, 1, 512});
    return models;
  }
  std::map<std::string, std::string> Aliases() override { return shared; }
  std::set<std::string> loaded{};
  std::map<std::string, std::string> shared{};
};

// The order of the README: a loaded name, the gateway's exact alias, the profile's, the longest
// beginning, the name as it is.
TEST(AliasesProperty, ANameMeansWhatTheOrderSays) {
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    std::mt19937_64 random(seed);
    const auto name = [&random] {
      std::string text;
      for (uint64_t i = 1 + random() % 3; i > 0; --i) text += "ab-"[random() % 3];
      return text;
    };
    Cluster cluster;
    std::map<std::string, std::string> exact, beginnings;
    std::vector<std::string> entries;
    for (uint64_t i = random() % 6; i > 0; --i) {
      const std::string from = random() % 4 == 0 ? "" : name();
      const std::string to = absl::StrCat("model-", random() % 3);
      const bool is_beginning = from.empty() || random() % 2 == 0;
      (is_beginning ? beginnings : exact)[from] = to;
      entries.push_back(absl::StrCat(from, is_beginning ? "*" : "", "=", to));
    }
    for (uint64_t i = random() % 3; i > 0; --i) cluster.loaded.insert(name());
    if (random() % 2 == 0) cluster.shared[name()] = "shared";
    const ModelAliases aliases(entries);
    for (int ask = 0; ask < 8; ++ask) {
      const std::string asked = name();
      std::string expected = asked;
      if (cluster.loaded.contains(asked)) {
        expected = asked;
      } else if (exact.contains(asked)) {
        expected = exact[asked];
      } else if (cluster.shared.contains(asked)) {
        expected = cluster.shared[asked];
      } else {
        size_t longest = 0;
        for (const auto& [begin, to] : beginnings) {
          if (!asked.starts_with(begin) || begin.size() < longest) continue;
          longest = begin.size();
          expected = to;
        }
      }
      ASSERT_EQ(aliases.Resolve(asked, cluster), expected) << "seed " << seed << ", " << asked;
    }
  }
}

// --- bytes ---------------------------------------------------------------------------------------

TEST(HttpReplyProperty, ChunksJoinToWhatTheyWere) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::string sent, wire;
    for (uint64_t i = random() % 6; i > 0; --i) {
      std::string bytes;
      for (uint64_t j = 1 + random() % (random() % 4 == 0 ? 5'000 : 20); j > 0; --j) {
        bytes += static_cast<char>(random() % 256);
      }
      sent += bytes;
      wire += ComposeChunk(bytes);
    }
    absl::StrAppend(&wire, kLastChunk);
    std::string read;
    size_t at = 0;
    for (;;) {
      const size_t line = wire.find("\r\n", at);
      ASSERT_NE(line, std::string::npos);
      const size_t length = std::stoul(wire.substr(at, line - at), nullptr, 16);
      read += wire.substr(line + 2, length);
      at = line + 2 + length;
      ASSERT_EQ(wire.substr(at, 2), "\r\n");
      at += 2;
      if (length == 0) break;
    }
    EXPECT_EQ(at, wire.size());
    EXPECT_EQ(read, sent);
  }
}

TEST(HttpReplyProperty, AHeadSaysHowItsBodyEnds) {
  for (const BodyFraming framing :
       {BodyFraming::kLength, BodyFraming::kChunked, BodyFraming::kUntilClose}) {
    for (const bool keep_alive : {false, true}) {
      for (const int status : {200, 304, 404, 418, 429, 503}) {
        ReplyHead head;
        head.status = status;
        head.content_type = "application/json";
        head.framing = framing;
        head.content_length = 17;
        head.keep_alive = keep_alive;
        head.headers = {{"x-request-id", "a: b"}};
        const std::string text = ComposeHead(head);
        EXPECT_TRUE(absl::StartsWith(text, absl::StrCat("HTTP/1.1 ", status, " "))) << text;
        EXPECT_TRUE(absl::EndsWith(text, "\r\n\r\n"));
        EXPECT_EQ(text.find("\r\n\r\n"), text.size() - 4) << "one empty line, at the end";
        EXPECT_EQ(absl::StrContains(text, "content-length: 17\r\n"),
                  framing == BodyFraming::kLength);
        EXPECT_EQ(absl::StrContains(text, "transfer-encoding: chunked\r\n"),
                  framing == BodyFraming::kChunked);
        EXPECT_EQ(absl::StrContains(text, "connection: keep-alive\r\n"), keep_alive);
        EXPECT_TRUE(absl::StrContains(text, "x-request-id: a: b\r\n"));
      }
    }
  }
}

// A model that overflows gives numbers that are none: the answer must stay JSON for the others.
TEST(EmbeddingBodies, NumbersThatAreNoneLeaveTheBodyReadable) {
  CollectedEmbedding whole, damaged;
  whole.numbers = {0.5F, -0.25F};
  damaged.numbers = {std::nanf(""), std::numeric_limits<float>::infinity(), 1.0F};
  for (const AnswerForm form :
       {AnswerForm::kEmbedding, AnswerForm::kOllamaEmbed, AnswerForm::kOllamaEmbedding}) {
    AnswerHead head;
    head.form = form;
    head.model = "tiny";
    std::vector<CollectedEmbedding> all = {damaged};
    if (form != AnswerForm::kOllamaEmbedding) all.push_back(whole);
    const std::string text = EmbeddingListBody(head, all);
    const auto body = nlohmann::json::parse(text, nullptr, false);
    ASSERT_FALSE(body.is_discarded()) << text;
    const auto& first = form == AnswerForm::kEmbedding     ? body["data"][0]["embedding"]
                        : form == AnswerForm::kOllamaEmbed ? body["embeddings"][0]
                                                           : body["embedding"];
    ASSERT_EQ(first.size(), 3u) << "as many as the model has dimensions";
    EXPECT_TRUE(first[0].is_null());
    EXPECT_TRUE(first[1].is_null());
    EXPECT_EQ(first[2], 1.0);
  }
}

}  // namespace
}  // namespace macrame::agentd
