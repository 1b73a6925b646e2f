#include "runtime/process/rank_boot.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "mlx/mlx.h"
#include "proto/memory_need.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "runtime/gang/rank_exchange.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/device_proof.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/families/pooling.h"
#include "runtime/model/load_layer_stack.h"
#include "runtime/model/split_proof.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/process/draft_boot.h"
#include "runtime/process/second_boot.h"
#include "runtime/process/termination_message.h"
#include "runtime/serving/solo_sequence.h"
#include "runtime/serving/steady_rows.h"
#include "runtime/serving/text_probe.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

// On a machine whose steps take longer than the budget anyway, smaller chunks would read the
// weights for next to nothing.
constexpr uint32_t kChunkTokensMin = 64;

// The type that hidden states have on this rank, known before anything is loaded.
WireType WireTypeFor(const ModelConfig& config, const ShardPlace& place, EngineDevice device,
                     const std::shared_ptr<const WeightFiles>& files) {
  const WeightLoader probe(files, config, place, device, [](uint64_t) {});
  return WireTypeOf(probe.activation_type());
}

// Slices of unequal width, or experts that are dealt out whole.
bool NeedsProof(const GangLink& link) {
  const std::vector<SliceRange>& slices = link.slices();
  if (slices[0].whole_experts) return true;
  return std::any_of(slices.begin(), slices.end(), [&](const SliceRange& one) {
    return int64_t{one.end - one.begin} * slices[0].count !=
           int64_t{slices[0].end - slices[0].begin} * one.count;
  });
}

enum class ProofKind : uint8_t { kDevice, kSplit };

absl::Status Prove(const v1::LaunchSpec& spec, ProofKind kind, const ShardPlace& place,
                   const std::shared_ptr<const WeightFiles>& files, Watchdog& watchdog,
                   BootedRank& rank) {
  const std::string name = kind == ProofKind::kDevice ? "the device" : "the split";
  const auto guard = watchdog.Watch(absl::StrCat("proving ", name), kLoadingStallLimit);
  // What will be taken while it serves, and is not yet.
  const v1::MemoryNeed& need = spec.assignment().need();
  const uint64_t spare = need.kv_cache_bytes() + need.activation_bytes() + need.headroom_bytes();
  RankExchange sums(*rank.link, rank.config, place, rank.engine->layers().activation_type());
  const int threads = rank.engine->limits().threads;
  try {
    if (kind == ProofKind::kDevice) {
      const int kv_bits = rank.engine->limits().kv_bits > 0 ? int{kKvBitsNarrow} : 0;
      const auto proven =
          ProveDevice({rank.config, place, files, rank.device, threads, spare, kv_bits});
      if (proven.ok()) rank.proven_device = *proven;
      return proven.status();
    }
    return ProveSplit({rank.config, place, files, rank.device, threads, spare}, sums);
  } catch (const std::bad_alloc&) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
                        absl::StrCat("the system refused memory for the proof of ", name));
  } catch (const std::exception& error) {
    if (kind == ProofKind::kDevice) {
      return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kDeviceDiffers,
                          absl::StrCat("a layer can't be computed by MLX here: ", error.what()));
    }
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited,
                        absl::StrCat("a rank was lost in the proof of the split: ", error.what()));
  }
}

// Drafts behind a token are rows of its step: as many as change no bits of it.
absl::Status MeasureDraftRows(const v1::LaunchSpec& spec, BootedRank& rank) {
  const bool takes_drafts = rank.config.has_head && !rank.config.has_state();
  const bool none_asked = spec.has_draft_tokens_max() && spec.draft_tokens_max() == 0;
  if (!takes_drafts || none_asked || rank.worker.has_value()) return absl::OkStatus();
  if (rank.engine->bits_are_fixed()) return absl::OkStatus();
  // Which kernel multiplies with narrow keys also depends on how many there are.
  if (rank.engine->limits().kv_bits > 0) {
    rank.steady_rows = 1;
    return absl::OkStatus();
  }
  const auto rows = MeasureSteadyRows(*rank.engine);
  if (rows.ok()) rank.steady_rows = *rows;
  return rows.status();
}

