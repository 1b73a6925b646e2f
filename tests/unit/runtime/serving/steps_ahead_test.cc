// Two steps in flight on a rank alone, with layers that are made up: a step is started before the
// results of the one before it are there, let alone read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "absl/synchronization/notification.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/serving/serving_loop.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr int kVocabulary = 64;
constexpr int32_t kEndToken = 9;
constexpr int32_t kNotFinite = 33;  // behind it the layers give no number

// What the layers say behind a token: all below 31 but one in turn.
constexpr int32_t NextOf(int32_t token) { return (3 * token + 1) % 31; }

// Each row's token, on MLX's CPU thread, when `may_go` says so.
class LatePick : public mx::UnaryPrimitive {
 public:
  LatePick(mx::Stream stream, absl::Notification* may_go, std::atomic<int>* late)
      : UnaryPrimitive(stream), may_go_(may_go), late_(late) {}
  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    const mx::array& ids = inputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(ids);
    encoder.set_output_array(out);
    encoder.dispatch([from = ids.data<int32_t>(), to = out.data<int32_t>(), count = ids.size(),
                      may_go = may_go_, late = late_] {
      if (may_go != nullptr && !may_go->WaitForNotificationWithTimeout(absl::Seconds(20))) ++*late;
      for (size_t i = 0; i < count; ++i) {
        to[i] = from[i] == kNotFinite ? kNoToken : NextOf(from[i]);
      }
    });
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override { FAIL() << "on a GPU"; }
  const char* name() const override { return "LatePick"; }

 private:
  absl::Notification* const may_go_;
  std::atomic<int>* const late_;
};

// What happened, in its order.
struct Events {
  std::vector<std::string> list;
  absl::Notification* may_go = nullptr;  // null: at once
  std::atomic<int> late = 0;
};

// A model whose hidden state of a token is its id, and whose logits name what is next.
class Counting : public LayerStack {
 public:
  explicit Counting(Events& events) : events_(events) {}
  absl::Status Begin(const ForwardStep& step) override {
    events_.list.push_back("step " + std::to_string(++steps_));
    return tables_.Apply(step, kVocabulary);
  }
  mx::array Embed(std::span<const int32_t> ids) override {
    return mx::array(ids.data(), {static_cast<int>(ids.size())}, mx::int32);
  }
  bool chooses_tokens() const override { return true; }
  mx::array EmbedChosen(std::span<const int32_t> tokens, const mx::array& chosen) override {
    std::vector<mx::array> ids;
    for (const int32_t token : tokens) {
      const int32_t row = ChosenRowOf(token);
      ids.push_back(IsChosenRow(token) ? mx::slice(chosen, {row}, {row + 1})
                                       : mx::array({token}, {1}, mx::int32));
    }
    return mx::concatenate(ids);
  }
  mx::array Run(const mx::array& hidden, const ForwardStep&) override { return hidden; }
  // Not such logits as Choose needs: the ids themselves, and for the host a row each.
  mx::array Logits(const mx::array& hidden, std::span<const int32_t> rows) override {
    const mx::array index(rows.data(), {static_cast<int>(rows.size()), 1}, mx::int32);
    const mx::array ids = mx::take_along_axis(mx::expand_dims(hidden, 1), index, 0);
    const mx::array next =
        mx::remainder(mx::add(mx::multiply(ids, mx::array(3)), mx::array(1)), mx::array(31));
    const mx::array vocabulary = mx::expand_dims(mx::arange(kVocabulary), 0);
    const mx::array picked = mx::astype(mx::equal(vocabulary, next), mx::float32);
    return mx::add(mx::multiply(picked, mx::array(1000.0F)), mx::astype(ids, mx::float32));
  }
  mx::array Choose(const mx::array& logits, std::span<const RowChoice> how) override {
    how_.assign(how.begin(), how.end());
    const mx::array ids = mx::astype(mx::min(logits, 1), mx::int32);
    return mx::array({logits.shape(0)}, mx::int32,
                     std::make_shared<LatePick>(mx::default_stream(mx::Device::cpu), events_.may_go,
                                                &events_.late),
                     {mx::contiguous(ids)});
  }
  mx::array Hidden(const mx::array& hidden, std::span<const int32_t>) override { return hidden; }
  void AppendState(std::vector<mx::array>&) const override {}
  mx::Dtype activation_type() const override { return mx::float32; }
  size_t stored_block_bytes() const override { return 0; }
  void ReadBlock(int32_t, std::span<std::byte>) const override {}
  void WriteBlock(int32_t, std::span<const std::byte>) override {}
  std::string kv_layout() const override { return "none"; }

 private:
  Events& events_;
  SlotTables tables_{64, 256};
  std::vector<RowChoice> how_;
  int steps_ = 0;
};

