#pragma once

// Brings a rank from its launch spec to readiness: files checked, gang formed, weights loaded, one
// step run. Blocks; engine thread. Used by the serving process and by `rankd --generate`.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/gang/gang_link.h"
#include "runtime/gang/watchdog.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/device_proof.h"
#include "runtime/process/engine_overrides.h"
#include "runtime/process/exit_codes.h"
#include "runtime/serving/batch_scheduler.h"
#include "runtime/serving/forward_engine.h"
#include "runtime/serving/generation_job.h"
#include "runtime/serving/model_drafter.h"

namespace macrame::runtime::engine {

// While weights are read, this long without a byte ends the process.
inline constexpr std::chrono::milliseconds kLoadingStallLimit{120'000};
// Beyond connect_timeout_ms, for backends that have no limit of their own.
inline constexpr std::chrono::milliseconds kGroupGrace{2'000};
inline constexpr uint32_t kConnectTimeoutDefaultMs = 20'000;
inline constexpr uint32_t kStepTimeoutDefaultMs = 60'000;

// Positions, when the spec names none and the model has room for more.
inline constexpr int kContextDefault = 4096;

// One token of a prompt and one of an answer.
inline constexpr uint32_t kContextMin = 2;

// Of an answer in one step.
inline constexpr uint32_t kDraftTokensMax = 12;

struct BootedRank {
  ModelConfig config;
  EngineDevice device = EngineDevice::kCpu;
  uint32_t context_length = 0;
  std::shared_ptr<const ModelText> text;  // rank 0 only, and only when asked for
  std::shared_ptr<GangLink> link;
  std::unique_ptr<DeviceMemory> own_memory;  // unset where BootOptions has one
  DeviceMemory* device_memory = nullptr;     // own_memory, or that of BootOptions
  RankMemory memory;                         // after loading
  std::unique_ptr<ForwardEngine> engine;
  std::optional<pid_t> worker;            // the second engine's process, where it serves
  std::unique_ptr<ModelDrafter> drafter;  // rank 0 only, where the spec names a draft model
  // How many rows of a step have the bits that each has alone (steady_rows.h); 0: any number. Rank
  // 0 of models that may take drafts.
  uint32_t steady_rows = 0;
  std::optional<ProvenDevice> proven_device;  // where MLX's graph computes

  // Weights, caches and buffers, each byte once. After booting; any thread.
  uint64_t HeldBytes() const;
};

struct BootOptions {
  bool needs_text = true;
  bool loads_draft_model = false;  // that the spec names, on rank 0
  int prefill_chunk_tokens = kPrefillChunkTokens;
  EngineOverrides types{};
  int threads = 0;  // of CPU kernels; 0: the processors, shared among the ranks of this machine
  BoundSockets bound{};  // taken over
  std::function<void(v1::RankPhase)> on_phase;
  // They outlive the rank; may be null.
  StepObserver* step_observer = nullptr;
  transport::WireObserver* wire_observer = nullptr;
  // Within CONNECTING: "rendezvous", "queue_pair", "first_collective".
  std::function<void(const std::string& detail)> on_connecting;
  // Bytes of weights; `held`: all memory that the rank holds, in bytes.
  std::function<void(uint64_t loaded, uint64_t total, uint64_t held)> on_progress;
  // A sentence for the rank's log.
  std::function<void(const std::string& line)> on_note;
  DeviceMemory* device_memory = nullptr;  // outlives the rank; null: MLX's own
  // As soon as there is one, so that another thread can shut it down.
  std::function<void(std::shared_ptr<GangLink>)> on_link;
};

// Fills in the limits that a spec leaves at 0. CONFIG_INVALID for what can't be used.
absl::Status CompleteSpec(v1::LaunchSpec& spec);

// The device of the engine; MLX's default device becomes the same. Engine thread.
EngineDevice ChooseDevice(std::optional<EngineDevice> asked);

// CONFIG_INVALID for what no rank can, KV_BITS_UNSUPPORTED for what only a GPU can.
absl::Status CheckKvBits(const v1::LaunchSpec& spec, bool on_gpu);

// The gang's secret is overwritten once the gang is formed: hand the spec over.
absl::StatusOr<std::unique_ptr<BootedRank>> BootRank(v1::LaunchSpec spec, Watchdog& watchdog,
                                                     const BootOptions& options);

// What rank 0's scheduler may order of an engine with these limits: no more at once than memory was
// planned for.
BatchTraits TraitsOf(const ForwardLimits& limits);
// The same with what the engine and its layers can do. No cold tier is running yet.
BatchTraits ServingTraitsOf(const v1::LaunchSpec& spec, const BootedRank& rank);

// Tokens of a prompt that has all to itself, in one step of a rank alone: up to kAloneChunkTokens,
// as mlx-lm takes them, where the rank computes on a GPU, the headroom of its plan has room for
// what more rows take, and MLX has a kernel that attends without a matrix of all scores. Else 0: as
// many as beside others.
inline constexpr uint32_t kAloneChunkTokens = 2048;
uint32_t AloneChunkTokens(const ModelConfig& config, EngineDevice device,
                          const v1::MemoryNeed& need, int stages, uint64_t unpacked_bytes = 0);
// Of the activations that a plan counts, what a GPU unpacks of narrow keys and values.
uint64_t UnpackedBytes(const v1::LaunchSpec& spec, const BootedRank& rank);

// The exit code that tells of a boot's or gang's failure.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace macrame::runtime::engine
