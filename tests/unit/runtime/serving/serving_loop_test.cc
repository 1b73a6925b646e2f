// Many requests at once over a tiny model get, token for token, the answers that each gets alone:
// joining and leaving at any step, after a prefix hit, after preemption.

#include "runtime/serving/serving_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>

#include "proto/reasons.h"
#include "runtime/process/rank_boot.h"
#include "runtime/serving/solo_sequence.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

constexpr int kVocabulary = 96;  // of the tiny model

TextStream Silent() {
  return {[](int32_t) { return std::string("x"); }, [] { return std::string(); }};
}

class Heard : public RequestListener {
 public:
  void OnChunk(const v1::GenerateChunk& chunk) override {
    if (chunk.has_progress()) {
      EXPECT_EQ(chunk.ByteSizeLong(), OnlyProgress(chunk).ByteSizeLong()) << "more than progress";
      told.push_back(chunk.progress());
      return;
    }
    tokens.insert(tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    cached = std::max(cached, chunk.cached_tokens());
    if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
    if (chunk.has_timings()) timings.push_back(chunk.timings());
    drafted += chunk.draft_tokens();
    accepted += chunk.accepted_tokens();
    model_drafted += chunk.model_draft_tokens();
    model_accepted += chunk.model_accepted_tokens();
    embedding.insert(embedding.end(), chunk.embedding().begin(), chunk.embedding().end());
    for (const v1::TokenLogprob& one : chunk.logprobs()) logprobs.push_back(one.DebugString());
    if (tokens.size() >= cancel_after) cancelled = true;
  }
  void OnDone(const absl::Status& status) override {
    ++ended;
    end = status;
  }
  bool IsCancelled() const override { return cancelled; }

  static v1::GenerateChunk OnlyProgress(const v1::GenerateChunk& chunk) {
    v1::GenerateChunk only;
    *only.mutable_progress() = chunk.progress();
    return only;
  }

  std::vector<v1::PromptProgress> told;
  std::vector<int32_t> tokens;
  std::vector<float> embedding;
  std::vector<std::string> logprobs;
  std::vector<v1::RequestTimings> timings;
  uint32_t cached = 0;
  uint32_t drafted = 0;
  uint32_t accepted = 0;
  uint32_t model_drafted = 0;
  uint32_t model_accepted = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  size_t cancel_after = SIZE_MAX;
  bool cancelled = false;
  int ended = 0;
  absl::Status end;
};

class ServingLoopTest : public ::testing::Test {
 protected:
  void Boot(uint32_t context, uint32_t sequences) {
    Boot(context, sequences,
         WriteFolder({{"config.json", TinyLlamaConfig()},
                      {"model.safetensors", Safetensors(TinyLlama())}}));
  }
  void Boot(uint32_t context, uint32_t sequences, const std::string& folder,
            const std::string& draft_folder = "") {
    v1::LaunchSpec spec;
    spec.set_world_size(1);
    spec.set_tp(1);
    spec.set_pp(1);
    spec.set_context_length(context);
    spec.set_concurrent_sequences(sequences);
    spec.set_kv_bits(kv_bits_);
    spec.mutable_model()->set_path(folder);
    if (!draft_folder.empty()) spec.mutable_draft_model()->set_path(draft_folder);
    BootOptions options;
    options.needs_text = false;
    options.loads_draft_model = true;
    auto rank = BootRank(spec, watchdog_, options);
    ASSERT_TRUE(rank.ok()) << rank.status();
    rank_ = *std::move(rank);
    traits_.context_length = context;
    traits_.blocks_total = static_cast<uint32_t>(rank_->engine->limits().blocks_total);
  }
  GenerationJob MakeJob(std::vector<int32_t> prompt, uint32_t max_tokens, uint64_t seed) const {
    GenerationJob job;
    job.limits.prompt_tokens = static_cast<uint32_t>(prompt.size());
    job.limits.max_tokens = max_tokens;
    job.limits.context_length = traits_.context_length;
    job.limits.end_tokens = {7};
    job.prompt = std::move(prompt);
    job.sampling.temperature = seed == 0 ? 0.0 : 1.0;
    job.sampling.seed = seed;
    return job;
  }
  std::vector<int32_t> Alone(const GenerationJob& job) { return HeardAlone(job).tokens; }
  Heard HeardAlone(const GenerationJob& job) {
    Heard heard;
    const std::atomic<bool> never = false;
    const absl::Status ran = RunJob(job, *rank_->engine, Silent(), never,
                                    [&](const v1::GenerateChunk& chunk) { heard.OnChunk(chunk); });
    EXPECT_TRUE(ran.ok()) << ran;
    return heard;
  }
  std::vector<int32_t> RandomPrompt(size_t size) {
    std::vector<int32_t> prompt(size);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random_() % kVocabulary);
    return prompt;
  }
  ServingLoop::Hooks Hooks() {
    ServingLoop::Hooks hooks;
    hooks.new_text = Silent;
    hooks.on_counts = [this](ServingCounts counts) {
      running_most_ = std::max(running_most_, counts.running);
      counts_ = counts;
    };
    hooks.on_drafted = [this](uint32_t drafted, uint32_t accepted) {
      drafted_ += drafted;
      accepted_ += accepted;
    };
    return hooks;
  }

