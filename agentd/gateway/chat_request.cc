#include "agentd/gateway/chat_request.h"

#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/bounded_json.h"
#include "agentd/gateway/chat_messages.h"
#include "agentd/gateway/chat_tools.h"
#include "agentd/gateway/request_fields.h"
#include "agentd/gateway/sampling_fields.h"
#include "agentd/gateway/tenant.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

bool IsEmpty(const json& value) {
  return value.is_array() || value.is_object() ? value.empty() : false;
}
bool IsFalse(const json& value) { return value.is_boolean() && !value.get<bool>(); }
bool IsZero(const json& value) { return value.is_number() && value.get<double>() == 0; }
bool IsOne(const json& value) { return value.is_number() && value.get<double>() == 1; }
bool Never(const json&) { return false; }
bool IsNoToolChoice(const json& value) { return value == "none" || value == "auto"; }
bool IsTextFormat(const json& value) {
  return value.is_object() && value.contains("type") && value["type"] == "text";
}
bool IsTextOnly(const json& value) {
  return value.is_array() && value.size() == 1 && value[0] == "text";
}

// Fields that would change the answer and that no engine here can follow. `harmless` values (the
// field's own default) pass, as null does.
struct RefusedField {
  absl::string_view name;
  bool (*harmless)(const json& value);
  absl::string_view why;
};

constexpr std::array kRefusedFields = {
    RefusedField{"functions", IsEmpty, "use 'tools'"},
    RefusedField{"function_call", IsNoToolChoice, "use 'tool_choice'"},
    RefusedField{"response_format", IsTextFormat, "only {\"type\":\"text\"} is supported yet"},
    RefusedField{"modalities", IsTextOnly, "only [\"text\"] is supported"},
    RefusedField{"audio", Never, "audio is not supported"},
    RefusedField{"web_search_options", Never, "web search is not supported"},
    RefusedField{"repeat_penalty", IsOne, "use 'repetition_penalty'"},
    RefusedField{"best_of", IsOne, "ask for more answers with 'n' and choose"},
    RefusedField{"use_beam_search", IsFalse, "there is no beam search"},
    RefusedField{"length_penalty", IsOne, "there is no beam search"},
    RefusedField{"bad_words", IsEmpty, "use 'logit_bias'"},
    RefusedField{"allowed_token_ids", IsEmpty, "use 'logit_bias'"},
    RefusedField{"prompt_logprobs", Never, "only the answer's tokens have log probabilities"},
    RefusedField{"include_stop_str_in_output", IsFalse, "stop strings are never in the answer"},
    RefusedField{"mirostat", IsZero, "use 'top_p', 'min_p' or 'typical_p'"},
    RefusedField{"dry_multiplier", IsZero, "use 'repetition_penalty'"},
    RefusedField{"xtc_probability", IsZero, "use 'top_p', 'min_p' or 'typical_p'"},
    RefusedField{"guided_json", Never, "guided decoding is not supported yet"},
    RefusedField{"guided_regex", Never, "guided decoding is not supported yet"},
    RefusedField{"guided_choice", Never, "guided decoding is not supported yet"},
    RefusedField{"guided_grammar", Never, "guided decoding is not supported yet"},
    RefusedField{"grammar", Never, "guided decoding is not supported yet"},
    RefusedField{"adapters", Never, "adapters are not supported yet"},
    RefusedField{"draft_model", Never,
                 "a draft model is chosen when the model is loaded: --draft-model"},
};

// Honoured below, or taken and without effect on the text.
constexpr std::array<absl::string_view, 27> kKnownFields = {"model",
                                                            "messages",
                                                            "max_tokens",
                                                            "max_completion_tokens",
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
                                                            "verbosity",
                                                            "prediction",
                                                            "moderation",
                                                            "chat_template_kwargs",
                                                            "cache_prompt",
                                                            "cache_salt",
                                                            "keep_alive",
                                                            "return_progress",
                                                            "priority",
                                                            "session_id",
                                                            "timings_per_token",
                                                            "id_slot"};

// Reads one body; the first error stops it.
class ChatRequestReader : public RequestFields {
 public:
  // `text` is the body as it came.
  ChatRequestReader(const json& body, absl::string_view text) : RequestFields(body), text_(text) {}

  std::variant<ChatRequest, ApiError> Read() {
    RefuseWhatWouldChangeTheMeaning();
    ReadModel();
    if (!error_) error_ = ReadMessages(body_, request_.generate);
    if (!error_) error_ = ReadTools(body_, text_, request_.generate, request_.ignored);
    if (!error_) error_ = ReadReasoning(body_, request_.generate, &request_.excludes_reasoning);
    ReadMaxTokens();
    ReadSamplingFields(*this, request_.generate);
    request_.choices = ReadChoices(*this);
    ReadStop();
    ReadStream();
    ReadTemplateArguments();
    ReadWhose();
    ListIgnored();
    if (error_) return *error_;
    return std::move(request_);
  }

 private:
  void RefuseWhatWouldChangeTheMeaning() {
    for (const RefusedField& refused : kRefusedFields) {
      const json* value = Find(refused.name);
      if (value == nullptr || refused.harmless(*value)) continue;
      Fail(refused.name, "unsupported_parameter",
           absl::StrCat("'", refused.name, "' can't be honoured: ", refused.why, "."));
    }
  }

  void ReadModel() {
    const json* value = Find("model");
    if (value == nullptr) {
      Fail("model", "missing_required_parameter", "You must name a model: 'model' is missing.");
    } else if (!value->is_string()) {
      Fail("model", "invalid_type", "'model' must be a string.");
    } else if (value->get_ref<const std::string&>().empty() ||
               value->get_ref<const std::string&>().size() > kModelNameBytesMax) {
      Fail("model", "invalid_value",
           absl::StrCat("'model' must have 1 to ", kModelNameBytesMax, " bytes."));
    } else {
      request_.generate.set_deployment(value->get<std::string>());
    }
  }