// Once all have loaded: the proof of a split that needs one, and first steps.
absl::Status WarmUp(const v1::LaunchSpec& spec, const std::function<absl::Status()>& prove,
                    BootedRank& rank) {
  if (spec.rank() == 0) {
    if (rank.link->leader() != nullptr) {
      absl::Status status = rank.link->leader()->AwaitLoaded();
      if (status.ok() && NeedsProof(*rank.link)) {
        status = rank.engine->Announce(StepKind::kProve);
        if (status.ok()) status = prove();
      }
      if (!status.ok()) return status;
    }
    const int32_t token[] = {0};
    SoloSequence sequence(*rank.engine);
    const LogitRows asked = rank.config.has_head ? LogitRows::kLast : LogitRows::kHiddenLast;
    const auto rows = sequence.Forward(token, 0, asked, [] { return true; });
    if (!rows.ok()) return rows.status();
    absl::Status status = sequence.Close();
    if (status.ok()) status = MeasureDraftRows(spec, rank);
    if (!status.ok()) return status;
    return rank.engine->Announce(StepKind::kReady);
  }
  const absl::Status told = rank.link->follower()->Tell({ReportKind::kLoaded, ""});
  if (!told.ok()) return told;
  while (true) {
    const auto step = rank.link->follower()->Receive();
    if (!step.ok()) return step.status();
    if (step->kind == StepKind::kReady) return absl::OkStatus();
    if (step->kind == StepKind::kStop) return absl::CancelledError("rank 0 stops");
    const absl::Status ran = step->kind == StepKind::kProve ? prove() : rank.engine->Follow(*step);
    if (!ran.ok()) return ran;
  }
}

// Ranks that stand on this machine share its processors: this one, whatever it listens at, and
// those that it meets on the loopback interface.
int ThreadsFor(const v1::LaunchSpec& spec) {
  int sharing = 1;
  for (int rank = 0; rank < spec.ring_addresses_size(); ++rank) {
    const bool is_other = rank != static_cast<int>(spec.rank());
    if (is_other && absl::StartsWith(spec.ring_addresses(rank), "127.")) ++sharing;
  }
  return std::max(1, kernels::ThreadPool::UsableProcessors() / sharing);
}

// Before the first weight is loaded.
void LimitMemory(const v1::LaunchSpec& spec, const BootOptions& options, BootedRank& rank) {
  rank.device_memory = options.device_memory;
  if (rank.device_memory == nullptr) {
    rank.own_memory = MakeDeviceMemory(rank.device);
    rank.device_memory = rank.own_memory.get();
  }
  const v1::MemoryNeed& need = spec.assignment().need();
  const PlannedMemory planned{WiredBytes(need).count(), need.headroom_bytes()};
  const std::string cut = LimitDeviceMemory(rank.device, planned, *rank.device_memory);
  if (!cut.empty() && options.on_note) options.on_note(cut);
}

