// What our matrix products reach beside the speed of this machine's memory.
//
//   kernels_bench [--threads N] [--bits B,B,...] [--group G] [--vectors V,V,...] [--seconds S]
//                 [--mxfp4|--mxfp8|--nvfp4] [--processor-time]
//
// For each shape, bits and number of vectors: GB/s of weights (with scales) read and GFLOP/s, the
// best of several passes over enough matrices that no cache holds them, and beside it what a plain
// read of memory reached between those passes. With --processor-time time counts that this thread
// was running, which others on the machine disturb less; only with one thread.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/kernels/matmul.h"
#include "tests/bench/memory_read.h"
#include "tests/bench/number_list.h"

namespace macrame::runtime::kernels {
namespace {

struct Options {
  int threads = 1;
  std::vector<int> bits = {4};
  int group_size = 64;
  std::vector<int> vectors = {1, 2, 4, 8, 16, 256};
  double seconds = 0.5;  // for each line
  bool processor_time = false;
  Packing packing = Packing::kAffine;
};

struct Shape {
  const char* name;
  size_t rows;
  size_t columns;
};

constexpr Shape kShapes[] = {
    {"Llama 1.2B q, o", 2048, 2048},     {"Llama 1.2B gate, up", 8192, 2048},
    {"Llama 1.2B down", 2048, 8192},     {"Llama 1.2B head", 128256, 2048},
    {"Qwen3 0.6B q", 2048, 1024},        {"Qwen3 0.6B o", 1024, 2048},
    {"Qwen3 0.6B gate, up", 3072, 1024}, {"Qwen3 0.6B down", 1024, 3072},
};
constexpr size_t kPoolBytes = size_t{256} << 20;  // weights are spread over so much memory

double Now(const Options& options) {
  if (options.processor_time) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// GB/s of a plain read of `bytes` by all workers.
double ReadSpeed(const Options& options, ThreadPool& pool, const uint8_t* data, size_t bytes) {
  const double begin = Now(options);
  const uint64_t sum = bench::ReadMemory(pool, data, bytes);
  const double seconds = Now(options) - begin;
  if (sum == 1) std::printf(" ");  // so that the sum is needed
  return static_cast<double>(bytes) / seconds / 1e9;
}

void Measure(const Options& options, const Shape& shape, int bits, size_t vectors, ThreadPool& pool,
             const uint8_t* memory) {
  MatrixView matrix = {shape.rows, shape.columns, bits, options.group_size, Scalar::kBfloat16};
  const size_t weight_bytes = shape.rows * WeightRowBytes(matrix);
  const bool is_affine = options.packing == Packing::kAffine;
  matrix.packing = options.packing;
  const size_t scale_bytes = bits == 0 ? 0 : shape.rows * ScaleRowBytes(matrix);
  const size_t bytes = weight_bytes + (is_affine ? 2 : 1) * scale_bytes;
  const size_t copies = std::max<size_t>(1, kPoolBytes / bytes);
  const std::vector<float> x(vectors * shape.columns, 0.37F);
  std::vector<float> y(vectors * shape.rows);
  Activations activations;
  Scratch scratch;
  double best = 1e9;
  double read = 0.0;
  const double end = Now(options) + options.seconds;
  for (size_t round = 0; round < 3 || Now(options) < end; ++round) {
    const uint8_t* base = memory + round % copies * bytes;
    matrix.weights = base;
    matrix.scales = base + weight_bytes;
    matrix.biases = is_affine ? base + weight_bytes + scale_bytes : nullptr;
    const double begin = Now(options);
    activations.Set(x.data(), vectors, shape.columns);
    MultiplyTransposed(pool, matrix, activations, y.data(), scratch);
    best = std::min(best, Now(options) - begin);
    if (round % 8 == 0) {
      const size_t next = (round + copies / 2) % copies;  // not what comes next
      const size_t some = std::min<size_t>(bytes, size_t{4} << 20);
      read = std::max(read, ReadSpeed(options, pool, memory + next * bytes, some));
    }
  }
  const double gigabytes = static_cast<double>(bytes) / best / 1e9;
  std::printf("| %-20s | %6zu x %4zu | %d | %3zu | %9.1f | %6.1f | %6.1f | %3.0f %% | %7.1f |\n",
              shape.name, shape.rows, shape.columns, bits, vectors, best * 1e6, gigabytes, read,
              100 * gigabytes / read,
              2e-9 * static_cast<double>(shape.rows * shape.columns * vectors) / best);
  std::fflush(stdout);
}

bool Parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--processor-time") {
      options.processor_time = true;
      continue;
    }
    if (name == "--mxfp4" || name == "--mxfp8" || name == "--nvfp4") {
      options.packing = name == "--mxfp4"   ? Packing::kMxfp4
                        : name == "--mxfp8" ? Packing::kMxfp8
                                            : Packing::kNvfp4;
      options.bits = {name == "--mxfp8" ? 8 : 4};
      options.group_size = name == "--nvfp4" ? 16 : 32;
      continue;
    }
    if (i + 1 == count) return false;
    const char* value = arguments[++i];
    if (name == "--threads") {
      options.threads = std::atoi(value);
    } else if (name == "--bits") {
      options.bits = bench::NumberList(value, 0);
    } else if (name == "--group") {
      options.group_size = std::atoi(value);
    } else if (name == "--vectors") {
      options.vectors = bench::NumberList(value, 0);
    } else if (name == "--seconds") {
      options.seconds = std::atof(value);
    } else {
      return false;
    }
  }
  return options.threads > 0 && !options.bits.empty() && !options.vectors.empty() &&
         (options.group_size == 32 || options.group_size == 64 || options.group_size == 128 ||
          options.packing == Packing::kNvfp4) &&
         (!options.processor_time || options.threads == 1);
}

int Main(int count, char** arguments) {
  Options options;
  if (!Parse(count, arguments, options)) {
    std::fprintf(stderr,
                 "usage: kernels_bench [--threads N] [--bits B,...] [--group 32|64|128] "
                 "[--vectors V,...] [--seconds S] [--mxfp4|--mxfp8|--nvfp4] [--processor-time]\n");
    return 2;
  }
  ThreadPool pool(options.threads, /*pin=*/options.threads > 1);
  // The largest matrix, floats of 16 bits, fits. As scales these bytes are numbers around 0.01:
  // subnormal ones would be what is measured.
  const size_t bytes = std::max(kPoolBytes, size_t{128256} * 2048 * 2) + 4096;
  const auto memory = std::make_unique<uint8_t[]>(bytes);
  uint32_t state = 1;
  for (size_t i = 0; i < bytes; i += 2) {
    memory[i] = static_cast<uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
    memory[i + 1] = 0x3c;
  }
  std::printf("%s, %d threads; plain read of 256 MiB: %.1f GB/s\n\n", InstructionSet(),
              options.threads, ReadSpeed(options, pool, memory.get(), kPoolBytes));
  std::printf(
      "| shape | rows x columns | bits | vectors | us | GB/s | read GB/s | of read | "
      "GFLOP/s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const int bits : options.bits) {
    for (const Shape& shape : kShapes) {
      for (const int vectors : options.vectors) {
        Measure(options, shape, bits, static_cast<size_t>(vectors), pool, memory.get());
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::kernels

int main(int count, char** arguments) { return macrame::runtime::kernels::Main(count, arguments); }