  // All jobs, joining at random; each is heard to the end.
  std::vector<std::shared_ptr<Heard>> Serve(const std::vector<GenerationJob>& jobs,
                                            ServingLoop::Hooks hooks) {
    ServingLoop serving(*rank_->engine, traits_, std::move(hooks));
    std::vector<std::shared_ptr<Heard>> heard;
    while (heard.size() < jobs.size() || !serving.idle()) {
      if (heard.size() < jobs.size() && (serving.idle() || random_() % 20 == 0)) {
        heard.push_back(std::make_shared<Heard>());
        serving.Add(jobs[heard.size() - 1], heard.back());
      }
      EXPECT_TRUE(serving.RunStep().ok());
    }
    return heard;
  }

  Watchdog watchdog_{[](const std::string&, milliseconds) {}};
  std::unique_ptr<BootedRank> rank_;
  BatchTraits traits_;
  uint32_t kv_bits_ = 16;
  std::mt19937 random_{4711};
  ServingCounts counts_;
  uint32_t running_most_ = 0;
  uint64_t drafted_ = 0;
  uint64_t accepted_ = 0;
};

class KvBitsLoopTest : public ServingLoopTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  KvBitsLoopTest() { kv_bits_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Bits, KvBitsLoopTest, ::testing::Values(16u, 8u));

// Prompts of several steps beside answers: each step counts for those whose tokens it has.
TEST_F(ServingLoopTest, WhoAsksIsToldHowLongItTook) {
  Boot(160, 3);
  traits_.chunk_tokens_max = 32;
  traits_.draft_tokens_max = 0;
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 8; ++i) {
    jobs.push_back(MakeJob(RandomPrompt(40 + random_() % 20), 20, 0));
    jobs.back().limits.end_tokens = {};
    jobs.back().wants_timings = i % 2 == 0;
    jobs.back().received = jobs.back().prepared =
        std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  }
  ServingLoop::Hooks hooks = Hooks();
  hooks.waited_in_step = [] { return Duration(1000); };
  hooks.world_size = 3;
  const auto heard = Serve(jobs, std::move(hooks));
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(heard[i]->timings.size(), jobs[i].wants_timings ? 1u : 0u);
    if (!jobs[i].wants_timings) continue;
    const v1::RequestTimings& timings = heard[i]->timings[0];
    EXPECT_EQ(timings.world_size(), 3u);
    EXPECT_GE(timings.prefill_steps(), 2u);
    EXPECT_EQ(timings.decode_steps(), heard[i]->tokens.size() - 1) << "the prompt's gave the first";
    EXPECT_DOUBLE_EQ(timings.prefill_collective_ms(), timings.prefill_steps());
    EXPECT_DOUBLE_EQ(timings.decode_collective_ms(), timings.decode_steps());
    EXPECT_GT(timings.prefill_ms(), 0);
    EXPECT_GT(timings.decode_ms(), 0);
  }
}

