#pragma once

// How fast this machine reads memory: what stands beside measurements that memory bounds.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/kernels/thread_pool.h"

namespace macrame::bench {

// Four places at once: a single stream leaves some of the memory's speed unused.
inline uint64_t SumOfWords(const uint8_t* data, size_t bytes) {
  constexpr size_t kWords = 8;
  const size_t part = bytes / 4 / 64 * 64;
  uint64_t sums[4][kWords] = {};
  for (size_t i = 0; i < part; i += 64) {
    for (size_t stream = 0; stream < 4; ++stream) {
      uint64_t words[kWords];
      std::memcpy(words, data + stream * part + i, sizeof(words));
      for (size_t k = 0; k < kWords; ++k) sums[stream][k] += words[k];
    }
  }
  uint64_t sum = 0;
  for (const auto& stream : sums) {
    for (const uint64_t word : stream) sum += word;
  }
  return sum;
}

// Reads all `bytes` once with the pool's threads; gives a number that depends on every word, so
// that no read is left out.
inline uint64_t ReadMemory(runtime::kernels::ThreadPool& pool, const uint8_t* data, size_t bytes) {
  std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()));
  pool.Run([&](int worker, int workers) {
    const auto part = runtime::kernels::RowsOfWorker(bytes, 4096, worker, workers);
    sums[static_cast<size_t>(worker)] = SumOfWords(data + part.begin, part.end - part.begin);
  });
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace macrame::bench
