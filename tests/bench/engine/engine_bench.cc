// What real rank processes reach on this machine's processors, asked over RankService as an agent
// asks them.
//
//   engine_bench --model FOLDER [--shape tensor|whole|pipeline] --processors LIST[/LIST…]
//                [--rounds N] [--kv-context N] [--kv-bits 8|16] [--draft-tokens N] ROW…
//
// One rank for each LIST of processors (0,1), which it alone may use; with several ranks they are
// split by tensor (whole: with whole experts on each) or pipeline. The model's tokenizer must know
// the words w0, w1, … as tokens of these numbers (make_models and convert_gguf beside this file
// write such). Drafts are off unless
// --draft-tokens says how many.
//
//   prefill:N    a prompt of N tokens: tokens/s
//   decode:N     64 tokens behind a prompt of N: tokens/s
//   streams:N    N requests at once, 32 tokens of prompt, 128 of answer: all tokens/s of answers
//   turn:N       the next turn of a chat of N tokens: seconds to the first token
//   behind:N     a prompt of 16 tokens while one of N is being read: seconds to the first token;
//                the long one is cancelled then
//
// One JSON object a row: the median of the rounds, all of them, and beside it what a plain read of
// memory by the same processors reached (GB/s), before and after.

#include <grpcpp/grpcpp.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/bench/memory_read.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::chrono::minutes kRequestLimit{60};
constexpr size_t kReadBytes = size_t{512} << 20;

struct Options {
  std::string model;
  std::string shape = "tensor";
  std::vector<std::vector<int>> processors;
  int rounds = 3;
  uint32_t context = 8192;
  uint32_t draft_tokens = 0;
  uint32_t kv_bits = 16;
  std::vector<std::string> rows;
};

// While it lives, this process and those that it starts stay on these processors. Linux only:
// elsewhere the system decides.
class Pinned {
 public:
  explicit Pinned(const std::vector<int>& processors) {
#ifdef __linux__
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int processor : processors) CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof(set), &set);
#else
    (void)processors;
#endif
  }
  ~Pinned() {
#ifdef __linux__
    sched_setaffinity(0, sizeof(before_), &before_);
#endif
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

#ifdef __linux__
 private:
  cpu_set_t before_;
#endif
};

double Seconds(steady_clock::time_point begin) {
  return duration<double>(steady_clock::now() - begin).count();
}

// GB/s, all ranks' processors at once.
double ReadSpeed(const Options& options, const std::vector<uint8_t>& memory) {
  std::vector<int> all;
  for (const auto& list : options.processors) all.insert(all.end(), list.begin(), list.end());
  const Pinned pinned(all);
  kernels::ThreadPool pool(static_cast<int>(all.size()), /*pin=*/true);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto begin = steady_clock::now();
    if (bench::ReadMemory(pool, memory.data(), memory.size()) == 1) std::printf(" ");
    best = std::max(best, static_cast<double>(memory.size()) / Seconds(begin) / 1e9);
  }
  return best;
}

class Ranks {
 public:
  explicit Ranks(const Options& options) {
    GangOptions gang;
    gang.context_length = options.context;
    gang.kv_bits = options.kv_bits;
    const auto ranks = static_cast<uint32_t>(options.processors.size());
    const bool pipeline = options.shape == "pipeline";
    auto specs =
        MakeSpecs(options.model, pipeline ? GangShape::kPipeline : GangShape::kTensor, ranks, gang);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      specs[rank].set_concurrent_sequences(4);
      specs[rank].mutable_assignment()->set_whole_experts(options.shape == "whole");
      specs[rank].set_draft_tokens_max(options.draft_tokens);
      // Each rank has processors of its own, so none is shared.
      const Pinned pinned(options.processors[rank]);
      gangs_.push_back(std::make_unique<Gang>(std::vector<v1::LaunchSpec>{specs[rank]}));
    }
  }

  bool WaitUntilReady() { return gangs_[0]->WaitUntilReady(std::chrono::minutes(3)); }

  struct Timed {
    double first_s = 0;  // to the first token
    double all_s = 0;
    v1::GenerateChunk first;
    v1::GenerateChunk last;
    std::vector<int32_t> tokens;
  };

  Timed Ask(const std::string& prompt, uint32_t max_tokens) {
    grpc::ClientContext context;
    return Ask(prompt, max_tokens, context);
  }
  // Ends without tokens when `context` is cancelled.
  Timed Ask(const std::string& prompt, uint32_t max_tokens, grpc::ClientContext& context) {
    v1::GenerateRequest request;
    request.set_prompt(prompt);
    request.set_max_tokens(max_tokens);
    request.mutable_sampling()->set_temperature(0);
    context.set_deadline(std::chrono::system_clock::now() + kRequestLimit);
    const auto begin = steady_clock::now();
    const auto reader = gangs_[0]->stub().Generate(&context, request);
    Timed timed;
    v1::GenerateChunk chunk;
    while (reader->Read(&chunk)) {
      if (chunk.token_ids_size() > 0 && timed.first_s == 0) timed.first_s = Seconds(begin);
      if (timed.tokens.empty()) timed.first = chunk;
      timed.tokens.insert(timed.tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
      timed.last = chunk;
    }
    timed.all_s = Seconds(begin);
    const grpc::Status status = reader->Finish();
    if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
      std::fprintf(stderr, "engine_bench: a request failed: %s\n%s\n",
                   status.error_message().c_str(), gangs_[0]->rank(0).Log().c_str());
      std::exit(1);
    }
    return timed;
  }

 private:
  std::vector<std::unique_ptr<Gang>> gangs_;  // of one process each
};

