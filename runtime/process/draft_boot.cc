#include "runtime/process/draft_boot.h"

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mlx/mlx.h"
#include "proto/reasons.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_loader.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kDifferencesNamedMax = 3;
constexpr size_t kSpellingBytesMax = 24;  // of one token in a message

ShardPlace WholePlace(const ModelConfig& config) {
  ShardPlace place;
  place.layer_end = config.layer_count;
  return place;
}

std::string Spelling(const std::optional<std::string>& token) {
  if (!token.has_value()) return "nothing";
  std::string plain;
  for (const char byte : token->substr(0, kSpellingBytesMax)) {
    plain += byte >= ' ' && byte != 0x7f ? byte : '?';
  }
  // Not to end in the middle of a character.
  while (token->size() > kSpellingBytesMax && !plain.empty() &&
         (static_cast<unsigned char>(plain.back()) & 0x80) != 0) {
    plain.pop_back();
  }
  return absl::StrCat("'", plain, token->size() > kSpellingBytesMax ? "…'" : "'");
}

}  // namespace

std::string DraftName(const v1::LaunchSpec& spec) {
  if (!spec.draft_model().name().empty()) return spec.draft_model().name();
  const std::string& path = spec.draft_model().path();
  return path.substr(path.rfind('/') + 1);
}

absl::Status CompareVocabularies(const text::Tokenizer& model, const text::Tokenizer& draft,
                                 const std::string& draft_name) {
  std::vector<std::string> named;
  size_t differing = 0;
  const size_t end = std::max(model.VocabSize(), draft.VocabSize());
  for (size_t id = 0; id < end; ++id) {
    const auto ours = model.TokenAt(static_cast<int32_t>(id));
    const auto theirs = draft.TokenAt(static_cast<int32_t>(id));
    if (ours == theirs) continue;
    if (++differing > kDifferencesNamedMax) continue;
    named.push_back(absl::StrCat("token ", id, " is ", Spelling(ours), " and ", Spelling(theirs)));
  }
  if (differing == 0) return absl::OkStatus();
  return ReasonStatus(
      absl::StatusCode::kInvalidArgument, reasons::kDraftVocabularyDiffers,
      absl::StrCat("the draft model ", draft_name, " has another vocabulary than the model (",
                   model.VocabSize(), " tokens, the draft model ", draft.VocabSize(),
                   "): ", absl::StrJoin(named, ", "),
                   differing > named.size()
                       ? absl::StrCat(", and ", differing - named.size(), " more differ")
                       : ""));
}

absl::StatusOr<CheckedDraft> CheckDraft(const v1::LaunchSpec& spec, EngineDevice device,
                                        int vocab_size, const ModelText* text) {
  CheckedDraft draft;
  draft.device = device;
  draft.name = DraftName(spec);
  if (spec.state_snapshots() > 0) {
    return ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kDraftModelUnusable,
        absl::StrCat("no draft model ", draft.name,
                     " beside a model with recurrent layers: their state can't be taken back where "
                     "a draft is rejected; load the model without --draft-model"));
  }
  const std::string& folder = spec.draft_model().path();
  auto config = LoadModelConfig(folder);
  if (!config.ok()) return config.status();
  draft.config = *std::move(config);
  if (draft.config.has_state()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kDraftModelUnusable,
                        absl::StrCat(folder, ": ", draft.config.architecture,
                                     " has recurrent layers, whose state can't be taken back where "
                                     "a draft is rejected; draft with a model without"));
  }
  auto files = WeightFiles::Open(folder);
  if (!files.ok()) return files.status();
  draft.files = *std::move(files);
  const absl::Status good = CheckWeights(draft.config, WholePlace(draft.config), *draft.files);
  if (!good.ok()) return good;
  draft.token_end = std::min(vocab_size, draft.config.vocab_size);
  if (text == nullptr) return draft;
  const auto tokenizer = text::Tokenizer::Load(folder);
  if (!tokenizer.ok()) return tokenizer.status();
  const absl::Status same = CompareVocabularies(text->tokenizer, *tokenizer, draft.name);
  if (!same.ok()) return same;
  // Tables are often padded beyond it.
  draft.token_end = std::min<int>(draft.token_end, static_cast<int>(tokenizer->VocabSize()));
  return draft;
}

DraftModelTraits DraftTraitsOf(const v1::LaunchSpec& spec, const ModelConfig& draft) {
  DraftModelTraits traits;
  traits.positions_max =
      std::min(spec.context_length(), static_cast<uint32_t>(draft.context_length_max));
  traits.blocks_total = static_cast<uint32_t>(BlocksFor(static_cast<int>(traits.positions_max))) *
                        std::max<uint32_t>(spec.concurrent_sequences(), 1);
  traits.vocab_size = draft.vocab_size;
  traits.is_unpriced = spec.draft_model_unpriced();
  return traits;
}

uint64_t DraftBytes(const CheckedDraft& draft) {
  return WeightLoader(draft.files, draft.config, WholePlace(draft.config), draft.device,
                      [](uint64_t) {})
      .BytesNeeded();
}

absl::StatusOr<std::unique_ptr<ModelDrafter>> LoadDraft(
    const v1::LaunchSpec& spec, const CheckedDraft& draft, int threads, Watchdog& watchdog,
    const std::function<void(uint64_t)>& on_progress) {
  WeightLoader loader(draft.files, draft.config, WholePlace(draft.config), draft.device,
                      on_progress);
  DrafterOptions options;
  options.traits = DraftTraitsOf(spec, draft.config);
  options.token_end = draft.token_end;
  options.threads = threads;
  options.pass_limit = std::chrono::milliseconds(spec.step_timeout_ms());
  try {
    return std::make_unique<ModelDrafter>(draft.config, loader, watchdog, options);
  } catch (const std::bad_alloc&) {
    return ReasonStatus(
        absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
        absl::StrCat("the system refused memory while loading the draft model ", draft.name));
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("loading the draft model ", draft.name, ": ", error.what()));
  }
}

}  // namespace macrame::runtime::engine