TEST_P(KvBitsLoopTest, TogetherAsAlone) {
  Boot(160, 3);
  traits_.chunk_tokens_max = 48;
  std::vector<GenerationJob> jobs;
  const std::vector<int32_t> common = RandomPrompt(70);
  for (uint64_t i = 0; i < 24; ++i) {
    std::vector<int32_t> prompt = i % 3 == 0 ? common : std::vector<int32_t>();
    for (const int32_t token : RandomPrompt(1 + random_() % 50)) prompt.push_back(token);
    jobs.push_back(MakeJob(std::move(prompt), 1 + random_() % 60, i % 2 == 0 ? 0 : i));
  }
  std::vector<std::vector<int32_t>> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));

  ServingLoop serving(*rank_->engine, traits_, Hooks());
  std::vector<std::shared_ptr<Heard>> heard;
  while (heard.size() < jobs.size() || !serving.idle()) {
    // They join two at a time, some steps apart.
    for (int i = 0; i < 2 && heard.size() < jobs.size() && random_() % 3 == 0; ++i) {
      heard.push_back(std::make_shared<Heard>());
      if (heard.size() % 5 == 0) heard.back()->cancel_after = 3;
      serving.Add(jobs[heard.size() - 1], heard.back());
    }
    ASSERT_TRUE(serving.RunStep().ok());
  }
  uint32_t cached_most = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(heard[i]->ended, 1);
    EXPECT_TRUE(heard[i]->end.ok()) << heard[i]->end;
    cached_most = std::max(cached_most, heard[i]->cached);
    if (heard[i]->finish != v1::FINISH_REASON_CANCELLED) {
      EXPECT_EQ(heard[i]->tokens, alone[i]);
      continue;
    }
    ASSERT_LE(heard[i]->tokens.size(), alone[i].size());
    EXPECT_TRUE(std::equal(heard[i]->tokens.begin(), heard[i]->tokens.end(), alone[i].begin()));
  }
  EXPECT_GE(cached_most, 64U) << "the common beginning was computed once";
  EXPECT_GE(running_most_, 3U) << "several at once";
  EXPECT_EQ(counts_.running + counts_.waiting, 0U);
}

TEST_P(KvBitsLoopTest, WhatMemoryDoesNotHoldIsPreemptedAndGoesOnAsIfNothingHadBeen) {
  Boot(128, 1);  // four blocks for all
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 5; ++i) jobs.push_back(MakeJob(RandomPrompt(20), 70, i));
  std::vector<std::vector<int32_t>> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));
  ServingLoop serving(*rank_->engine, traits_, Hooks());
  std::vector<std::shared_ptr<Heard>> heard;
  for (const GenerationJob& job : jobs) {
    heard.push_back(std::make_shared<Heard>());
    serving.Add(job, heard.back());
  }
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  EXPECT_GE(running_most_, 2U);
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(heard[i]->tokens, alone[i]) << i;
  EXPECT_GE(counts_.preempted.preemptions, 1U);
  EXPECT_GT(counts_.preempted.recomputed_tokens, 0U);
}

class SpeculatingLoopTest : public ServingLoopTest,
                            public ::testing::WithParamInterface<std::pair<const char*, uint32_t>> {
};

// Prompts that repeat themselves, of which many drafts are made, and others.
TEST_P(SpeculatingLoopTest, DraftsChangeNoToken) {
  // Twelve blocks: fewer than all want, so some are preempted with drafts on their way.
  const auto [kind, kv_bits] = GetParam();
  kv_bits_ = kv_bits;
  Boot(128, 3, TinyFolder(kind));
  traits_.draft_tokens_max = 12;
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 16; ++i) {
    std::vector<int32_t> prompt = RandomPrompt(1 + random_() % 9);
    const size_t period = prompt.size();
    while (i % 4 != 3 && prompt.size() < 30) prompt.push_back(prompt[prompt.size() - period]);
    jobs.push_back(MakeJob(std::move(prompt), 20 + random_() % 70, i % 2 == 0 ? 0 : i));
  }
  std::vector<std::vector<int32_t>> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));
  ServingLoop serving(*rank_->engine, traits_, Hooks());
  std::vector<std::shared_ptr<Heard>> heard;
  while (heard.size() < jobs.size() || !serving.idle()) {
    if (heard.size() < jobs.size() && (serving.idle() || random_() % 20 == 0)) {
      heard.push_back(std::make_shared<Heard>());
      serving.Add(jobs[heard.size() - 1], heard.back());
    }
    ASSERT_TRUE(serving.RunStep().ok());
  }
  uint64_t told_drafted = 0, told_accepted = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(heard[i]->tokens, alone[i]) << i;
    told_drafted += heard[i]->drafted;
    told_accepted += heard[i]->accepted;
  }
  std::cout << accepted_ << " of " << drafted_ << " drafts accepted\n";
  // What the tiny model with a short window says never repeats itself.
  if (kind != std::string("mistral")) {
    EXPECT_GT(accepted_, 0u);
    EXPECT_GT(drafted_, accepted_) << "some were wrong";
  }
  EXPECT_EQ(told_accepted, accepted_);
  EXPECT_LE(told_drafted, drafted_);
  EXPECT_GE(told_drafted, told_accepted);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SpeculatingLoopTest,
                         ::testing::Values(std::pair("llama", 16u), std::pair("llama", 8u),
                                           std::pair("llama-bias", 16u), std::pair("llama3", 16u),
                                           std::pair("linear", 16u), std::pair("qwen2", 16u),
                                           std::pair("qwen3", 16u), std::pair("qwen3", 8u),
                                           std::pair("mistral", 16u)));

