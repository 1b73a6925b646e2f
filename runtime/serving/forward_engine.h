#pragma once

// Runs forward steps on this rank, and on rank 0 drives those of the gang. Every rank runs the same
// step at the same time: rank 0 sends it over the step channel and takes part; the others receive
// and follow.
//
// Pipeline: hidden states go from each rank to the one with its tp_rank in the next stage, the last
// stage's logits to rank 0, in a pure pipeline its neighbour at the ring's end. There, with a group
// of ours, every step has a result (of one number where no logits are asked for), and as many steps
// as there are stages may be on their way, so that each stage has one to work on.
// A stage hands a step on when its part is computed, on a GPU too.
// Tensor: partial sums are added over the stage's ranks; each of the last stage's has the head of
// its part of the vocabulary.
// Alone and in one tensor group, with layers that choose tokens (LayerStack::chooses_tokens: MLX's
// graphs) on every rank: a step is built and started, and the next one may be built behind it, from
// the tokens that this one is choosing, before its results are read. Every rank chooses the same
// ones; all that the ranks exchange is part of the graph then. A pipeline's tokens are chosen on
// the last stage and embedded on the first, so each step would have to hand them back: there the
// host chooses.
//
// One thread. A failing collective (MLX throws) comes back as RANK_EXITED.

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gang/gang_link.h"
#include "runtime/gang/rank_exchange.h"
#include "runtime/gang/step_codec.h"
#include "runtime/gang/step_pipeline.h"
#include "runtime/gang/watchdog.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/device_memory.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/step_observer.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/serving/cold/cold_worker.h"

namespace macrame::runtime::engine {

// Tokens of a prompt that go through the layers in one step.
inline constexpr int kPrefillChunkTokens = 256;

struct ForwardLimits {
  int context_length = 0;  // positions of one sequence
  int blocks_total = 0;    // KV blocks of this rank
  int prefill_chunk_tokens = kPrefillChunkTokens;
  std::chrono::milliseconds step_limit{0};   // zero: none
  std::string step_name = "a forward step";  // in what is said of one that passes the limit
  int threads = 1;                           // of CPU kernels
  // States of recurrent layers that are kept for reuse; 0 where the model has none.
  int state_snapshots = 0;
  std::optional<kernels::KvType> kv_type{};  // see LayerStackOptions, also of the next
  int kv_bits = 0;
  StepObserver* observer = nullptr;  // outlives the engine
  // Where MLX's freed buffers are cleared; null elsewhere. Outlives the engine.
  DeviceMemory* device_memory = nullptr;
};

// What a step gives, each in the order of the segments that ask for it.
struct StepResult {
  std::vector<float> numbers{};   // first all logits, vocab_size a row; then hidden states
  std::vector<int32_t> chosen{};  // the tokens of its kChosen rows; kNoToken where there is none
};

class ForwardEngine {
 public:
  // Loads the weights. `link` and `watchdog` must live as long.
  ForwardEngine(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
                GangLink& link, Watchdog& watchdog, ForwardLimits limits);
  // With layers of their own making, which compute all of the model and, where the gang has several
  // ranks, see to their own group: `link` has none then.
  ForwardEngine(const ModelConfig& config, std::unique_ptr<LayerStack> layers, GangLink& link,
                Watchdog& watchdog, ForwardLimits limits);

  // Rank 0: how many steps may be submitted before the oldest is awaited.
  size_t steps_in_flight_max() const;
  size_t steps_in_flight() const { return in_flight_.size(); }
  int stages() const { return stages_; }
  // Whether steps may have kChosen rows, and tokens of such rows.
  bool chooses_tokens() const { return chooses_tokens_; }
  // How long this rank's own layers took in the step that was submitted last; 0 where they go on
  // behind it.
  std::chrono::microseconds own_part() const { return own_part_; }
  // Rank 0: tells the others and runs its own part of a step. INTERNAL for a step that is not
  // well-formed.
  absl::Status Submit(const ForwardStep& step);
  // Rank 0: the oldest step's results: float32 rows, tokens.
  absl::StatusOr<StepResult> Await();
  // Both, while nothing else is in flight.
  absl::StatusOr<StepResult> Run(const ForwardStep& step);

  // Rank 0: tells the others, without running anything.
  absl::Status Announce(StepKind kind);
  // Rank 0: tells the others to take part in timed collectives now.
  absl::Status AnnounceVerify(const v1::VerifyGroupRequest& request);

  // Rank 0: tells the others and carries out orders of the cold tier. Its worker must be set.
  absl::Status RunCold(const ColdOrders& orders);

