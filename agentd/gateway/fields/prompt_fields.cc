#include "agentd/gateway/fields/prompt_fields.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

Prompt ReadPrompt(RequestFields& fields, const Json& value, const std::string& param,
                  bool is_whole_field) {
  Prompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
  } else if (value.is_array() && std::all_of(value.begin(), value.end(), IsTokenId)) {
    for (const Json& token : value) prompt.token_ids.push_back(token.get<int32_t>());
  } else {
    fields.Fail(param, "invalid_type",
                absl::StrCat("'", param, "' must be text or a list of token ids",
                             is_whole_field ? ", or a list of these." : "."));
  }
  if (prompt.text.empty() && prompt.token_ids.empty()) {
    fields.Fail(param, "invalid_value", absl::StrCat("'", param, "' is empty."));
  }
  return prompt;
}

}  // namespace

std::vector<Prompt> ReadPrompts(RequestFields& fields, absl::string_view name, size_t count_max) {
  const std::string param(name);
  const Json* value = fields.Find(name);
  if (value == nullptr) {
    fields.Fail(param, "missing_required_parameter", absl::StrCat("'", param, "' is missing."));
    return {};
  }
  const bool is_list = value->is_array() && !value->empty() && !value->front().is_number();
  if (!is_list) return {ReadPrompt(fields, *value, param, true)};
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < value->size() && !fields.has_failed() && i <= count_max; ++i) {
    prompts.push_back(ReadPrompt(fields, (*value)[i], absl::StrCat(param, "[", i, "]"), false));
  }
  return prompts;
}

v1::GenerateRequest RequestOfPrompt(const v1::GenerateRequest& generate, const Prompt& prompt,
                                    size_t index) {
  v1::GenerateRequest one = generate;
  if (index > 0) one.set_request_id(absl::StrCat(one.request_id(), "-p", index));
  one.set_prompt(prompt.text);
  one.mutable_prompt_token_ids()->Add(prompt.token_ids.begin(), prompt.token_ids.end());
  return one;
}

}  // namespace macrame::agentd