// Which draft model: the model itself, another one, and two that are made up.
enum class DraftKind { kItself, kOther, kWrong, kFails };

// Passes of what it stands for, as if they took next to nothing: the tiny model's own take as long
// as its steps, so that none would pay.
class CheapDrafter : public Drafter {
 public:
  CheapDrafter(Drafter* real, DraftKind kind) : real_(real), kind_(kind) {}

  absl::StatusOr<DraftsMade> Carry(const DraftOrder& order) override {
    ++orders;
    if (kind_ == DraftKind::kFails && orders > 3) return absl::InternalError("it broke");
    auto made = real_->Carry(order);
    if (!made.ok()) return made;
    for (DraftsMade::Pass& pass : made->passes) pass.took = Duration(1);
    for (std::vector<int32_t>& draft : made->tokens) {
      for (int32_t& token : draft) {
        if (kind_ == DraftKind::kWrong) token = (token + 1) % kVocabulary;
      }
    }
    return made;
  }

  int orders = 0;

 private:
  Drafter* const real_;
  const DraftKind kind_;
};

class DraftModelLoopTest : public ServingLoopTest,
                           public ::testing::WithParamInterface<DraftKind> {};

TEST_P(DraftModelLoopTest, ItChangesNoToken) {
  const DraftKind kind = GetParam();
  const std::string model = TinyFolder("llama");
  const bool is_other = kind == DraftKind::kOther;
  // Eight blocks: some are preempted, and the draft model's do not hold all that run.
  Boot(128, 2, model, is_other ? TinyFolder("qwen2") : model);
  traits_.draft_tokens_max = 6;
  traits_.draft_model = rank_->drafter->traits();
  // How many drafts pay hangs on how busy the machine is: only for one kind are they weighed.
  traits_.draft_model.is_unpriced = !is_other;
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 16; ++i) {
    jobs.push_back(
        MakeJob(RandomPrompt(1 + random_() % 50), 20 + random_() % 50, i % 2 == 0 ? 0 : i));
  }
  std::vector<std::vector<int32_t>> alone;
  for (const GenerationJob& job : jobs) alone.push_back(Alone(job));
  ServingLoop::Hooks hooks = Hooks();
  uint64_t drafted = 0, accepted = 0;
  int failures = 0;
  hooks.on_model_drafted = [&](uint32_t tokens, uint32_t right) {
    drafted += tokens;
    accepted += right;
  };
  hooks.on_drafter_failed = [&](const absl::Status&) { ++failures; };
  CheapDrafter drafter(rank_->drafter.get(), kind);
  hooks.drafter = &drafter;
  const auto heard = Serve(jobs, std::move(hooks));
  uint64_t told_drafted = 0, told_accepted = 0, greedy_drafted = 0, greedy_accepted = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(heard[i]->tokens, alone[i]) << i;
    EXPECT_LE(heard[i]->model_drafted, heard[i]->drafted);
    told_drafted += heard[i]->model_drafted;
    told_accepted += heard[i]->model_accepted;
    if (jobs[i].sampling.seed == 0) {
      greedy_drafted += heard[i]->model_drafted;
      greedy_accepted += heard[i]->model_accepted;
    }
  }
  std::cout << accepted << " of " << drafted << " drafts of the model accepted, of "
            << greedy_drafted << " greedy ones " << greedy_accepted << ", in " << drafter.orders
            << " orders\n";
  EXPECT_EQ(told_accepted, accepted);
  EXPECT_LE(told_drafted, drafted);
  EXPECT_GT(drafted, 0u);
  EXPECT_EQ(failures, kind == DraftKind::kFails ? 1 : 0);
  if (kind == DraftKind::kFails) {
    EXPECT_EQ(drafter.orders, 4) << "it is not asked again";
  }
  if (kind == DraftKind::kItself) {
    // All but those that the answer's end or a block that was not there cut off.
    EXPECT_GE(greedy_drafted, 50u);
    EXPECT_GE(greedy_accepted, greedy_drafted * 8 / 10);
  }
  if (kind == DraftKind::kWrong) {
    EXPECT_GE(drafted, 50u);
    EXPECT_LE(accepted, drafted / 4);
  }
  if (is_other) {
    EXPECT_LE(accepted, drafted / 4 + 6) << "a few may be right by chance";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DraftModelLoopTest,
                         ::testing::Values(DraftKind::kItself, DraftKind::kOther, DraftKind::kWrong,
                                           DraftKind::kFails));

