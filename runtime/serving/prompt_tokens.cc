#include "runtime/serving/prompt_tokens.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

absl::StatusOr<v1::GenerateChunk> TellText(const v1::GenerateRequest& request,
                                           const ModelText& text, int vocab_size) {
  const std::vector<int32_t> ids(request.prompt_token_ids().begin(),
                                 request.prompt_token_ids().end());
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
        absl::StrCat("'tokens' holds ", id, ", the model has tokens from 0 to ", vocab_size - 1));
  }
  auto decoded = text.tokenizer.Decode(ids, /*skip_special_tokens=*/false);
  if (!decoded.ok()) return decoded.status();
  v1::GenerateChunk chunk;
  chunk.set_text(*std::move(decoded));
  chunk.set_prompt_tokens(static_cast<uint32_t>(ids.size()));
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  return chunk;
}

}  // namespace

absl::StatusOr<v1::GenerateChunk> TellTokens(const v1::GenerateRequest& request,
                                             const ModelText& text, int vocab_size,
                                             int64_t local_unix_s) {
  const v1::TokenizeOptions& options = request.tokenize();
  if (options.detokenize()) return TellText(request, text, vocab_size);
  const absl::Status tools = CheckTools(request, text.voice);
  if (!request.messages().empty() && !tools.ok()) return tools;
  absl::StatusOr<std::vector<int32_t>> ids =
      request.messages().empty()
          ? text.tokenizer.Encode(request.prompt(), options.add_special_tokens(),
                                  /*special_tokens_in_text=*/true)
          : EncodeMessages(request, request.messages_size(), text, local_unix_s,
                           !options.without_opening());
  if (!ids.ok()) return ids.status();
  v1::GenerateChunk chunk;
  chunk.set_prompt_tokens(static_cast<uint32_t>(ids->size()));
  if (!options.count_only()) chunk.mutable_token_ids()->Add(ids->begin(), ids->end());
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  return chunk;
}

}  // namespace macrame::runtime::engine
