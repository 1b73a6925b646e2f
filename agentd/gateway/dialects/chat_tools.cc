#include "agentd/gateway/dialects/chat_tools.h"

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/fields/request_fields.h"

namespace macrame::agentd {
namespace {

using Failure = std::optional<ApiError>;

Failure Invalid(const std::string& param, absl::string_view what) {
  return BadRequest(absl::StrCat("'", param, "' must be ", what, "."), param, "invalid_value");
}

// Null when it is missing or null.
const Json* Find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool IsToolName(const std::string& name) {
  if (name.empty() || name.size() > kToolNameBytesMax) return false;
  for (const char c : name) {
    const bool fits = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
                      c == '.' || c == ':' || c == '/';
    if (!fits) return false;
  }
  return true;
}

// Templates read these members without asking whether they are there.
void Complete(Json& function) {
  for (auto member = function.begin(); member != function.end();) {
    member = member->is_null() ? function.erase(member) : std::next(member);
  }
  if (!function.contains("description")) function["description"] = "";
  if (!function.contains("parameters")) {
    function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
}

// One tool, made ready for a template.
Failure ReadTool(Json& tool, const std::string& param, std::set<std::string>& names,
                 bool* is_strict) {
  if (!tool.is_object()) return Invalid(param, "an object");
  const Json* type = Find(tool, "type");
  if (type != nullptr && *type != "function") {
    return BadRequest(absl::StrCat("'", param, ".type': only tools of type 'function' are served."),
                      absl::StrCat(param, ".type"), "unsupported_value");
  }
  if (type == nullptr) tool["type"] = "function";
  const auto function = tool.find("function");
  const std::string function_param = absl::StrCat(param, ".function");
  if (function == tool.end() || !function->is_object()) {
    return Invalid(function_param, "an object with a 'name'");
  }
  const Json* name = Find(*function, "name");
  if (name == nullptr || !name->is_string() || !IsToolName(name->get<std::string>())) {
    return Invalid(
        absl::StrCat(function_param, ".name"),
        absl::StrCat("1 to ", kToolNameBytesMax, " letters, digits, or any of _ - . : /"));
  }
  if (!names.insert(name->get<std::string>()).second) {
    return Invalid(absl::StrCat(function_param, ".name"), "another than that of a tool before");
  }
  const Json* parameters = Find(*function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return Invalid(absl::StrCat(function_param, ".parameters"), "a JSON schema");
  }
  const Json* description = Find(*function, "description");
  if (description != nullptr && !description->is_string()) {
    return Invalid(absl::StrCat(function_param, ".description"), "a string");
  }
  const Json* strict = Find(*function, "strict");
  if (strict != nullptr && !strict->is_boolean()) {
    return Invalid(absl::StrCat(function_param, ".strict"), "true or false");
  }
  if (strict != nullptr && *strict == true) *is_strict = true;
  Complete(*function);
  return std::nullopt;
}

struct Choice {
  bool is_none = false;
  v1::ToolChoiceKind kind = v1::TOOL_CHOICE_KIND_AUTO;
  std::string name;
  std::optional<std::set<std::string>> allowed;
};

Failure ReadMode(const Json& mode, const std::string& param, Choice* choice) {
  if (mode == "none") {
    choice->is_none = true;
  } else if (mode == "required" || mode == "any") {
    choice->kind = v1::TOOL_CHOICE_KIND_REQUIRED;
  } else if (mode != "auto") {
    return Invalid(param, "none, auto, required, or an object that names a tool");
  }
  return std::nullopt;
}

// {"type": "function", "function": {"name": …}}.
std::optional<std::string> NamedTool(const Json& value) {
  const Json* function = Find(value, "function");
  const Json* name = Find(function != nullptr ? *function : value, "name");
  if (name == nullptr || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

Failure ReadAllowed(const Json& value, Choice* choice) {
  const Json* inner = Find(value, "allowed_tools");
  const Json& allowed = inner != nullptr ? *inner : value;
  const Json* tools = Find(allowed, "tools");
  if (tools == nullptr || !tools->is_array()) return Invalid("tool_choice.tools", "a list");
  choice->allowed.emplace();
  for (const Json& tool : *tools) {
    const auto name = NamedTool(tool);
    if (!name.has_value()) return Invalid("tool_choice.tools", "a list of named tools");
    choice->allowed->insert(*name);
  }
  const Json* mode = Find(allowed, "mode");
  return mode == nullptr ? std::nullopt : ReadMode(*mode, "tool_choice.mode", choice);
}

Failure ReadChoice(const Json& body, Choice* choice) {
  const Json* value = Find(body, "tool_choice");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return ReadMode(*value, "tool_choice", choice);
  const Json* type = Find(*value, "type");
  if (type != nullptr && *type == "allowed_tools") return ReadAllowed(*value, choice);
  const auto name = NamedTool(*value);
  if (!name.has_value() || (type != nullptr && *type != "function")) {
    return Invalid("tool_choice", "none, auto, required, or an object that names a tool");
  }
  choice->kind = v1::TOOL_CHOICE_KIND_NAMED;
  choice->name = *name;
  return std::nullopt;
}

// The names of the tools that the model gets to see, which are left in `tools`.
Failure KeepAllowed(const Choice& choice, const std::set<std::string>& names, Json& tools) {
  if (choice.kind == v1::TOOL_CHOICE_KIND_NAMED && !names.contains(choice.name)) {
    return Invalid("tool_choice", "the name of one of 'tools'");
  }
  if (!choice.allowed.has_value()) return std::nullopt;
  for (const std::string& name : *choice.allowed) {
    if (!names.contains(name)) return Invalid("tool_choice.tools", "names of some of 'tools'");
  }
  Json kept = Json::array();
  for (Json& tool : tools) {
    if (choice.allowed->contains(tool["function"]["name"].get<std::string>())) {
      kept.push_back(std::move(tool));
    }
  }
  tools = std::move(kept);
  return std::nullopt;
}

struct ReasoningReader {
  v1::ReasoningOptions* options;

  Failure Budget(const Json* given, const std::string& param) const {
    if (given == nullptr || options->has_tokens_max()) return std::nullopt;
    const Json value = WholeNumber(*given);
    if (!value.is_number_integer()) return Invalid(param, "a number of tokens");
    const bool is_huge = value.is_number_unsigned() && value.get<uint64_t>() > kMaxTokensMax;
    if (is_huge) return Invalid(param, "0 or more");
    const auto tokens = value.get<int64_t>();
    if (tokens == -1) return std::nullopt;  // how other servers say "as many as it takes"
    if (tokens < 0 || tokens > kMaxTokensMax) return Invalid(param, "0 or more");
    options->set_tokens_max(static_cast<uint32_t>(tokens));
    return std::nullopt;
  }

  Failure Switch(const Json* value, const std::string& param) const {
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) return Invalid(param, "true or false");
    options->set_enabled(value->get<bool>());
    return std::nullopt;
  }

  // OpenRouter's object.
  Failure Reasoning(const Json& value, bool* excludes) const {
    if (value.is_boolean()) return Switch(&value, "reasoning");
    if (!value.is_object()) return Invalid("reasoning", "an object");
    Failure failure = Switch(Find(value, "enabled"), "reasoning.enabled");
    if (!failure) failure = Budget(Find(value, "max_tokens"), "reasoning.max_tokens");
    const Json* exclude = Find(value, "exclude");
    if (!failure && exclude != nullptr) {
      if (!exclude->is_boolean()) return Invalid("reasoning.exclude", "true or false");
      *excludes = exclude->get<bool>();
    }
    const Json* effort = Find(value, "effort");
    if (!failure && effort != nullptr && *effort == "none") options->set_enabled(false);
    return failure;
  }

  // Anthropic's object, which GLM, Kimi and DeepSeek take too.
  Failure Thinking(const Json& value) const {
    const Json* type = Find(value, "type");
    if (type == nullptr || !type->is_string()) return Invalid("thinking", "an object with 'type'");
    if (*type == "disabled") options->set_enabled(false);
    if (*type == "enabled") options->set_enabled(true);
    return Budget(Find(value, "budget_tokens"), "thinking.budget_tokens");
  }
};

}  // namespace

Failure ReadTools(const Json& body, AnswerRequest& request) {
  Choice choice;
  if (auto failure = ReadChoice(body, &choice)) return failure;
  const Json* parallel = Find(body, "parallel_tool_calls");
  if (parallel != nullptr && !parallel->is_boolean()) {
    return Invalid("parallel_tool_calls", "true or false");
  }
  const Json* given = Find(body, "tools");
  if (given != nullptr && !given->is_array()) return Invalid("tools", "a list");
  if (given == nullptr || given->empty()) {
    const bool must_call = choice.kind != v1::TOOL_CHOICE_KIND_AUTO || choice.allowed.has_value();
    if (!must_call) return std::nullopt;
    return BadRequest("'tool_choice' needs 'tools' to choose from.", "tool_choice",
                      "invalid_value");
  }
  if (given->size() > kToolsMax) {
    return BadRequest(absl::StrCat("'tools' may hold at most ", kToolsMax, " tools."), "tools",
                      "array_above_max_length");
  }
  Json tools = *given;
  std::set<std::string> names;
  bool is_strict = false;
  for (size_t i = 0; i < tools.size(); ++i) {
    auto failure = ReadTool(tools[i], absl::StrCat("tools[", i, "]"), names, &is_strict);
    if (failure) return failure;
  }
  if (auto failure = KeepAllowed(choice, names, tools)) return failure;
  if (choice.is_none || tools.empty()) return std::nullopt;
  if (is_strict && choice.kind == v1::TOOL_CHOICE_KIND_AUTO) {
    request.by_model.push_back("tools.strict");
  }
  v1::ToolOptions& options = *request.generate.mutable_tools();
  options.set_tools_json(tools.dump());
  options.set_choice(choice.kind);
  options.set_name(choice.name);
  options.set_single_call(choice.kind == v1::TOOL_CHOICE_KIND_NAMED ||
                          (parallel != nullptr && !parallel->get<bool>()));
  return std::nullopt;
}

Failure ReadReasoning(const Json& body, v1::GenerateRequest& request, bool* excludes) {
  v1::ReasoningOptions options;
  const ReasoningReader reader{&options};
  if (const Json* kwargs = Find(body, "chat_template_kwargs")) {
    for (const char* name : {"enable_thinking", "thinking"}) {
      const Json* value = Find(*kwargs, name);
      if (value != nullptr && value->is_boolean()) options.set_enabled(value->get<bool>());
    }
  }
  const Json* effort = Find(body, "reasoning_effort");
  if (effort != nullptr && *effort == "none") options.set_enabled(false);
  Failure failure = reader.Switch(Find(body, "enable_thinking"), "enable_thinking");
  for (const char* name : {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens",
                           "max_reasoning_tokens"}) {
    if (!failure) failure = reader.Budget(Find(body, name), name);
  }
  const Json* thinking = Find(body, "thinking");
  if (!failure && thinking != nullptr) failure = reader.Thinking(*thinking);
  const Json* reasoning = Find(body, "reasoning");
  if (!failure && reasoning != nullptr) failure = reader.Reasoning(*reasoning, excludes);
  const Json* include = Find(body, "include_reasoning");
  if (!failure && include != nullptr) {
    if (!include->is_boolean()) return Invalid("include_reasoning", "true or false");
    *excludes = !include->get<bool>();
  }
  if (!failure && (options.has_enabled() || options.has_tokens_max())) {
    *request.mutable_reasoning() = options;
  }
  return failure;
}

}  // namespace macrame::agentd
