#pragma once

// Brings rank 0's draft model from its folder to readiness: checked while nobody waits, loaded
// behind the rank's own weights. Engine thread.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/gang/watchdog.h"
#include "runtime/serving/generation_job.h"
#include "runtime/serving/model_drafter.h"

namespace macrame::runtime::engine {

// A draft model whose files have been held against their config, and against the model that it
// drafts for.
struct CheckedDraft {
  std::string name;
  ModelConfig config;
  std::shared_ptr<const WeightFiles> files;
  int token_end = 0;  // ids below it mean the same to both
  EngineDevice device = EngineDevice::kCpu;
};

// What people call it.
std::string DraftName(const v1::LaunchSpec& spec);

// `device`: where both compute. `vocab_size`: of the model that it drafts for; `text`: that
// model's, null where none is needed. DRAFT_MODEL_UNUSABLE, DRAFT_VOCABULARY_DIFFERS, and what is
// wrong with its files.
absl::StatusOr<CheckedDraft> CheckDraft(const v1::LaunchSpec& spec, EngineDevice device,
                                        int vocab_size, const ModelText* text);

// Nothing when every id means the same token in both; else DRAFT_VOCABULARY_DIFFERS, which names
// the first ones that don't.
absl::Status CompareVocabularies(const text::Tokenizer& model, const text::Tokenizer& draft,
                                 const std::string& draft_name);

// How much of the draft model's KV cache `spec` has memory for.
DraftModelTraits DraftTraitsOf(const v1::LaunchSpec& spec, const ModelConfig& draft);

// Bytes that LoadDraft will read.
uint64_t DraftBytes(const CheckedDraft& draft);
// `on_progress` hears of bytes as they are read. RESOURCE_EXHAUSTED or INTERNAL.
absl::StatusOr<std::unique_ptr<ModelDrafter>> LoadDraft(
    const v1::LaunchSpec& spec, const CheckedDraft& draft, int threads, Watchdog& watchdog,
    const std::function<void(uint64_t)>& on_progress);

}  // namespace macrame::runtime::engine
