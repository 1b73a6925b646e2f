#include "agentd/gateway/dialects/text_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

constexpr char kObject[] = "text_completion";

// `logprobs` and `finish_reason` are JSON.
std::string ChoiceText(uint32_t index, const std::string& text, absl::string_view logprobs,
                       absl::string_view finish_reason) {
  return absl::StrCat("{\"index\":", index, ",\"text\":", Dump(text), ",\"logprobs\":", logprobs,
                      ",\"finish_reason\":", finish_reason, "}");
}

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

}  // namespace

uint64_t CharactersOf(absl::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

void TextLogprobs::Add(const v1::GenerateChunk& chunk) {
  for (const v1::TokenLogprob& token : chunk.logprobs()) {
    const char* comma = tokens.empty() ? "" : ",";
    absl::StrAppend(&tokens, comma, Dump(token.text()));
    absl::StrAppend(&values, comma, Dump(token.logprob()));
    absl::StrAppend(&offsets, comma, characters);
    ordered_json top = ordered_json::object();
    for (const v1::TokenLogprob& other : token.top()) top[other.text()] = other.logprob();
    absl::StrAppend(&tops, comma, Dump(top));
    characters += CharactersOf(token.text());
  }
}

std::string TextLogprobs::Text() const {
  return absl::StrCat("{\"tokens\":[", tokens, "],\"token_logprobs\":[", values,
                      "],\"top_logprobs\":[", tops, "],\"text_offset\":[", offsets, "]}");
}

void CollectedText::Add(const v1::GenerateChunk& chunk) {
  text += chunk.text();
  logprobs.Add(chunk);
  UpdateCounts(chunk, &counts);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
}

std::string TextCompletionBody(const AnswerHead& head, const std::vector<CollectedText>& answers) {
  std::string choices;
  std::vector<TokenCounts> counts;
  for (uint32_t i = 0; i < answers.size(); ++i) {
    const CollectedText& answer = answers[i];
    const std::string echo = head.echoes.empty() ? std::string() : head.echoes.at(i);
    absl::StrAppend(&choices, i == 0 ? "" : ",",
                    ChoiceText(i, absl::StrCat(echo, answer.text),
                               head.has_logprobs ? answer.logprobs.Text() : "null",
                               Quoted(FinishReasonName(answer.finish, /*has_calls=*/false))));
    counts.push_back(answer.counts);
  }
  return BodyText(head, kObject, choices, UsageText(TotalCounts(counts, head.choices_per_prompt)));
}

std::string EchoEvent(const AnswerHead& head, uint32_t choice) {
  return ChoiceEvent(head, kObject, ChoiceText(choice, head.echoes.at(choice), "null", "null"));
}

std::string TextCompletionEvent(const AnswerHead& head, const v1::GenerateChunk& chunk,
                                uint32_t choice, uint64_t* characters) {
  TextLogprobs logprobs;
  logprobs.characters = *characters;
  logprobs.Add(chunk);
  *characters = logprobs.characters;
  return ChoiceEvent(head, kObject,
                     ChoiceText(choice, chunk.text(),
                                chunk.logprobs().empty() ? "null" : logprobs.Text(), "null"));
}

std::string TextCompletionFinishEvent(const AnswerHead& head, absl::string_view finish_reason,
                                      uint32_t choice) {
  return ChoiceEvent(head, kObject, ChoiceText(choice, "", "null", Quoted(finish_reason)));
}

}  // namespace macrame::agentd