absl::Status LoadWeights(const v1::LaunchSpec& spec, const ShardPlace& place,
                         std::shared_ptr<const WeightFiles> files,
                         const std::optional<CheckedDraft>& draft, Watchdog& watchdog,
                         const BootOptions& options, BootedRank& rank) {
  LimitMemory(spec, options, rank);
  uint64_t loaded = 0;
  uint64_t total = 0;
  const auto tell = [&] {
    const uint64_t held = rank.device_memory->HeldBytes();
    rank.memory = RankMemoryOf(rank.device, loaded, held);
    if (options.on_progress) options.on_progress(loaded, total, rank.memory.With(held));
  };
  const auto on_bytes = [&](uint64_t bytes) {
    loaded += bytes;
    watchdog.Touch();
    tell();
  };
  WeightLoader loader(std::move(files), rank.config, place, rank.device, on_bytes);
  total = loader.BytesNeeded() + (draft.has_value() ? DraftBytes(*draft) : 0);
  tell();
  ForwardLimits limits;
  limits.context_length = static_cast<int>(spec.context_length());
  limits.blocks_total = BlocksFor(limits.context_length) *
                        static_cast<int>(std::max<uint32_t>(spec.concurrent_sequences(), 1));
  limits.state_snapshots = static_cast<int>(spec.state_snapshots());
  limits.kv_type = options.types.kv;
  if (!limits.kv_type.has_value() && spec.kv_bits() == kKvBitsNarrow) {
    limits.kv_type = kernels::KvType::kInt8;
  }
  if (spec.kv_bits() < kKvBitsDefault) limits.kv_bits = static_cast<int>(spec.kv_bits());
  limits.threads = options.threads > 0 ? options.threads : ThreadsFor(spec);
  limits.prefill_chunk_tokens = options.prefill_chunk_tokens;
  limits.observer = options.step_observer;
  limits.device_memory = rank.device_memory;
  limits.step_limit = milliseconds(spec.step_timeout_ms());
  const auto guard = watchdog.Watch("loading weights", kLoadingStallLimit);
  try {
    rank.engine =
        std::make_unique<ForwardEngine>(rank.config, place, loader, *rank.link, watchdog, limits);
  } catch (const std::bad_alloc&) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
                        absl::StrCat("the system refused memory while loading ", total, " bytes"));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("loading weights: ", error.what()));
  }
  if (!draft.has_value()) return absl::OkStatus();
  auto drafter = LoadDraft(spec, *draft, limits.threads, watchdog, on_bytes);
  if (!drafter.ok()) return drafter.status();
  rank.drafter = *std::move(drafter);
  return absl::OkStatus();
}

uint32_t ContextLengthOf(const v1::LaunchSpec& spec, const ModelConfig& config) {
  if (spec.context_length() != 0) return spec.context_length();
  return static_cast<uint32_t>(std::min(kContextDefault, config.context_length_max));
}

// As many as change no bits; more only where they are asked for, by number or with a draft model.
void AllowDrafts(const v1::LaunchSpec& spec, const BootedRank& rank, BatchTraits& traits) {
  const bool is_asked = spec.has_draft_tokens_max() || rank.drafter != nullptr;
  traits.draft_tokens_max = spec.has_draft_tokens_max()
                                ? std::min(spec.draft_tokens_max(), kDraftTokensMax)
                                : kDraftTokensMax;
  if (rank.steady_rows > 0 && !is_asked) {
    traits.draft_tokens_max = std::min(traits.draft_tokens_max, rank.steady_rows - 1);
    traits.draft_rows_max = rank.steady_rows;
  }
  if (rank.drafter != nullptr) traits.draft_model = rank.drafter->traits();
}

absl::Status CheckContext(uint32_t context) {
  if (context < kContextMin) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kConfigInvalid,
                        absl::StrCat("launch spec: a context of ", context,
                                     "; a prompt and an answer need ", kContextMin));
  }
  return absl::OkStatus();
}

void Enter(v1::RankPhase phase, const BootOptions& options) {
  if (options.on_phase) options.on_phase(phase);
}

absl::StatusOr<std::unique_ptr<BootedRank>> BootForSecondEngine(v1::LaunchSpec& spec,
                                                                Watchdog& watchdog,
                                                                const BootOptions& options) {
  auto rank = BootSecondEngine(spec, watchdog, options);
  transport::Wipe(*spec.mutable_gang_secret());
  if (!rank.ok()) return rank.status();
  Enter(v1::RANK_PHASE_WARMING_UP, options);
  // mlx_lm's slices are equal.
  const absl::Status status = WarmUp(
      spec, [] { return absl::OkStatus(); }, **rank);
  if (!status.ok()) return status;
  return rank;
}

// What a rank knows of its model before it meets the others.
struct StagedModel {
  ShardPlace place;
  std::shared_ptr<const WeightFiles> files;
  std::optional<CheckedDraft> draft;
};

