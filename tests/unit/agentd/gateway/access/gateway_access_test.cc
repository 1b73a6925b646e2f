// What a key's owner sees of the cluster, and what its answers cost it, however they end.

#include "agentd/gateway/access/gateway_access.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/base/tenant.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

class NoCall : public GenerateCall {
 public:
  void Cancel() override {}
};

// Answers as the test says, from within StartGenerate.
class ScriptedBackend : public InferenceBackend {
 public:
  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override {
    requests.push_back(request);
    for (const v1::GenerateChunk& chunk : lost) on_chunk(chunk);
    if (!lost.empty()) on_chunk.BeginAgain();
    for (const v1::GenerateChunk& chunk : chunks) on_chunk(chunk);
    on_done(status);
    return std::make_shared<NoCall>();
  }
  std::vector<ServedModel> ListModels() override {
    return {{"everybodys", 1, 512}, {"laws", 2, 512, "law"}, {"arts", 3, 512, "art"}};
  }
  std::map<std::string, std::string> Aliases() override {
    return {{"gpt", "everybodys"}, {"judge", "laws"}, {"brush", "arts"}, {"later", "not-loaded"}};
  }

  std::vector<v1::GenerateChunk> lost{};  // before the answer begins again
  std::vector<v1::GenerateChunk> chunks{};
  absl::Status status{};
  std::vector<v1::GenerateRequest> requests{};
};

v1::GenerateChunk First(uint32_t prompt_tokens) {
  v1::GenerateChunk chunk;
  chunk.set_prompt_tokens(prompt_tokens);
  return chunk;
}
v1::GenerateChunk Tokens(int count) {
  v1::GenerateChunk chunk;
  chunk.set_text("words");
  for (int i = 0; i < count; ++i) chunk.add_token_ids(i);
  return chunk;
}
v1::GenerateChunk Last(uint32_t completion_tokens) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  chunk.set_completion_tokens(completion_tokens);
  return chunk;
}

class GatewayAccessTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kAllowance = 1'000;

  Principal Limited() const {
    Principal principal;
    principal.key_id = "0123456789ab";
    principal.tokens_per_minute = kAllowance;
    return principal;
  }
  void Ask(const Principal& principal, v1::GenerateRequest request = {}) {
    PrincipalBackend backend(backend_, access_, principal);
    backend.StartGenerate(std::move(request), ChunkCallback([](const v1::GenerateChunk&) {}, [] {}),
                          [](const absl::Status&) {});
  }
  // What is gone of the minute's tokens; a little of it may have come back meanwhile.
  uint64_t Spent(const Principal& principal) {
    const LimitVerdict verdict = access_->Begin(principal);
    if (!verdict.refused.has_value()) access_->End(principal);
    for (const auto& [name, value] : verdict.headers) {
      if (name == "x-ratelimit-remaining-tokens") return kAllowance - std::stoull(value);
    }
    ADD_FAILURE() << "there is no such limit";
    return 0;
  }

  ScriptedBackend backend_;
  std::shared_ptr<GatewayAccess> access_ = std::make_shared<GatewayAccess>();
};

// However an answer ends, its owner pays for what was computed for it. Of one that is broken off
// the last chunk, which has the count, does not come: leaving early is no way around a limit.
TEST_F(GatewayAccessTest, TokensCountHoweverAnAnswerEnds) {
  struct Row {
    const char* how;
    std::vector<v1::GenerateChunk> chunks;
    absl::Status status;
    uint64_t spent;
  };
  const absl::Status left = absl::CancelledError("the client left");
  const absl::Status failed =
      ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited, "rank 1 exited");
  for (const Row& row : {
           Row{"whole", {First(100), Tokens(150), Tokens(150), Last(301)}, absl::OkStatus(), 401},
           Row{"left", {First(100), Tokens(150), Tokens(150)}, left, 400},
           Row{"failed", {First(100), Tokens(300)}, failed, 400},
           Row{"left before a word", {First(400)}, left, 400},
           Row{"refused", {}, failed, 0},
       }) {
    SCOPED_TRACE(row.how);
    access_ = std::make_shared<GatewayAccess>();
    ASSERT_FALSE(access_->Begin(Limited()).refused.has_value());
    backend_.chunks = row.chunks;
    backend_.status = row.status;
    Ask(Limited());
    access_->End(Limited());
    const uint64_t spent = Spent(Limited());
    EXPECT_LE(spent, row.spent);
    EXPECT_GE(spent + 200, row.spent) << "as much comes back in twelve seconds";
    if (row.spent == 0) {
      EXPECT_EQ(spent, 0u);
    } else {
      EXPECT_GT(spent, 0u);
    }
  }
}

TEST_F(GatewayAccessTest, AnAnswerThatBeginsAgainCostsItsLongerTryAlone) {
  for (const auto& [lost, whole] : {std::pair(100, 150), std::pair(150, 100)}) {
    access_ = std::make_shared<GatewayAccess>();
    ASSERT_FALSE(access_->Begin(Limited()).refused.has_value());
    backend_.lost = {First(300), Tokens(lost)};
    backend_.chunks = {First(300), Tokens(whole), Last(static_cast<uint32_t>(whole))};
    Ask(Limited());
    access_->End(Limited());
    const uint64_t spent = Spent(Limited());
    EXPECT_LE(spent, 450u);
    EXPECT_GT(spent, 250u) << "as much comes back in twelve seconds";
  }
}

