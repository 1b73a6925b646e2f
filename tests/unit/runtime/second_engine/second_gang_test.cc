// Real rankd processes whose layers are a worker of the second engine: a synthetic one, which knows
// from its numbers when sequences are mixed up.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/process/exit_codes.h"
#include "runtime/second_engine/worker_process.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/runtime/process/rankd_runner.h"
#include "tests/unit/runtime/second_engine/fake_python.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kQuestion[] = "Explain RDMA in simple terms";

// An architecture that rankd does not know, with the bundled model's text.
std::string MartianFolder() {
  static const std::string folder = [] {
    const std::string path = FreshFolder();
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
      std::filesystem::copy_file(std::string(kBundledModel) + "/" + name, path + "/" + name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    std::ofstream(path + "/config.json")
        << R"({"model_type": "martian", "num_hidden_layers": 6, "hidden_size": 64,
               "num_attention_heads": 4, "vocab_size": 3072, "max_position_embeddings": 2048})";
    return path;
  }();
  return folder;
}

std::vector<v1::LaunchSpec> Specs(const std::string& mode, uint32_t ranks = 1,
                                  const GangOptions& options = {}) {
  auto specs = MakeSpecs(kBundledModel, GangShape::kTensor, ranks, options);
  for (v1::LaunchSpec& spec : specs) {
    spec.mutable_model()->set_path(MartianFolder());
    spec.mutable_model()->set_engine(kMlxLmEngine);
    spec.mutable_model()->set_architecture("martian");
    spec.set_python(FakePython(mode));
  }
  return specs;
}

v1::GenerateRequest Long(int words, uint32_t max_tokens) {
  std::string text = kQuestion;
  for (int i = 0; i < words; ++i) text += " and number " + std::to_string(i);
  return Question(text, max_tokens);
}

std::vector<v1::GenerateRequest> Several() {
  return {Long(0, 40), Long(30, 20), Long(60, 30), Long(0, 25)};
}

std::vector<std::vector<int32_t>> AnswersOf(Gang& gang, bool at_once) {
  const auto requests = Several();
  const std::vector<Answer> got = AskAll(gang.stub(), requests, at_once);
  std::vector<std::vector<int32_t>> tokens;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].status.ok()) << got[i].status.error_message();
    EXPECT_EQ(got[i].tokens.size(), requests[i].max_tokens());
    EXPECT_EQ(got[i].first.cached_tokens(), 0u);
    tokens.push_back(got[i].tokens);
  }
  return tokens;
}

TEST(SecondGangTest, WhatCanNotBeTimedIsRefusedAndTheGangGoesOn) {
  Gang gang(Specs("", 2));
  ASSERT_TRUE(gang.WaitUntilReady());
  const auto verified = Verify(gang.stub(), {1024}, 5);
  EXPECT_EQ(verified.status().code(), absl::StatusCode::kUnimplemented) << verified.status();
  EXPECT_THAT(verified.status().message(), HasSubstr("rankd can't time that"));
  EXPECT_TRUE(Ask(gang.stub(), Question(kQuestion, 4)).status.ok());
}

TEST(SecondGangTest, SeveralAtOnceGetTheirOwnAnswers) {
  std::vector<std::vector<int32_t>> alone;
  {
    Gang gang(Specs(""));
    ASSERT_TRUE(gang.WaitUntilReady());
    const v1::RankStatus status = StatusOf(gang.stub());
    EXPECT_EQ(status.engine(), kMlxLmEngine);
    EXPECT_GE(status.memory_bytes(), 1'000'000u);
    alone = AnswersOf(gang, false);
    // The first and the last have one prompt.
    EXPECT_TRUE(std::equal(alone[3].begin(), alone[3].end(), alone[0].begin()));
  }
  Gang gang(Specs(""));
  ASSERT_TRUE(gang.WaitUntilReady());
  EXPECT_EQ(AnswersOf(gang, true), alone);
  // The second time nothing of the first is taken for it.
  EXPECT_EQ(AnswersOf(gang, true), alone);
  Gang two(Specs("", 2));
  ASSERT_TRUE(two.WaitUntilReady());
  EXPECT_EQ(AnswersOf(two, true), alone);
  EXPECT_EQ(StatusOf(two.stub(1)).engine(), kMlxLmEngine);
}

TEST(SecondGangTest, AnswersThatHaveNoRoomBesideEachOtherAreComputedAnew) {
  GangOptions small;
  small.context_length = 768;  // of all of them together
  Gang gang(Specs("", 1, small));
  ASSERT_TRUE(gang.WaitUntilReady());
  const Answer alone = Ask(gang.stub(), Question(kQuestion, 500));
  ASSERT_EQ(alone.tokens.size(), 500u);
  Answer first, second;
  std::thread other([&] { second = Ask(gang.stub(), Question(kQuestion, 500)); });
  first = Ask(gang.stub(), Question(kQuestion, 500));
  other.join();
  EXPECT_EQ(first.tokens, alone.tokens);
  EXPECT_EQ(second.tokens, alone.tokens);
  EXPECT_GT(StatusOf(gang.stub()).preemptions_total(), 0u);
}