// Sets what the spec leaves open and the config decides.
absl::Status ReadConfig(v1::LaunchSpec& spec, ShardPlace& place, BootedRank& rank) {
  auto config = LoadModelConfig(spec.model().path());
  if (!config.ok()) return config.status();
  rank.config = *std::move(config);
  if (!rank.config.has_state()) {
    spec.clear_state_snapshots();
  } else if (spec.state_snapshots() == 0) {
    spec.set_state_snapshots(kStateSnapshotsDefault);
  }
  if (spec.world_size() == 1 && place.layer_end == 0) place.layer_end = rank.config.layer_count;
  rank.context_length = ContextLengthOf(spec, rank.config);
  const absl::Status status = CheckContext(rank.context_length);
  if (status.ok()) spec.set_context_length(rank.context_length);
  return status;
}

absl::Status LoadText(const v1::LaunchSpec& spec, BootedRank& rank) {
  auto text = LoadModelText(spec.model().path(), EmbeddingTraitsOf(rank.config));
  if (!text.ok()) return text.status();
  const absl::Status status = ProbeText(spec.model().path(), **text, rank.config.vocab_size);
  if (status.ok()) rank.text = *std::move(text);
  return status;
}

absl::StatusOr<StagedModel> Stage(v1::LaunchSpec& spec, const BootOptions& options,
                                  BootedRank& rank) {
  const auto place = PlaceOf(spec);
  if (!place.ok()) return place.status();
  StagedModel staged{*place, nullptr, std::nullopt};
  absl::Status status = ReadConfig(spec, staged.place, rank);
  if (!status.ok()) return status;
  auto files = WeightFiles::Open(spec.model().path());
  if (!files.ok()) return files.status();
  staged.files = *std::move(files);
  status = ReadPooling(*staged.files, rank.config);
  if (status.ok()) status = CheckWeights(rank.config, staged.place, *staged.files);
  if (status.ok() && spec.rank() == 0 && options.needs_text) status = LoadText(spec, rank);
  if (!status.ok()) return status;
  if (spec.rank() == 0 && spec.has_draft_model() && options.loads_draft_model) {
    auto draft = CheckDraft(spec, rank.device, rank.config.vocab_size, rank.text.get());
    if (!draft.ok()) return draft.status();
    staged.draft = *std::move(draft);
  }
  return staged;
}

absl::Status Connect(v1::LaunchSpec& spec, const StagedModel& model, Watchdog& watchdog,
                     const BootOptions& options, BootedRank& rank) {
  const auto guard =
      watchdog.Watch(kConnectingToGang, milliseconds(spec.connect_timeout_ms()) + kGroupGrace);
  auto link = GangLink::Form(
      spec,
      {options.types.wire.value_or(WireTypeFor(rank.config, model.place, rank.device, model.files)),
       MayChooseTokens(rank.config, model.place, rank.device)},
      [&](const std::string& detail) {
        if (options.on_connecting) options.on_connecting(detail);
      },
      options.wire_observer, options.bound);
  transport::Wipe(*spec.mutable_gang_secret());
  if (!link.ok()) return link.status();
  rank.link = *std::move(link);
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteSpec(v1::LaunchSpec& spec) {
  const auto bad = [](std::string message) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kConfigInvalid,
                        absl::StrCat("launch spec: ", message));
  };
  if (spec.model().path().empty()) return bad("it names no model folder");
  if (spec.world_size() > 1 && spec.gang_secret().size() != 32) {
    return bad(absl::StrCat("a gang secret of ", spec.gang_secret().size(), " bytes, not 32"));
  }
  if (spec.world_size() > 1 && spec.step_address().empty()) return bad("no step address");
  if (spec.connect_timeout_ms() == 0) spec.set_connect_timeout_ms(kConnectTimeoutDefaultMs);
  if (spec.step_timeout_ms() == 0) spec.set_step_timeout_ms(kStepTimeoutDefaultMs);
  return absl::OkStatus();
}

