// Real gangs on models of random weights: many requests that join and leave at random get, token
// for token, what each of them gets alone with nothing cached. The KV cache holds one context, so
// answers are preempted and computed again; prompts share beginnings, so some are served from the
// prefix cache; and after all ranks were started anew, conversations go on from disk.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "tests/unit/fresh_folder.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"
#include "tests/unit/runtime/model/random_model.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr uint32_t kContext = 192;  // six blocks, for all sequences together
constexpr uint32_t kBlockTokens = 32;
constexpr int kVocabulary = 3072;  // at least the tokenizer's
constexpr size_t kJobs = 9;
constexpr size_t kLongJobs = 3;
constexpr size_t kConversations = 2;
constexpr size_t kHeardForEver = 1'000'000;
// On a machine that pauses, jobs may miss each other, and a block may come too late from disk.
constexpr int kRoundsMax = 5;
constexpr int kRestartsMax = 3;

struct Storage {
  const char* name;
  int bits;
  bool mxfp4 = false;
};
void PrintTo(const Storage& storage, std::ostream* out) { *out << storage.name; }
constexpr Storage kStorages[] = {{"bf16", 0}, {"q4", 4}, {"q6", 6}, {"q8", 8}};
constexpr Storage kMxfp4 = {"mxfp4", 4, true};

struct Shape {
  const char* name;
  GangShape shape;
  uint32_t ranks;
  std::vector<uint32_t> slices;  // how many each rank has; none: all as many
  bool whole_experts = false;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
const Shape kShapes[] = {
    {"one", GangShape::kPipeline, 1, {}},
    {"tp2", GangShape::kTensor, 2, {}},
    {"pp2", GangShape::kPipeline, 2, {}},
    {"tp3uneven", GangShape::kTensor, 3, {2, 1, 1}},
};
// Of 6 experts the last rank of the last shape has none.
const Shape kWholeExperts[] = {
    {"tp2whole", GangShape::kTensor, 2, {}, true},
    {"tp3whole", GangShape::kTensor, 3, {5, 2, 1}, true},
    {"tp3none", GangShape::kTensor, 3, {20, 20, 1}, true},
};

// One shape and storage each: what batching could disturb is by layers and ranks, not by numbers.
struct FamilyCase {
  const char* name;
  int bits;
  size_t shape;  // of kShapes
};
constexpr FamilyCase kFamilies[] = {
    {"phi3", 4, 3},       {"gemma3", 4, 3}, {"mistral3", 3, 1},
    {"glm4", 0, 2},       {"gemma4", 4, 2}, {"glm4_moe", 4, 3},
    {"minimax_m2", 4, 3}, {"olmo2", 5, 2},  {"minimax_m3_vl", 4, 2},
};

// Their layers keep a state.
constexpr FamilyCase kStateFamilies[] = {
    {"qwen3_next", 4, 3}, {"qwen3_5", 4, 2}, {"nemotron_h", 0, 1}};

const char* const kArchitectures[] = {"llama", "qwen2", "qwen3", "mistral", "qwen3_moe"};

const std::string& ModelOf(const std::string& architecture, const Storage& storage) {
  static std::map<std::pair<std::string, std::string>, std::string> folders;
  std::string& folder = folders[{architecture, storage.name}];
  const auto named = [&](const FamilyCase& one) { return architecture == one.name; };
  const bool family = std::any_of(std::begin(kFamilies), std::end(kFamilies), named) ||
                      std::any_of(std::begin(kStateFamilies), std::end(kStateFamilies), named);
  if (folder.empty() && family) {
    folder = WriteFolder(FamilyModel({architecture, storage.bits, kVocabulary}));
    CopyTokenizer(kBundledModel, folder);
  } else if (folder.empty()) {
    RandomModelShape shape;
    shape.architecture = architecture;
    shape.bits = storage.bits;
    shape.mxfp4 = storage.mxfp4;
    shape.seed = static_cast<uint64_t>(storage.bits) + 100 * architecture.size();
    shape.sliding_window = architecture == "mistral" || architecture == "gpt_oss" ? 48 : 0;
    shape.tied_embeddings = architecture == "qwen3";
    if (architecture == "qwen3_moe" || architecture == "gpt_oss") {
      shape.experts = 6;
      shape.intermediate = 96;
    }
    folder = WriteRandomModel(shape, kBundledModel);
  }
  return folder;
}

// A folder for each rank's blocks, as if each were on a node of its own.
class CacheFolder {
 public:
  CacheFolder() : root_(FreshFolder()) {}
  ~CacheFolder() { fs::remove_all(root_); }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  std::string Of(size_t rank) const { return root_ + "/" + std::to_string(rank); }

