// A conversation goes on where its last turn was computed: two replicas, real ranks, over HTTP.

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/integration/cluster_test_base.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::tests {
namespace {

using nlohmann::json;

constexpr char kModel[] = "knot-5m-4bit";
constexpr int kTurns = 3;
// Odd: replicas that took turns would meet each conversation in turns.
constexpr int kConversations = 3;
// What a step of the prefix cache may leave out at the end of a prompt.
constexpr int kBlockTokens = 64;

class AffinityTest : public ClusterTest {
 protected:
  json Ask(uint16_t port, const json& messages) {
    const std::string body = json{
        {"model", kModel},
        {"max_tokens", 4},
        {"temperature", 0},
        {"messages", messages}}.dump();
    agentd::RawHttpClient client(port);
    client.Send(absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
                             "Content-Type: application/json\r\nContent-Length: ", body.size(),
                             "\r\n\r\n", body));
    const agentd::RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 200) << response.body.substr(0, 600);
    return json::parse(response.body, nullptr, false);
  }
  // More than a gateway takes for nothing (kAffinityBytesMin), that no other conversation begins
  // with.
  static std::string Beginning(int conversation) {
    std::string text;
    for (int line = 0; text.size() < 1200; ++line) {
      absl::StrAppend(&text, "Knot ", conversation * 1000 + line, " is tied in a cord. ");
    }
    return text;
  }
};

TEST_F(AffinityTest, EachConversationStaysWithItsReplica) {
  for (const char* name : {"ada", "bess"}) AddAgent(name).Start();
  WaitFor("two agents", Running(), 20,
          [](const auto& status) { return AliveCount(status) == 2 && HasCoordinator(status); });
  v1::LoadModelRequest load;
  load.set_name_or_path(kModel);
  load.set_replicas(2);
  load.mutable_placement()->set_world_size(1);
  load.set_timeout_ms(60'000);
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status loaded =
      Stream(*agents_[0], agentd::kLoadModel, load, std::chrono::seconds(70), &progress);
  ASSERT_TRUE(loaded.ok()) << loaded;
  const uint16_t port = GatewayPort(*agents_[0]);
  std::vector<json> messages(kConversations);
  std::vector<int> prompt_before(kConversations, 0);
  for (int each = 0; each < kConversations; ++each) {
    messages[each] = json::array({{{"role", "system"}, {"content", Beginning(each)}}});
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int each = 0; each < kConversations; ++each) {
      messages[each].push_back(
          {{"role", "user"}, {"content", absl::StrCat("Question ", turn, "?")}});
      const json answer = Ask(port, messages[each]);
      ASSERT_TRUE(answer.contains("usage")) << answer.dump();
      const int prompt = answer["usage"]["prompt_tokens"];
      const int cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"];
      if (turn == 0) {
        EXPECT_LT(cached, kBlockTokens * 2) << "conversation " << each << " is new everywhere";
      } else {
        EXPECT_GE(cached, prompt_before[each] - kBlockTokens)
            << "turn " << turn << " of conversation " << each << ", of " << prompt << " tokens";
      }
      prompt_before[each] = prompt;
      messages[each].push_back(
          {{"role", "assistant"}, {"content", answer["choices"][0]["message"]["content"]}});
    }
  }
}

}  // namespace
}  // namespace macrame::tests
