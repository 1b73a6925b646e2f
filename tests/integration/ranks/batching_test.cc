// Real gangs on models of random weights: many requests that join and leave at random get, token
// for token, what each of them gets alone. Prompts share beginnings, so some are served from the
// prefix cache; the KV cache holds one context, so answers are preempted and computed again.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/unit/runtime/model/random_model.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::seconds;

constexpr uint32_t kContext = 192;  // six blocks, for all sequences together
constexpr size_t kJobs = 9;
constexpr size_t kHeardForEver = 1'000'000;

struct Storage {
  const char* name;
  int bits;
};
void PrintTo(const Storage& storage, std::ostream* out) { *out << storage.name; }
constexpr Storage kStorages[] = {{"bf16", 0}, {"q4", 4}, {"q6", 6}, {"q8", 8}};

struct Shape {
  const char* name;
  GangShape shape;
  uint32_t ranks;
  std::vector<uint32_t> slices;  // how many each rank has; none: all as many
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
const Shape kShapes[] = {
    {"one", GangShape::kPipeline, 1, {}},
    {"tp2", GangShape::kTensor, 2, {}},
    {"pp2", GangShape::kPipeline, 2, {}},
    {"tp3uneven", GangShape::kTensor, 3, {2, 1, 1}},
};

const char* const kArchitectures[] = {"llama", "qwen2", "qwen3", "mistral"};

const std::string& ModelOf(const std::string& architecture, int bits) {
  static std::map<std::pair<std::string, int>, std::string> folders;
  std::string& folder = folders[{architecture, bits}];
  if (folder.empty()) {
    RandomModelShape shape;
    shape.architecture = architecture;
    shape.bits = bits;
    shape.seed = static_cast<uint64_t>(bits) + 100 * architecture.size();
    shape.sliding_window = architecture == "mistral" ? 48 : 0;
    shape.tied_embeddings = architecture == "qwen3";
    folder = WriteRandomModel(shape, kBundledModel);
  }
  return folder;
}

std::vector<v1::LaunchSpec> SpecsOf(const Shape& shape, const std::string& folder) {
  GangOptions options;
  options.context_length = kContext;
  std::vector<v1::LaunchSpec> specs = MakeSpecs(folder, shape.shape, shape.ranks, options);
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
      // The first two are together as long as it takes to need more blocks than there are.
      const bool long_answer = i < 2;
      const std::string own = Words(long_answer ? 30 : 1 + random_() % 30);
      job.request.set_prompt(i % 3 == 2 ? common + " " + own : own);
      job.request.set_max_tokens(long_answer ? 100 : 1 + random_() % 40);
      job.request.mutable_sampling()->set_temperature(i % 2 == 0 ? 0.0 : 0.8);
      job.request.mutable_sampling()->set_seed(random_());
      if (i == 0) continue;
      job.joins_after_job = random_() % i;
      job.joins_after_tokens = random_() % 6;
      if (i % 4 == 3) job.cancelled_after = 1 + random_() % 8;
    }
    jobs[1].joins_after_tokens = 1;
    return jobs;
  }
  // As long as a context: whatever was cached gives way to it.
  v1::GenerateRequest Flood() {
    v1::GenerateRequest request;
    request.set_prompt(Words(kContext - 16));
    request.set_max_tokens(1);
    return request;
  }

 private:
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

// What the gang answers when it does nothing else, and nothing of the prompt is cached.
Answer Alone(Gang& gang, const v1::GenerateRequest& request, Requests& requests) {
  Answer answer = Ask(gang.stub(), request);
  if (answer.first.cached_tokens() == 0) return answer;
  EXPECT_TRUE(Ask(gang.stub(), requests.Flood()).status.ok());
  answer = Ask(gang.stub(), request);
  EXPECT_EQ(answer.first.cached_tokens(), 0u);
  return answer;
}

using Combination = std::tuple<const char*, Storage, Shape>;

class BatchingTest : public ::testing::TestWithParam<Combination> {};

TEST_P(BatchingTest, TogetherAsAlone) {
  const auto& [architecture, storage, shape] = GetParam();
  Gang gang(SpecsOf(shape, ModelOf(architecture, storage.bits)));
  ASSERT_TRUE(gang.WaitUntilReady());
  Requests requests(static_cast<uint32_t>(storage.bits) + 10 * shape.ranks);
  const std::vector<Job> jobs = requests.Make();
  std::vector<Answer> alone;
  for (const Job& job : jobs) alone.push_back(Alone(gang, job.request, requests));
  const std::vector<Answer> together = Together(gang, jobs).Run();
  uint32_t cached_most = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(alone[i].status.ok()) << alone[i].status.error_message();
    cached_most = std::max(cached_most, together[i].first.cached_tokens());
    if (together[i].status.error_code() == grpc::StatusCode::CANCELLED) {
      ASSERT_LE(together[i].tokens.size(), alone[i].tokens.size());
      EXPECT_TRUE(std::equal(together[i].tokens.begin(), together[i].tokens.end(),
                             alone[i].tokens.begin()));
      EXPECT_NE(jobs[i].cancelled_after, kHeardForEver);
      continue;
    }
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
    EXPECT_EQ(together[i].tokens, alone[i].tokens);
    EXPECT_EQ(together[i].last.finish_reason(), alone[i].last.finish_reason());
  }
  EXPECT_GE(cached_most, 32u) << "none was served from the prefix cache";
}

INSTANTIATE_TEST_SUITE_P(Ranks, BatchingTest,
                         ::testing::Combine(::testing::ValuesIn(kArchitectures),
                                            ::testing::ValuesIn(kStorages),
                                            ::testing::ValuesIn(kShapes)),
                         [](const ::testing::TestParamInfo<Combination>& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param).name + "_" + std::get<2>(info.param).name;
                         });

}  // namespace
}  // namespace macrame::runtime::engine
