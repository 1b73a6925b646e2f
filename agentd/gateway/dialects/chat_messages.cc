#include "agentd/gateway/dialects/chat_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/foreign_parts.h"

namespace macrame::agentd {
namespace {

using Failure = std::optional<ApiError>;

Failure WrongType(const std::string& param, absl::string_view what) {
  return BadRequest(absl::StrCat("'", param, "' must be ", what, "."), param, "invalid_type");
}

void NoteLeftOut(const std::string& type, std::vector<std::string>& ignored) {
  const std::string name = HeaderSafeName(type);
  const bool is_known = std::find(ignored.begin(), ignored.end(), name) != ignored.end();
  if (!is_known && ignored.size() < kIgnoredNamesMax) ignored.push_back(name);
}

// Where a part stands.
struct PartPlace {
  bool is_past = false;    // before the last answer: the client can't take it back
  bool is_answer = false;  // in an answer, which may hold reasoning
};

// Mistral's and others' parts of reasoning: text, or a list of text parts.
std::string ReasoningOf(const Json& part, const std::string& type) {
  const auto found = part.find(type);
  return found == part.end() ? TextsWithin(part) : TextsWithin(*found);
}

// The member that holds the text of a part of this type; null: the type is no text. The longer
// names are those of OpenAI's responses, which clients send in chats, too.
const char* TextMember(absl::string_view type) {
  if (type == "text" || type == "input_text" || type == "output_text") return "text";
  return type == "refusal" ? "refusal" : nullptr;
}

// What a part that is no text says all the same.
std::string ToldText(const Json& part, const std::string& type) {
  if (IsSealedPart(type)) return "";
  const auto text = part.find("text");
  const bool has_text = text != part.end() && text->is_string() && !IsImagePart(type);
  return has_text ? text->get<std::string>() : LeftOutSentence(type);
}

// The text of one part of a content list.
Failure AppendPart(const Json& part, const std::string& param, const PartPlace& place,
                   v1::ChatMessage* out, std::vector<std::string>& ignored) {
  std::string* text = out->mutable_content();
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    return WrongType(param, "an object with a 'type'");
  }
  const std::string type = part["type"];
  if (place.is_answer && (type == "thinking" || type == "reasoning")) {
    out->mutable_reasoning()->append(ReasoningOf(part, type));
    return std::nullopt;
  }
  const char* member = TextMember(type);
  if (member == nullptr && (place.is_past || place.is_answer)) {
    NoteLeftOut(type, ignored);
    text->append(ToldText(part, type));
    return std::nullopt;
  }
  if (member == nullptr) {
    return BadRequest(absl::StrCat("'", param, "' is of type '", type.substr(0, 64),
                                   "'; only text is supported."),
                      absl::StrCat(param, ".type"), "unsupported_value");
  }
  const auto found = part.find(member);
  if (found == part.end() || !found->is_string()) {
    return WrongType(absl::StrCat(param, ".", member), "a string");
  }
  text->append(found->get_ref<const std::string&>());
  return std::nullopt;
}

Failure ReadContent(const Json& message, const std::string& role, const std::string& param,
                    bool is_past, v1::ChatMessage* out, std::vector<std::string>& ignored) {
  const auto content = message.find("content");
  const std::string content_param = absl::StrCat(param, ".content");
  if (content == message.end() || content->is_null()) {
    if (role == "assistant" || role == "tool") return std::nullopt;
    return BadRequest(absl::StrCat("'", content_param, "' is missing."), content_param,
                      "missing_required_parameter");
  }
  if (content->is_string()) {
    out->set_content(content->get<std::string>());
    return std::nullopt;
  }
  if (!content->is_array()) {
    return WrongType(content_param, "a string or a list of parts");
  }
  if (content->size() > kContentPartsMax) {
    return BadRequest(
        absl::StrCat("'", content_param, "' may have at most ", kContentPartsMax, " parts."),
        content_param, "array_above_max_length");
  }
  // What a tool gave is not the client's to take back either.
  const PartPlace place = {is_past || role == "tool", role == "assistant"};
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string part_param = absl::StrCat(content_param, "[", i, "]");
    if (auto error = AppendPart((*content)[i], part_param, place, out, ignored)) return error;
  }
  return std::nullopt;
}

Failure RefuseOthers(const Json& message, const std::string& param) {
  for (const char* name : {"function_call", "audio"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null() || found->empty()) continue;
    return BadRequest(absl::StrCat("'", param, ".", name, "' is not supported yet."),
                      absl::StrCat(param, ".", name), "unsupported_parameter");
  }
  return std::nullopt;
}

