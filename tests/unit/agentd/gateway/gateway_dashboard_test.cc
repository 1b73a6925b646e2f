// The dashboard over real connections.

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

std::string GetWith(const std::string& path, const std::string& fields) {
  return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n" + fields + "\r\n";
}

class GatewayDashboardTest : public ::testing::Test {
 protected:
  // A status with as many nodes as were asked for, which changes each time while `changes`.
  void Start(GatewayOptions options = {}) {
    options.port = 0;
    options.dashboard_pause_ms = milliseconds(20);
    options.ask_status = [this](std::function<void(v1::ClusterStatus)> told) {
      const int asked = ++asked_;
      if (!answers_) return;
      v1::ClusterStatus status;
      status.set_cluster_name("lab");
      status.mutable_aggregate_load()->set_requests_running(changes_ ? asked : 0);
      told(status);
    };
    StartWith(options);
  }
  void StartWith(GatewayOptions options) {
    options.port = 0;
    auto gateway = Gateway::Start(options, &backend_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }

  FakeBackend backend_;
  std::atomic<int> asked_{0};
  std::atomic<bool> answers_{true};
  std::atomic<bool> changes_{true};
  std::unique_ptr<Gateway> gateway_;  // goes first: it asks for the status
};

TEST_F(GatewayDashboardTest, ThePageComesWithItsPolicy) {
  Start();
  for (const char* path : {"/", "/dashboard", "/dashboard/", "/dashboard/?x=1"}) {
    const RawResponse page = Ask(Get(path));
    ASSERT_EQ(page.status, 200) << path;
    EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
    EXPECT_EQ(page.headers.at("content-security-policy").rfind("default-src 'self';", 0), 0u);
    EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
    EXPECT_NE(page.body.find("/dashboard/app.js"), std::string::npos);
  }
  EXPECT_EQ(Ask(Get("/dashboard/none.js")).status, 404);
  EXPECT_EQ(Ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").status, 405);
}

TEST_F(GatewayDashboardTest, AFileThatTheBrowserHasIsNotSentAgain) {
  Start();
  const RawResponse first = Ask(Get("/dashboard/app.js"));
  const RawResponse again =
      Ask(GetWith("/dashboard/app.js",
                  "If-None-Match: " + first.headers.at("etag") + "\r\nConnection: close\r\n"));
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_FALSE(again.headers.contains("content-length"));
  EXPECT_EQ(again.headers.at("etag"), first.headers.at("etag"));
}

TEST_F(GatewayDashboardTest, TheSnapshotIsAskedForOnceForAll) {
  Start();
  const RawResponse first = Ask(Get("/dashboard/api/snapshot"));
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(nlohmann::json::parse(first.body)["cluster_name"], "lab");
  const RawResponse again =
      Ask(GetWith("/dashboard/api/snapshot",
                  "If-None-Match: " + first.headers.at("etag") + "\r\nConnection: close\r\n"));
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(asked_, 1);
}

TEST_F(GatewayDashboardTest, LatenciesComeAsTheAgentTellsThem) {
  GatewayOptions options;
  options.latencies = [] { return std::make_shared<const std::string>(R"({"models":[]})"); };
  Start(options);
  const RawResponse answer = Ask(Get("/dashboard/api/latency"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.body, R"({"models":[]})");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(asked_, 0) << "nobody has to be asked for it";
}

TEST_F(GatewayDashboardTest, AnAgentThatDoesNotTellIs503) {
  GatewayOptions options;
  options.status_ms = milliseconds(50);
  answers_ = false;
  Start(options);
  const RawResponse response = Ask(Get("/dashboard/api/snapshot"));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
}

TEST_F(GatewayDashboardTest, AGatewayWithoutAnAgentSaysSo) {
  StartWith({});
  EXPECT_EQ(Ask(Get("/dashboard/api/snapshot")).status, 503);
  EXPECT_EQ(Ask(Get("/dashboard/api/latency")).status, 503);
  EXPECT_EQ(Ask(Get("/")).status, 200);
}

TEST_F(GatewayDashboardTest, AnotherSitesPageGetsNothing) {
  Start();
  for (const char* fields : {"Sec-Fetch-Site: cross-site\r\n", "Origin: http://evil.example\r\n"}) {
    EXPECT_EQ(Ask(GetWith("/dashboard/api/snapshot", fields)).status, 403) << fields;
    EXPECT_EQ(Ask(GetWith("/dashboard/api/events", fields)).status, 403) << fields;
    EXPECT_EQ(Ask(GetWith("/dashboard/api/latency", fields)).status, 403) << fields;
  }
  EXPECT_EQ(Ask(GetWith("/dashboard/api/snapshot", "Sec-Fetch-Site: same-origin\r\n")).status, 200);
  EXPECT_EQ(Ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
}

// What comes of the stream until it has `count` events.
// In chunks as they come: each is framed on its own.
size_t EventsIn(const std::string& chunks) {
  size_t events = 0;
  for (size_t at = chunks.find("data: {"); at != std::string::npos;
       at = chunks.find("data: {", at + 1)) {
    ++events;
  }
  return events;
}

TEST_F(GatewayDashboardTest, EachChangeIsAnEvent) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(GetWith("/dashboard/api/events", ""));
  const RawResponse head = client.ReadHead();
  ASSERT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(head.headers.at("cache-control"), "no-store");
  std::string chunks;
  while (EventsIn(chunks) < 2) {
    const std::string more = client.ReadSome();
    ASSERT_FALSE(more.empty()) << chunks;
    chunks += more;
  }
}

TEST_F(GatewayDashboardTest, SilenceIsFilledWithComments) {
  GatewayOptions options;
  options.keep_alive_ms = milliseconds(30);
  changes_ = false;
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(GetWith("/dashboard/api/events", ""));
  ASSERT_EQ(client.ReadHead().status, 200);
  std::string text;
  while (text.find(": keep-alive\n\n") == std::string::npos) {
    const std::string more = client.ReadSome();
    ASSERT_FALSE(more.empty()) << text;
    text += more;
  }
  EXPECT_EQ(EventsIn(text), 1u);
}

TEST_F(GatewayDashboardTest, PagesBeyondTheBoundHaveToAsk) {
  GatewayOptions options;
  options.dashboards_max = 1;
  Start(options);
  auto first = std::make_unique<RawHttpClient>(gateway_->port());
  first->Send(GetWith("/dashboard/api/events", ""));
  ASSERT_EQ(first->ReadHead().status, 200);
  EXPECT_EQ(Ask(Get("/dashboard/api/events")).status, 503);
  EXPECT_EQ(Ask(Get("/dashboard/api/snapshot")).status, 200);
  // A page that was closed makes room.
  first->Close();
  int status = 503;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (status == 503 && std::chrono::steady_clock::now() < until) {
    RawHttpClient next(gateway_->port());
    next.Send(GetWith("/dashboard/api/events", ""));
    status = next.ReadHead().status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(GatewayDashboardTest, AStreamEndsWhenTheNodeIsAboutToStop) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(GetWith("/dashboard/api/events", ""));
  ASSERT_EQ(client.ReadHead().status, 200);
  gateway_->Drain(/*refuse=*/false);
  EXPECT_TRUE(client.WaitForClose());
}

}  // namespace
}  // namespace macrame::agentd