class Listening : public RequestListener {
 public:
  Listening(Events& events, std::string name) : events_(events), name_(std::move(name)) {}
  void OnChunk(const v1::GenerateChunk& chunk) override {
    tokens.insert(tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
    completion = std::max(completion, chunk.completion_tokens());
    if (chunk.has_timings()) timings = chunk.timings();
    events_.list.push_back(name_ + " hears");
  }
  void OnDone(const absl::Status& status) override { end = status; }
  bool IsCancelled() const override { return tokens.size() >= cancel_after; }

  std::vector<int32_t> tokens;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  uint32_t completion = 0;
  v1::RequestTimings timings;
  size_t cancel_after = SIZE_MAX;
  absl::Status end = absl::UnknownError("not ended");

 private:
  Events& events_;
  const std::string name_;
};

class StepsAhead : public ::testing::Test {
 protected:
  StepsAhead() {
    v1::LaunchSpec spec;
    spec.set_world_size(1);
    spec.set_tp(1);
    spec.set_pp(1);
    link_ = *GangLink::Form(spec, WireType::kFloat32, [](const std::string&) {});
    ModelConfig config;
    config.vocab_size = kVocabulary;
    config.hidden_size = 1;
    ForwardLimits limits;
    limits.context_length = 256;
    limits.blocks_total = 64;
    engine_ = std::make_unique<ForwardEngine>(config, std::make_unique<Counting>(events_), *link_,
                                              watchdog_, limits);
    traits_.context_length = 256;
    traits_.blocks_total = 64;
    traits_.steps_in_flight_max = static_cast<uint32_t>(engine_->steps_in_flight_max());
    traits_.chooses_tokens = engine_->chooses_tokens();
  }
  static GenerationJob JobOf(std::vector<int32_t> prompt, uint32_t max_tokens) {
    GenerationJob job;
    job.limits.prompt_tokens = static_cast<uint32_t>(prompt.size());
    job.limits.max_tokens = max_tokens;
    job.limits.context_length = 256;
    job.limits.end_tokens = {kEndToken};
    job.prompt = std::move(prompt);
    return job;
  }
  static std::vector<int32_t> Answer(int32_t last, uint32_t max_tokens) {
    std::vector<int32_t> tokens;
    while (tokens.size() < max_tokens) {
      last = NextOf(last);
      if (last == kEndToken) break;
      tokens.push_back(last);
    }
    return tokens;
  }
  std::shared_ptr<Listening> Add(ServingLoop& serving, GenerationJob job, const char* name = "it") {
    auto listening = std::make_shared<Listening>(events_, name);
    serving.Add(std::move(job), listening);
    return listening;
  }
  static ServingLoop::Hooks Hooks() {
    ServingLoop::Hooks hooks;
    hooks.new_text = [] {
      return TextStream{[](int32_t) { return std::string("x"); }, [] { return std::string(); }};
    };
    return hooks;
  }

  Events events_;
  Watchdog watchdog_{[](const std::string&, milliseconds) {}};
  std::unique_ptr<GangLink> link_;
  std::unique_ptr<ForwardEngine> engine_;
  BatchTraits traits_;
};

ForwardStep Prompt(std::vector<int32_t> tokens) {
  ForwardStep step;
  step.segments.push_back({0, 0, std::move(tokens), LogitRows::kChosen, {0}});
  return step;
}

ForwardStep Next(uint32_t begin, int32_t token) {
  ForwardStep step;
  step.segments.push_back({0, begin, {token}, LogitRows::kChosen});
  return step;
}

// The first step can't end before the second one is submitted.
TEST_F(StepsAhead, AStepIsStartedWhileTheOneBeforeIsBeingComputed) {
  absl::Notification may_go;
  events_.may_go = &may_go;
  ASSERT_EQ(engine_->steps_in_flight_max(), 2u);
  ASSERT_TRUE(engine_->Submit(Prompt({4, 2})).ok());
  ASSERT_TRUE(engine_->Submit(Next(2, TokenOfChosenRow(0))).ok());
  may_go.Notify();
  const auto first = engine_->Await();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(first->chosen, ElementsAre(NextOf(2)));
  EXPECT_TRUE(first->numbers.empty()) << "no logits where a token is chosen";
  const auto second = engine_->Await();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(second->chosen, ElementsAre(NextOf(NextOf(2))));
  EXPECT_EQ(events_.late, 0) << "the second step waited for the first one's results";
}

TEST_F(StepsAhead, ARowThatTheStepBeforeDidNotChooseIsRefused) {
  ASSERT_TRUE(engine_->Run(Prompt({4, 2})).ok());
  const auto refused = engine_->Run(Next(2, TokenOfChosenRow(1)));
  EXPECT_TRUE(absl::IsInternal(refused.status())) << refused.status();
  EXPECT_TRUE(engine_->Run(Next(2, TokenOfChosenRow(0))).ok()) << "and it changed nothing";
}

TEST_F(StepsAhead, LogitsAndTokensOfOneStepEachGoToTheirOwn) {
  ForwardStep step = Prompt({4, 2});
  step.segments.push_back({1, 0, {7, 8, 3}, LogitRows::kLast, {1}});
  step.segments.push_back({2, 0, {6}, LogitRows::kChosen, {2}});
  const auto result = engine_->Run(step);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->chosen, ElementsAre(NextOf(2), NextOf(6)));
  ASSERT_EQ(result->numbers.size(), static_cast<size_t>(kVocabulary));
  const auto likeliest = std::max_element(result->numbers.begin(), result->numbers.end());
  EXPECT_EQ(likeliest - result->numbers.begin(), NextOf(3));
}

