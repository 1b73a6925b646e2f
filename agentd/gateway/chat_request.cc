#include "agentd/gateway/chat_request.h"

#include <array>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/bounded_json.h"
#include "agentd/gateway/chat_messages.h"
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
    RefusedField{"tools", IsEmpty, "tool calls are not supported yet"},
    RefusedField{"tool_choice", IsNoToolChoice, "tool calls are not supported yet"},
    RefusedField{"functions", IsEmpty, "function calls are not supported yet"},
    RefusedField{"function_call", IsNoToolChoice, "function calls are not supported yet"},
    RefusedField{"response_format", IsTextFormat, "only {\"type\":\"text\"} is supported yet"},
    RefusedField{"modalities", IsTextOnly, "only [\"text\"] is supported"},
    RefusedField{"audio", Never, "audio is not supported"},
    RefusedField{"web_search_options", Never, "web search is not supported"},
    RefusedField{"logprobs", IsFalse, "log probabilities are not supported yet"},
    RefusedField{"top_logprobs", IsZero, "log probabilities are not supported yet"},
    RefusedField{"logit_bias", IsEmpty, "logit biases are not supported yet"},
    RefusedField{"frequency_penalty", IsZero, "penalties are not supported yet"},
    RefusedField{"presence_penalty", IsZero, "penalties are not supported yet"},
    RefusedField{"repetition_penalty", IsOne, "penalties are not supported yet"},
    RefusedField{"min_tokens", IsZero, "a least number of tokens is not supported yet"},
    RefusedField{"ignore_eos", IsFalse, "going on after the end token is not supported"},
    RefusedField{"stop_token_ids", IsEmpty, "use 'stop' with text"},
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
constexpr std::array<absl::string_view, 36> kKnownFields = {"model",
                                                            "messages",
                                                            "max_tokens",
                                                            "max_completion_tokens",
                                                            "temperature",
                                                            "top_p",
                                                            "top_k",
                                                            "min_p",
                                                            "seed",
                                                            "stop",
                                                            "stream",
                                                            "stream_options",
                                                            "n",
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
                                                            "parallel_tool_calls",
                                                            "reasoning_effort",
                                                            "chat_template_kwargs",
                                                            "enable_thinking",
                                                            "cache_prompt",
                                                            "cache_salt",
                                                            "keep_alive",
                                                            "return_progress",
                                                            "priority",
                                                            "session_id",
                                                            "timings_per_token",
                                                            "id_slot"};

// Reads one body; the first error stops it.
class ChatRequestReader {
 public:
  explicit ChatRequestReader(const json& body) : body_(body) {}

  std::variant<ChatRequest, ApiError> Read() {
    RefuseWhatWouldChangeTheMeaning();
    ReadModel();
    if (!error_) error_ = ReadMessages(body_, request_.generate);
    ReadSampling();
    ReadMaxTokens();
    ReadStop();
    ReadStream();
    ReadTemplateArguments();
    ReadWhose();
    ListIgnored();
    if (error_) return *error_;
    return std::move(request_);
  }

 private:
  // Null when the field is missing or null, or an error was found before.
  const json* Find(absl::string_view name) const {
    if (error_) return nullptr;
    const auto found = body_.find(std::string(name));
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }

  void Fail(absl::string_view param, absl::string_view code, std::string message) {
    if (!error_) error_ = BadRequest(std::move(message), std::string(param), std::string(code));
  }

  void RefuseWhatWouldChangeTheMeaning() {
    for (const RefusedField& refused : kRefusedFields) {
      const json* value = Find(refused.name);
      if (value == nullptr || refused.harmless(*value)) continue;
      Fail(refused.name, "unsupported_parameter",
           absl::StrCat("'", refused.name, "' can't be honoured: ", refused.why, "."));
    }
    const std::optional<int64_t> n = Integer("n", 1, 128);
    if (n.value_or(1) != 1) Fail("n", "unsupported_value", "'n' must be 1: one answer a request.");
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

  std::optional<int64_t> Integer(absl::string_view name, int64_t least, int64_t most) {
    const json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) {
      Fail(name, "invalid_type", absl::StrCat("'", name, "' must be an integer."));
      return std::nullopt;
    }
    const bool too_big =
        value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(most);
    if (too_big || value->get<int64_t>() > most) {
      Fail(name, "integer_above_max_value",
           absl::StrCat("'", name, "' must be at most ", most, "."));
    } else if (value->get<int64_t>() < least) {
      Fail(name, "integer_below_min_value",
           absl::StrCat("'", name, "' must be at least ", least, "."));
    } else {
      return value->get<int64_t>();
    }
    return std::nullopt;
  }

  std::optional<double> Decimal(absl::string_view name, double least, double most) {
    const json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) {
      Fail(name, "invalid_type", absl::StrCat("'", name, "' must be a number."));
      return std::nullopt;
    }
    const double number = value->get<double>();
    if (!std::isfinite(number) || number > most) {
      Fail(name, "decimal_above_max_value",
           absl::StrCat("'", name, "' must be at most ", most, "."));
    } else if (number < least) {
      Fail(name, "decimal_below_min_value",
           absl::StrCat("'", name, "' must be at least ", least, "."));
    } else {
      return number;
    }
    return std::nullopt;
  }

  void ReadSampling() {
    v1::Sampling& sampling = *request_.generate.mutable_sampling();
    if (const auto value = Decimal("temperature", 0, 2)) sampling.set_temperature(*value);
    if (const auto value = Decimal("top_p", 0, 1)) sampling.set_top_p(*value);
    if (const auto value = Decimal("min_p", 0, 1)) sampling.set_min_p(*value);
    // -1 is how other servers say "all".
    if (const auto value = Integer("top_k", -1, kMaxTokensMax)) {
      sampling.set_top_k(*value < 0 ? 0 : static_cast<uint32_t>(*value));
    }
    const json* seed = Find("seed");
    if (seed == nullptr) return;
    if (!seed->is_number_integer()) {
      Fail("seed", "invalid_type", "'seed' must be an integer of at most 64 bits.");
    } else {
      sampling.set_seed(seed->is_number_unsigned() ? seed->get<uint64_t>()
                                                   : static_cast<uint64_t>(seed->get<int64_t>()));
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

  bool Boolean(absl::string_view name) {
    const json* value = Find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) {
      Fail(name, "invalid_type", absl::StrCat("'", name, "' must be true or false."));
      return false;
    }
    return value->get<bool>();
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
    if (const json* effort = Find("reasoning_effort")) {
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
      if (known(kKnownFields, [](absl::string_view entry) { return entry; }) ||
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

  const json& body_;
  ChatRequest request_;
  std::optional<ApiError> error_;
};

}  // namespace

std::variant<ChatRequest, ApiError> ParseChatRequest(absl::string_view body,
                                                     size_t json_depth_max) {
  json parsed;
  if (auto error = ParseBoundedJson(body, json_depth_max, &parsed)) return *std::move(error);
  if (!parsed.is_object()) {
    return BadRequest("The body must be a JSON object.", "", "invalid_type");
  }
  return ChatRequestReader(parsed).Read();
}

}  // namespace macrame::agentd