class Bench {
 public:
  Bench(const Options& options, Ranks& ranks) : options_(options), ranks_(ranks) {}

  // False: no row of that name.
  bool Run(const std::string& row, const std::vector<uint8_t>& memory) {
    const size_t colon = row.find(':');
    const std::string kind = row.substr(0, colon);
    const int size = colon == std::string::npos ? 0 : std::atoi(row.c_str() + colon + 1);
    if (size <= 0) return false;
    nlohmann::json result = {{"row", row}};
    const double before = ReadSpeed(options_, memory);
    std::vector<double> values;
    for (int round = 0; round < options_.rounds; ++round) {
      const double value = Measure(kind, static_cast<uint32_t>(size), result);
      if (value < 0) return false;
      values.push_back(value);
    }
    result["all"] = values;
    std::sort(values.begin(), values.end());
    result["median"] = values[values.size() / 2];
    result["read_gb_s"] = {before, ReadSpeed(options_, memory)};
    std::printf("%s\n", result.dump().c_str());
    std::fflush(stdout);
    return true;
  }

 private:
  // New words each time, so that nothing comes from the prefix cache.
  std::string Words(uint32_t count) {
    std::string words;
    for (uint32_t i = 0; i < count; ++i) {
      absl::StrAppend(&words, "w", 1000 + random_() % 40'000, " ");
    }
    return words;
  }

  double Measure(const std::string& kind, uint32_t size, nlohmann::json& result) {
    if (kind == "prefill") return size / (ranks_.Ask(Words(size), 1).first.prefill_ms() / 1e3);
    if (kind == "decode") {
      const auto timed = ranks_.Ask(Words(size), 64);
      return (timed.last.completion_tokens() - 1) / (timed.last.decode_ms() / 1e3);
    }
    if (kind == "streams") return Streams(size);
    if (kind == "turn") return Turn(size, result);
    if (kind == "behind") return Behind(size);
    return -1;
  }

  double Streams(uint32_t count) {
    std::vector<std::string> prompts(count);
    for (std::string& prompt : prompts) prompt = Words(32);
    std::atomic<uint64_t> tokens = 0;
    const auto begin = steady_clock::now();
    std::vector<std::thread> clients;
    for (uint32_t i = 0; i < count; ++i) {
      clients.emplace_back([&, i] { tokens += ranks_.Ask(prompts[i], 128).tokens.size(); });
    }
    for (std::thread& client : clients) client.join();
    return static_cast<double>(tokens) / Seconds(begin);
  }

  double Turn(uint32_t size, nlohmann::json& result) {
    constexpr uint32_t kNew = 32;
    std::string chat = Words(size);
    const auto first = ranks_.Ask(chat, 32);
    for (const int32_t token : first.tokens) absl::StrAppend(&chat, "w", token, " ");
    const auto next = ranks_.Ask(chat + Words(kNew), 1);
    const auto alone = ranks_.Ask(Words(kNew), 1);
    result["cached_tokens"] = next.first.cached_tokens();
    result["new_tokens_alone_s"].push_back(alone.first_s);
    return next.first_s;
  }

  double Behind(uint32_t size) {
    const std::string long_prompt = Words(size);
    grpc::ClientContext context;
    std::thread other([&] { ranks_.Ask(long_prompt, 1, context); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double first_s = ranks_.Ask(Words(16), 1).first_s;
    context.TryCancel();
    other.join();
    return first_s;
  }

  const Options& options_;
  Ranks& ranks_;
  std::mt19937 random_{std::random_device()()};
};

std::vector<std::vector<int>> ProcessorsOf(const std::string& text) {
  std::vector<std::vector<int>> lists(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') lists.emplace_back();
    if (text[i] == '/' || text[i] == ',') continue;
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end == i) return {};
    lists.back().push_back(std::stoi(text.substr(i, end - i)));
    i = end - 1;
  }
  return lists;
}

bool Parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name.rfind("--", 0) != 0) {
      options.rows.push_back(name);
      continue;
    }
    if (i + 1 == count) return false;
    const std::string value = arguments[++i];
    if (name == "--model") {
      options.model = value;
    } else if (name == "--shape") {
      options.shape = value;
    } else if (name == "--processors") {
      options.processors = ProcessorsOf(value);
    } else if (name == "--rounds") {
      options.rounds = std::atoi(value.c_str());
    } else if (name == "--kv-context") {
      options.context = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (name == "--draft-tokens") {
      options.draft_tokens = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (name == "--kv-bits") {
      options.kv_bits = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else {
      return false;
    }
  }
  return !options.model.empty() && !options.processors.empty() && options.rounds > 0 &&
         !options.rows.empty();
}

int Main(int count, char** arguments) {
  Options options;
  if (!Parse(count, arguments, options)) {
    std::fprintf(stderr,
                 "usage: engine_bench --model FOLDER [--shape tensor|whole|pipeline] --processors "
                 "LIST[/LIST…] [--rounds N] [--kv-context N] [--kv-bits 8|16] "
                 "[--draft-tokens N] ROW…\n");
    return 2;
  }
  const std::vector<uint8_t> memory(kReadBytes, 1);
  Ranks ranks(options);
  if (!ranks.WaitUntilReady()) return 1;
  Bench bench(options, ranks);
  for (const std::string& row : options.rows) {
    if (!bench.Run(row, memory)) {
      std::fprintf(stderr, "engine_bench: no row '%s'\n", row.c_str());
      return 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int count, char** arguments) { return macrame::runtime::engine::Main(count, arguments); }
