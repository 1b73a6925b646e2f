// Tensor gangs whose ranks run the graph of a GPU, by MLX on CPUs: steps are given ahead of what
// the ones before them chose, and every rank chooses the same tokens.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <thread>

#include "runtime/process/exit_codes.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kQuestion[] = "Explain RDMA in simple terms";

std::vector<std::string> On(const std::string& device) { return {"--device", device}; }

// Greedy, and of all kinds that a step chooses from parts, from whole rows, or the host does.
std::vector<v1::GenerateRequest> RequestsOfAllKinds() {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 6; ++i) {
    std::string text = kQuestion;
    for (int j = 0; j < 5 * i; ++j) text += " and number " + std::to_string(i * j);
    requests.push_back(Question(text, 8 + 2 * i));
    v1::Sampling& sampling = *requests.back().mutable_sampling();
    if (i == 0) continue;
    sampling.set_temperature(1.0);
    sampling.set_seed(i);
    if (i == 1) sampling.set_top_k(20);
    if (i == 2) sampling.set_top_p(0.9);
    if (i == 3) sampling.set_temperature(0.0), sampling.set_presence_penalty(0.4);
    if (i == 4) sampling.set_top_k(1);
  }
  return requests;
}

std::vector<std::vector<int32_t>> AnswersOf(Gang& gang, bool at_once) {
  std::vector<std::vector<int32_t>> tokens;
  for (const Answer& answer : AskAll(gang.stub(), RequestsOfAllKinds(), at_once)) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_FALSE(answer.tokens.empty());
    tokens.push_back(answer.tokens);
  }
  return tokens;
}

TEST(GraphGangTest, TogetherAsOneByOneOverTwoAndThreeRanks) {
  Gang alone(MakeSpecs(kBundledModel, GangShape::kTensor, 1), {On("mlx-cpu")});
  ASSERT_TRUE(alone.WaitUntilReady());
  const auto one = AnswersOf(alone, /*at_once=*/false);
  for (const uint32_t ranks : {2u, 3u}) {
    Gang gang(MakeSpecs(kBundledModel, GangShape::kTensor, ranks),
              std::vector<std::vector<std::string>>(ranks, On("mlx-cpu")));
    ASSERT_TRUE(gang.WaitUntilReady());
    const auto by_turns = AnswersOf(gang, /*at_once=*/false);
    EXPECT_EQ(AnswersOf(gang, /*at_once=*/true), by_turns) << ranks << " ranks";
    EXPECT_EQ(by_turns[0], one[0]) << "greedy, over " << ranks << " ranks";
    const auto verified = Verify(gang.stub(), {1024, 64 << 10}, 3);
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->sum_correct());
    EXPECT_EQ(AnswersOf(gang, /*at_once=*/true), by_turns) << "after sums that were timed";
  }
}

// Of three ranks, one has no head: it still sums in the order of the others, whatever the layers
// look like.
TEST(GraphGangTest, ARankWithoutAHeadSumsInTheOrderOfTheOthers) {
  ModelShape shape;
  shape.vocab = 3089;
  shape.heads = 4;
  shape.kv_heads = 2;
  ModelShape mixture = shape;
  mixture.architecture = "mixtral";
  mixture.experts = 3;
  const std::vector<std::string> folders = {
      FolderWithText(RandomModel(shape)), FolderWithText(RandomModel(mixture)),
      FolderWithText(FamilyModel({.name = "glm4", .vocabulary = 3089})),
      FolderWithText(FamilyModel({.name = "qwen3_next", .vocabulary = 3089}))};
  for (const std::string& folder : folders) {
    Gang alone(MakeSpecs(folder, GangShape::kTensor, 1), {On("mlx-cpu")});
    ASSERT_TRUE(alone.WaitUntilReady());
    Gang gang(MakeSpecs(folder, GangShape::kTensor, 3), std::vector(3, On("mlx-cpu")));
    ASSERT_TRUE(gang.WaitUntilReady());
    const Answer one = Ask(alone.stub(), Question(kQuestion, 8));
    ASSERT_TRUE(one.status.ok()) << one.status.error_message();
    const Answer three = Ask(gang.stub(), Question(kQuestion, 8));
    ASSERT_TRUE(three.status.ok()) << three.status.error_message();
    EXPECT_EQ(three.tokens, one.tokens) << folder;
  }
}

// In 16 bits, residual streams would change on their way from stage to stage.
TEST(GraphGangTest, WhatStagesHandOnKeepsItsBits) {
  auto files =
      ModelOfConfig(CompressedConfig({{"vocab_size", 3089},
                                      {"q_lora_rank", 64},
                                      {"quantization", {{"bits", 8}, {"group_size", 32}}}}));
  files["model.safetensors"] = InBfloat16(files["model.safetensors"]);
  const std::string folder = FolderWithText(files);
  std::string text = kQuestion;
  for (int i = 0; i < 60; ++i) text += ", then " + std::to_string(i * i) + " times";
  Gang alone(MakeSpecs(folder, GangShape::kTensor, 1), {On("mlx-cpu")});
  ASSERT_TRUE(alone.WaitUntilReady());
  const Answer one = Ask(alone.stub(), Question(text, 16));
  ASSERT_TRUE(one.status.ok()) << one.status.error_message();
  Gang gang(MakeSpecs(folder, GangShape::kPipeline, 2), std::vector(2, On("mlx-cpu")));
  ASSERT_TRUE(gang.WaitUntilReady());
  const Answer two = Ask(gang.stub(), Question(text, 16));
  ASSERT_TRUE(two.status.ok()) << two.status.error_message();
  EXPECT_EQ(two.tokens, one.tokens);
}

