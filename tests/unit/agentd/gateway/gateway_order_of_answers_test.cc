// Connections that carry many requests, cut at any byte: each gets its own answer, in its turn,
// whatever came before it. Over many seeds.

#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/unit/agentd/gateway/recorded_gateway.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

struct Exchange {
  std::string request;
  int status = 200;
  std::string words;  // that the body has
  bool is_head = false;
};

// The same body in chunks of HTTP, of any lengths.
std::string Chunked(const std::string& path, const std::string& body, std::mt19937_64& random) {
  std::string request = absl::StrCat("POST ", path,
                                     " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                     "application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (size_t at = 0; at < body.size();) {
    const size_t length = std::min<size_t>(body.size() - at, 1 + random() % 40);
    absl::StrAppend(&request, absl::StrFormat("%x", length), random() % 4 == 0 ? ";a=b" : "",
                    "\r\n", body.substr(at, length), "\r\n");
    at += length;
  }
  return absl::StrCat(request, "0\r\n", random() % 4 == 0 ? "X-Trailer: y\r\n" : "", "\r\n");
}

Exchange SomeExchange(std::mt19937_64& random, int number) {
  const std::string marker = absl::StrCat("marker-", number, "-", random() % 1'000'000);
  const json messages = {{{"role", "user"}, {"content", marker}}};
  const std::string chat = json{{"model", "mirror"}, {"messages", messages}}.dump();
  const std::string stream =
      json{{"model", "tiny"}, {"messages", messages}, {"stream", true}}.dump();
  switch (random() % 10) {
    case 0:
      return {Get("/health"), 200, "ok"};
    case 1:
      return {Get("/v1/models"), 200, "\"tiny\""};
    case 2:
      return {"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "", true};
    case 3:
      return {Get("/" + marker), 404, "/v1/chat/completions"};
    case 4:
      return {"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, ""};
    case 5:
      return {ChatPost("{\"model\": " + marker), 400, "byte"};
    case 6:
      return {ChatPost(stream), 200, "[DONE]"};
    case 7:
      return {Chunked("/v1/chat/completions", chat, random), 200, marker};
    case 8:
      return {ChatPost(json{{"model", marker}, {"messages", messages}}.dump()), 404, marker};
    default:
      return {ChatPost(chat, "X-Filler: " + std::string(random() % 200, 'f') + "\r\n"), 200,
              marker};
  }
}

class OrderOfAnswersTest : public RecordedGateway {};

TEST_F(OrderOfAnswersTest, RequestsThatAreCutAnywhereAreAnsweredInTheirOrder) {
  Start();
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    std::vector<Exchange> exchanges;
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
      exchanges.push_back(SomeExchange(random, i));
      bytes += exchanges.back().request;
    }
    RawHttpClient client(gateway_->port());
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = std::min<size_t>(bytes.size() - at, 1 + random() % 300);
      ASSERT_TRUE(client.Send(bytes.substr(at, length)));
      at += length;
    }
    for (const Exchange& exchange : exchanges) {
      const RawResponse response = client.ReadResponse(exchange.is_head);
      ASSERT_EQ(response.status, exchange.status) << exchange.request << "\n" << response.body;
      ASSERT_TRUE(response.complete || exchange.is_head) << exchange.request;
      EXPECT_NE(response.body.find(exchange.words), std::string::npos) << exchange.request << "\n"
                                                                       << response.body;
      if (exchange.is_head) {
        EXPECT_EQ(response.body, "");
      }
      EXPECT_EQ(response.headers.at("connection"), "keep-alive") << exchange.request;
    }
  }
}

