// Time to the first token of a conversation's second turn with real rankd processes: computed anew,
// from the prefix cache in memory, and from disk after the ranks were started again.
//
//   prefix_cache_bench MODEL_FOLDER WORDS CONTEXT [tensor|pipeline RANKS]

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::steady_clock;

// Two different ones, since what one asked stands on disk afterwards.
constexpr char kNewText[] = " And what of all this should one read first, and why?";
constexpr char kOtherNewText[] = " Then who of those named here wrote most of it, and when?";

struct Timed {
  double first_ms = 0;
  v1::GenerateChunk first;
  std::string text;
};

Timed AskTimed(v1::RankService::Stub& stub, const std::string& prompt) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.set_max_tokens(8);
  request.mutable_sampling()->set_temperature(0.0);
  grpc::ClientContext context;
  const auto begun = steady_clock::now();
  const auto reader = stub.Generate(&context, request);
  Timed timed;
  v1::GenerateChunk chunk;
  bool is_first = true;
  while (reader->Read(&chunk)) {
    if (is_first) {
      timed.first = chunk;
      timed.first_ms =
          std::chrono::duration<double, std::milli>(steady_clock::now() - begun).count();
    }
    is_first = false;
    timed.text += chunk.text();
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) std::printf("failed: %s\n", status.error_message().c_str());
  return timed;
}

void Print(const char* what, const Timed& timed) {
  std::printf("%-28s %9.1f ms, %u of %u tokens cached, %u from disk\n", what, timed.first_ms,
              timed.first.cached_tokens(), timed.first.prompt_tokens(), timed.first.cold_tokens());
  std::fflush(stdout);
}

std::string Words(int count, uint32_t seed) {
  static const char* const kWords[] = {"memory", "link",  "rank",  "the",   "of",   "a",
                                       "ring",   "token", "model", "cache", "disk", "and"};
  std::string text;
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    text += i == 0 ? "" : " ";
    text += kWords[(seed >> 16) % 12];
  }
  return text;
}

uint64_t BlocksOnDisk(Gang& gang) {
  grpc::ClientContext context;
  const auto reader = gang.stub().Watch(&context, v1::WatchRequest());
  v1::RankStatus status;
  reader->Read(&status);
  context.TryCancel();
  return status.kv_cache_disk().blocks();
}

int Main(int argc, char** argv) {
  if (argc < 4) return 1;
  const bool is_gang = argc > 5;
  const GangShape shape = is_gang && argv[4][0] == 't' ? GangShape::kTensor : GangShape::kPipeline;
  const auto ranks = static_cast<uint32_t>(is_gang ? std::atoi(argv[5]) : 1);
  GangOptions options;
  options.context_length = static_cast<uint32_t>(std::atoi(argv[3]));
  std::string root = std::filesystem::temp_directory_path() / "prefix_bench_XXXXXX";
  if (mkdtemp(root.data()) == nullptr) return 1;
  const auto start = [&](uint64_t bytes) {
    auto specs = MakeSpecs(argv[1], shape, ranks, options);
    for (v1::LaunchSpec& spec : specs) {
      spec.set_kv_cache_folder(root + "/" + std::to_string(spec.rank()));
      spec.set_kv_cache_disk_bytes(bytes);
    }
    auto gang = std::make_unique<Gang>(specs);
    if (!gang->WaitUntilReady()) std::exit(1);
    AskTimed(gang->stub(), Words(200, 99));  // so that steps' costs are known
    return gang;
  };
  const std::string first = Words(std::atoi(argv[2]), 1);
  const std::string second = first + kNewText;
  {
    const auto gang = start(uint64_t{4} << 30);
    Print("first turn", AskTimed(gang->stub(), first));
    Print("second turn, from memory", AskTimed(gang->stub(), first + kOtherNewText));
    Print("new tokens alone", AskTimed(gang->stub(), kNewText));
    uint64_t before = 0;
    for (uint64_t blocks = BlocksOnDisk(*gang); blocks == 0 || blocks != before;) {
      before = blocks;
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      blocks = BlocksOnDisk(*gang);
    }
    std::printf("%llu blocks on rank 0's disk\n", static_cast<unsigned long long>(before));
  }
  Print("second turn, from disk", AskTimed(start(uint64_t{4} << 30)->stub(), second));
  Print("second turn, computed", AskTimed(start(0)->stub(), second));
  std::filesystem::remove_all(root);
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int argc, char** argv) { return macrame::runtime::engine::Main(argc, argv); }
