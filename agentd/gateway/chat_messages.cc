#include "agentd/gateway/chat_messages.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/chat_request.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using Failure = std::optional<ApiError>;

Failure WrongType(const std::string& param, absl::string_view what) {
  return BadRequest(absl::StrCat("'", param, "' must be ", what, "."), param, "invalid_type");
}

// The text of one part of a content list.
Failure AppendPart(const json& part, const std::string& param, std::string* text) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    return WrongType(param, "an object with a 'type'");
  }
  const std::string type = part["type"];
  if (type != "text" && type != "refusal") {
    return BadRequest(absl::StrCat("'", param, "' is of type '", type.substr(0, 64),
                                   "'; only text is supported."),
                      absl::StrCat(param, ".type"), "unsupported_value");
  }
  const auto found = part.find(type);
  if (found == part.end() || !found->is_string()) {
    return WrongType(absl::StrCat(param, ".", type), "a string");
  }
  text->append(found->get_ref<const std::string&>());
  return std::nullopt;
}

Failure ReadContent(const json& message, const std::string& role, const std::string& param,
                    std::string* text) {
  const auto content = message.find("content");
  const std::string content_param = absl::StrCat(param, ".content");
  if (content == message.end() || content->is_null()) {
    if (role == "assistant") return std::nullopt;
    return BadRequest(absl::StrCat("'", content_param, "' is missing."), content_param,
                      "missing_required_parameter");
  }
  if (content->is_string()) {
    *text = content->get<std::string>();
    return std::nullopt;
  }
  if (!content->is_array() || content->empty()) {
    return WrongType(content_param, "a string or a list of parts");
  }
  if (content->size() > kContentPartsMax) {
    return BadRequest(
        absl::StrCat("'", content_param, "' may have at most ", kContentPartsMax, " parts."),
        content_param, "array_above_max_length");
  }
  for (size_t i = 0; i < content->size(); ++i) {
    if (auto error = AppendPart((*content)[i], absl::StrCat(content_param, "[", i, "]"), text)) {
      return error;
    }
  }
  return std::nullopt;
}

Failure RefuseCalls(const json& message, const std::string& param) {
  for (const char* name : {"tool_calls", "function_call", "audio"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null() || found->empty()) continue;
    return BadRequest(absl::StrCat("'", param, ".", name, "' is not supported yet."),
                      absl::StrCat(param, ".", name), "unsupported_parameter");
  }
  return std::nullopt;
}

Failure ReadMessage(const json& message, const std::string& param, v1::ChatMessage* out) {
  if (!message.is_object()) return WrongType(param, "an object");
  const auto found = message.find("role");
  const std::string role_param = absl::StrCat(param, ".role");
  if (found == message.end() || found->is_null()) {
    return BadRequest(absl::StrCat("'", role_param, "' is missing."), role_param,
                      "missing_required_parameter");
  }
  if (!found->is_string()) return WrongType(role_param, "a string");
  const std::string role = *found;
  if (role == "tool" || role == "function") {
    return BadRequest(absl::StrCat("'", role_param, "': tool results are not supported yet."),
                      role_param, "unsupported_value");
  }
  if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
    return BadRequest(absl::StrCat("'", role_param,
                                   "' must be system, developer, user or "
                                   "assistant."),
                      role_param, "invalid_value");
  }
  if (auto error = RefuseCalls(message, param)) return error;
  out->set_role(role == "developer" ? "system" : role);
  return ReadContent(message, role, param, out->mutable_content());
}

}  // namespace

Failure ReadMessages(const json& body, v1::GenerateRequest& request) {
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) {
    return BadRequest("'messages' is missing.", "messages", "missing_required_parameter");
  }
  if (!messages->is_array()) return WrongType("messages", "a list");
  if (messages->empty()) {
    return BadRequest("'messages' must hold at least one message.", "messages",
                      "array_below_min_length");
  }
  if (messages->size() > kMessagesMax) {
    return BadRequest(absl::StrCat("'messages' may hold at most ", kMessagesMax, " messages."),
                      "messages", "array_above_max_length");
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string param = absl::StrCat("messages[", i, "]");
    if (auto error = ReadMessage((*messages)[i], param, request.add_messages())) return error;
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
