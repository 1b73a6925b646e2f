#include "agentd/services/metered_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "agentd/metrics/exposition.h"
#include "agentd/metrics/metric_names.h"
#include "proto/reasons.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Keeps what it was asked; the test plays the answer.
class HeldBackend final : public InferenceBackend {
 public:
  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override {
    requests.push_back(std::move(request));
    chunk = std::move(on_chunk);
    done = std::move(on_done);
    return nullptr;
  }
  std::vector<ServedModel> ListModels() override { return {{"m", 1, 2}}; }
  std::map<std::string, std::string> Aliases() override { return {{"alias", "m"}}; }

  std::vector<v1::GenerateRequest> requests;
  ChunkCallback chunk;
  DoneCallback done;
};

class MeteredBackendTest : public ::testing::Test {
 protected:
  MeteredBackendTest() { Make(true); }
  void Make(bool is_told) {
    MeteredBackend::OnUsed on_used = [this](const UsedRequest& used) { used_.push_back(used); };
    backend_ =
        std::make_unique<MeteredBackend>(behind_, registry_, std::make_shared<LatencyHistory>(),
                                         clock_, is_told ? on_used : nullptr);
  }
  void Start(const std::string& model = "m", bool tokenize = false, bool is_whole = false) {
    v1::GenerateRequest request;
    request.set_deployment(model);
    request.set_fairness_key("digest/user");
    if (tokenize) request.mutable_tokenize();
    backend_->StartGenerate(request,
                            is_whole
                                ? ChunkCallback([this](const v1::GenerateChunk&) { ++chunks_; },
                                                [this] { ++begun_again_; })
                                : ChunkCallback([this](const v1::GenerateChunk&) { ++chunks_; }),
                            [this](const absl::Status& status) { ended_.push_back(status); });
  }
  void Chunk(int tokens, uint32_t prompt = 0, uint32_t cached = 0) {
    v1::GenerateChunk chunk;
    for (int id = 0; id < tokens; ++id) chunk.add_token_ids(id);
    chunk.set_prompt_tokens(prompt);
    chunk.set_cached_tokens(cached);
    behind_.chunk(chunk);
  }
  std::string Page() const {
    MetricSet set;
    registry_->CopyTo(set);
    return Expose(set, MetricsFormat::kPrometheus);
  }
  std::pair<uint64_t, uint64_t> Told() const {
    std::pair<uint64_t, uint64_t> sum;
    for (const UsedRequest& used : used_) {
      sum.first += used.tokens.prompt;
      sum.second += used.tokens.generated;
    }
    return sum;
  }

  transport::FakeDispatcher clock_;
  HeldBackend behind_;
  std::shared_ptr<MetricRegistry> registry_ = std::make_shared<MetricRegistry>();
  std::vector<UsedRequest> used_;
  std::unique_ptr<MeteredBackend> backend_;
  int chunks_ = 0;
  int begun_again_ = 0;
  std::vector<absl::Status> ended_;
};

TEST_F(MeteredBackendTest, ARequestPassesAsItCameAndSoDoesItsAnswer) {
  Start();
  ASSERT_THAT(behind_.requests, SizeIs(1));
  EXPECT_EQ(behind_.requests[0].deployment(), "m");
  EXPECT_EQ(behind_.requests[0].fairness_key(), "digest/user");
  Chunk(1, 10);
  Chunk(2);
  behind_.done(absl::CancelledError("gone"));
  EXPECT_EQ(chunks_, 2);
  EXPECT_THAT(ended_, ElementsAre(absl::CancelledError("gone")));
  EXPECT_THAT(backend_->ListModels(), SizeIs(1));
  EXPECT_EQ(backend_->Aliases().at("alias"), "m");
}

TEST_F(MeteredBackendTest, WhatARequestTookIsToldAtItsEnd) {
  Start();
  Chunk(1, 100, 40);
  Chunk(4);
  EXPECT_THAT(used_, IsEmpty()) << "not before";
  const MonotonicTime begun = clock_.Now();
  clock_.AdvanceBy(seconds(2));
  behind_.done(absl::OkStatus());
  ASSERT_THAT(used_, SizeIs(1));
  EXPECT_EQ(used_[0].deployment, "m");
  EXPECT_EQ(used_[0].fairness_key, "digest/user");
  EXPECT_EQ(used_[0].tokens.prompt, 60u) << "what was in the cache cost nothing";
  EXPECT_EQ(used_[0].tokens.generated, 5u);
  EXPECT_EQ(used_[0].begun, begun);
}

