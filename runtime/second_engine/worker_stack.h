#pragma once

// A model that mlx_lm runs in its worker process, in the place of this rank's layers: a step's
// tokens go there with Begin, and Logits hands on what came back. The hidden states that pass
// through are empty. Sequences stand in mlx_lm's own caches, one for each slot; KV blocks are
// counted, not used. So a slot always begins at position 0, and nothing is kept on disk.
//
// Where the gang has several ranks, the workers have a group of their own (mlx.distributed), and
// each rank has its worker run the same steps. Engine thread.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/backends.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/second_engine/worker_process.h"

namespace macrame::runtime::engine {

// Whom the worker is to be of a gang, and over what they meet.
struct WorkerPlace {
  std::string folder;  // of the model
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint64_t positions = 0;              // that all sequences may have together, kept ones too
  Backend backend = Backend::kSingle;  // kRing or kJaccl, when not alone
  std::vector<std::string> addresses;  // ring: where each rank listens, as this one reaches it
  std::string devices;                 // jaccl: the matrix as JSON
  std::string rendezvous;              // jaccl
  std::string topology;                // jaccl: the name of its Topology
  uint64_t wired_bytes = 0;            // that the plan keeps resident for the GPU; 0: no plan
};

struct LoadedWorker {
  uint64_t bytes = 0;   // of weights, on this rank
  uint64_t active = 0;  // MLX's memory there
  int vocab_size = 0;
};

class WorkerStack : public LayerStack {
 public:
  // Starts the worker: ENGINE_MISSING where `python` has no mlx_lm. Its errors go to stderr.
  static absl::StatusOr<std::unique_ptr<WorkerStack>> Start(const std::string& python,
                                                            std::string_view script);
  // The group of the ranks' workers: CONNECT_FAILED, GROUP_MISMATCH.
  absl::Status Connect(const WorkerPlace& place);
  // `on_bytes(loaded, total)` as it goes. MODEL_… when mlx_lm can't load or split it.
  absl::Status Load(const std::function<void(uint64_t, uint64_t)>& on_bytes);

  // Called while a step goes on: some of it is done.
  void SetProgress(std::function<void()> on_progress) { on_progress_ = std::move(on_progress); }

  const LoadedWorker& loaded() const { return loaded_; }
  std::string Name() const { return process_->Name(); }
  pid_t pid() const { return process_->pid(); }

  absl::Status Begin(const ForwardStep& step) override;
  mlx::core::array Embed(std::span<const int32_t> ids) override;
  mlx::core::array Run(const mlx::core::array& hidden, const ForwardStep& step) override;
  mlx::core::array Logits(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  // No model of this engine makes embeddings.
  mlx::core::array Hidden(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  void AppendState(std::vector<mlx::core::array>&) const override {}
  mlx::core::Dtype activation_type() const override { return mlx::core::float32; }
  // Chunks and batches are mlx_lm's to compute; drafts, which would be dropped again, it can't
  // take back.
  bool bits_are_fixed() const override { return false; }
  // Of caches and of buffers that MLX keeps for reuse: what the worker holds beyond the weights.
  uint64_t buffer_bytes() const override { return caches_; }

  size_t stored_block_bytes() const override { return 0; }
  void ReadBlock(int32_t, std::span<std::byte>) const override {}
  void WriteBlock(int32_t, std::span<const std::byte>) override {}
  std::string kv_layout() const override { return "none"; }

 private:
  explicit WorkerStack(std::unique_ptr<WorkerProcess> process) : process_(std::move(process)) {}
  // The next answer, which must be of this kind.
  absl::StatusOr<std::string> Expect(char kind, std::chrono::milliseconds limit = {});
  absl::Status Garbled() const;
  // What an end in the middle of a step means: where there are other ranks, it may be theirs.
  absl::Status InStep(absl::Status failed) const;

  const std::unique_ptr<WorkerProcess> process_;
  WorkerPlace place_;
  // A step in the words of the worker.
  struct Order {
    std::string bytes;
    size_t rows = 0;  // of logits that it asks for
  };
  absl::StatusOr<Order> OrderOf(const ForwardStep& step) const;

  LoadedWorker loaded_;
  std::function<void()> on_progress_;
  uint64_t caches_ = 0;
  std::string rows_;  // the last step's answer
};

}  // namespace macrame::runtime::engine