// Each answer has its request's id, and each request one record, however they are mixed.
TEST_F(OrderOfAnswersTest, EachRequestHasOneRecordWithItsOwnId) {
  Start();
  std::mt19937_64 random(7);
  size_t seen = 0;
  for (int connection = 0; connection < 6; ++connection) {
    RawHttpClient client(gateway_->port());
    std::string bytes;
    std::vector<std::string> ids;
    for (int i = 0; i < 5; ++i) {
      ids.push_back(absl::StrCat("trace-", connection, ".", i));
      std::string request = i % 2 == 0 ? Get("/version") : Get("/v1/models/none-" + ids.back());
      request.insert(request.find("\r\n") + 2, absl::StrCat("X-Request-Id: ", ids.back(), "\r\n"));
      bytes += request;
    }
    ASSERT_TRUE(client.Send(bytes));
    for (size_t i = 0; i < ids.size(); ++i) {
      const RawResponse response = client.ReadResponse();
      EXPECT_EQ(response.headers.at("x-request-id"), ids[i]);
      const RequestRecord record = Record(seen++);
      EXPECT_EQ(record.request_id, ids[i]);
      EXPECT_EQ(record.status, response.status);
      EXPECT_EQ(record.status, i % 2 == 0 ? 200 : 404);
    }
  }
}

// A head that is in doubt ends its connection: what stands behind it may be part of it.
TEST_F(OrderOfAnswersTest, NothingBehindARequestInDoubtIsAnswered) {
  Start();
  for (const char* doubtful :
       {"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX\x01: y\r\n\r\n",
        "GET /health\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: +5\r\n\r\nhello"}) {
    RawHttpClient client(gateway_->port());
    client.Send(absl::StrCat(Get("/version"), doubtful, Get("/v1/models")));
    EXPECT_EQ(client.ReadResponse().status, 200) << "the one before it is served";
    const RawResponse refused = client.ReadResponse();
    EXPECT_EQ(refused.status, 400) << doubtful;
    if (refused.status != 0) {
      EXPECT_EQ(refused.headers.at("connection"), "close") << doubtful;
    }
    EXPECT_TRUE(client.WaitForClose()) << doubtful;
  }
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_EQ(backend_.calls(), 0u) << "nobody was asked for an answer";
}

// Every path answers errors in the words of its API, whatever the method or the body.
TEST_F(OrderOfAnswersTest, ErrorsHaveTheShapeOfTheirPath) {
  Start();
  struct Row {
    const char* path;
    const char* member;  // where the words are: "error" as text, or an object with "message"
    bool is_text;
  };
  for (const Row& row :
       {Row{"/v1/chat/completions", "error", false}, Row{"/v1/completions", "error", false},
        Row{"/v1/embeddings", "error", false}, Row{"/v1/responses", "error", false},
        Row{"/v1/messages", "error", false}, Row{"/v1/messages/count_tokens", "error", false},
        Row{"/api/chat", "error", true}, Row{"/api/generate", "error", true},
        Row{"/api/embed", "error", true}, Row{"/api/show", "error", true},
        Row{"/tokenize", "error", false}, Row{"/detokenize", "error", false}}) {
    const std::string get = Get(row.path);
    const std::string broken = Post(row.path, "{");
    const std::string unnamed = Post(row.path, "{}");
    std::string typed = Post(row.path, "{}");
    typed.replace(typed.find("application/json"), 16, "text/plain; a=bc");
    for (const auto& [request, status] : {std::pair{get, 405}, std::pair{broken, 400},
                                          std::pair{unnamed, 400}, std::pair{typed, 415}}) {
      const RawResponse response = Ask(request);
      EXPECT_EQ(response.status, status) << request;
      const json body = json::parse(response.body, nullptr, false);
      ASSERT_TRUE(body.is_object() && body.contains(row.member)) << request << response.body;
      EXPECT_EQ(body["error"].is_string(), row.is_text) << row.path;
      EXPECT_FALSE((row.is_text ? body["error"] : body["error"]["message"]).empty());
      if (absl::StartsWith(row.path, "/v1/messages")) {
        EXPECT_EQ(body["type"], "error");
        EXPECT_EQ(body["request_id"], response.headers.at("x-request-id"));
      }
      if (status == 405) {
        EXPECT_EQ(response.headers.at("allow"), "POST") << row.path;
      }
    }
  }
  EXPECT_EQ(backend_.calls(), 0u);
}

}  // namespace
}  // namespace macrame::agentd