// How many tokens are taken, while a trace of rank 0 goes on, and how many of them while a next
// step is under way.
struct Taken {
  int tokens = 0, beside_a_step = 0;
};
Taken TokensTakenOf(Gang& gang, const v1::GenerateRequest& request) {
  constexpr uint32_t kTracedMs = 1500;
  v1::TraceRankResponse trace;
  grpc::Status traced;
  std::thread tracing([&] { trace = TraceOf(gang.stub(), kTracedMs, &traced); });
  const auto end = std::chrono::steady_clock::now() + milliseconds(kTracedMs);
  while (std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(Ask(gang.stub(), request).status.ok());
  }
  tracing.join();
  EXPECT_TRUE(traced.ok()) << traced.error_message();
  Taken taken;
  if (trace.ranks_size() == 0) return taken;
  const auto& spans = trace.ranks(0).spans();
  for (const v1::TraceSpan& sampling : spans) {
    if (sampling.part() != v1::TRACE_PART_SAMPLING) continue;
    ++taken.tokens;
    taken.beside_a_step += std::ranges::any_of(spans, [&](const v1::TraceSpan& step) {
      return step.part() == v1::TRACE_PART_STEP && step.begin_ns() <= sampling.begin_ns() &&
             sampling.begin_ns() < step.begin_ns() + step.duration_ns();
    });
  }
  return taken;
}

TEST(GraphGangTest, TheNextStepIsUnderWayWhenATokenIsTaken) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kTensor, 2), {On("mlx-cpu"), On("mlx-cpu")});
  ASSERT_TRUE(gang.WaitUntilReady());
  v1::GenerateRequest request = Question(kQuestion, 40);
  request.mutable_sampling()->set_temperature(0.7);
  request.mutable_sampling()->set_top_k(20);
  const Taken ahead = TokensTakenOf(gang, request);
  EXPECT_GT(ahead.tokens, 10);
  EXPECT_GT(ahead.beside_a_step, ahead.tokens * 2 / 3) << "all but the last of each answer";
  request.mutable_sampling()->set_presence_penalty(0.4);
  const Taken by_host = TokensTakenOf(gang, request);
  EXPECT_GT(by_host.tokens, 10);
  EXPECT_EQ(by_host.beside_a_step, 0) << "which token is next, the host says first";
}

// One of whose ranks computes by our kernels: the host chooses for all.
TEST(GraphGangTest, RanksOfTwoKindsAnswerTogether) {
  const std::string folder = kBundledModel;
  for (const auto& devices : {std::vector{On("cpu"), On("mlx-cpu")}, {On("mlx-cpu"), On("cpu")}}) {
    Gang gang(MakeSpecs(folder, GangShape::kTensor, 2), devices);
    ASSERT_TRUE(gang.WaitUntilReady());
    const auto by_turns = AnswersOf(gang, /*at_once=*/false);
    EXPECT_EQ(AnswersOf(gang, /*at_once=*/true)[0], by_turns[0]);
    EXPECT_EQ(TokensTakenOf(gang, Question(kQuestion, 24)).beside_a_step, 0);
  }
}

class Endless {
 public:
  explicit Endless(Gang& gang) {
    v1::GenerateRequest request = Question(kQuestion, 0);
    request.mutable_sampling()->set_temperature(50.0);  // noise seldom ends by itself
    reader_ = gang.stub().Generate(&context_, request);
    v1::GenerateChunk chunk;
    EXPECT_TRUE(reader_->Read(&chunk));
  }
  ~Endless() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateChunk>> reader_;
};

TEST(GraphGangTest, ARankThatIsLostWhileStepsAreUnderWayIsNamed) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kTensor, 2), {On("mlx-cpu"), On("mlx-cpu")});
  ASSERT_TRUE(gang.WaitUntilReady());
  const Endless answer(gang);
  gang.rank(1).Signal(SIGKILL);
  EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(8000)), kExitPeerLost);
  EXPECT_THAT(gang.rank(0).Log(), HasSubstr("RANK_EXITED"));
  EXPECT_THAT(gang.rank(0).Log(), HasSubstr("rank 1"));
}

TEST(GraphGangTest, ARankThatStopsWhileStepsAreUnderWayIsNamed) {
  for (const size_t stopped : {size_t{0}, size_t{1}}) {
    Gang gang(MakeSpecs(kBundledModel, GangShape::kTensor, 2), {On("mlx-cpu"), On("mlx-cpu")});
    ASSERT_TRUE(gang.WaitUntilReady());
    const Endless answer(gang);
    gang.rank(stopped).Signal(SIGSTOP);
    EXPECT_EQ(gang.rank(1 - stopped).WaitForExit(milliseconds(8000)), kExitStalled);
    EXPECT_THAT(gang.rank(1 - stopped).Log(),
                HasSubstr("RANK_STALLED: rank " + std::to_string(stopped)));
  }
}

// An idle gang is no stalled one, however its last step ended; and it ends in order.
TEST(GraphGangTest, RestsBetweenAnswersAndEndsInOrder) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kTensor, 2), {On("mlx-cpu"), On("mlx-cpu")});
  ASSERT_TRUE(gang.WaitUntilReady());
  const Answer first = Ask(gang.stub(), Question(kQuestion, 12));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  std::this_thread::sleep_for(milliseconds(3000));  // longer than a rank may stand still
  const Answer second = Ask(gang.stub(), Question(kQuestion, 12));
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.tokens, first.tokens);
  gang.rank(0).Signal(SIGTERM);
  EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(5000)), kExitOrderly);
  EXPECT_EQ(gang.rank(1).WaitForExit(milliseconds(5000)), kExitOrderly);
}

}  // namespace
}  // namespace macrame::runtime::engine