// A structure over bare tokens: which may follow hangs on the one before, and after 45 it is over.
class Walk : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> Fork() const override { return std::make_unique<Walk>(*this); }
  absl::Status Mask(std::span<const int32_t> ahead, std::span<float> logits) override {
    const int32_t before = ahead.empty() ? last_ : ahead.back();
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!Fits(before, static_cast<int32_t>(i))) logits[i] = -INFINITY;
    }
    return absl::OkStatus();
  }
  absl::Status Take(int32_t token) override {
    EXPECT_TRUE(Fits(last_, token)) << token << " behind " << last_;
    last_ = token;
    ++taken_;
    return absl::OkStatus();
  }
  size_t Admitted(std::span<const int32_t> tokens) override {
    int32_t before = last_;
    size_t count = 0;
    for (; count < tokens.size() && Fits(before, tokens[count]); ++count) before = tokens[count];
    return count;
  }
  bool is_over() const override { return taken_ >= 45; }

 private:
  static bool Fits(int32_t before, int32_t next) { return (7 * next + 5 * before) % 4 != 0; }
  int32_t last_ = 0;
  int taken_ = 0;
};

// Penalties, biases, a least number of tokens, a structure, typical-p and logprobs, by bits.
void Rule(GenerationJob& job, uint64_t kind) {
  if (kind & 1) job.rules.repetition_penalty = 1.4;
  if (kind & 2) job.rules.presence_penalty = 1.0;
  if (kind & 2) job.shape.structure.constraint = std::make_shared<const Walk>();
  // Half of them favour what was said, so that drafts are right.
  if (kind & 4) job.rules.frequency_penalty = kind & 1 ? 0.6 : -0.6;
  if (kind & 8) job.rules.biases = {{5, 6.0F}, {40, 4.0F}, {7, 3.0F}};
  if (kind & 8) job.limits.min_tokens = 12;
  if (kind & 16) job.sampling.typical_p = 0.8;
  if (kind & 16) job.top_logprobs = static_cast<uint32_t>(kind % 6);
}

class RulesLoopTest : public ServingLoopTest {
 protected:
  // Prompts that repeat themselves, of which many drafts are made.
  std::vector<GenerationJob> RuledJobs(size_t count) {
    std::vector<GenerationJob> jobs;
    for (uint64_t i = 0; i < count; ++i) {
      std::vector<int32_t> prompt = RandomPrompt(1 + random_() % 9);
      const size_t period = prompt.size();
      while (prompt.size() < 30) prompt.push_back(prompt[prompt.size() - period]);
      jobs.push_back(MakeJob(std::move(prompt), 30 + random_() % 50, i % 3 == 0 ? 0 : i));
      Rule(jobs.back(), 7 * i % 32);
    }
    return jobs;
  }
  // What each says alone.
  std::vector<Heard> RuledAlone(const std::vector<GenerationJob>& jobs) {
    std::vector<Heard> alone;
    for (const GenerationJob& job : jobs) {
      alone.push_back(HeardAlone(job));
      EXPECT_EQ(alone.back().logprobs.size(),
                job.top_logprobs.has_value() ? alone.back().tokens.size() : 0);
      if (job.limits.min_tokens > 0) {
        EXPECT_GE(alone.back().tokens.size(), job.limits.min_tokens);
      }
    }
    return alone;
  }
};

