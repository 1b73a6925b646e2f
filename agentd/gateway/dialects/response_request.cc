#include "agentd/gateway/dialects/response_request.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_translation.h"
#include "agentd/gateway/dialects/foreign_parts.h"
#include "agentd/gateway/dialects/text_answer.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/sampling_fields.h"

namespace macrame::agentd {
namespace {

constexpr std::array<absl::string_view, 32> kResponseFields = {"model",
                                                               "input",
                                                               "instructions",
                                                               "tools",
                                                               "tool_choice",
                                                               "text",
                                                               "reasoning",
                                                               "max_output_tokens",
                                                               "temperature",
                                                               "top_p",
                                                               "stream",
                                                               "stream_options",
                                                               "store",
                                                               "metadata",
                                                               "previous_response_id",
                                                               "parallel_tool_calls",
                                                               "user",
                                                               "safety_identifier",
                                                               "prompt_cache_key",
                                                               "prompt_cache_retention",
                                                               "service_tier",
                                                               "truncation",
                                                               "include",
                                                               "background",
                                                               "conversation",
                                                               "prompt",
                                                               "max_tool_calls",
                                                               "top_logprobs",
                                                               "client_metadata",
                                                               "cache_salt",
                                                               "stop",
                                                               "chat_template_kwargs"};

constexpr std::array<FieldName, 5> kResponseNames = {
    FieldName{"'max_completion_tokens'", "'max_output_tokens'"},
    FieldName{"max_completion_tokens", "max_output_tokens"},
    FieldName{"response_format.json_schema", "text.format"},
    FieldName{"response_format", "text.format"}, FieldName{".function.", "."}};

constexpr size_t kMetadataPairsMax = 16;
constexpr size_t kMetadataKeyMax = 64, kMetadataValueMax = 512;  // characters

class ResponseReader : public ChatTranslation {
 public:
  std::variant<ResponseRequest, ApiError> Read(absl::string_view body, size_t json_depth_max,
                                               const std::string& before, bool may_store) {
    may_store_ = may_store;
    ReadBody(body, json_depth_max);
    if (!failed()) {
      RefuseOthers();
      CheckMetadata();
      CopyFields();
      messages_ = before.empty() ? Json::array() : Json::parse(before);
      ReadInput();
      ReadTools();
      ReadToolChoice();
      ReadReasoning();
      ReadFormat();
      NoteOthers();
      chat_["messages"] = Json::array();
      if (Field("instructions") != nullptr) {
        chat_["messages"].push_back(
            {{"role", "system"}, {"content", Text(body_, "instructions", "")}});
      }
      for (const Json& message : messages_) chat_["messages"].push_back(message);
    }
    auto read = Finish(kResponseNames);
    if (auto* failure = std::get_if<ApiError>(&read)) return *failure;
    ResponseRequest request;
    request.chat = std::move(std::get<ChatRequest>(read));
    request.messages = std::move(messages_);
    request.is_kept = may_store && (Field("store") == nullptr || *Field("store") != false);
    request.echo = Echo();
    request.namespaced = std::move(namespaced_);
    return request;
  }

 private:
  // A field that no engine here can follow, unless it holds `harmless`.
  void RefuseUnless(const char* name, const Json& harmless, const char* why) {
    const Json* value = Field(name);
    if (value != nullptr && *value != harmless) Refuse(name, why);
  }

  void RefuseOthers() {
    RefuseUnless("background", false, "an answer is made while its client waits; ask for a stream");
    RefuseUnless("conversation", nullptr,
                 "use 'previous_response_id', or send the items as 'input'");
    const Json* previous = Field("previous_response_id");
    if (previous != nullptr && !previous->is_string()) {
      MustBe("previous_response_id", "the id of a response");
    }
    RefuseUnless("prompt", nullptr, "no prompts are stored here; send 'input'");
    RefuseUnless("max_tool_calls", nullptr,
                 "it counts tools of OpenAI's servers, of which there are none");
    RefuseUnless("truncation", "disabled", "prompts are never cut; only 'disabled' is possible");
    RefuseUnless("top_logprobs", 0, "log probabilities come with /v1/chat/completions");
    for (const char* name : {"n", "logprobs"}) {
      RefuseUnless(name, nullptr, "it is a field of /v1/chat/completions");
    }
    CheckStore();
    const Json* include = Field("include");
    if (include == nullptr) return;
    for (const Json& what : *include) {
      // Agents always ask for the first; reasoning comes in the clear, so there is nothing to add.
      if (what != "reasoning.encrypted_content") {
        Refuse("include", "only 'reasoning.encrypted_content' is taken, without effect");
      }
    }
  }