TEST_F(StepsAhead, TheNextStepIsSubmittedBeforeTheTokensOfThisOneAreRead) {
  ServingLoop serving(*engine_, traits_, Hooks());
  const auto heard = Add(serving, JobOf({1, 2}, 4));
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  EXPECT_EQ(heard->tokens, Answer(2, 4));
  EXPECT_EQ(heard->finish, v1::FINISH_REASON_LENGTH);
  EXPECT_THAT(events_.list, ElementsAre("step 1", "step 2", "it hears", "step 3", "it hears",
                                        "step 4", "it hears", "it hears"))
      << "and no step for a token that is not needed";
}

TEST_F(StepsAhead, AnEndTokenOrAStopStringDropsOneToken) {
  for (const bool is_string : {false, true}) {
    ServingLoop serving(*engine_, traits_, Hooks());
    GenerationJob job = JobOf({1, 2}, 100);
    if (is_string) job.stops = {"xxxx"};
    const std::vector<int32_t> all = Answer(2, 100);
    ASSERT_GT(all.size(), 5u);
    ASSERT_LT(all.size(), 100u) << "it ends by itself";
    const auto heard = Add(serving, std::move(job));
    events_.list.clear();
    while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
    EXPECT_TRUE(heard->end.ok()) << heard->end;
    EXPECT_EQ(heard->finish, v1::FINISH_REASON_STOP);
    const size_t chosen = is_string ? 4 : all.size() + 1;  // with the one that ends it
    EXPECT_EQ(heard->completion, chosen);
    const auto is_step = [](const std::string& event) { return event.starts_with("step"); };
    const auto steps = std::count_if(events_.list.begin(), events_.list.end(), is_step);
    EXPECT_EQ(static_cast<size_t>(steps), chosen + 1) << "one was too many";
    if (!is_string) {
      EXPECT_EQ(heard->tokens, all);
    }
    // What closes its slot waits for a next step, which another loop does not know of.
    ForwardStep closing;
    closing.closed_slots = {0};
    ASSERT_TRUE(engine_->Run(closing).ok());
  }
}

TEST_F(StepsAhead, StepsAreCountedForTheirTokens) {
  ServingLoop serving(*engine_, traits_, Hooks());
  GenerationJob job = JobOf({1, 2}, 100);
  job.wants_timings = true;
  const auto heard = Add(serving, std::move(job));
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  EXPECT_EQ(heard->timings.prefill_steps(), 1u);
  EXPECT_EQ(heard->timings.decode_steps(), heard->completion - 1) << "not the one in vain";
}

TEST_F(StepsAhead, WhoNeedsTheHostHearsTheSame) {
  ServingLoop serving(*engine_, traits_, Hooks());
  std::vector<std::shared_ptr<Listening>> heard;
  for (int i = 0; i < 6; ++i) {
    GenerationJob job = JobOf({static_cast<int32_t>(10 + i)}, 20);
    job.limits.end_tokens = {};
    if (i == 2) job.top_logprobs = 0;
    heard.push_back(Add(serving, std::move(job)));
  }
  heard[4]->cancel_after = 5;
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  for (int i = 0; i < 6; ++i) {
    const auto& one = *heard[static_cast<size_t>(i)];
    int32_t last = 10 + i;
    for (const int32_t token : one.tokens) EXPECT_EQ(token, last = NextOf(last)) << i;
    EXPECT_EQ(one.tokens.size(), i == 4 ? 5u : 20u) << i;
    EXPECT_TRUE(one.end.ok()) << one.end;
  }
}

TEST_F(StepsAhead, ARowWithoutATokenEndsItsRequestAlone) {
  ServingLoop serving(*engine_, traits_, Hooks());
  const auto broken = Add(serving, JobOf({kNotFinite}, 20));
  const auto other = Add(serving, JobOf({2}, 3));
  while (!serving.idle()) ASSERT_TRUE(serving.RunStep().ok());
  EXPECT_TRUE(absl::IsInternal(broken->end)) << broken->end;
  EXPECT_TRUE(broken->tokens.empty());
  EXPECT_EQ(other->tokens, Answer(2, 3));
}

}  // namespace
}  // namespace macrame::runtime::engine