// A member that may be missing or null.
Failure ReadText(const Json& object, const char* name, const std::string& param, size_t bytes_max,
                 std::string* text) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return std::nullopt;
  const std::string text_param = absl::StrCat(param, ".", name);
  if (!found->is_string()) return WrongType(text_param, "a string");
  *text = found->get<std::string>();
  if (text->size() > bytes_max) {
    return WrongType(text_param, absl::StrCat("at most ", bytes_max, " bytes long"));
  }
  return std::nullopt;
}

// A call as the API gave it; arguments that are an object and not its text are taken, too.
Failure ReadCall(const Json& call, const std::string& param, v1::ToolCall* out) {
  if (!call.is_object()) return WrongType(param, "an object");
  auto failure = ReadText(call, "id", param, kCallIdBytesMax, out->mutable_id());
  if (failure) return failure;
  const auto function = call.find("function");
  const std::string function_param = absl::StrCat(param, ".function");
  if (function == call.end() || !function->is_object()) {
    return WrongType(function_param, "an object with 'name' and 'arguments'");
  }
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string() ||
      name->get_ref<const std::string&>().empty()) {
    return WrongType(absl::StrCat(function_param, ".name"), "the name of a tool");
  }
  out->set_name(name->get<std::string>());
  const auto arguments = function->find("arguments");
  if (arguments == function->end() || arguments->is_null()) return std::nullopt;
  if (arguments->is_string()) {
    out->set_arguments(arguments->get<std::string>());
  } else if (arguments->is_object()) {
    out->set_arguments(arguments->dump());
  } else {
    return WrongType(absl::StrCat(function_param, ".arguments"), "JSON as a string");
  }
  return std::nullopt;
}

// What an assistant's message has beside its content.
Failure ReadPastAnswer(const Json& message, const std::string& param, v1::ChatMessage* out) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || !found->is_string()) continue;
    out->set_reasoning(found->get<std::string>());
    break;
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return std::nullopt;
  const std::string calls_param = absl::StrCat(param, ".tool_calls");
  if (!calls->is_array()) return WrongType(calls_param, "a list");
  if (calls->size() > kToolCallsMax) {
    return BadRequest(
        absl::StrCat("'", calls_param, "' may have at most ", kToolCallsMax, " calls."),
        calls_param, "array_above_max_length");
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    auto failure =
        ReadCall((*calls)[i], absl::StrCat(calls_param, "[", i, "]"), out->add_tool_calls());
    if (failure) return failure;
  }
  return std::nullopt;
}

Failure ReadMessage(const Json& message, const std::string& param, bool is_past,
                    v1::ChatMessage* out, std::vector<std::string>& ignored) {
  if (!message.is_object()) return WrongType(param, "an object");
  const auto found = message.find("role");
  const std::string role_param = absl::StrCat(param, ".role");
  if (found == message.end() || found->is_null()) {
    return BadRequest(absl::StrCat("'", role_param, "' is missing."), role_param,
                      "missing_required_parameter");
  }
  if (!found->is_string()) return WrongType(role_param, "a string");
  const std::string role = *found;
  if (role == "function") {
    return BadRequest(absl::StrCat("'", role_param, "': send results of tools as role 'tool'."),
                      role_param, "unsupported_value");
  }
  if (role != "system" && role != "developer" && role != "user" && role != "assistant" &&
      role != "tool") {
    return BadRequest(
        absl::StrCat("'", role_param, "' must be system, developer, user, assistant or tool."),
        role_param, "invalid_value");
  }
  if (auto error = RefuseOthers(message, param)) return error;
  out->set_role(role == "developer" ? "system" : role);
  Failure failure = ReadText(message, "name", param, kMessageNameBytesMax, out->mutable_name());
  if (!failure && role == "assistant") failure = ReadPastAnswer(message, param, out);
  if (!failure && role == "tool") {
    failure =
        ReadText(message, "tool_call_id", param, kCallIdBytesMax, out->mutable_tool_call_id());
  }
  if (failure) return failure;
  return ReadContent(message, role, param, is_past, out, ignored);
}

}  // namespace

Failure ReadMessages(const Json& body, v1::GenerateRequest& request,
                     std::vector<std::string>& ignored) {
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
  size_t last_answer = 0;
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    if (message.is_object() && message.value("role", Json()) == "assistant") last_answer = i;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string param = absl::StrCat("messages[", i, "]");
    auto error =
        ReadMessage((*messages)[i], param, i < last_answer, request.add_messages(), ignored);
    if (error) return error;
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