// The gang that had it was lost: its prompt and its first tokens come once more.
TEST_F(MeteredBackendTest, WhatComesAgainIsCountedOnce) {
  Start("m", /*tokenize=*/false, /*is_whole=*/true);
  Chunk(1, 100, 40);
  Chunk(4);
  clock_.AdvanceBy(kUseToldEach);
  Chunk(1);
  behind_.chunk.BeginAgain();
  EXPECT_EQ(begun_again_, 1);
  Chunk(1, 100, 0);
  Chunk(2);
  EXPECT_EQ(Told(), (std::pair<uint64_t, uint64_t>(60, 6)));
  Chunk(5);
  v1::GenerateChunk last;
  last.set_finish_reason(v1::FINISH_REASON_STOP);
  last.set_completion_tokens(8);
  behind_.chunk(last);
  behind_.done(absl::OkStatus());
  EXPECT_EQ(Told(), (std::pair<uint64_t, uint64_t>(60, 8)));
  EXPECT_THAT(Page(), HasSubstr("vllm:prompt_tokens_total{model_name=\"m\"} 100\n"));
  EXPECT_THAT(Page(), HasSubstr("vllm:generation_tokens_total{model_name=\"m\"} 8\n"));
  EXPECT_THAT(Page(), HasSubstr("vllm:time_to_first_token_seconds_count{model_name=\"m\"} 1\n"));
  EXPECT_THAT(Page(), HasSubstr("vllm:inter_token_latency_seconds_count{model_name=\"m\"} 7\n"));
}

TEST_F(MeteredBackendTest, AnAnswerThatIsShorterTheSecondTimeTakesNothingBack) {
  Start("m", /*tokenize=*/false, /*is_whole=*/true);
  Chunk(50, 10);
  clock_.AdvanceBy(kUseToldEach);
  Chunk(1);
  behind_.chunk.BeginAgain();
  Chunk(3, 10);
  behind_.done(absl::OkStatus());
  EXPECT_EQ(Told(), (std::pair<uint64_t, uint64_t>(10, 51)));
}

TEST_F(MeteredBackendTest, WhoCantBeginAgainIsNotToldTo) {
  Start();
  EXPECT_FALSE(behind_.chunk.can_begin_again());
}

TEST_F(MeteredBackendTest, WhatTookNothingIsNotTold) {
  Start();
  behind_.done(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, "no"));
  Start();
  behind_.done(absl::CancelledError("gone before its first token"));
  EXPECT_THAT(used_, IsEmpty());
}

// Whole texts are turned into tokens: no model runs.
TEST_F(MeteredBackendTest, CountingTokensIsNoRequest) {
  Start("m", /*tokenize=*/true);
  Chunk(500, 500);
  behind_.done(absl::OkStatus());
  EXPECT_EQ(chunks_, 1);
  EXPECT_THAT(ended_, SizeIs(1));
  EXPECT_THAT(used_, IsEmpty());
  EXPECT_THAT(Page(), Not(HasSubstr("500")));
}

TEST_F(MeteredBackendTest, NamesOfModelsThatDoNotExistMakeNoSeries) {
  for (int request = 0; request < 1000; ++request) {
    Start("synthetic-" + std::to_string(request));
    behind_.done(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, "no"));
  }
  EXPECT_THAT(Page(), Not(HasSubstr("synthetic")));
  EXPECT_THAT(Page(), HasSubstr(reasons::kModelNotLoaded));
  EXPECT_THAT(Page(), HasSubstr("1000"));
}

TEST_F(MeteredBackendTest, WithoutAListenerItCountsAllTheSame) {
  Make(false);
  Start();
  Chunk(1, 10);
  clock_.AdvanceBy(seconds(10));
  Chunk(1);
  behind_.done(absl::OkStatus());
  EXPECT_EQ(chunks_, 2);
  EXPECT_THAT(Page(), HasSubstr("model_name=\"m\""));
}

TEST_F(MeteredBackendTest, AnAnswerMayEndWhenTheCounterIsGone) {
  Start();
  Chunk(1, 10);
  backend_.reset();
  Chunk(1);
  behind_.done(absl::OkStatus());
  EXPECT_EQ(Told(), (std::pair<uint64_t, uint64_t>(10, 2)));
}

// However an answer comes in, what is told of it adds up to all of it, part after part without a
// gap, and while it goes on it is told often enough.
TEST_F(MeteredBackendTest, PartsAddUpToTheWholeAnswer) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(seed);
    used_.clear();
    const MonotonicTime begun = clock_.Now();
    Start();
    const uint32_t prompt = 1 + dice() % 1000;
    const uint32_t cached = dice() % (prompt + 1);
    uint64_t generated = 0;
    Chunk(0, prompt, cached);
    MonotonicTime last_told = begun;
    for (int step = 0; step < 40; ++step) {
      clock_.AdvanceBy(milliseconds(dice() % 3000));
      const int tokens = 1 + static_cast<int>(dice() % 3);
      const size_t before = used_.size();
      Chunk(tokens, dice() % 2 == 0 ? prompt : 0, cached);
      generated += static_cast<uint64_t>(tokens);
      if (clock_.Now() - last_told >= kUseToldEach) {
        EXPECT_EQ(used_.size(), before + 1);
        last_told = clock_.Now();
      }
    }
    behind_.done(dice() % 2 == 0 ? absl::OkStatus() : absl::UnavailableError("it died"));
    EXPECT_EQ(Told(), (std::pair<uint64_t, uint64_t>(prompt - cached, generated)));
    MonotonicTime from = begun;
    for (const UsedRequest& used : used_) {
      EXPECT_GE(used.begun, from);
      EXPECT_GT(used.tokens.prompt + used.tokens.generated, 0u);
      from = used.begun;
    }
    EXPECT_EQ(used_.front().begun, begun);
  }
}

}  // namespace
}  // namespace macrame::agentd