 private:
  std::string root_;
};

std::vector<v1::LaunchSpec> SpecsOf(const Shape& shape, const std::string& folder,
                                    const CacheFolder& cache) {
  GangOptions options;
  options.context_length = kContext;
  std::vector<v1::LaunchSpec> specs = MakeSpecs(folder, shape.shape, shape.ranks, options);
  for (size_t rank = 0; rank < specs.size(); ++rank) {
    specs[rank].set_kv_cache_folder(cache.Of(rank));
    specs[rank].set_kv_cache_disk_bytes(uint64_t{64} << 20);
    specs[rank].mutable_assignment()->set_whole_experts(shape.whole_experts);
  }
  uint32_t total = 0;
  for (const uint32_t width : shape.slices) total += width;
  uint32_t begin = 0;
  for (size_t rank = 0; rank < shape.slices.size(); ++rank) {
    v1::Assignment& part = *specs[rank].mutable_assignment();
    part.set_slice_count(total);
    part.set_slice_begin(begin);
    part.set_slice_end(begin += shape.slices[rank]);
  }
  return specs;
}

struct Job {
  v1::GenerateRequest request;
  size_t joins_after_job = 0;     // it is sent when this one
  size_t joins_after_tokens = 0;  // has so many tokens, or has ended
  size_t cancelled_after = kHeardForEver;
};

class Requests {
 public:
  explicit Requests(uint32_t seed) : random_(seed) {}

  std::vector<Job> Make() {
    const std::string common = Words(60);
    std::vector<Job> jobs(kJobs);
    for (size_t i = 0; i < kJobs; ++i) {
      Job& job = jobs[i];
      // Any two of the long ones need more blocks than there are, and while one is answered another
      // waits: sooner or later two of them are together.
      const bool long_answer = i < kLongJobs;
      const std::string own = Words(long_answer ? 30 : 1 + random_() % 30);
      job.request.set_prompt(i % 3 == 2 && !long_answer ? common + " " + own : own);
      job.request.set_max_tokens(long_answer ? 100 : 1 + random_() % 40);
      job.request.mutable_sampling()->set_temperature(i % 2 == 0 ? 0.0 : 0.8);
      job.request.mutable_sampling()->set_seed(random_());
      if (i == 0) continue;
      job.joins_after_job = random_() % i;
      job.joins_after_tokens = random_() % 6;
      if (i % 4 == 3) job.cancelled_after = 1 + random_() % 8;
    }
    for (size_t i = 1; i < kLongJobs; ++i) jobs[i].joins_after_tokens = 1;
    return jobs;
  }
  // How a conversation begins, and how it goes on.
  v1::GenerateRequest FirstTurn() { return Turn(Words(50 + random_() % 20)); }
  v1::GenerateRequest NextTurn(const v1::GenerateRequest& first, const Answer& answer) {
    return Turn(first.prompt() + answer.text + " " + Words(8));
  }

 private:
  v1::GenerateRequest Turn(const std::string& prompt) {
    v1::GenerateRequest request;
    request.set_prompt(prompt);
    request.set_max_tokens(24);
    request.mutable_sampling()->set_temperature(random_() % 2 == 0 ? 0.0 : 0.8);
    request.mutable_sampling()->set_seed(random_());
    return request;
  }
  std::string Words(size_t count) {
    static const char* const kWords[] = {"the", "a", "of", "is", "to", "and", "in", "on"};
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      text += (i > 0 ? " " : "") + std::string(kWords[random_() % std::size(kWords)]);
    }
    return text;
  }

  std::mt19937 random_;
};

