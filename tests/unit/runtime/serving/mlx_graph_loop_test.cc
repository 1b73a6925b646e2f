// The graph that a GPU runs, on MLX's CPU device, with one and with two steps in flight: requests
// that join, end and are cancelled at any time get the answers that each gets alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/process/rank_boot.h"
#include "runtime/serving/serving_loop.h"
#include "runtime/serving/solo_sequence.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

constexpr int kVocabulary = 96;  // of the tiny model

// A letter for each token, so that stop strings are found.
std::string LetterOf(int32_t token) { return {static_cast<char>('a' + token % 26)}; }

class Heard : public RequestListener {
 public:
  void OnChunk(const v1::GenerateChunk& chunk) override {
    tokens.insert(tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    text += chunk.text();
    if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      finish = chunk.finish_reason();
      completion = chunk.completion_tokens();
    }
    cancelled = cancelled || tokens.size() >= cancel_after;
  }
  void OnDone(const absl::Status& status) override { end = status; }
  bool IsCancelled() const override { return cancelled; }

  std::vector<int32_t> tokens;
  std::string text;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  uint32_t completion = 0;
  size_t cancel_after = SIZE_MAX;
  bool cancelled = false;
  absl::Status end = absl::UnknownError("not ended");
};

class MlxGraphLoop : public ::testing::Test {
 protected:
  void Boot(uint32_t context, uint32_t sequences, const std::string& folder) {
    v1::LaunchSpec spec;
    spec.set_world_size(1);
    spec.set_tp(1);
    spec.set_pp(1);
    spec.set_context_length(context);
    spec.set_concurrent_sequences(sequences);
    spec.mutable_model()->set_path(folder);
    BootOptions options;
    options.needs_text = false;
    options.types.device = EngineDevice::kMlxCpu;
    auto rank = BootRank(spec, watchdog_, options);
    ASSERT_TRUE(rank.ok()) << rank.status();
    rank_ = *std::move(rank);
    ASSERT_TRUE(rank_->engine->chooses_tokens());
    ASSERT_EQ(rank_->engine->steps_in_flight_max(), 2u);
    traits_ = TraitsOf(rank_->engine->limits());
    traits_.chooses_tokens = true;
    if (rank_->config.has_state()) {
      traits_.state_snapshots = static_cast<uint32_t>(rank_->engine->limits().state_snapshots);
    }
  }
  static TextStream Letters() {
    return {[](int32_t token) { return LetterOf(token); }, [] { return std::string(); }};
  }
  std::vector<int32_t> RandomPrompt(size_t size) {
    std::vector<int32_t> prompt(size);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random_() % kVocabulary);
    return prompt;
  }
  GenerationJob MakeJob(std::vector<int32_t> prompt, uint32_t max_tokens, uint64_t seed) const {
    GenerationJob job;
    job.limits.prompt_tokens = static_cast<uint32_t>(prompt.size());
    job.limits.max_tokens = max_tokens;
    job.limits.context_length = traits_.context_length;
    job.limits.end_tokens = {7};
    job.prompt = std::move(prompt);
    job.sampling.temperature = seed == 0 ? 0.0 : 0.8;
    job.sampling.top_k = seed % 3 == 1 ? 20 : 0;
    job.sampling.top_p = seed % 4 == 2 ? 0.9 : 1.0;
    job.sampling.min_p = seed % 5 == 3 ? 0.05 : 0.0;
    job.sampling.seed = seed;
    return job;
  }
  Heard Alone(const GenerationJob& job) {
    Heard heard;
    const std::atomic<bool> never = false;
    heard.end = RunJob(job, *rank_->engine, Letters(), never,
                       [&](const v1::GenerateChunk& chunk) { heard.OnChunk(chunk); });
    return heard;
  }
  std::vector<std::shared_ptr<Heard>> Serve(const std::vector<GenerationJob>& jobs,
                                            uint32_t in_flight, size_t cancelled = SIZE_MAX) {
    traits_.steps_in_flight_max = in_flight;
    ServingLoop::Hooks hooks;
    hooks.new_text = Letters;
    hooks.on_counts = [this](ServingCounts counts) {
      preemptions_ = counts.preempted.preemptions;
      running_most_ = std::max(running_most_, counts.running);
    };
    accepted_ = 0;
    hooks.on_drafted = [this](uint32_t, uint32_t accepted) { accepted_ += accepted; };
    ServingLoop serving(*rank_->engine, traits_, std::move(hooks));
    std::mt19937 joins(99);
    std::vector<std::shared_ptr<Heard>> heard;
    while (heard.size() < jobs.size() || !serving.idle()) {
      if (heard.size() < jobs.size() && (serving.idle() || joins() % 3 == 0)) {
        heard.push_back(std::make_shared<Heard>());
        if (heard.size() - 1 == cancelled) heard.back()->cancel_after = 5;
        serving.Add(jobs[heard.size() - 1], heard.back());
      }
      const absl::StatusOr<bool> ran = serving.RunStep();
      EXPECT_TRUE(ran.ok()) << ran.status();
      if (!ran.ok()) break;
    }
    EXPECT_EQ(rank_->engine->steps_in_flight(), 0u);
    // What closes slots waits for a next step, which another loop does not know of.
    ForwardStep closing;
    for (uint32_t slot = 0; slot < traits_.sequences_max; ++slot) {
      closing.closed_slots.push_back(slot);
    }
    EXPECT_TRUE(rank_->engine->Run(closing).ok());
    return heard;
  }

  Watchdog watchdog_{[](const std::string&, milliseconds) {}};
  std::unique_ptr<BootedRank> rank_;
  BatchTraits traits_;
  std::mt19937 random_{4711};
  uint64_t preemptions_ = 0;
  uint64_t accepted_ = 0;  // drafts
  uint32_t running_most_ = 0;
};

