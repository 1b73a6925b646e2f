#pragma once

// Multi-head latent attention of one layer on a CPU, in the absorbed form: each head's query is
// mapped into the latent space and attends there, to one vector a position that all heads share
// (the normed latent, then the turned rotary key); what comes out is mapped to the head's values.
// So the KV cache is read as it is, for prompts and answers alike, and nothing is unpacked from it.
//
// A row's bits depend on the row and its sequence alone, as everywhere (cpu_model.h).

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/cpu/sparse_index.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Rows that are in the latent space at once: there a row is several times wider than elsewhere.
inline constexpr size_t kLatentRowsAtOnce = 64;

// What all layers share: the memory of a step, and a product's of each thread.
class LatentWork {
 public:
  LatentWork(kernels::ThreadPool& pool, CpuProducts& products, kernels::AttentionScratch& scratch);
  size_t memory_bytes() const;

 private:
  friend class CpuLatentAttention;
  // One thread's products with single heads' maps.
  struct Worker {
    kernels::ThreadPool alone{1};
    kernels::Activations input{};
    kernels::Scratch scratch{};
    FloatBuffer from{}, to{};
  };

  kernels::ThreadPool& pool_;
  CpuProducts& products_;
  kernels::AttentionScratch& scratch_;
  FloatBuffer query_latent_, keys_, queries_, embedded_, mixed_;
  FloatBuffer rows_;  // latent keys with those of the indexer behind them
  std::vector<kernels::AttentionSegment> segments_;
  IndexWork index_;
  FloatBuffer chosen_cache_;  // the chosen positions' keys, as they are stored
  std::vector<int32_t> chosen_, chosen_blocks_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

struct LatentStep {
  kernels::KvView view;
  std::span<const kernels::AttentionSegment> segments;
  size_t rows = 0;
  kernels::Rotation rotation;  // of row 0; the others' follow
};

class CpuLatentAttention {
 public:
  CpuLatentAttention(const ModelConfig& config, const ShardPlace& place, const LatentNeeds& needs,
                     WeightLoader& loader);

  // out [rows, heads x value] = what this rank's heads give for x [rows, hidden], normed hidden
  // states; their positions are added to the cache first. The rank must have heads.
  void Apply(const float* x, const LatentStep& step, LatentWork& work, float* out) const;

 private:
  // Of one head: views into `loaded_` or `turned_`.
  struct HeadMaps {
    kernels::MatrixView embed_q;      // [kv_rank, nope]
    kernels::MatrixView unembed_out;  // [value, kv_rank]
  };
  using Floats = std::vector<float>;

  void LoadMaps(const LatentNeeds& needs, WeightLoader& loader);
  void LoadTurned(const LatentNeeds& needs, WeightLoader& loader);
  void Project(const float* x, const LatentStep& step, LatentWork& work) const;
  // Rows [begin, end) of the step: those that see everything they may, then those that choose.
  void Mix(const LatentStep& step, size_t begin, size_t end, LatentWork& work) const;
  // Rows of one sequence, from `begin` in work.embedded_ on, at most kSparseRowsAtOnce.
  void MixChosen(const LatentStep& step, const kernels::AttentionSegment& segment, size_t begin,
                 LatentWork& work) const;
  void StoreKeys(const LatentStep& step, LatentWork& work) const;
  // Rows [begin, begin + count): queries into the latent space, and from there to `out`.
  void Embed(size_t begin, size_t count, LatentWork& work) const;
  void Unembed(size_t begin, size_t count, LatentWork& work, float* out) const;

  const LatentTraits traits_;
  const size_t heads_;  // of this rank
  std::optional<CpuLinear> q_a_;
  CpuLinear q_b_, kv_a_;
  std::optional<CpuSparseIndex> index_;
  std::optional<Floats> q_a_norm_;
  Floats kv_a_norm_;
  std::vector<Linear> loaded_;           // keep the memory of views
  std::unique_ptr<std::byte[]> turned_;  // all embed_q, when the files hold them the other way
  std::vector<HeadMaps> maps_;
};

}  // namespace macrame::runtime::engine