// All jobs at once, each sent when its turn has come.
class Together {
 public:
  Together(Gang& gang, const std::vector<Job>& jobs) : gang_(gang), jobs_(jobs) {}

  std::vector<Answer> Run() {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < jobs_.size(); ++i) threads.emplace_back([this, i] { RunOne(i); });
    for (std::thread& thread : threads) thread.join();
    return std::move(answers_);
  }

 private:
  void RunOne(size_t index) {
    const Job& job = jobs_[index];
    {
      std::unique_lock lock(mutex_);
      const auto turn = [&] {
        return index == 0 || heard_[job.joins_after_job] >= job.joins_after_tokens;
      };
      if (!changed_.wait_for(lock, seconds(60), turn)) ADD_FAILURE() << "job " << index << " waits";
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(90));
    const auto reader = gang_.stub().Generate(&context, job.request);
    Answer& answer = answers_[index];
    v1::GenerateChunk chunk;
    for (bool first = true; reader->Read(&chunk); first = false) {
      if (first) answer.first = chunk;
      answer.tokens.insert(answer.tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
      answer.last = chunk;
      if (answer.tokens.size() >= job.cancelled_after) context.TryCancel();
      Heard(index, answer.tokens.size());
    }
    answer.status = reader->Finish();
    Heard(index, kHeardForEver);
  }
  void Heard(size_t index, size_t tokens) {
    const std::lock_guard lock(mutex_);
    heard_[index] = tokens;
    changed_.notify_all();
  }

  Gang& gang_;
  const std::vector<Job>& jobs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> heard_ = std::vector<size_t>(kJobs, 0);
  std::vector<Answer> answers_ = std::vector<Answer>(kJobs);
};

// What the gang answers when it does nothing else, and has nothing of the prompt.
Answer Alone(Gang& gang, v1::GenerateRequest request) {
  static int nth = 0;
  request.set_cache_salt("alone " + std::to_string(++nth));
  Answer answer = Ask(gang.stub(), request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.first.cached_tokens(), 0u);
  return answer;
}

// Of a prompt, what full blocks hold of it for sure: where text is joined, the token may differ.
uint32_t InFullBlocks(const Answer& answer) {
  return (answer.first.prompt_tokens() - 1) / kBlockTokens * kBlockTokens;
}

using Combination = std::tuple<const char*, Storage, Shape>;