TEST(SecondGangTest, ACancelledRequestMakesWayForTheNext) {
  Gang gang(Specs(""));
  ASSERT_TRUE(gang.WaitUntilReady());
  grpc::ClientContext context;
  const auto reader = gang.stub().Generate(&context, Question(kQuestion, 0));
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Ask(gang.stub(), Question(kQuestion, 2)).status.ok());
}

TEST(SecondGangTest, AWorkerThatDiesEndsItsRankWithItsName) {
  Gang gang(Specs("dies"));
  ASSERT_TRUE(gang.WaitUntilReady());
  EXPECT_FALSE(Ask(gang.stub(), Question(kQuestion, 40)).status.ok());
  EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(5000)), kExitInternal);
  EXPECT_THAT(gang.rank(0).Log(), AllOf(HasSubstr("ENGINE_FAILED: the mlx-lm worker ("),
                                        HasSubstr("was ended by signal 9")));
}

TEST(SecondGangTest, AWorkerThatHangsIsNamed) {
  GangOptions options;
  options.step_timeout_ms = 1500;
  Gang gang(Specs("hangs", 1, options));
  ASSERT_TRUE(gang.WaitUntilReady());
  EXPECT_FALSE(Ask(gang.stub(), Question(kQuestion, 40)).status.ok());
  EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(8000)), kExitStalled);
  EXPECT_THAT(gang.rank(0).Log(), HasSubstr("a forward step of the mlx-lm worker ("));
}

// The worker's process id; its file is locked as long as it is there.
int WorkerPid(const std::string& python) {
  int pid = 0;
  std::ifstream(python + ".pid") >> pid;
  return pid;
}

bool IsGone(const std::string& python, milliseconds limit) {
  const int file = open((python + ".pid").c_str(), O_RDONLY | O_CLOEXEC);
  const auto until = std::chrono::steady_clock::now() + limit;
  bool is_gone = false;
  while (!is_gone && std::chrono::steady_clock::now() < until) {
    is_gone = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!is_gone) std::this_thread::sleep_for(milliseconds(5));
  }
  close(file);
  return is_gone;
}

TEST(SecondGangTest, TheWorkerGoesWithItsRank) {
  for (const bool is_killed : {false, true}) {
    const auto specs = Specs("");
    const std::string python = specs[0].python();
    Gang gang(specs);
    ASSERT_TRUE(gang.WaitUntilReady());
    EXPECT_FALSE(IsGone(python, milliseconds(1)));
    if (is_killed) {
      gang.rank(0).Signal(SIGKILL);
    } else {
      gang.rank(0).CloseStdin();
      EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(2000)), kExitOrderly);
    }
    EXPECT_TRUE(IsGone(python, milliseconds(2000)));
  }
}

TEST(SecondGangTest, AWorkerThatEndsWhileNothingRunsIsNoticed) {
  const auto specs = Specs("", 2);
  Gang gang(specs);
  ASSERT_TRUE(gang.WaitUntilReady());
  kill(WorkerPid(specs[1].python()), SIGKILL);
  EXPECT_EQ(gang.rank(1).WaitForExit(milliseconds(4000)), kExitInternal);
  EXPECT_THAT(gang.rank(1).Log(), HasSubstr("ENGINE_FAILED: the mlx-lm worker"));
  EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(4000)), kExitPeerLost);
}

TEST(SecondGangTest, WhatCanNotBeIsRefusedBeforeAnybodyWaits) {
  const auto refused = [](const v1::LaunchSpec& spec, int code, const std::string& words) {
    Gang gang({spec});
    EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(10'000)), code);
    EXPECT_THAT(gang.rank(0).Log(), HasSubstr(words));
  };
  refused(Specs("lacks")[0], kExitUsage, "ENGINE_MISSING: fakepython has no mlx_lm");
  refused(Specs("refuses")[0], kExitModelInvalid, "no such form of martian");
  v1::LaunchSpec spec = Specs("")[0];
  spec.set_python("/nowhere/python3");
  refused(spec, kExitUsage, "ENGINE_MISSING: the mlx-lm worker can't be started: /nowhere");
  spec = Specs("")[0];
  spec.set_kv_bits(8);
  refused(spec, kExitUsage, "ENGINE_LIMIT: martian is served by mlx-lm, which keeps keys");
  spec = Specs("")[0];
  spec.mutable_draft_model()->set_path(kBundledModel);
  refused(spec, kExitUsage, "which takes no drafts");
  spec = Specs("", 2)[0];
  spec.mutable_assignment()->set_slice_count(3);
  spec.mutable_assignment()->set_slice_end(2);
  refused(spec, kExitUsage, "which gives each rank an equal part");
  spec = Specs("", 3)[0];
  refused(spec, kExitUsage, "3 ranks equal parts of 4 heads");
}

}  // namespace
}  // namespace macrame::runtime::engine
