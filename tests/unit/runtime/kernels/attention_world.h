#pragma once

// Sequences in blocks for tests of attention, and what it has to give for them, by plain loops.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/kernels/attention.h"

namespace macrame::runtime::kernels {

// What kInt8 keeps of heads' numbers, as plain loops have it.
std::vector<float> Quantized(const std::vector<float>& heads, size_t head_dim);

// Sequences of random queries, keys and values, stored in one pool of blocks in disorder. A latent
// cache's values are the keys' first numbers, and its scores have a scale of their own.
class World {
 public:
  World(KvShape shape, size_t heads, std::vector<size_t> lengths, bool sinks = false);

  struct Run {
    size_t sequence, begin, end;
  };
  // The results of these positions, run after run.
  std::vector<float> Attend(int threads, size_t window, const std::vector<Run>& runs);

  // One position's result of all heads, in double, from what is kept.
  std::vector<double> Exact(size_t index, size_t position, size_t window) const;

 private:
  struct Sequence {
    std::vector<int32_t> blocks;
    std::vector<float> queries, keys, values;
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  size_t KvIndex(size_t position, size_t head) const {
    return (position * shape_.kv_heads + head) * shape_.head_dim;
  }
  void Store(const Sequence& sequence, size_t p);

  const KvShape shape_;
  const size_t heads_;
  const float scale_;
  const std::vector<size_t> lengths_;
  std::unique_ptr<std::byte[], Free> pool_;
  std::vector<Sequence> sequences_;
  std::vector<float> sinks_;  // of each head, if there are any
  AttentionScratch scratch_;
};

}  // namespace macrame::runtime::kernels