TEST_F(GatewayAccessTest, WhatOnlyTellsTokensCostsNone) {
  ASSERT_FALSE(access_->Begin(Limited()).refused.has_value());
  backend_.chunks = {First(900), Tokens(900)};
  v1::GenerateRequest request;
  request.mutable_tokenize()->set_count_only(true);
  Ask(Limited(), request);
  EXPECT_EQ(Spent(Limited()), 0u);
}

TEST_F(GatewayAccessTest, ATenantsLimitCountsTheTokensOfKeysWithoutOne) {
  Principal principal;
  principal.key_id = "0123456789ab";
  principal.tenant = "law";
  EXPECT_FALSE(access_->CountsTokens(principal));
  v1::TenantLimits law;
  law.set_name("law");
  law.set_tokens_per_minute(kAllowance);
  access_->SetKeys({}, {{"law", law}});
  EXPECT_TRUE(access_->CountsTokens(principal));
  ASSERT_FALSE(access_->Begin(principal).refused.has_value());
  backend_.chunks = {First(2 * kAllowance)};
  Ask(principal);
  const LimitVerdict verdict = access_->Begin(principal);
  ASSERT_TRUE(verdict.refused.has_value());
  EXPECT_NE(verdict.refused->message.find("'law'"), std::string::npos);
}

// --- what is seen --------------------------------------------------------------------------------

TEST_F(GatewayAccessTest, OthersModelsAndTheirAliasesAreNotSeen) {
  struct Row {
    const char* tenant;
    std::vector<std::string> models;  // of the key
    std::vector<std::string> seen;
    std::vector<std::string> aliases;
  };
  for (const Row& row : {
           Row{"", {}, {"everybodys"}, {"gpt", "later"}},
           Row{"law", {}, {"everybodys", "laws"}, {"gpt", "judge", "later"}},
           Row{"law", {"laws"}, {"laws"}, {"judge"}},
           Row{"", {"laws"}, {}, {}},
           Row{"art", {"everybodys", "not-loaded"}, {"everybodys"}, {"gpt", "later"}},
       }) {
    Principal principal;
    principal.tenant = row.tenant;
    principal.models = row.models;
    PrincipalBackend backend(backend_, access_, principal);
    std::vector<std::string> seen, aliases;
    for (const ServedModel& model : backend.ListModels()) seen.push_back(model.id);
    for (const auto& [alias, model] : backend.Aliases()) aliases.push_back(alias);
    EXPECT_EQ(seen, row.seen) << row.tenant;
    EXPECT_EQ(aliases, row.aliases) << row.tenant;
  }
}

TEST_F(GatewayAccessTest, PromptsOfAMemoryOnlyTenantAreMarkedAndOthersAreNot) {
  v1::TenantLimits law;
  law.set_name("law");
  law.set_memory_only(true);
  access_->SetKeys({}, {{"law", law}});
  for (const char* tenant : {"law", "art", ""}) {
    Principal principal;
    principal.tenant = tenant;
    Ask(principal);
    EXPECT_EQ(backend_.requests.back().memory_only(), principal.tenant == "law") << tenant;
  }
}

// --- keys that come and go -----------------------------------------------------------------------

TEST_F(GatewayAccessTest, KeysOfAccessFilesAreLeftOut) {
  v1::ApiKey plain, file;
  plain.set_id("000000000001");
  file.set_id("000000000002");
  file.set_has_access_file(true);
  access_->SetKeys({{plain.id(), plain}, {file.id(), file}});
  EXPECT_EQ(access_->keys()->keys().size(), 1u);
  EXPECT_TRUE(access_->keys()->keys().contains(plain.id()));
  access_->SetKeys({{file.id(), file}});
  EXPECT_TRUE(access_->keys()->empty()) << "they are no reason to ask others for a key";
}

TEST_F(GatewayAccessTest, ARuleThatGotStricterEndsAnswersAtOnce) {
  const std::string owner = OwnerOfTenant("law");
  StoredAnswers& answers = access_->answers();
  const uint64_t now = GatewayUnixMs();
  const auto text = std::make_shared<const std::string>("[]");
  answers.Put("resp_1", {owner, text, text, now - 7'200'000}, answers.Begin(), now);
  ASSERT_TRUE(answers.Find("resp_1", owner, now).has_value());
  v1::TenantLimits law;
  law.set_name("law");
  law.set_retention_s(3600);
  access_->SetKeys({}, {{"law", law}});
  EXPECT_EQ(answers.turns(), 0u);
  access_->SetKeys({}, {});
  EXPECT_FALSE(answers.Find("resp_1", owner, now).has_value()) << "it does not come back";
}

// A request holds its place for as long as it lives, from whatever thread, also while keys change.
TEST_F(GatewayAccessTest, PlacesAreGivenBackFromAnyThread) {
  Principal principal;
  principal.key_id = "0123456789ab";
  principal.tenant = "law";
  principal.concurrent_requests = 2;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, principal] {
      for (int round = 0; round < 500; ++round) {
        if (access_->Begin(principal).refused.has_value()) continue;
        const LimitedRequest request(access_, principal);
        access_->AddTokens(principal, 3);
        if (round % 50 == 0) access_->SetKeys({});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(access_->Begin(principal).refused.has_value()) << i;
  EXPECT_TRUE(access_->Begin(principal).refused.has_value());
}

}  // namespace
}  // namespace macrame::agentd