class BatchingTest : public ::testing::TestWithParam<Combination> {
 protected:
  std::unique_ptr<Gang> Start() {
    const auto& [architecture, storage, shape] = GetParam();
    auto gang = std::make_unique<Gang>(SpecsOf(shape, ModelOf(architecture, storage), cache_));
    EXPECT_TRUE(gang->WaitUntilReady());
    return gang;
  }
  // The same question twice: the second time its prompt comes from memory.
  void TalkAndRepeat(Gang& gang) {
    for (size_t i = 0; i < kConversations; ++i) {
      SCOPED_TRACE(i);
      first_turns_.push_back(requests_.FirstTurn());
      first_answers_.push_back(Ask(gang.stub(), first_turns_[i]));
      const Answer& first = first_answers_[i];
      ASSERT_TRUE(first.status.ok()) << first.status.error_message();
      EXPECT_EQ(first.first.cached_tokens(), 0u);
      ASSERT_GE(InFullBlocks(first), kBlockTokens);
      blocks_ += (first.first.prompt_tokens() + first.last.completion_tokens() - 1) / kBlockTokens;
      const Answer again = Ask(gang.stub(), first_turns_[i]);
      EXPECT_EQ(again.tokens, first.tokens);
      EXPECT_EQ(again.first.cached_tokens(), InFullBlocks(first));
      EXPECT_EQ(again.first.cold_tokens(), 0u);
      EXPECT_EQ(Alone(gang, first_turns_[i]).tokens, first.tokens);
    }
  }
  // Together as alone, until somebody was preempted and computed again, and somebody found so much
  // of a prefix cached.
  void RunTogether(Gang& gang, uint32_t cached_least = kBlockTokens) {
    const v1::RankStatus before = StatusOf(gang.stub());
    uint32_t cached_most = 0;
    uint64_t preemptions = 0, recomputed = 0;
    for (int round = 0; round < kRoundsMax && (cached_most < cached_least || recomputed == 0);
         ++round) {
      const std::vector<Answer> together = Together(gang, jobs_).Run();
      for (const Answer& answer : together) {
        cached_most = std::max(cached_most, answer.first.cached_tokens());
      }
      ExpectAsAlone(together);
      const v1::RankStatus status = StatusOf(gang.stub());
      preemptions = status.preemptions_total() - before.preemptions_total();
      recomputed = status.recomputed_tokens_total() - before.recomputed_tokens_total();
    }
    EXPECT_GE(cached_most, cached_least) << "none was served from the prefix cache";
    EXPECT_GE(preemptions, 1u) << "memory was enough for all";
    EXPECT_GE(recomputed, 1u) << "who was preempted did not go on";
  }
  void ExpectAsAlone(const std::vector<Answer>& together) const {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      SCOPED_TRACE(i);
      if (together[i].status.error_code() == grpc::StatusCode::CANCELLED) {
        ASSERT_LE(together[i].tokens.size(), alone_[i].tokens.size());
        EXPECT_TRUE(std::equal(together[i].tokens.begin(), together[i].tokens.end(),
                               alone_[i].tokens.begin()));
        EXPECT_NE(jobs_[i].cancelled_after, kHeardForEver);
        continue;
      }
      ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
      EXPECT_EQ(together[i].tokens, alone_[i].tokens);
      EXPECT_EQ(together[i].last.finish_reason(), alone_[i].last.finish_reason());
    }
  }
  // The next turns in a gang that has just come up; false when no blocks came from disk, or too
  // late.
  bool GoOnFromDisk(Gang& gang) {
    std::vector<v1::GenerateRequest> turns;
    std::vector<Answer> alone;
    for (size_t i = 0; i < kConversations; ++i) {
      turns.push_back(requests_.NextTurn(first_turns_[i], first_answers_[i]));
      alone.push_back(Alone(gang, turns[i]));
    }
    EXPECT_TRUE(AwaitOnDisk(gang, blocks_)) << "what was written is not found again";
    bool came = true;
    for (size_t i = 0; i < kConversations; ++i) {
      SCOPED_TRACE(i);
      const Answer answer = Ask(gang.stub(), turns[i]);
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_EQ(answer.tokens, alone[i].tokens);
      EXPECT_EQ(answer.last.finish_reason(), alone[i].last.finish_reason());
      EXPECT_LE(answer.first.cold_tokens(), answer.first.cached_tokens());
      came = came && answer.first.cold_tokens() >= InFullBlocks(first_answers_[i]);
    }
    return came;
  }

  const CacheFolder cache_;
  Requests requests_{static_cast<uint32_t>(std::get<1>(GetParam()).bits) +
                     10 * std::get<2>(GetParam()).ranks};
  std::vector<v1::GenerateRequest> first_turns_;
  std::vector<Answer> first_answers_;
  uint64_t blocks_ = 0;  // that the first turns leave on each rank's disk
  std::vector<Job> jobs_;
  std::vector<Answer> alone_;
};

TEST_P(BatchingTest, TogetherPreemptedAndFromDiskAsAlone) {
  {
    const auto gang = Start();
    ASSERT_FALSE(HasFailure());
    TalkAndRepeat(*gang);
    ASSERT_FALSE(HasFatalFailure());
    jobs_ = requests_.Make();
    for (const Job& job : jobs_) alone_.push_back(Alone(*gang, job.request));
    RunTogether(*gang);
    ASSERT_TRUE(AwaitOnDisk(*gang, blocks_)) << "not written";
  }
  bool came = false;
  for (int restart = 0; restart < kRestartsMax && !came && !HasFailure(); ++restart) {
    const auto gang = Start();
    came = GoOnFromDisk(*gang);
    RunTogether(*gang);
  }
  EXPECT_TRUE(came || HasFailure()) << "no turn went on from disk";
}

// Whoever holds the experts, the text is that of one rank. In models of float32: what ranks hand
// each other is rounded otherwise.
class WholeExpertsTest : public ::testing::TestWithParam<std::tuple<const char*, Shape>> {};