  void CheckStore() {
    const Json* store = Field("store");
    if (store != nullptr && !store->is_boolean()) MustBe("store", "true or false");
    if (store != nullptr && *store == true && !may_store_) {
      Refuse("store",
             "nothing of this key's tenant is stored (its retention is 0); leave it out, and send "
             "the whole conversation as 'input'");
    }
  }

  // It is stored and sent back, so it has OpenAI's bounds.
  void CheckMetadata() {
    const Json* metadata = Field("metadata");
    if (metadata == nullptr || failed()) return;
    if (!metadata->is_object()) return MustBe("metadata", "an object");
    if (metadata->size() > kMetadataPairsMax) {
      return Fail("metadata",
                  absl::StrCat("'metadata' may hold at most ", kMetadataPairsMax, " pairs."));
    }
    for (const auto& [key, value] : metadata->items()) {
      if (CharactersOf(key) > kMetadataKeyMax) {
        return Fail("metadata", absl::StrCat("A key of 'metadata' may have at most ",
                                             kMetadataKeyMax, " characters."));
      }
      if (!value.is_string()) {
        return Fail("metadata", "The values of 'metadata' must be strings.", "invalid_type");
      }
      if (CharactersOf(value.get_ref<const std::string&>()) > kMetadataValueMax) {
        return Fail("metadata", absl::StrCat("A value of 'metadata' may have at most ",
                                             kMetadataValueMax, " characters."));
      }
    }
  }

  void CopyFields() {
    for (const char* name :
         {"model", "temperature", "top_p", "stream", "user", "stop", "cache_salt",
          "safety_identifier", "parallel_tool_calls", "chat_template_kwargs"}) {
      Copy(name, name);
    }
    Copy("max_output_tokens", "max_completion_tokens");
    for (const auto& [name, value] : body_.items()) {
      if (IsSamplingField(name) && name != "top_logprobs" && !value.is_null()) chat_[name] = value;
    }
  }

  void NoteOthers() {
    for (const auto& [name, value] : body_.items()) {
      const bool is_known =
          std::find(kResponseFields.begin(), kResponseFields.end(), name) != kResponseFields.end();
      if (!is_known && !IsSamplingField(name)) NoteIgnored(name);
    }
  }

  Json& AddMessage(const std::string& role, std::string content) {
    messages_.push_back({{"role", role}, {"content", std::move(content)}});
    if (role == "assistant") {
      TakeReasoning();
    } else {
      reasoning_.clear();  // it led to nothing
    }
    return messages_.back();
  }

  // Reasoning stands before what it led to.
  void TakeReasoning() {
    if (!reasoning_.empty()) messages_.back()["reasoning_content"] = std::exchange(reasoning_, "");
    is_open_ = true;
  }

  void ReadInput() {
    const Json* input = Field("input");
    if (input == nullptr) {
      return Fail("input", "'input' is missing.", "missing_required_parameter");
    }
    if (input->is_string()) {
      AddMessage("user", input->get<std::string>());
      return;
    }
    if (!input->is_array() || input->size() > kMessagesMax) {
      return MustBe("input", absl::StrCat("text or a list of at most ", kMessagesMax, " items"));
    }
    FindPast(*input);
    for (size_t i = 0; i < input->size() && !failed(); ++i) {
      at_ = i;
      ReadItem((*input)[i], absl::StrCat("input[", i, "]"));
    }
    if (!failed() && messages_.empty()) MustBe("input", "text or a list with a message");
  }

  static bool IsOfRole(const Json& item, const char* role) {
    const Json* of = Find(item, "role");
    return of != nullptr && *of == role;
  }

