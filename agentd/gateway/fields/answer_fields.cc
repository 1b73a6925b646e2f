#include "agentd/gateway/fields/answer_fields.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/fields/sampling_fields.h"
#include "agentd/gateway/fields/structure_fields.h"

namespace macrame::agentd {

namespace {

constexpr std::array kRefused = {
    RefusedField{"repeat_penalty", IsOne, "use 'repetition_penalty'"},
    RefusedField{"best_of", IsOne, "ask for more answers with 'n' and choose"},
    RefusedField{"use_beam_search", IsFalse, "there is no beam search"},
    RefusedField{"length_penalty", IsOne, "there is no beam search"},
    RefusedField{"bad_words", IsEmptyList, "use 'logit_bias'"},
    RefusedField{"allowed_token_ids", IsEmptyList, "use 'logit_bias'"},
    RefusedField{"prompt_logprobs", Never, "only the answer's tokens have log probabilities"},
    RefusedField{"include_stop_str_in_output", IsFalse, "stop strings are never in the answer"},
    RefusedField{"mirostat", IsZero, "use 'top_p', 'min_p' or 'typical_p'"},
    RefusedField{"dry_multiplier", IsZero, "use 'repetition_penalty'"},
    RefusedField{"xtc_probability", IsZero, "use 'top_p', 'min_p' or 'typical_p'"},
    RefusedField{"grammar", Never, "use 'guided_grammar', in Lark's notation"},
    RefusedField{"structural_tag", Never, "use 'response_format' or 'tools'"},
    RefusedField{"adapters", Never, "adapters are not supported yet"},
    RefusedField{"draft_model", Never,
                 "a draft model is chosen when the model is loaded: --draft-model"},
};

// Honoured below, or taken and without effect on the text.
constexpr absl::string_view kKnownFields[] = {"model",
                                              "max_tokens",
                                              "stop",
                                              "stream",
                                              "stream_options",
                                              "user",
                                              "metadata",
                                              "store",
                                              "service_tier",
                                              "safety_identifier",
                                              "prompt_cache_key",
                                              "prompt_cache_options",
                                              "prompt_cache_retention",
                                              "cache_prompt",
                                              "cache_salt",
                                              "keep_alive",
                                              "return_progress",
                                              "priority",
                                              "session_id",
                                              "timings_per_token",
                                              "id_slot",
                                              "max_completion_tokens"};

void AddStop(RequestFields& fields, const Json& value, const std::string& param,
             AnswerRequest& request) {
  if (!value.is_string()) {
    fields.Fail(param, "invalid_type", absl::StrCat("'", param, "' must be a string."));
    return;
  }
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty() || text.size() > kStopStringBytesMax) {
    fields.Fail(param, "invalid_value",
                absl::StrCat("'", param, "' must have 1 to ", kStopStringBytesMax, " bytes."));
    return;
  }
  request.generate.add_stop(text);
}

bool IsRefused(std::span<const RefusedField> refused, absl::string_view name) {
  return std::any_of(refused.begin(), refused.end(),
                     [name](const RefusedField& field) { return field.name == name; });
}

}  // namespace

bool IsEmptyList(const Json& value) {
  return value.is_array() || value.is_object() ? value.empty() : false;
}
bool IsFalse(const Json& value) { return value.is_boolean() && !value.get<bool>(); }
bool IsZero(const Json& value) { return value.is_number() && value.get<double>() == 0; }
bool IsOne(const Json& value) { return value.is_number() && value.get<double>() == 1; }
bool Never(const Json&) { return false; }

const std::span<const RefusedField> kRefusedEverywhere = kRefused;

void RefuseFields(RequestFields& fields, std::span<const RefusedField> refused) {
  for (const RefusedField& field : refused) {
    const Json* value = fields.Find(field.name);
    if (value == nullptr || field.harmless(*value)) continue;
    fields.Fail(field.name, "unsupported_parameter",
                absl::StrCat("'", field.name, "' can't be honoured: ", field.why, "."));
  }
}

void ReadModel(RequestFields& fields, AnswerRequest& request) {
  const Json* value = fields.Find("model");
  if (value == nullptr) {
    fields.Fail("model", "missing_required_parameter",
                "You must name a model: 'model' is missing.");
  } else if (!value->is_string()) {
    fields.Fail("model", "invalid_type", "'model' must be a string.");
  } else if (value->get_ref<const std::string&>().empty() ||
             value->get_ref<const std::string&>().size() > kModelNameBytesMax) {
    fields.Fail("model", "invalid_value",
                absl::StrCat("'model' must have 1 to ", kModelNameBytesMax, " bytes."));
  } else {
    request.generate.set_deployment(value->get<std::string>());
  }
}