TEST_P(WholeExpertsTest, GangsSayWhatOneRankSays) {
  const auto& [architecture, shape] = GetParam();
  const std::string folder = WriteFolder(FamilyModel({architecture, 0, kVocabulary}));
  CopyTokenizer(kBundledModel, folder);
  const auto answers = [&](const Shape& own) {
    const CacheFolder cache;
    Gang gang(SpecsOf(own, folder, cache));
    EXPECT_TRUE(gang.WaitUntilReady());
    Requests requests(5);
    std::vector<std::vector<int32_t>> texts;
    for (int i = 0; i < 6; ++i) {
      v1::GenerateRequest request = requests.FirstTurn();
      request.mutable_sampling()->set_temperature(0);
      const Answer answer = Ask(gang.stub(), request);
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
      texts.push_back(answer.tokens);
    }
    return texts;
  };
  const auto alone = answers(kShapes[0]);
  EXPECT_EQ(answers(shape), alone);
  EXPECT_GE(alone[0].size(), 1u);
}

// Models whose layers keep a state have nothing on disk, and of a prefix that others share as much
// as a state was kept behind: the jobs' beginnings end elsewhere.
class StateBatchingTest : public BatchingTest {};

TEST_P(StateBatchingTest, TogetherAndPreemptedAsAlone) {
  const auto gang = Start();
  ASSERT_FALSE(HasFailure());
  const v1::GenerateRequest turn = requests_.FirstTurn();
  const Answer first = Ask(gang->stub(), turn);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const Answer again = Ask(gang->stub(), turn);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_GE(again.first.cached_tokens(), kBlockTokens);
  EXPECT_EQ(Alone(*gang, turn).tokens, first.tokens);
  jobs_ = requests_.Make();
  for (const Job& job : jobs_) alone_.push_back(Alone(*gang, job.request));
  RunTogether(*gang, /*cached_least=*/0);
}

std::vector<Combination> CombinationsOf(std::span<const FamilyCase> families) {
  std::vector<Combination> all;
  for (const FamilyCase& one : families) {
    all.emplace_back(one.name, Storage{one.name, one.bits}, kShapes[one.shape]);
  }
  return all;
}

std::string FamilyNameOf(const ::testing::TestParamInfo<Combination>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<2>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Families, BatchingTest, ::testing::ValuesIn(CombinationsOf(kFamilies)),
                         FamilyNameOf);
INSTANTIATE_TEST_SUITE_P(States, StateBatchingTest,
                         ::testing::ValuesIn(CombinationsOf(kStateFamilies)), FamilyNameOf);

std::string NameOf(const ::testing::TestParamInfo<Combination>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name + "_" +
         std::get<2>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Ranks, BatchingTest,
                         ::testing::Combine(::testing::ValuesIn(kArchitectures),
                                            ::testing::ValuesIn(kStorages),
                                            ::testing::ValuesIn(kShapes)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(WholeExperts, BatchingTest,
                         ::testing::Combine(::testing::Values("qwen3_moe"),
                                            ::testing::Values(kStorages[1]),
                                            ::testing::ValuesIn(kWholeExperts)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(GptOssWhole, BatchingTest,
                         ::testing::Combine(::testing::Values("gpt_oss"), ::testing::Values(kMxfp4),
                                            ::testing::Values(kWholeExperts[1])),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Families, WholeExpertsTest,
                         ::testing::Combine(::testing::Values("minimax_m2", "glm4_moe",
                                                              "qwen3_next"),
                                            ::testing::ValuesIn(kWholeExperts)),
                         [](const ::testing::TestParamInfo<std::tuple<const char*, Shape>>& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param).name;
                         });
// Windows, sinks and experts with biases, as they are published and in floats.
INSTANTIATE_TEST_SUITE_P(GptOss, BatchingTest,
                         ::testing::Combine(::testing::Values("gpt_oss"), ::testing::Values(kMxfp4),
                                            ::testing::ValuesIn(kShapes)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(GptOssFloats, BatchingTest,
                         ::testing::Combine(::testing::Values("gpt_oss"),
                                            ::testing::Values(kStorages[0]),
                                            ::testing::Values(kShapes[3])),
                         NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