class MlxGraphKinds : public MlxGraphLoop, public ::testing::WithParamInterface<const char*> {};

TEST_P(MlxGraphKinds, TogetherAsAloneWithOneAndWithTwoStepsInFlight) {
  Boot(160, 4, TinyFolder(GetParam()));
  traits_.chunk_tokens_min = 16;
  traits_.chunk_tokens_max = 48;
  std::vector<GenerationJob> jobs;
  const std::vector<int32_t> common = RandomPrompt(70);
  for (uint64_t i = 0; i < 16; ++i) {
    std::vector<int32_t> prompt = i % 4 == 0 ? common : std::vector<int32_t>();
    for (const int32_t token : RandomPrompt(1 + random_() % 40)) prompt.push_back(token);
    jobs.push_back(MakeJob(std::move(prompt), 1 + random_() % 50, i % 2 == 0 ? 0 : i));
    if (i % 5 == 4) jobs.back().stops = {LetterOf(static_cast<int32_t>(random_() % 26)), "qz"};
    if (i % 8 == 3) jobs.back().rules.presence_penalty = 0.5;  // on the host
    if (i % 8 == 5) jobs.back().sampling.typical_p = 0.9;
  }
  std::vector<Heard> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));
  for (const uint32_t in_flight : {1u, 2u}) {
    const auto heard = Serve(jobs, in_flight, /*cancelled=*/6);
    for (size_t i = 0; i < jobs.size(); ++i) {
      SCOPED_TRACE(testing::Message() << i << " with " << in_flight << " in flight");
      EXPECT_TRUE(heard[i]->end.ok()) << heard[i]->end;
      if (heard[i]->finish == v1::FINISH_REASON_CANCELLED) {
        EXPECT_EQ(i, 6u);
        EXPECT_LE(heard[i]->tokens.size(), alone[i].tokens.size());
        continue;
      }
      EXPECT_EQ(heard[i]->tokens, alone[i].tokens);
      EXPECT_EQ(heard[i]->text, alone[i].text);
      EXPECT_EQ(heard[i]->finish, alone[i].finish);
      EXPECT_EQ(heard[i]->completion, alone[i].completion);
    }
    EXPECT_GE(running_most_, 4u);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MlxGraphKinds, ::testing::Values("llama", "qwen3", "mistral"));

TEST_F(MlxGraphLoop, EightStreamsThatMemoryDoesNotHold) {
  Boot(128, 2, TinyFolder("llama"));  // eight blocks for all
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 8; ++i) jobs.push_back(MakeJob(RandomPrompt(20), 70, i % 2 * i));
  std::vector<Heard> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));
  for (const uint32_t in_flight : {1u, 2u}) {
    const auto heard = Serve(jobs, in_flight);
    for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(heard[i]->tokens, alone[i].tokens) << i;
    EXPECT_GE(preemptions_, 1u);
  }
}

// Tiny models repeat themselves, so that some drafts are right; one answer needs the host.
TEST_P(MlxGraphKinds, DraftsChangeNoToken) {
  Boot(256, 4, TinyFolder(GetParam()));
  EXPECT_GE(rank_->steady_rows, 1u);
  EXPECT_LE(rank_->steady_rows, 8u);
  traits_.draft_tokens_max = 5;
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt = RandomPrompt(12);
    for (int again = 0; again < 36; ++again) prompt.push_back(prompt[prompt.size() - 12]);
    jobs.push_back(MakeJob(std::move(prompt), 80, i % 3 == 2 ? i : 0));
    jobs.back().limits.end_tokens = {};
    if (i == 4) jobs.back().rules.presence_penalty = 0.5;
  }
  std::vector<Heard> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));
  for (const uint32_t in_flight : {1u, 2u}) {
    const auto heard = Serve(jobs, in_flight);
    for (size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(heard[i]->tokens, alone[i].tokens) << i << " with " << in_flight << " in flight";
    }
    EXPECT_GE(accepted_, 1u);
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
