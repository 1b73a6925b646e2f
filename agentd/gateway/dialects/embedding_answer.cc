#include "agentd/gateway/dialects/embedding_answer.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

std::string ListText(const std::vector<float>& numbers) {
  std::string text = "[";
  std::array<char, 32> digits;
  for (const float number : numbers) {
    if (text.size() > 1) text.push_back(',');
    // JSON has no word for what is no number.
    if (!std::isfinite(number)) {
      text += "null";
      continue;
    }
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    text.append(digits.data(), end.ptr);
  }
  text.push_back(']');
  return text;
}

std::string Base64Text(const std::vector<float>& numbers) {
  std::string bytes;
  bytes.reserve(numbers.size() * 4);
  for (const float number : numbers) {
    const auto bits = std::bit_cast<uint32_t>(number);
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(bits >> shift));
  }
  return absl::StrCat("\"", absl::Base64Escape(bytes), "\"");
}

}  // namespace

void CollectedEmbedding::Add(const v1::GenerateChunk& chunk) {
  numbers.insert(numbers.end(), chunk.embedding().begin(), chunk.embedding().end());
  UpdateCounts(chunk, &counts);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
}

std::string EmbeddingListOpening(const AnswerHead& head) {
  if (head.form == AnswerForm::kOllamaEmbedding) return "{\"embedding\":";
  if (head.form == AnswerForm::kOllamaEmbed) {
    return absl::StrCat("{\"model\":", Dump(head.model), ",\"embeddings\":[");
  }
  return "{\"object\":\"list\",\"data\":[";
}

std::string EmbeddingItem(const AnswerHead& head, size_t index, const std::vector<float>& numbers) {
  if (head.form == AnswerForm::kOllamaEmbed || head.form == AnswerForm::kOllamaEmbedding) {
    return absl::StrCat(index == 0 ? "" : ",", ListText(numbers));
  }
  return absl::StrCat(index == 0 ? "" : ",", "{\"object\":\"embedding\",\"index\":", index,
                      ",\"embedding\":", head.as_base64 ? Base64Text(numbers) : ListText(numbers),
                      "}");
}

std::string EmbeddingListEnding(const AnswerHead& head, uint64_t prompt_tokens) {
  if (head.form == AnswerForm::kOllamaEmbedding) return "}";
  if (head.form == AnswerForm::kOllamaEmbed) {
    return absl::StrCat("],\"load_duration\":0,\"prompt_eval_count\":", prompt_tokens, "}");
  }
  return absl::StrCat("],\"model\":", Dump(head.model),
                      ",\"usage\":{\"prompt_tokens\":", prompt_tokens,
                      ",\"total_tokens\":", prompt_tokens, "}}");
}

std::string EmbeddingListBody(const AnswerHead& head,
                              const std::vector<CollectedEmbedding>& embeddings) {
  std::string body = EmbeddingListOpening(head);
  uint64_t tokens = 0;
  for (size_t i = 0; i < embeddings.size(); ++i) {
    body += EmbeddingItem(head, i, embeddings[i].numbers);
    tokens += embeddings[i].counts.prompt_tokens;
  }
  return body + EmbeddingListEnding(head, tokens);
}

void NameInput(const AnswerHead& head, uint32_t input, ApiError* error) {
  const bool is_of_prompt =
      error->http_status == 400 && (error->param.empty() || error->param == "messages");
  if (!is_of_prompt) return;
  error->param = "input";
  if (head.choices > 1) error->message = absl::StrCat("input[", input, "]: ", error->message);
}

}  // namespace macrame::agentd
