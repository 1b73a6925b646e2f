#include "agentd/gateway/dialects/chat_request.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_messages.h"
#include "agentd/gateway/dialects/chat_tools.h"
#include "agentd/gateway/fields/answer_fields.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/request_fields.h"
#include "agentd/gateway/fields/sampling_fields.h"
#include "agentd/gateway/fields/structure_fields.h"

namespace macrame::agentd {
namespace {

bool IsNoToolChoice(const Json& value) { return value == "none" || value == "auto"; }
bool IsTextOnly(const Json& value) {
  return value.is_array() && value.size() == 1 && value[0] == "text";
}

constexpr std::array kRefusedChatFields = {
    RefusedField{"functions", IsEmptyList, "use 'tools'"},
    RefusedField{"function_call", IsNoToolChoice, "use 'tool_choice'"},
    RefusedField{"modalities", IsTextOnly, "only [\"text\"] is supported"},
    RefusedField{"audio", Never, "audio is not supported"},
    RefusedField{"web_search_options", Never, "web search is not supported"},
};

bool IsKnownChatField(absl::string_view name) {
  // Beside those that every answer's request may have: honoured below, or without effect here.
  constexpr absl::string_view kNames[] = {"messages", "verbosity", "prediction", "moderation",
                                          "chat_template_kwargs"};
  const auto is_name = [name](absl::string_view known) { return known == name; };
  return std::any_of(std::begin(kNames), std::end(kNames), is_name) ||
         std::any_of(kToolFields.begin(), kToolFields.end(), is_name);
}

// Reads one body; the first error stops it.
class ChatRequestReader : public RequestFields {
 public:
  explicit ChatRequestReader(const Json& body) : RequestFields(body) {}

  std::variant<ChatRequest, ApiError> Read() {
    RefuseFields(*this, kRefusedChatFields);
    RefuseFields(*this, kRefusedEverywhere);
    ReadModel(*this, request_);
    if (!error_) error_ = ReadMessages(body_, request_.generate, request_.ignored);
    if (!error_) error_ = ReadTools(body_, request_);
    if (!error_) error_ = ReadReasoning(body_, request_.generate, &request_.excludes_reasoning);
    ReadMaxTokens(*this, request_);
    ReadSamplingFields(*this, request_.generate);
    ReadLogprobs(*this, request_.generate);
    ReadStructure(*this, request_.generate);
    request_.choices = ReadChoices(*this);
    ReadStop(*this, request_);
    ReadStream(*this, request_);
    ReadTemplateArguments();
    ReadWhose(*this, request_);
    ListIgnored(*this, kRefusedChatFields, IsKnownChatField, request_);
    if (error_) return *error_;
    return std::move(request_);
  }

 private:
  // Thinking models read these in their chat template.
  void ReadTemplateArguments() {
    Json arguments = Json::object();
    if (const Json* given = Find("chat_template_kwargs")) {
      if (!given->is_object()) {
        Fail("chat_template_kwargs", "invalid_type", "'chat_template_kwargs' must be an object.");
        return;
      }
      arguments = *given;
    }
    if (Find("enable_thinking") != nullptr) {
      arguments["enable_thinking"] = Boolean("enable_thinking");
    }
    const Json* effort = Find("reasoning_effort");
    const Json* reasoning = Find("reasoning");
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

  ChatRequest request_;
};

}  // namespace

std::variant<ChatRequest, ApiError> ParseChatRequest(absl::string_view body,
                                                     size_t json_depth_max) {
  Json parsed;
  if (auto error = ParseJsonObject(body, json_depth_max, &parsed)) return *std::move(error);
  return ReadChatRequest(parsed);
}

std::variant<ChatRequest, ApiError> ReadChatRequest(const Json& body) {
  return ChatRequestReader(body).Read();
}

}  // namespace macrame::agentd