EngineDevice ChooseDevice(std::optional<EngineDevice> asked) {
  namespace mx = mlx::core;
  if (!asked.has_value()) {
    return mx::default_device() == mx::Device::cpu ? EngineDevice::kCpu : EngineDevice::kGpu;
  }
  mx::set_default_device(*asked == EngineDevice::kGpu ? mx::Device::gpu : mx::Device::cpu);
  return *asked;
}

absl::Status CheckKvBits(const v1::LaunchSpec& spec, bool on_gpu) {
  const uint32_t bits = spec.kv_bits();
  if (bits != 0 && !MayHaveKvBits(bits)) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kConfigInvalid,
                        absl::StrCat("launch spec: a KV cache of ", bits, " bits; it is ",
                                     kKvBitsDefault, ", ", kKvBitsNarrow, " or ", kKvBitsFewest));
  }
  if (bits != kKvBitsFewest || on_gpu) return absl::OkStatus();
  const std::string& node = spec.assignment().hostname();
  v1::Reason reason =
      MakeReason(reasons::kKvBitsUnsupported,
                 absl::StrCat("a KV cache of ", bits, " bits was asked for; ",
                              node.empty() ? "this machine" : node, " computes on its CPU, where ",
                              kKvBitsNarrow, " are the fewest"),
                 spec.assignment().node_id());
  reason.set_remedy("load the model with --kv-bits 8, or on nodes with a GPU");
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
}

absl::StatusOr<std::unique_ptr<BootedRank>> BootRank(v1::LaunchSpec spec, Watchdog& watchdog,
                                                     const BootOptions& options) {
  Enter(v1::RANK_PHASE_STAGING, options);
  absl::Status status = CompleteSpec(spec);
  if (!status.ok()) return status;
  if (IsForSecondEngine(spec)) return BootForSecondEngine(spec, watchdog, options);
  auto rank = std::make_unique<BootedRank>();
  rank->device = ChooseDevice(options.types.device);
  const bool on_gpu = UsesMlxGraph(rank->device);
  status = CheckKvBits(spec, on_gpu);
  if (!status.ok()) return status;
  const auto staged = Stage(spec, options, *rank);
  if (!staged.ok()) return staged.status();
  const StagedModel& model = *staged;

  Enter(v1::RANK_PHASE_CONNECTING, options);
  status = Connect(spec, model, watchdog, options, *rank);
  if (!status.ok()) return status;
  if (options.on_link) options.on_link(rank->link);

  Enter(v1::RANK_PHASE_LOADING, options);
  status = LoadWeights(spec, model.place, model.files, model.draft, watchdog, options, *rank);
  if (!status.ok()) return status;
  Enter(v1::RANK_PHASE_WARMING_UP, options);
  if (on_gpu) status = Prove(spec, ProofKind::kDevice, model.place, model.files, watchdog, *rank);
  if (!status.ok()) return status;
  const auto prove_split = [&] {
    return Prove(spec, ProofKind::kSplit, model.place, model.files, watchdog, *rank);
  };
  status = WarmUp(spec, prove_split, *rank);
  if (!status.ok()) return status;
  return rank;
}

uint64_t BootedRank::HeldBytes() const {
  const uint64_t in_mlx = device_memory == nullptr ? 0 : device_memory->HeldBytes();
  return memory.With(in_mlx) + engine->step_bytes() + (drafter == nullptr ? 0 : drafter->bytes());
}

BatchTraits TraitsOf(const ForwardLimits& limits) {
  BatchTraits traits;
  traits.blocks_total = static_cast<uint32_t>(limits.blocks_total);
  traits.context_length = static_cast<uint32_t>(limits.context_length);
  traits.sequences_max = kAnsweredAtOnceMax;
  traits.chunk_tokens_max = static_cast<uint32_t>(limits.prefill_chunk_tokens);
  traits.chunk_tokens_min = std::min(kChunkTokensMin, traits.chunk_tokens_max);
  return traits;
}

