#include "agentd/gateway/dialects/text_request.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/sampling_fields.h"
#include "agentd/gateway/fields/structure_fields.h"

namespace macrame::agentd {
namespace {

bool IsEmptyText(const Json& value) { return value.is_string() && value == ""; }

constexpr std::array kRefusedTextFields = {
    RefusedField{"suffix", IsEmptyText, "text is continued, not filled in"},
    RefusedField{"messages", IsEmptyList, "a chat goes to /v1/chat/completions"},
    RefusedField{"tools", IsEmptyList, "tools need /v1/chat/completions"},
};

bool IsKnownTextField(absl::string_view name) {
  constexpr absl::string_view kNames[] = {"prompt", "echo"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Reads one body; the first error stops it.
class TextRequestReader : public RequestFields {
 public:
  explicit TextRequestReader(const Json& body) : RequestFields(body) {}

  std::variant<TextRequest, ApiError> Read() {
    RefuseFields(*this, kRefusedTextFields);
    RefuseFields(*this, kRefusedEverywhere);
    ReadModel(*this, request_);
    request_.prompts = ReadPrompts(*this, "prompt", kAnswersMax);
    ReadMaxTokens(*this, request_);
    v1::GenerateRequest& generate = request_.generate;
    // -1 is no limit and no missing field.
    if (Find("max_tokens") == nullptr && Find("max_completion_tokens") == nullptr) {
      generate.set_max_tokens(kTextTokensDefault);
    }
    ReadSamplingFields(*this, generate);
    ReadTextLogprobs(*this, generate);
    ReadStructure(*this, generate);
    request_.choices = ReadChoices(*this);
    ReadStop(*this, request_);
    ReadStream(*this, request_);
    ReadWhose(*this, request_);
    ReadEcho();
    CheckNumber();
    ListIgnored(*this, kRefusedTextFields, IsKnownTextField, request_);
    generate.set_plain_text(true);
    if (error_) return *error_;
    return std::move(request_);
  }

 private:
  void ReadEcho() {
    request_.echo = Boolean("echo");
    if (!request_.echo) return;
    if (request_.generate.has_top_logprobs()) {
      Fail("echo", "unsupported_parameter",
           "'echo' with 'logprobs' can't be honoured: only the answer's tokens have log "
           "probabilities.");
    }
    for (const Prompt& prompt : request_.prompts) {
      if (prompt.token_ids.empty()) continue;
      Fail("echo", "unsupported_parameter", "'echo' needs prompts that are text.");
    }
  }

  void CheckNumber() {
    if (request_.prompts.size() * request_.choices <= kAnswersMax) return;
    Fail("prompt", "array_above_max_length",
         absl::StrCat("A request may ask for ", kAnswersMax, " answers ('prompt' times 'n')."));
  }

  TextRequest request_;
};

}  // namespace

std::variant<TextRequest, ApiError> ParseTextRequest(absl::string_view body,
                                                     size_t json_depth_max) {
  Json parsed;
  if (auto error = ParseJsonObject(body, json_depth_max, &parsed)) return *std::move(error);
  return ReadTextRequest(parsed);
}

std::variant<TextRequest, ApiError> ReadTextRequest(const Json& body) {
  return TextRequestReader(body).Read();
}

std::vector<v1::GenerateRequest> RequestsOfPrompts(const TextRequest& request) {
  std::vector<v1::GenerateRequest> all;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const v1::GenerateRequest one = RequestOfPrompt(request.generate, request.prompts[i], i);
    for (v1::GenerateRequest& choice : RequestsOfChoices(one, request.choices)) {
      all.push_back(std::move(choice));
    }
  }
  return all;
}

}  // namespace macrame::agentd