  void ReadMaxTokens() {
    const auto older = Integer("max_tokens", 1, kMaxTokensMax);
    const auto newer = Integer("max_completion_tokens", 1, kMaxTokensMax);
    if (older && newer && *older != *newer) {
      Fail("max_tokens", "invalid_value",
           "'max_tokens' and 'max_completion_tokens' disagree; send only the latter.");
    }
    if (older || newer) {
      request_.generate.set_max_tokens(static_cast<uint32_t>(newer ? *newer : *older));
    }
  }

  void AddStop(const json& value, const std::string& param) {
    if (!value.is_string()) {
      Fail(param, "invalid_type", absl::StrCat("'", param, "' must be a string."));
      return;
    }
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty() || text.size() > kStopStringBytesMax) {
      Fail(param, "invalid_value",
           absl::StrCat("'", param, "' must have 1 to ", kStopStringBytesMax, " bytes."));
      return;
    }
    request_.generate.add_stop(text);
  }

  void ReadStop() {
    const json* value = Find("stop");
    if (value == nullptr) return;
    if (!value->is_array()) {
      AddStop(*value, "stop");
      return;
    }
    if (value->size() > kStopStringsMax) {
      Fail("stop", "array_above_max_length",
           absl::StrCat("'stop' may hold at most ", kStopStringsMax, " strings."));
      return;
    }
    for (size_t i = 0; i < value->size(); ++i) AddStop((*value)[i], absl::StrCat("stop[", i, "]"));
  }

  void ReadStream() {
    request_.stream = Boolean("stream");
    const json* options = Find("stream_options");
    if (options == nullptr) return;
    if (!options->is_object()) {
      Fail("stream_options", "invalid_type", "'stream_options' must be an object.");
      return;
    }
    if (!request_.stream) {
      Fail("stream_options", "invalid_value", "'stream_options' needs 'stream': true.");
      return;
    }
    const auto usage = options->find("include_usage");
    if (usage == options->end() || usage->is_null()) return;
    if (!usage->is_boolean()) {
      Fail("stream_options.include_usage", "invalid_type",
           "'stream_options.include_usage' must be true or false.");
      return;
    }
    request_.include_usage = usage->get<bool>();
  }

  // Thinking models read these in their chat template.
  void ReadTemplateArguments() {
    json arguments = json::object();
    if (const json* given = Find("chat_template_kwargs")) {
      if (!given->is_object()) {
        Fail("chat_template_kwargs", "invalid_type", "'chat_template_kwargs' must be an object.");
        return;
      }
      arguments = *given;
    }
    if (Find("enable_thinking") != nullptr) {
      arguments["enable_thinking"] = Boolean("enable_thinking");
    }
    const json* effort = Find("reasoning_effort");
    const json* reasoning = Find("reasoning");
    if (effort == nullptr && reasoning != nullptr && reasoning->is_object() &&
        reasoning->contains("effort") && !(*reasoning)["effort"].is_null()) {
      effort = &(*reasoning)["effort"];
    }
    if (effort != nullptr) {
      if (!effort->is_string() || effort->get_ref<const std::string&>().size() > 16) {
        Fail("reasoning_effort", "invalid_type", "'reasoning_effort' must be a short string.");
        return;
      }
      arguments["reasoning_effort"] = *effort;
    }
    if (!error_ && !arguments.empty()) {
      request_.generate.set_template_arguments_json(arguments.dump());
    }
  }

  // `user` and `safety_identifier` have no effect on the text; a salt of the wrong type would.
  void ReadWhose() {
    for (const char* name : {"user", "safety_identifier"}) {
      const json* value = Find(name);
      if (value == nullptr || !value->is_string()) continue;
      request_.generate.set_fairness_key(DigestOf("user", value->get_ref<const std::string&>()));
    }
    const json* salt = Find("cache_salt");
    if (salt == nullptr) return;
    if (!salt->is_string()) {
      Fail("cache_salt", "invalid_type", "'cache_salt' must be a string.");
      return;
    }
    request_.generate.set_cache_salt(DigestOf("salt", salt->get_ref<const std::string&>()));
  }

  void ListIgnored() {
    for (const auto& [name, value] : body_.items()) {
      if (error_ || request_.ignored.size() >= kIgnoredNamesMax) return;
      const auto known = [&name = name](const auto& list, auto get) {
        for (const auto& entry : list) {
          if (get(entry) == name) return true;
        }
        return false;
      };
      if (IsSamplingField(name) ||
          known(kKnownFields, [](absl::string_view entry) { return entry; }) ||
          known(kToolFields, [](absl::string_view entry) { return entry; }) ||
          known(kRefusedFields, [](const RefusedField& entry) { return entry.name; })) {
        continue;
      }
      std::string safe = name.substr(0, 64);
      for (char& c : safe) {
        if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '-';
      }
      request_.ignored.push_back(std::move(safe));
    }
  }

  const absl::string_view text_;
  ChatRequest request_;
};

}  // namespace

std::variant<ChatRequest, ApiError> ParseChatRequest(absl::string_view body,
                                                     size_t json_depth_max) {
  json parsed;
  if (auto error = ParseBoundedJson(body, json_depth_max, &parsed)) return *std::move(error);
  if (!parsed.is_object()) {
    return BadRequest("The body must be a JSON object.", "", "invalid_type");
  }
  return ChatRequestReader(parsed, body).Read();
}

}  // namespace macrame::agentd