void ReadMaxTokens(RequestFields& fields, AnswerRequest& request) {
  // llama.cpp's and LM Studio's clients say "no limit" so.
  const auto limit = [&fields](const char* name) -> std::optional<int64_t> {
    const Json* given = fields.Find(name);
    const Json value = given == nullptr ? Json() : WholeNumber(*given);
    const bool is_signed = value.is_number_integer() && !value.is_number_unsigned();
    if (is_signed && value.get<int64_t>() == -1) return std::nullopt;
    return fields.Integer(name, 1, kMaxTokensMax);
  };
  const auto older = limit("max_tokens");
  const auto newer = limit("max_completion_tokens");
  if (older && newer && *older != *newer) {
    fields.Fail("max_tokens", "invalid_value",
                "'max_tokens' and 'max_completion_tokens' disagree; send only the latter.");
  }
  if (older || newer) {
    request.generate.set_max_tokens(static_cast<uint32_t>(newer ? *newer : *older));
  }
}

void ReadStop(RequestFields& fields, AnswerRequest& request) {
  const Json* value = fields.Find("stop");
  if (value == nullptr) return;
  if (!value->is_array()) {
    AddStop(fields, *value, "stop", request);
    return;
  }
  if (value->size() > kStopStringsMax) {
    fields.Fail("stop", "array_above_max_length",
                absl::StrCat("'stop' may hold at most ", kStopStringsMax, " strings."));
    return;
  }
  for (size_t i = 0; i < value->size(); ++i)
    AddStop(fields, (*value)[i], absl::StrCat("stop[", i, "]"), request);
}

void ReadStream(RequestFields& fields, AnswerRequest& request) {
  request.stream = fields.Boolean("stream");
  // llama.cpp's; like there it says nothing to an answer that comes whole.
  request.return_progress = fields.Boolean("return_progress");
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    fields.Fail("stream_options", "invalid_type", "'stream_options' must be an object.");
    return;
  }
  if (!request.stream) {
    fields.Fail("stream_options", "invalid_value", "'stream_options' needs 'stream': true.");
    return;
  }
  const auto usage = options->find("include_usage");
  if (usage == options->end() || usage->is_null()) return;
  if (!usage->is_boolean()) {
    fields.Fail("stream_options.include_usage", "invalid_type",
                "'stream_options.include_usage' must be true or false.");
    return;
  }
  request.include_usage = usage->get<bool>();
}

// `user` and `safety_identifier` have no effect on the text; a salt of the wrong type would.
void ReadWhose(RequestFields& fields, AnswerRequest& request) {
  for (const char* name : {"user", "safety_identifier"}) {
    const Json* value = fields.Find(name);
    if (value == nullptr || !value->is_string()) continue;
    request.generate.set_fairness_key(DigestOf("user", value->get_ref<const std::string&>()));
  }
  const Json* salt = fields.Find("cache_salt");
  if (salt == nullptr) return;
  if (!salt->is_string()) {
    fields.Fail("cache_salt", "invalid_type", "'cache_salt' must be a string.");
    return;
  }
  request.generate.set_cache_salt(DigestOf("salt", salt->get_ref<const std::string&>()));
}

std::string HeaderSafeName(absl::string_view name) {
  std::string safe(name.substr(0, 64));
  for (char& c : safe) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '-';
  }
  return safe;
}

void ListIgnored(const RequestFields& fields, std::span<const RefusedField> refused,
                 bool (*is_known)(absl::string_view), AnswerRequest& request) {
  for (const auto& [name, value] : fields.body().items()) {
    if (fields.has_failed() || request.ignored.size() >= kIgnoredNamesMax) return;
    if (IsSamplingField(name) || IsStructureField(name) || is_known(name) ||
        IsRefused(refused, name) || IsRefused(kRefused, name) ||
        std::find(std::begin(kKnownFields), std::end(kKnownFields), name) !=
            std::end(kKnownFields)) {
      continue;
    }
    request.ignored.push_back(HeaderSafeName(name));
  }
}

}  // namespace macrame::agentd
