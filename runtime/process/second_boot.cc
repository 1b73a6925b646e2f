#include "runtime/process/second_boot.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "proto/memory_need.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/model_files/foreign_model.h"
#include "runtime/process/termination_message.h"
#include "runtime/second_engine/worker_script.h"
#include "runtime/second_engine/worker_stack.h"
#include "runtime/serving/text_probe.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

absl::Status Limit(const v1::LaunchSpec& spec, std::string what, std::string remedy) {
  v1::Reason reason =
      MakeReason(reasons::kEngineLimit,
                 absl::StrCat(spec.model().architecture(), " is served by mlx-lm, ", what));
  reason.set_remedy(std::move(remedy));
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
}

// What was planned must be what mlx_lm does: equal parts of all layers.
absl::Status CheckShare(const v1::LaunchSpec& spec, const v1::ModelDescription& model) {
  const v1::Assignment& part = spec.assignment();
  if (spec.tp() > 1 && spec.pp() > 1) {
    return Limit(spec, "which has no stages that are tensor groups",
                 "load the model with --tp or --pp alone");
  }
  if (part.slice_count() > 0 &&
      (part.slice_end() - part.slice_begin()) * spec.tp() != part.slice_count()) {
    return Limit(spec, "which gives each rank an equal part",
                 "load the model on nodes that can hold one each");
  }
  if (part.whole_experts()) {
    return Limit(spec, "which cuts every expert by its width",
                 "load the model again: a plan of this version gives it no whole experts");
  }
  if (spec.tp() > 1 && model.attention_heads() % spec.tp() != 0) {
    return Limit(spec,
                 absl::StrCat("which can't give ", spec.tp(), " ranks equal parts of ",
                              model.attention_heads(), " heads"),
                 "load the model on another number of nodes");
  }
  if (spec.pp() > 1 && (part.layer_end() - part.layer_begin()) * spec.pp() != model.layer_count()) {
    return Limit(spec, "whose stages have an equal number of layers each",
                 "load the model with a --pp that divides its layers");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ModelDescription> ConfigOf(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  const auto text = transport::ReadRegularFile(path, engine::kConfigBytesMax);
  if (text.ok() || absl::IsNotFound(text.status())) {
    return ReadForeignConfig(text.ok() ? *text : std::string(), folder);
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                      std::string(text.status().message()));
}

// Verbs groups are ours alone: what would go over them goes over the same cables' addresses.
Backend BackendOf(const v1::LaunchSpec& spec) {
  if (spec.world_size() == 1) return Backend::kSingle;
  return BackendNamed(spec.backend()) == Backend::kJaccl ? Backend::kJaccl : Backend::kRing;
}

WorkerPlace WorkerPlaceOf(const v1::LaunchSpec& spec) {
  WorkerPlace place;
  place.folder = spec.model().path();
  place.rank = spec.rank();
  place.world_size = spec.world_size();
  place.tp = spec.tp();
  place.pp = spec.pp();
  place.positions =
      uint64_t{spec.context_length()} * std::max<uint32_t>(spec.concurrent_sequences(), 1);
  place.backend = BackendOf(spec);
  place.addresses.assign(spec.ring_addresses().begin(), spec.ring_addresses().end());
  place.devices = DeviceMatrixOf(spec);
  place.rendezvous = spec.rendezvous_address();
  place.topology = spec.backend_topology();
  place.wired_bytes = WiredBytes(spec.assignment().need()).count();
  return place;
}

absl::Status Connect(const v1::LaunchSpec& spec, WorkerStack& stack, Watchdog& watchdog,
                     const BootOptions& options, BootedRank& rank) {
  const auto guard =
      watchdog.Watch(kConnectingToGang, milliseconds(spec.connect_timeout_ms()) + kGroupGrace);
  const auto phase = [&](const std::string& detail) {
    if (options.on_connecting) options.on_connecting(detail);
  };
  auto link = GangLink::FormSteps(spec, BackendOf(spec), phase, options.bound);
  if (!link.ok()) return link.status();
  rank.link = *std::move(link);
  if (BackendOf(spec) == Backend::kJaccl) {
    const absl::Status met = rank.link->MeetForLibrary(spec);
    if (!met.ok()) return met;
  }
  rank.link->FreeRingAddress();
  phase("first_collective");
  return stack.Connect(WorkerPlaceOf(spec));
}

ForwardLimits LimitsOf(const v1::LaunchSpec& spec, const BootOptions& options,
                       const WorkerStack& stack) {
  ForwardLimits limits;
  limits.context_length = static_cast<int>(spec.context_length());
  limits.blocks_total = BlocksFor(limits.context_length) *
                        static_cast<int>(std::max<uint32_t>(spec.concurrent_sequences(), 1));
  limits.prefill_chunk_tokens = options.prefill_chunk_tokens;
  limits.observer = options.step_observer;
  limits.step_limit = milliseconds(spec.step_timeout_ms());
  limits.step_name = absl::StrCat("a forward step of ", stack.Name());
  return limits;
}

absl::Status Load(const v1::LaunchSpec& spec, std::unique_ptr<WorkerStack> stack,
                  Watchdog& watchdog, const BootOptions& options, BootedRank& rank) {
  const auto guard =
      watchdog.Watch(absl::StrCat("loading weights by ", stack->Name()), kLoadingStallLimit);
  const absl::Status loaded = stack->Load([&](uint64_t bytes, uint64_t total) {
    watchdog.Touch();
    if (options.on_progress) options.on_progress(bytes, total, bytes);
  });
  if (!loaded.ok()) return loaded;
  rank.config.vocab_size = stack->loaded().vocab_size;
  rank.memory.outside_mlx = stack->loaded().bytes;
  rank.worker = stack->pid();
  stack->SetProgress([&watchdog, observer = options.step_observer] {
    watchdog.Touch();
    const PartScope part(observer, StepPart::kEvaluate);
  });
  const ForwardLimits limits = LimitsOf(spec, options, *stack);
  rank.engine =
      std::make_unique<ForwardEngine>(rank.config, std::move(stack), *rank.link, watchdog, limits);
  return absl::OkStatus();
}

}  // namespace

bool IsForSecondEngine(const v1::LaunchSpec& spec) { return spec.model().engine() == kMlxLmEngine; }

absl::StatusOr<std::unique_ptr<BootedRank>> BootSecondEngine(v1::LaunchSpec& spec,
                                                             Watchdog& watchdog,
                                                             const BootOptions& options) {
  if (spec.kv_bits() != 0 && spec.kv_bits() != kKvBitsDefault) {
    return Limit(spec, "which keeps keys and values as the model has them",
                 "load the model with --kv-bits 16 (the default)");
  }
  if (spec.has_draft_model() && options.loads_draft_model) {
    return Limit(spec, "which takes no drafts", "load the model without --draft-model");
  }
  const auto place = PlaceOf(spec);
  if (!place.ok()) return place.status();
  const auto model = ConfigOf(spec.model().path());
  if (!model.ok()) return model.status();
  absl::Status status = CheckShare(spec, *model);
  if (!status.ok()) return status;
  auto rank = std::make_unique<BootedRank>();
  rank->config.architecture = model->architecture();
  rank->config.layer_count = static_cast<int>(model->layer_count());
  rank->config.context_length_max = static_cast<int>(model->context_length_max());
  if (spec.context_length() == 0) {
    spec.set_context_length(
        std::min(static_cast<uint32_t>(kContextDefault), model->context_length_max()));
  }
  rank->context_length = spec.context_length();
  if (spec.rank() == 0 && options.needs_text) {
    auto text = LoadModelText(spec.model().path());
    if (!text.ok()) return text.status();
    status = ProbeText(spec.model().path(), **text, static_cast<int>(model->vocab_size()));
    if (!status.ok()) return status;
    rank->text = *std::move(text);
  }
  auto stack = WorkerStack::Start(spec.python(), kMlxLmWorkerScript);
  if (!stack.ok()) return stack.status();
  if (options.on_phase) options.on_phase(v1::RANK_PHASE_CONNECTING);
  status = Connect(spec, **stack, watchdog, options, *rank);
  if (!status.ok()) return status;
  if (options.on_link) options.on_link(rank->link);
  if (options.on_phase) options.on_phase(v1::RANK_PHASE_LOADING);
  status = Load(spec, *std::move(stack), watchdog, options, *rank);
  if (!status.ok()) return status;
  return rank;
}

}  // namespace macrame::runtime::engine
