#include "agentd/services/webhook.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/agentd/services/hook_server.h"
#include "transport/asio_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WebhookTest : public ::testing::Test {
 protected:
  // Nothing here may wait for ever.
  void SetUp() override {
    dispatcher_.PostAfter(seconds(30), [this] {
      ADD_FAILURE() << "the test took too long";
      dispatcher_.Stop();
    });
  }
  absl::Status Post(const std::string& url, const std::string& json) {
    WebhookOptions options;
    options.timeout = seconds(2);
    options.pauses = {milliseconds(10), milliseconds(10)};
    Webhook webhook(dispatcher_, *ParseWebUrl(url), "Bearer t", options);
    absl::Status result = absl::UnknownError("not told");
    webhook.Post(json, [&](const absl::Status& status) {
      EXPECT_TRUE(dispatcher_.IsOwnerThread());
      result = status;
      dispatcher_.Stop();
    });
    dispatcher_.Run();
    return result;
  }

  transport::AsioDispatcher dispatcher_;
  tests::HookServer server_;
};

TEST_F(WebhookTest, PostsJsonWithItsAuthorization) {
  ASSERT_TRUE(Post(server_.url(), R"({"text":"hello"})").ok());
  ASSERT_EQ(server_.requests().size(), 1u);
  const std::string request = server_.requests()[0];
  EXPECT_EQ(request.rfind("POST /hook?a=b HTTP/1.1\r\n", 0), 0u) << request;
  EXPECT_NE(request.find("Authorization: Bearer t\r\n"), std::string::npos) << request;
  EXPECT_NE(request.find("Content-Type: application/json\r\n"), std::string::npos) << request;
  EXPECT_NE(request.find("\r\n\r\n{\"text\":\"hello\"}"), std::string::npos) << request;
}

TEST_F(WebhookTest, TriesThreeTimesAndSaysWhyNot) {
  server_.SetStatus(503);
  const absl::Status refused = Post(server_.url(), "{}");
  EXPECT_NE(refused.message().find("HTTP 503"), std::string::npos) << refused;
  EXPECT_EQ(server_.requests().size(), 3u);
}

TEST_F(WebhookTest, NobodyThereAndOthersProtocolsAreFailuresInTime) {
  EXPECT_FALSE(Post("http://127.0.0.1:1/x", "{}").ok());
  std::string secure = server_.url();
  secure.replace(0, 4, "https");
  EXPECT_FALSE(Post(secure, "{}").ok()) << "it speaks no TLS";
}

// The message under way is given up, not waited for.
TEST_F(WebhookTest, MayGoWhileAMessageWaits) {
  WebhookOptions options;
  options.pauses = {seconds(60)};
  std::optional<Webhook> webhook;
  webhook.emplace(dispatcher_, *ParseWebUrl("http://127.0.0.1:1/x"), "", options);
  webhook->Post("{}", [](const absl::Status&) { ADD_FAILURE() << "it is gone"; });
  const MonotonicTime begun = dispatcher_.Now();
  webhook.reset();
  EXPECT_LT(dispatcher_.Now() - begun, seconds(10));
  dispatcher_.Post([this] { dispatcher_.Stop(); });
  dispatcher_.Run();
}

}  // namespace
}  // namespace macrame::agentd