  // Which items can't be taken back: a user's before the last answer, others before a user's.
  void FindPast(const Json& input) {
    for (size_t i = 0; i < input.size(); ++i) {
      const Json* type = Find(input[i], "type");
      const bool is_call = type != nullptr && type->is_string() &&
                           absl::EndsWith(type->get_ref<const std::string&>(), "_call");
      if (is_call || IsOfRole(input[i], "assistant")) last_answer_ = i;
      const bool is_output = type != nullptr && type->is_string() &&
                             absl::EndsWith(type->get_ref<const std::string&>(), "_output");
      if (is_output || IsOfRole(input[i], "user")) last_input_ = i;
    }
  }

  void NoteLeftOut(const std::string& type) {
    if (left_out_.insert(type).second) NoteIgnored(type);
  }

  // Calls of tools that have no place in a chat, told as calls of functions.
  void ReadOtherCall(const Json& item, const std::string& type, const std::string& param) {
    const Json* call_id = Find(item, "call_id");
    if (call_id == nullptr) call_id = Find(item, "id");
    std::string name = type.substr(0, type.size() - std::string("_call").size());
    Json arguments = Json::object();
    if (type == "custom_tool_call") {
      name = Text(item, "name", param);
      arguments["input"] = Text(item, "input", param, false);
    } else if (const Json* action = Find(item, "action")) {
      arguments = *action;
    } else if (const Json* operation = Find(item, "operation")) {
      arguments = *operation;
    }
    if (failed()) return;
    AddCall({{"id", call_id != nullptr && call_id->is_string() ? *call_id : Json("")},
             {"type", "function"},
             {"function", {{"name", name}, {"arguments", arguments.dump()}}}});
  }

  void ReadOtherOutput(const Json& item) {
    is_open_ = false;
    const Json* id = Find(item, "call_id");
    if (id == nullptr) id = Find(item, "id");
    const Json* output = Find(item, "output");
    Json& message = AddMessage("tool", output == nullptr ? "" : TextsWithin(*output));
    if (id != nullptr && id->is_string()) message["tool_call_id"] = *id;
  }

  // Items of other tools, of which another provider made a conversation.
  void ReadForeign(const Json& item, const std::string& type, const std::string& param) {
    if (type == "custom_tool_call" || type == "local_shell_call" || type == "shell_call" ||
        type == "apply_patch_call") {
      return ReadOtherCall(item, type, param);
    }
    if (type == "custom_tool_call_output" || type == "local_shell_call_output" ||
        type == "shell_call_output" || type == "apply_patch_call_output") {
      return ReadOtherOutput(item);
    }
    if (at_ >= last_input_) {
      return Refuse(param,
                    absl::StrCat("items of type '", type.substr(0, 64), "' are not supported"));
    }
    NoteLeftOut(type);
    std::string told;
    if (type == "compaction" || type == "compaction_summary") {
      told = TextsWithin(item);
    } else if (absl::EndsWith(type, "_call")) {
      Json what = Json::object();
      for (const char* name : {"action", "queries", "code", "arguments"}) {
        if (const Json* value = Find(item, name)) what[name] = *value;
      }
      told = ServerCallSentence(type.substr(0, type.size() - std::string("_call").size()), what);
      for (const char* name : {"results", "outputs", "output"}) {
        const Json* result = Find(item, name);
        if (result != nullptr) absl::StrAppend(&told, "\n", ServerResultSentence(name, *result));
      }
    }
    if (told.empty()) return;
    is_open_ = false;
    AddMessage("assistant", std::move(told));
  }

  void ReadItem(const Json& item, const std::string& param) {
    if (!item.is_object()) return MustBe(param, "an object");
    std::string type = Text(item, "type", param, false);
    if (type.empty() && Find(item, "role") != nullptr) type = "message";
    if (failed()) return;
    if (type == "message") {
      ReadMessage(item, param);
    } else if (type == "function_call") {
      ReadCall(item, param);
    } else if (type == "function_call_output") {
      is_open_ = false;
      const Json* output = Find(item, "output");
      std::string text = output == nullptr ? "" : ContentText(*output, param + ".output", true);
      AddMessage("tool", std::move(text))["tool_call_id"] = Text(item, "call_id", param);
    } else if (type == "reasoning") {
      if (const Json* content = Find(item, "content")) {
        reasoning_ += ContentText(*content, param + ".content");
      }
      is_open_ = false;
    } else if (type == "item_reference") {
      Refuse(param, "items are not stored one by one; send the item, or 'previous_response_id'");
    } else {
      ReadForeign(item, type, param);
    }
  }