// With drafts, many at once and too little memory: what was said counts as it counts alone.
TEST_F(RulesLoopTest, TogetherWithDraftsAndPreemptionAsAlone) {
  Boot(128, 1);  // four blocks for all
  traits_.draft_tokens_max = 12;
  const std::vector<GenerationJob> jobs = RuledJobs(20);
  const std::vector<Heard> alone = RuledAlone(jobs);
  size_t others = 0;
  for (size_t i = 1; i < 7; ++i) {
    GenerationJob plain = jobs[i];
    plain.rules = {};
    plain.shape = {};
    plain.limits.min_tokens = 0;
    plain.sampling.typical_p = 1.0;
    others += Alone(plain) == alone[i].tokens ? 0 : 1;
  }
  EXPECT_GE(others, 3u) << "rules change what is said";
  const auto heard = Serve(jobs, Hooks());
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(heard[i]->tokens, alone[i].tokens) << i;
    EXPECT_EQ(heard[i]->logprobs, alone[i].logprobs) << i;
  }
  std::cout << accepted_ << " of " << drafted_ << " drafts accepted, "
            << counts_.preempted.preemptions << " preemptions\n";
  EXPECT_GT(accepted_, 0u);
  EXPECT_GE(counts_.preempted.preemptions, 1u);
}

// What an answer is made to say stood in its prompt, so it is drafted though the model would say
// something else: the rows behind count all the same.
TEST_F(RulesLoopTest, DraftsOfWhatIsPutInTheModelsMouth) {
  Boot(128, 2);
  traits_.draft_tokens_max = 12;
  const std::vector<int32_t> call = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  std::vector<GenerationJob> jobs;
  for (uint64_t i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt = RandomPrompt(3 + i);
    for (int round = 0; round < 2; ++round) {
      prompt.insert(prompt.end(), call.begin(), call.end());
      prompt.push_back(30 + static_cast<int32_t>(i));
    }
    jobs.push_back(MakeJob(std::move(prompt), 30, i % 2 == 0 ? 0 : i));
    jobs.back().shape.steering.call = call;
  }
  std::vector<std::vector<int32_t>> alone;
  for (const GenerationJob& job : jobs) {
    alone.push_back(Alone(job));
    EXPECT_TRUE(std::equal(call.begin(), call.end(), alone.back().begin()));
  }
  const auto heard = Serve(jobs, Hooks());
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_TRUE(heard[i]->end.ok()) << heard[i]->end;
    EXPECT_EQ(heard[i]->tokens, alone[i]) << i;
  }
  EXPECT_GT(accepted_, 0u);
}

TEST_F(RulesLoopTest, ADraftModelChangesNoneOfTheirTokens) {
  const std::string model = TinyFolder("llama");
  Boot(128, 2, model, model);
  traits_.draft_tokens_max = 6;
  traits_.draft_model = rank_->drafter->traits();
  traits_.draft_model.is_unpriced = true;
  const std::vector<GenerationJob> jobs = RuledJobs(10);
  const std::vector<Heard> alone = RuledAlone(jobs);
  ServingLoop::Hooks hooks = Hooks();
  CheapDrafter drafter(rank_->drafter.get(), DraftKind::kItself);
  hooks.drafter = &drafter;
  const auto heard = Serve(jobs, std::move(hooks));
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(heard[i]->tokens, alone[i].tokens) << i;
    EXPECT_EQ(heard[i]->logprobs, alone[i].logprobs) << i;
  }
  EXPECT_GT(accepted_, 0u);
  EXPECT_GT(drafted_, accepted_);
}