BatchTraits ServingTraitsOf(const v1::LaunchSpec& spec, const BootedRank& rank) {
  const ForwardEngine& engine = *rank.engine;
  BatchTraits traits = TraitsOf(engine.limits());
  traits.shares_prefixes = !IsForSecondEngine(spec);
  traits.steps_in_flight_max = static_cast<uint32_t>(engine.steps_in_flight_max());
  traits.chooses_tokens = engine.chooses_tokens();
  traits.keeps_runs = engine.layers().keeps_runs();
  // A model with recurrent layers takes no drafts: their state can't be taken back.
  const bool has_state = rank.config.has_state();
  if (has_state) traits.state_snapshots = static_cast<uint32_t>(engine.limits().state_snapshots);
  if (!has_state && !IsForSecondEngine(spec)) AllowDrafts(spec, rank, traits);
  traits.chunk_tokens_alone = AloneChunkTokens(rank.config, rank.device, spec.assignment().need(),
                                               engine.stages(), UnpackedBytes(spec, rank));
  return traits;
}

uint64_t UnpackedBytes(const v1::LaunchSpec& spec, const BootedRank& rank) {
  const auto place = PlaceOf(spec);
  const int bits = rank.engine->limits().kv_bits;
  if (bits == 0 || !place.ok()) return 0;
  const auto heads = static_cast<uint64_t>(KvHeadsOf(rank.config, place->slices()).size());
  const auto dim = static_cast<uint64_t>(rank.config.head_dim);
  // Keys and values of a layer and the next one, and the copies of the narrow ones.
  const uint64_t position =
      2 * 2 * heads * dim * (kKvBitsDefault + static_cast<uint64_t>(bits)) / 8;
  return position * rank.context_length;
}

uint32_t AloneChunkTokens(const ModelConfig& config, EngineDevice device,
                          const v1::MemoryNeed& need, int stages, uint64_t unpacked_bytes) {
  // mlx/backend/metal/scaled_dot_product_attention.cpp, has_fused_kernel.
  static constexpr int kFusedDims[] = {64, 72, 80, 96, 128, 192, 256};
  const bool is_fused = !config.has_latent() && !config.has_index() && !config.has_compression() &&
                        config.block_index.top == 0 &&
                        std::find(std::begin(kFusedDims), std::end(kFusedDims), config.head_dim) !=
                            std::end(kFusedDims);
  if (device != EngineDevice::kGpu || stages > 1 || !is_fused) return 0;
  // What the plan counts is for a usual step; half of the headroom may go to a larger one.
  // What is unpacked of narrow keys and values does not grow with its tokens.
  const uint64_t planned = need.activation_bytes();
  if (planned == 0) return 0;
  const uint64_t usual = std::max(planned - std::min(planned, unpacked_bytes), planned / 8);
  const uint64_t times = 1 + need.headroom_bytes() / 2 / usual;
  const uint64_t tokens = std::min<uint64_t>(times * kPrefillChunkTokens, kAloneChunkTokens);
  return tokens > kPrefillChunkTokens ? static_cast<uint32_t>(tokens) : 0;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  static const std::set<std::string> model_faults = {
      reasons::kModelFileMissing,       reasons::kModelFileBroken,
      reasons::kModelConfigInvalid,     reasons::kModelArchitectureUnknown,
      reasons::kModelFormatUnsupported, reasons::kTokenizerInvalid,
      reasons::kDraftVocabularyDiffers, reasons::kDraftModelUnusable};
  const std::string code = ReasonOf(status).code();
  if (model_faults.contains(code)) return kExitModelInvalid;
  if (code == reasons::kConfigInvalid || code == reasons::kKvBitsUnsupported ||
      code == reasons::kEngineMissing || code == reasons::kEngineLimit) {
    return kExitUsage;
  }
  if (code == reasons::kConnectFailed || code == reasons::kPortTaken ||
      code == reasons::kGroupMismatch || code == reasons::kTransportUnavailable) {
    return kExitConnectFailed;
  }
  if (code == reasons::kRankExited) return kExitPeerLost;
  if (code == reasons::kRankStalled || code == reasons::kInitStalled) return kExitStalled;
  return absl::IsResourceExhausted(status) ? kExitOutOfMemory : kExitInternal;
}

}  // namespace macrame::runtime::engine