  void ReadMessage(const Json& item, const std::string& param) {
    const std::string role = Text(item, "role", param);
    const Json* content = Find(item, "content");
    if (!failed() && content == nullptr) {
      Fail(param + ".content", absl::StrCat("'", param, ".content' is missing."),
           "missing_required_parameter");
    }
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      Fail(param + ".role",
           absl::StrCat("'", param, ".role' must be user, assistant, system or developer."));
    }
    if (failed()) return;
    is_open_ = false;
    AddMessage(role, ContentText(*content, param + ".content"));
  }

  std::string ContentText(const Json& content, const std::string& param, bool is_of_tool = false) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) {
      MustBe(param, "text or a list of parts");
      return "";
    }
    std::string text;
    for (size_t i = 0; i < content.size() && !failed(); ++i) {
      const std::string part = absl::StrCat(param, "[", i, "]");
      const std::string type = Text(content[i], "type", part);
      if (failed()) break;
      if (type == "refusal") {
        text += Text(content[i], "refusal", part);
      } else if (type == "input_text" || type == "output_text" || type == "text" ||
                 type == "reasoning_text") {
        text += Text(content[i], "text", part);
      } else if (at_ < last_answer_ || is_of_tool) {
        NoteLeftOut(type);
        if (!IsSealedPart(type)) text += LeftOutSentence(type);
      } else {
        Refuse(part, absl::StrCat("parts of type '", type.substr(0, 64),
                                  "' are not supported, only text is"));
      }
    }
    return text;
  }

  // Calls belong to the assistant's message before them, if nothing stands between.
  void ReadCall(const Json& item, const std::string& param) {
    std::string name = Text(item, "name", param);
    const std::string space = Text(item, "namespace", param, false);
    if (!space.empty()) name = Joined(space, name);
    const Json call = {
        {"id", Text(item, "call_id", param)},
        {"type", "function"},
        {"function", {{"name", name}, {"arguments", Text(item, "arguments", param)}}}};
    if (!failed()) AddCall(call);
  }

  void AddCall(Json call) {
    if (!is_open_) AddMessage("assistant", "");
    messages_.back()["tool_calls"].push_back(std::move(call));
  }

  void ReadTools() {
    const Json* tools = Field("tools");
    if (tools == nullptr || failed()) return;
    if (!tools->is_array()) return MustBe("tools", "a list");
    for (size_t i = 0; i < tools->size() && !failed(); ++i) {
      const std::string param = absl::StrCat("tools[", i, "]");
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return MustBe(param, "an object");
      if (Text(tool, "type", param) == "namespace") {
        ReadNamespace(tool, param);
      } else {
        ReadFunction(tool, param, nullptr);
      }
    }
  }

  // Two underlines are what clients join a server's and a tool's name with.
  static std::string Joined(const std::string& space, const std::string& name) {
    return absl::StrCat(space, "__", name);
  }

  void ReadNamespace(const Json& space, const std::string& param) {
    const Json* tools = Find(space, "tools");
    if (tools == nullptr || !tools->is_array()) return MustBe(param + ".tools", "a list");
    Text(space, "name", param);
    Text(space, "description", param, false);
    for (size_t i = 0; i < tools->size() && !failed(); ++i) {
      const std::string inner = absl::StrCat(param, ".tools[", i, "]");
      if (!(*tools)[i].is_object()) return MustBe(inner, "an object");
      ReadFunction((*tools)[i], inner, &space);
    }
  }

  // `space`: the namespace that it is of; null: none.
  void ReadFunction(const Json& tool, const std::string& param, const Json* space) {
    const std::string type = Text(tool, "type", param);
    if (!failed() && type != "function") {
      Refuse(param + ".type", absl::StrCat("tools of type '", type.substr(0, 64),
                                           "' are not served, only functions that the client runs; "
                                           "switch it off in the client"));
    }
    std::string name = Text(tool, "name", param);
    if (failed()) return;
    const Json* description = Find(tool, "description");
    Json described;
    if (space != nullptr) {
      const std::string space_name = Text(*space, "name", param);
      const std::string of_space = Text(*space, "description", param, false);
      const std::string own = Text(tool, "description", param, false);
      described = absl::StrCat(of_space, of_space.empty() || own.empty() ? "" : "\n\n", own);
      description = &described;
      const std::string joined = Joined(space_name, name);
      namespaced_[joined] = {space_name, std::exchange(name, joined)};
    }
    AddTool(std::move(name), description, Find(tool, "parameters"), Find(tool, "strict"));
  }

  // As a chat's, but that a named tool stands flat, which the chat's reader takes too.
  void ReadToolChoice() {
    const Json* choice = Field("tool_choice");
    if (choice == nullptr) return;
    const Json* type = Find(*choice, "type");
    if (type != nullptr && *type != "function" && *type != "allowed_tools") {
      return Refuse("tool_choice", "only functions can be chosen");
    }
    chat_["tool_choice"] = *choice;
  }

  void ReadReasoning() {
    const Json* reasoning = Field("reasoning");
    if (reasoning == nullptr) return;
    if (!reasoning->is_object()) return MustBe("reasoning", "an object");
    if (const Json* effort = Find(*reasoning, "effort")) chat_["reasoning_effort"] = *effort;
    for (const char* name : {"summary", "generate_summary"}) {
      // Reasoning comes whole, so none is summed up.
      if (Find(*reasoning, name) != nullptr) NoteIgnored(absl::StrCat("reasoning.", name));
    }
  }

  void ReadFormat() {
    const Json* text = Field("text");
    if (text == nullptr) return;
    if (!text->is_object()) return MustBe("text", "an object");
    if (Find(*text, "verbosity") != nullptr) NoteIgnored("text.verbosity");
    const Json* format = Find(*text, "format");
    if (format == nullptr) return;
    const std::string type = Text(*format, "type", "text.format");
    if (failed()) return;
    chat_["response_format"]["type"] = type;
    if (type != "json_schema") return;
    Json named;
    for (const char* name : {"name", "schema", "strict", "description"}) {
      if (const Json* value = Find(*format, name)) named[name] = *value;
    }
    chat_["response_format"]["json_schema"] = std::move(named);
  }

  Json Echo() const {
    Json echo;
    const auto set = [&](const char* name, const Json& otherwise) {
      const Json* value = Field(name);
      echo[name] = value != nullptr ? *value : otherwise;
    };
    set("instructions", nullptr);
    set("max_output_tokens", nullptr);
    set("metadata", Json::object());
    set("parallel_tool_calls", true);
    set("previous_response_id", nullptr);
    set("reasoning", {{"effort", nullptr}, {"summary", nullptr}});
    set("store", may_store_);
    set("temperature", nullptr);
    set("text", {{"format", {{"type", "text"}}}});
    set("tool_choice", "auto");
    set("tools", Json::array());
    set("top_p", nullptr);
    set("truncation", "disabled");
    set("user", nullptr);
    return echo;
  }

  Json messages_ = Json::array();
  NamespacedTools namespaced_;
  size_t at_ = 0;           // the item that is read
  size_t last_answer_ = 0;  // of the input
  size_t last_input_ = 0;
  std::set<std::string> left_out_;
  std::string reasoning_;  // for the next message of the assistant's
  bool may_store_ = true;
  bool is_open_ = false;  // the last message is the assistant's and may take calls
};

}  // namespace

std::string PreviousResponseOf(absl::string_view body, size_t json_depth_max) {
  Json read;
  if (ParseBoundedJson(body, json_depth_max, &read) || !read.is_object()) return "";
  const auto found = read.find("previous_response_id");
  return found != read.end() && found->is_string() ? found->get<std::string>() : "";
}

std::variant<ResponseRequest, ApiError> ParseResponseRequest(absl::string_view body,
                                                             size_t json_depth_max,
                                                             const std::string& before,
                                                             bool may_store) {
  return ResponseReader().Read(body, json_depth_max, before, may_store);
}

}  // namespace macrame::agentd