// However fast steps turn out, none has more prompt tokens than the plan has memory for.
TEST(ServingTraits, NoStepIsLargerThanItsMemoryWasPlannedFor) {
  for (const int planned : {int{kPrefillChunkTokens}, 32}) {
    ForwardLimits limits;
    limits.context_length = 4096;
    limits.blocks_total = 4 * 128;
    limits.prefill_chunk_tokens = planned;
    BatchScheduler scheduler(TraitsOf(limits));
    MonotonicTime now{};
    for (RequestId id = 1; id <= 3; ++id) {
      RequestSpec spec;
      spec.id = id;
      spec.prompt.assign(3000, static_cast<int32_t>(id));
      spec.max_new_tokens = 1;
      ASSERT_TRUE(scheduler.Add(std::move(spec), now).ok());
    }
    size_t largest = 0;
    while (!scheduler.idle()) {
      const NextStep next = scheduler.Next(now);
      ASSERT_TRUE(next.ordered.has_value());
      size_t tokens = 0;
      for (const Segment& segment : next.ordered->step.segments) tokens += segment.tokens.size();
      largest = std::max(largest, tokens);
      now += milliseconds(1);
      scheduler.OnStepDone(next.ordered->number,
                           std::vector<RowResult>(next.ordered->rows.size(), {1, true}),
                           milliseconds(1), now);
    }
    EXPECT_EQ(largest, static_cast<size_t>(planned));
  }
}

TEST_F(ServingLoopTest, BeyondTheQueueRequestsAreRefused) {
  Boot(64, 1);
  traits_.sequences_max = 1;
  traits_.queued_requests_max = 2;
  ServingLoop serving(*rank_->engine, traits_, Hooks());
  std::vector<std::shared_ptr<Heard>> heard;
  for (int i = 0; i < 5; ++i) {
    heard.push_back(std::make_shared<Heard>());
    serving.Add(MakeJob(RandomPrompt(3), 2, 0), heard.back());
  }
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  int refused = 0;
  for (const auto& one : heard) {
    EXPECT_EQ(one->ended, 1);
    if (!one->end.ok()) {
      EXPECT_EQ(ReasonOf(one->end).code(), "QUEUE_FULL");
      ++refused;
    }
  }
  EXPECT_EQ(refused, 2);
}

// An idle model's first request has its turn at once.
TEST_F(ServingLoopTest, WhoDoesNotWaitIsNotToldThatItDoes) {
  Boot(4096, 1);
  ServingLoop serving(*rank_->engine, traits_, Hooks());
  GenerationJob job = MakeJob(RandomPrompt(3000), 2, 0);
  job.wants_progress = true;
  const auto heard = std::make_shared<Heard>();
  serving.Add(std::move(job), heard);
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  EXPECT_TRUE(heard->end.ok()) << heard->end;
  ASSERT_FALSE(heard->told.empty());
  for (const v1::PromptProgress& progress : heard->told) EXPECT_FALSE(progress.is_queued());
  EXPECT_EQ(heard->told[0].prompt_tokens(), 3000u);
}

TEST_F(ServingLoopTest, WhoWaitsIsToldSoAndNotForEver) {
  Boot(4096, 1);
  traits_.sequences_max = 1;
  traits_.queued_requests_max = 4;
  ServingLoop serving(*rank_->engine, traits_, Hooks());
  GenerationJob first = MakeJob(RandomPrompt(3), 0, 0);
  first.limits.end_tokens.clear();  // until the context is full, or its client leaves
  first.priority = 1;
  auto busy = std::make_shared<Heard>();
  serving.Add(first, busy);
  ASSERT_TRUE(serving.RunStep().ok());
  std::vector<std::shared_ptr<Heard>> waiting;
  for (const bool wants_progress : {true, false}) {
    GenerationJob job = MakeJob(RandomPrompt(5), 2, 0);
    job.wants_progress = wants_progress;
    job.queue_limit = kProgressInterval + milliseconds(100);
    waiting.push_back(std::make_shared<Heard>());
    serving.Add(std::move(job), waiting.back());
  }
  const auto patient = std::make_shared<Heard>();
  serving.Add(MakeJob(RandomPrompt(5), 2, 0), patient);
  while (waiting[1]->ended == 0) {
    ASSERT_TRUE(serving.RunStep().ok());
    if (busy->ended == 0) continue;
    EXPECT_TRUE(busy->told.empty());
    busy = std::make_shared<Heard>();
    serving.Add(first, busy);  // of higher priority: it has the next turn, too
  }
  busy->cancelled = true;
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  for (const auto& one : waiting) {
    EXPECT_EQ(one->ended, 1);
    EXPECT_EQ(ReasonOf(one->end).code(), "QUEUE_TIMEOUT") << one->end;
    EXPECT_TRUE(one->tokens.empty());
  }
  ASSERT_FALSE(waiting[0]->told.empty());
  EXPECT_TRUE(waiting[0]->told[0].is_queued());
  EXPECT_EQ(waiting[0]->told[0].prompt_tokens(), 5u);
  EXPECT_TRUE(waiting[1]->told.empty()) << "nobody asked";
  EXPECT_TRUE(patient->end.ok()) << patient->end;
}

