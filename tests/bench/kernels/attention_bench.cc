// What attention behind a long context takes, with the KV cache in 16 and in 8 bits.
//
//   attention_bench [--threads N] [--positions P,P,...] [--rows R,R,...] [--seconds S]
//
// Heads as in a 1.2 B Llama (32 queries, 8 keys and values, 64 wide) and in Qwen3 0.6 B (16, 8,
// 128). Rows: tokens of one sequence in the step, 1 for an answer, 256 for a prompt's chunk. Each
// pass reads another layer, so that no cache holds them; the two widths take turns, and the best
// pass of each counts. GB/s: keys and values read.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/matmul.h"
#include "tests/bench/memory_read.h"
#include "tests/bench/number_list.h"

namespace macrame::runtime::kernels {
namespace {

struct Options {
  int threads = 1;
  std::vector<int> positions = {1024, 4096};
  std::vector<int> rows = {1, 256};
  double seconds = 1.0;  // for each line
};

struct Heads {
  const char* name;
  size_t heads, kv_heads, head_dim;
};
constexpr Heads kHeads[] = {{"Llama 1.2B", 32, 8, 64}, {"Qwen3 0.6B", 16, 8, 128}};
constexpr size_t kLayersBytes = size_t{256} << 20;  // layers are spread over so much memory

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// The KV cache of one sequence in several layers.
class Cache {
 public:
  Cache(const KvShape& shape, size_t positions) : shape_(shape) {
    const size_t blocks = (positions + kBlockTokens - 1) / kBlockTokens;
    layer_bytes_ = blocks * BlockBytes(shape);
    layers_ = std::max<size_t>(1, kLayersBytes / layer_bytes_);
    memory_.resize(layers_ * layer_bytes_);
    for (size_t b = 0; b < blocks; ++b) blocks_.push_back(static_cast<int32_t>(b));
    std::vector<float> numbers(shape.kv_heads * shape.head_dim);
    uint32_t state = 1;
    for (size_t p = 0; p < positions; ++p) {
      for (float& number : numbers) {
        state = state * 1664525U + 1013904223U;
        number = static_cast<float>(state >> 24) / 128.0F - 1.0F;
      }
      StoreKv(Layer(0), blocks_.data(), p, numbers.data(), numbers.data());
    }
    for (size_t layer = 1; layer < layers_; ++layer) {
      std::copy_n(memory_.data(), layer_bytes_, memory_.data() + layer * layer_bytes_);
    }
  }
  KvView Layer(size_t number) { return {shape_, memory_.data() + number % layers_ * layer_bytes_}; }
  const int32_t* blocks() const { return blocks_.data(); }
  size_t layer_bytes() const { return layer_bytes_; }
  const std::vector<std::byte>& memory() const { return memory_; }

 private:
  const KvShape shape_;
  size_t layer_bytes_ = 0;
  size_t layers_ = 0;
  std::vector<std::byte> memory_;
  std::vector<int32_t> blocks_;
};

void Measure(const Options& options, const Heads& heads, size_t positions, size_t rows,
             ThreadPool& pool) {
  Cache caches[] = {{{heads.kv_heads, heads.head_dim, KvType::kFloat16}, positions},
                    {{heads.kv_heads, heads.head_dim, KvType::kInt8}, positions}};
  const std::vector<float> queries(rows * heads.heads * heads.head_dim, 0.37F);
  std::vector<float> out(queries.size());
  AttentionScratch scratch;
  double best[] = {1e9, 1e9};
  double read = 0.0;
  const double end = Now() + options.seconds;
  for (size_t round = 0; round < 6 || Now() < end; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const AttentionSegment segment{0, rows, positions - rows, caches[i].blocks()};
      const double begin = Now();
      Attend(pool, caches[i].Layer(round), {heads.heads, 0}, {&segment, 1}, queries.data(),
             out.data(), scratch);
      best[i] = std::min(best[i], Now() - begin);
    }
    if (round % 8 != 0) continue;
    const std::vector<std::byte>& memory = caches[0].memory();
    const double begin = Now();
    const auto* bytes = reinterpret_cast<const uint8_t*>(memory.data());
    if (bench::ReadMemory(pool, bytes, memory.size()) == 1) std::printf(" ");
    read = std::max(read, static_cast<double>(memory.size()) / (Now() - begin) / 1e9);
  }
  const auto speed = [&](size_t i) {
    return static_cast<double>(caches[i].layer_bytes()) / best[i] / 1e9;
  };
  std::printf("| %-10s | %6zu | %4zu | %9.1f | %6.1f | %9.1f | %6.1f | %.2f | %6.1f |\n",
              heads.name, positions, rows, best[0] * 1e6, speed(0), best[1] * 1e6, speed(1),
              best[0] / best[1], read);
  std::fflush(stdout);
}

bool Parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    if (i + 1 == count) return false;
    const char* value = arguments[i + 1];
    if (name == "--threads") {
      options.threads = std::atoi(value);
    } else if (name == "--positions") {
      options.positions = bench::NumberList(value, 1);
    } else if (name == "--rows") {
      options.rows = bench::NumberList(value, 1);
    } else if (name == "--seconds") {
      options.seconds = std::atof(value);
    } else {
      return false;
    }
  }
  return options.threads > 0 && !options.positions.empty() && !options.rows.empty();
}

int Main(int count, char** arguments) {
  Options options;
  if (!Parse(count, arguments, options)) {
    std::fprintf(stderr,
                 "usage: attention_bench [--threads N] [--positions P,...] [--rows R,...] "
                 "[--seconds S]\n");
    return 2;
  }
  ThreadPool pool(options.threads, /*pin=*/options.threads > 1);
  std::printf("%s, %d threads\n\n", InstructionSet(), options.threads);
  std::printf(
      "| heads | positions | rows | 16 bit, us | GB/s | 8 bit, us | GB/s | faster | read GB/s |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Heads& heads : kHeads) {
    for (const int positions : options.positions) {
      for (const int rows : options.rows) {
        const auto most = static_cast<size_t>(positions);
        Measure(options, heads, most, std::min(static_cast<size_t>(rows), most), pool);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::kernels

int main(int count, char** arguments) { return macrame::runtime::kernels::Main(count, arguments); }