  // Other ranks: one kForward step that was received. Where steps choose tokens, the step is
  // started and the one before it is awaited.
  absl::Status Follow(const Step& step);
  // Other ranks: waits for what Follow has started.
  absl::Status FinishFollowed();
  // Other ranks: orders of a kCold step; false: this rank has no worker, and nothing was done.
  absl::StatusOr<bool> FollowCold(const ColdOrders& orders);

  void SetColdWorker(std::unique_ptr<ColdWorker> worker) { cold_worker_ = std::move(worker); }
  const ColdWorker* cold_worker() const { return cold_worker_.get(); }
  const LayerStack& layers() const { return *layers_; }

  // Whether a token's logits have the same bits whatever else a step runs, as our CPU kernels
  // promise: drafts then change no text.
  bool bits_are_fixed() const;
  int vocab_size() const { return config_.vocab_size; }
  int hidden_size() const { return config_.hidden_size; }
  // What this rank's layers are computed with: idle between steps. Engine thread; may be null.
  kernels::ThreadPool* threads() { return layers_->threads(); }
  const ForwardLimits& limits() const { return limits_; }
  // What the KV cache and the buffers of steps have taken so far, where MLX does not count them.
  // Any thread.
  uint64_t step_bytes() const {
    return blocks_used_.load() * layers_->block_bytes() + buffer_bytes_.load();
  }

 private:
  // A step of rank 0 that has not been awaited.
  struct InFlight {
    StepResult result{};
    bool is_in_pipeline = false;  // the rows come from there
    bool has_rows = false;
    // Of a step that goes on: what is still to come, and something else to wait for if that is
    // nothing.
    std::optional<mlx::core::array> chosen{}, logits{}, hidden{}, last{};
    ForwardStep observed{};  // for the observer
    bool clears = false;     // freed buffers are given back once its results are there
    bool goes_on() const { return chosen || logits || hidden || last; }
  };
  static std::unique_ptr<LayerStack> LoadLayers(const ModelConfig& config, const ShardPlace& place,
                                                WeightLoader& loader, RankExchange& exchange,
                                                const GangLink& link, const ForwardLimits& limits);
  absl::Status SendStep(Step step);
  // This rank's part of a step; `own` is set on rank 0.
  absl::Status RunStep(const ForwardStep& step, InFlight* own);
  void RunStages(const ForwardStep& step, InFlight* own);
  // Of layers that choose tokens: builds a step and starts it.
  void Start(const ForwardStep& step, InFlight& own);
  mlx::core::array WholeOf(const mlx::core::array& part,
                           const std::optional<mlx::core::array>& before);
  absl::Status StartNext(const ForwardStep& step);
  absl::StatusOr<StepResult> AwaitStarted(InFlight step);
  // What the observer hears of the step that is the oldest now.
  void ObserveOldest();
  // `begun`: when this rank's layers began with the step.
  void SendOn(const mlx::core::array& hidden, const RankExchange::Rows& rows,
              std::chrono::steady_clock::time_point begun, InFlight& own);
  absl::Status Guarded(const std::function<absl::Status()>& work);
  mlx::core::array Embed(std::span<const int32_t> tokens);
  // Takes the step's blocks; the layers are ready for it.
  absl::Status BeginLayers(const ForwardStep& step);
  void NoteBlocks(const ForwardStep& step);
  void NoteBlock(int32_t block);
  absl::Status CarryOut(const ColdOrders& orders);
  absl::Status CarryOutInOrder(const ColdOrders& orders);
  absl::Status Fill(const ColdFill& fill);
  absl::Status StoreBlocks(std::span<const ColdStore> stores);
  size_t BlocksAtOnce() const;

  const ModelConfig config_;
  const ShardPlace place_;
  GangLink& link_;
  Watchdog& watchdog_;
  const ForwardLimits limits_;
  const int stages_;
  const bool confirms_steps_;  // the last stage sends a result for each step
  RankExchange exchange_;
  std::optional<StepPipeline> pipeline_;           // rank 0's, where steps are confirmed
  std::deque<InFlight> in_flight_;                 // oldest first; others': what they started
  std::optional<mlx::core::array> chosen_before_;  // by the step that was started last
  std::optional<StepScope> observed_;              // of the oldest step that was started
  std::chrono::microseconds own_part_{};
  std::unique_ptr<LayerStack> layers_;
  const bool chooses_tokens_;
  std::atomic<uint64_t> blocks_used_ = 0;  // the highest number of a block in any step, plus one
  std::atomic<uint64_t> buffer_bytes_ = 0;
  uint64_t next_step_ = 1;  // 0 was kConnect
  std::unique_ptr<ColdWorker> cold_worker_;
  CacheClearing cache_clearing_;
};

}  // namespace macrame::runtime::engine