class EmbeddingLoopTest : public ServingLoopTest, public ::testing::WithParamInterface<Pooling> {
 protected:
  static GenerationJob JobOf(std::vector<int32_t> prompt) {
    GenerationJob job;
    job.prompt = std::move(prompt);
    job.embedding = EmbeddingPlan{GetParam(), 0};
    return job;
  }
  // In one step by itself.
  std::vector<float> EmbeddingAlone(const GenerationJob& job) {
    SoloSequence sequence(*rank_->engine);
    const auto rows = sequence.Forward(job.prompt, 0, job.embedding->rows(), [] { return true; });
    EXPECT_TRUE(rows.ok()) << rows.status();
    EXPECT_TRUE(sequence.Close().ok());
    PoolingSum sum(*job.embedding);
    sum.Add(0, *rows, static_cast<size_t>(rank_->engine->hidden_size()));
    return *sum.Finish();
  }
};
INSTANTIATE_TEST_SUITE_P(Poolings, EmbeddingLoopTest,
                         ::testing::Values(Pooling::kMean, Pooling::kLast));

// Beside answers, cut into chunks, after hits of the cache, after preemption: bit for bit what each
// gets alone, and the answers too.
TEST_P(EmbeddingLoopTest, AmongAnswersAsAlone) {
  Boot(160, 2);
  traits_.chunk_tokens_max = 48;
  traits_.draft_tokens_max = 4;
  std::vector<GenerationJob> jobs;
  const std::vector<int32_t> common = RandomPrompt(70);
  for (uint64_t i = 0; i < 24; ++i) {
    std::vector<int32_t> prompt = i % 3 == 0 ? common : std::vector<int32_t>();
    for (const int32_t token : RandomPrompt(1 + random_() % 80)) prompt.push_back(token);
    jobs.push_back(i % 2 == 0 ? JobOf(std::move(prompt))
                              : MakeJob(std::move(prompt), 1 + random_() % 60, i));
  }
  jobs.push_back(JobOf(RandomPrompt(160)));  // the whole context
  std::vector<std::vector<float>> embeddings;
  std::vector<std::vector<int32_t>> answers;
  for (const GenerationJob& job : jobs) {
    const bool is_embedding = job.embedding.has_value();
    embeddings.push_back(is_embedding ? EmbeddingAlone(job) : std::vector<float>());
    answers.push_back(is_embedding ? std::vector<int32_t>() : Alone(job));
  }
  const auto heard = Serve(jobs, Hooks());
  uint32_t cached = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(heard[i]->ended, 1);
    EXPECT_TRUE(heard[i]->end.ok()) << heard[i]->end;
    EXPECT_EQ(heard[i]->embedding, embeddings[i]);
    EXPECT_EQ(heard[i]->tokens, answers[i]);
    if (!jobs[i].embedding.has_value()) continue;
    EXPECT_EQ(heard[i]->finish, v1::FINISH_REASON_STOP);
    cached += heard[i]->cached;
  }
  EXPECT_GE(running_most_, 2U);
  EXPECT_EQ(cached >= 64U, GetParam() == Pooling::kLast) << cached;
}

TEST_P(EmbeddingLoopTest, ACancelledOneEndsWithoutNumbers) {
  Boot(160, 2);
  traits_.chunk_tokens_max = 16;
  ServingLoop serving(*rank_->engine, traits_, Hooks());
  const auto heard = std::make_shared<Heard>();
  serving.Add(JobOf(RandomPrompt(150)), heard);
  ASSERT_TRUE(serving.RunStep().ok());
  heard->cancelled = true;
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  EXPECT_EQ(heard->ended, 1);
  EXPECT_EQ(heard->finish, v1::FINISH_REASON_CANCELLED);
  EXPECT_TRUE(heard->embedding.empty());
}

}  // namespace
}  // namespace macrame::runtime::engine
