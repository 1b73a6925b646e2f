#include "runtime/text/tokenizer.h"

#include <utility>

#include "proto/check.h"
#include "proto/reasons.h"
#include "runtime/text/abi_bridge.h"
#include "runtime/text/token_bytes.h"

namespace macrame::runtime::text {
namespace {

constexpr FailureReasons kReasons = {reasons::kModelFileMissing, reasons::kTokenizerInvalid,
                                     reasons::kBadRequest};
constexpr char kReplacement[] = "\xEF\xBF\xBD";

}  // namespace

void TokenizerDeleter::operator()(MacrameTextTokenizerHandle* handle) const {
  macrame_text_tokenizer_free(handle);
}

void StreamDeleter::operator()(MacrameTextStreamHandle* handle) const {
  macrame_text_stream_free(handle);
}

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& model_folder) {
  Tokenizer tokenizer;
  MacrameTextTokenizerHandle* handle = nullptr;
  MacrameTextBytes error{};
  auto status = macrame_text_tokenizer_load(Lend(model_folder), &handle, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  tokenizer.handle_.reset(handle);
  int64_t bos_id = -1;
  MacrameTextIds eos_ids{};
  status = macrame_text_tokenizer_facts(handle, &tokenizer.vocab_size_, &bos_id, &eos_ids, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  const std::vector<int32_t> eos = TakeIds(eos_ids);
  tokenizer.eos_ids_.insert(eos.begin(), eos.end());
  if (bos_id >= 0) tokenizer.bos_id_ = static_cast<int32_t>(bos_id);
  return tokenizer;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       bool add_special_tokens,
                                                       bool special_tokens_in_text,
                                                       size_t tokens_max) const {
  MacrameTextIds ids{};
  MacrameTextBytes error{};
  const auto status =
      macrame_text_tokenizer_encode(handle_.get(), Lend(text), add_special_tokens,
                                    special_tokens_in_text, tokens_max, &ids, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return TakeIds(ids);
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                              bool skip_special_tokens) const {
  std::vector<uint32_t> unsigned_ids;
  unsigned_ids.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                          "token ids are not negative, but one is " + std::to_string(id));
    }
    unsigned_ids.push_back(static_cast<uint32_t>(id));
  }
  MacrameTextBytes text{};
  MacrameTextBytes error{};
  const auto status = macrame_text_tokenizer_decode(
      handle_.get(), unsigned_ids.data(), unsigned_ids.size(), skip_special_tokens, &text, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return TakeString(text);
}

StreamDecoder Tokenizer::NewStream(bool skip_special_tokens) const {
  MacrameTextStreamHandle* stream = nullptr;
  const auto status = macrame_text_stream_new(handle_.get(), skip_special_tokens, &stream, nullptr);
  MACRAME_CHECK(status == 0) << "a tokenizer that was moved away makes no stream";
  return StreamDecoder(stream);
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  int64_t id = -1;
  const auto status = macrame_text_tokenizer_token_id(handle_.get(), Lend(token), &id, nullptr);
  if (status != 0 || id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::optional<std::string> Tokenizer::TokenAt(int32_t id) const {
  if (id < 0) return std::nullopt;
  bool known = false;
  MacrameTextBytes token{};
  const auto status = macrame_text_tokenizer_token(handle_.get(), static_cast<uint32_t>(id), &known,
                                                   &token, nullptr);
  if (status != 0) return std::nullopt;
  std::string spelled = TakeString(token);
  if (!known) return std::nullopt;
  return spelled;
}

std::string Tokenizer::BytesOf(int32_t id) const {
  const std::optional<std::string> spelled = TokenAt(id);
  if (!spelled.has_value()) return "";
  if (const auto byte = ByteOfFallback(*spelled)) return std::string(1, *byte);
  // Twice, because some decoders drop a text's first space. Bytes that are no whole characters are
  // none twice either.
  const std::string once = Decode(std::vector{id}, false).value_or("");
  std::string twice = Decode(std::vector{id, id}, false).value_or("");
  if (twice.find(kReplacement) != std::string::npos) {
    if (auto bytes = BytesOfByteLevel(*spelled)) return *std::move(bytes);
  }
  return twice.compare(0, once.size(), once) == 0 ? twice.substr(once.size()) : once;
}

std::string StreamDecoder::Push(int32_t id) {
  if (id < 0) return "";
  MacrameTextBytes text{};
  const auto status =
      macrame_text_stream_push(handle_.get(), static_cast<uint32_t>(id), &text, nullptr);
  return status == 0 ? TakeString(text) : kReplacement;
}

std::string StreamDecoder::Finish() {
  MacrameTextBytes text{};
  const auto status = macrame_text_stream_finish(handle_.get(), &text, nullptr);
  return status == 0 ? TakeString(text) : kReplacement;
}

}  // namespace macrame::runtime::text
