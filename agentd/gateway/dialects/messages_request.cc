#include "agentd/gateway/dialects/messages_request.h"

#include <array>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_translation.h"
#include "agentd/gateway/dialects/dialect.h"
#include "agentd/gateway/dialects/foreign_parts.h"

namespace macrame::agentd {
namespace {

constexpr std::array<absl::string_view, 22> kMessagesFields = {
    "model",        "messages",       "max_tokens",
    "system",       "stop_sequences", "temperature",
    "top_p",        "top_k",          "stream",
    "tools",        "tool_choice",    "metadata",
    "thinking",     "output_config",  "output_format",
    "service_tier", "cache_control",  "context_management",
    "container",    "mcp_servers",    "inference_geo",
    "speed"};

// Longer names first: replacements are not replaced again.
constexpr std::array<FieldName, 6> kMessagesNames = {
    FieldName{"'stop'", "'stop_sequences'"},
    FieldName{"'stop[", "'stop_sequences["},
    FieldName{".function.parameters", ".input_schema"},
    FieldName{".function.", "."},
    FieldName{"response_format.json_schema", "output_config.format"},
    FieldName{"'response_format'", "'output_config.format'"}};

class MessagesReader : public ChatTranslation {
 public:
  std::variant<ChatRequest, ApiError> Read(absl::string_view body, size_t json_depth_max,
                                           bool is_count) {
    is_count_ = is_count;
    ReadBody(body, json_depth_max);
    if (!failed()) {
      RefuseOthers();
      if (!is_count && Field("max_tokens") == nullptr) {
        Fail("max_tokens", "'max_tokens' is missing.", "missing_required_parameter");
      }
      Copy("model", "model");
      Copy("stop_sequences", "stop");
      for (const char* name : {"max_tokens", "temperature", "top_p", "top_k", "stream"}) {
        Copy(name, name);
      }
      ReadSystem();
      ReadMessages();
      ReadTools();
      ReadToolChoice();
      ReadThinking();
      ReadOutput();
      if (const Json* metadata = Field("metadata")) {
        chat_["user"] = Text(*metadata, "user_id", "metadata", false);
      }
      NoteUnknown(kMessagesFields);
    }
    return Finish(kMessagesNames);
  }

 private:
  void RefuseOthers() {
    const Json* servers = Field("mcp_servers");
    if (servers != nullptr && !servers->empty()) {
      Refuse("mcp_servers", "tools run at the client");
    }
    if (Field("container") != nullptr) Refuse("container", "no code is run here");
    if (Field("thread") != nullptr) {
      Fail("thread", "'thread' can't be honoured: no conversations are held here, send them whole.",
           kThreadUnsupported);
    }
    for (const char* name : {"context_management", "cache_control", "inference_geo", "speed"}) {
      if (Field(name) != nullptr) NoteIgnored(name);
    }
  }

  // Text, or a list of text blocks.
  std::string TextOf(const Json& value, const std::string& param) {
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_array()) {
      MustBe(param, "a string or a list of text blocks");
      return "";
    }
    std::string text;
    for (size_t i = 0; i < value.size() && !failed(); ++i) {
      text += BlockText(value[i], absl::StrCat(param, "[", i, "]"));
    }
    return text;
  }

  std::string BlockText(const Json& block, const std::string& param) {
    const std::string type = Text(block, "type", param);
    if (type == "text") return Text(block, "text", param);
    if (!failed()) RefuseBlock(type, param);
    return "";
  }

  // A block of another provider's conversation, as the model can be told of it. Empty: nothing can.
  std::string ForeignText(const Json& block, const std::string& type) {
    NoteLeftOut(type);
    if (IsSealedPart(type)) return "";
    if (type == "server_tool_use" || type == "mcp_tool_use") {
      const Json* name = Find(block, "name");
      const Json* input = Find(block, "input");
      return ServerCallSentence(
          name != nullptr && name->is_string() ? name->get<std::string>() : "",
          input == nullptr ? Json::object() : *input);
    }
    if (absl::EndsWith(type, "_tool_result") || type == "search_result") {
      return ServerResultSentence(type, block);
    }
    if (type == "compaction") return TextsWithin(block);
    return LeftOutSentence(type);
  }

  static void AppendBlock(const std::string& more, std::string* text) {
    absl::StrAppend(text, text->empty() || more.empty() ? "" : "\n", more);
  }

  void NoteLeftOut(const std::string& type) {
    if (left_out_.insert(type).second) NoteIgnored(type);
  }

  void RefuseBlock(const std::string& type, const std::string& param) {
    const std::string what = type.substr(0, 64);
    if (type == "image") {
      return Refuse(param, "images ('image' blocks) are not supported, only text is");
    }
    Refuse(param, absl::StrCat("blocks of type '", what, "' are not supported here"));
  }

  void ReadSystem() {
    const Json* system = Field("system");
    chat_["messages"] = Json::array();
    if (system == nullptr) return;
    std::string text = TextOf(*system, "system");
    if (!text.empty()) AddMessage("system", std::move(text));
  }

  Json& AddMessage(const char* role, std::string content) {
    Json& messages = chat_["messages"];
    messages.push_back({{"role", role}, {"content", std::move(content)}});
    return messages.back();
  }

  void ReadMessages() {
    const Json* messages = Field("messages");
    if (messages == nullptr || !messages->is_array() || messages->empty()) {
      return Fail("messages", "'messages' must be a list of at least one message.", "invalid_type");
    }
    if (messages->size() > kMessagesMax) {
      return Fail("messages", absl::StrCat("'messages' may hold at most ", kMessagesMax, "."));
    }
    std::string role;
    for (size_t i = 0; i < messages->size(); ++i) {
      const Json* of = Find((*messages)[i], "role");
      if (of != nullptr && *of == "assistant") last_answer_ = i;
    }
    for (size_t i = 0; i < messages->size() && !failed(); ++i) {
      is_past_ = i < last_answer_;
      const std::string param = absl::StrCat("messages[", i, "]");
      const Json& message = (*messages)[i];
      if (!message.is_object()) return MustBe(param, "an object");
      role = Text(message, "role", param);
      const Json* content = Find(message, "content");
      if (!failed() && content == nullptr) {
        Fail(param + ".content", absl::StrCat("'", param, ".content' is missing."),
             "missing_required_parameter");
      }
      if (failed()) return;
      if (role == "user") {
        ReadUser(*content, param + ".content");
      } else if (role == "assistant") {
        ReadAssistant(*content, param + ".content");
      } else if (role == "system") {
        AddMessage("system", TextOf(*content, param + ".content"));
      } else {
        Fail(param + ".role", absl::StrCat("'", param, ".role' must be user or assistant."));
      }
    }
    if (role == "assistant" && !is_count_) {
      Refuse(absl::StrCat("messages[", messages->size() - 1, "]"),
             "an answer can't be begun for the model; the last message must be the user's");
    }
  }

  void ReadUser(const Json& content, const std::string& param) {
    if (content.is_string()) {
      AddMessage("user", content.get<std::string>());
      return;
    }
    if (!content.is_array() || content.empty()) {
      return MustBe(param, "a string or a list of blocks");
    }
    std::string text;
    bool has_text = false;
    for (size_t i = 0; i < content.size() && !failed(); ++i) {
      const std::string block = absl::StrCat(param, "[", i, "]");
      const std::string type = Text(content[i], "type", block);
      if (failed()) return;
      if (type == "tool_result") {
        if (has_text) {
          return Fail(block, absl::StrCat("'", block, "': tool_result blocks come before text."));
        }
        ReadToolResult(content[i], block);
      } else if (type == "text") {
        has_text = true;
        text += Text(content[i], "text", block);
      } else if (type == "document" && (!is_past_ || IsPlainText(content[i]))) {
        has_text = true;
        text += DocumentText(content[i], block);
      } else if (is_past_) {
        has_text = true;
        AppendBlock(ForeignText(content[i], type), &text);
      } else {
        RefuseBlock(type, block);
      }
    }
    if (has_text) AddMessage("user", std::move(text));
  }

  static bool IsPlainText(const Json& document) {
    const Json* source = Find(document, "source");
    const Json* type = source == nullptr ? nullptr : Find(*source, "type");
    return type != nullptr && *type == "text";
  }

  // One that is plain text.
  std::string DocumentText(const Json& block, const std::string& param) {
    const Json* source = Find(block, "source");
    const Json* type = source == nullptr ? nullptr : Find(*source, "type");
    if (type == nullptr || *type != "text") {
      Refuse(param, "only documents that are plain text (source.type 'text') are supported");
      return "";
    }
    const std::string title = Text(block, "title", param, false);
    return absl::StrCat(title, title.empty() ? "" : "\n\n",
                        Text(*source, "data", param + ".source"), "\n\n");
  }

  // As TextOf; a client's own search for tools answers with references to those that it found.
  std::string ResultText(const Json& content, const std::string& param) {
    if (!content.is_array()) return TextOf(content, param);
    std::string text;
    for (size_t i = 0; i < content.size() && !failed(); ++i) {
      const std::string block = absl::StrCat(param, "[", i, "]");
      const std::string type = Text(content[i], "type", block);
      if (failed()) break;
      if (type == "text") {
        text += BlockText(content[i], block);
        continue;
      }
      // What a tool gave can't be taken back: without this an agent that saw an image is stuck.
      if (type != "tool_reference") {
        AppendBlock(type == "document" && IsPlainText(content[i]) ? DocumentText(content[i], block)
                                                                  : ForeignText(content[i], type),
                    &text);
        continue;
      }
      const std::string name = Text(content[i], "tool_name", block);
      loaded_tools_.insert(name);
      absl::StrAppend(&text, text.empty() ? "" : "\n", "The tool ", name, " is loaded.");
    }
    return text;
  }

  void ReadToolResult(const Json& block, const std::string& param) {
    const std::string id = Text(block, "tool_use_id", param);
    const Json* content = Find(block, "content");
    std::string text;
    if (content != nullptr) text = ResultText(*content, param + ".content");
    const Json* is_error = Find(block, "is_error");
    // Templates have no other way to say so.
    if (is_error != nullptr && *is_error == true) text = absl::StrCat("Error: ", text);
    AddMessage("tool", std::move(text))["tool_call_id"] = id;
  }

  void ReadAssistant(const Json& content, const std::string& param) {
    if (content.is_string()) {
      AddMessage("assistant", content.get<std::string>());
      return;
    }
    if (!content.is_array()) return MustBe(param, "a string or a list of blocks");
    std::string text, thinking;
    Json calls = Json::array();
    for (size_t i = 0; i < content.size() && !failed(); ++i) {
      const std::string block = absl::StrCat(param, "[", i, "]");
      const std::string type = Text(content[i], "type", block);
      if (failed()) return;
      if (type == "text") {
        text += Text(content[i], "text", block);
      } else if (type == "thinking") {
        thinking += Text(content[i], "thinking", block);
      } else if (type == "tool_use") {
        calls.push_back(CallOf(content[i], block));
      } else {
        AppendBlock(ForeignText(content[i], type), &text);
      }
    }
    Json& message = AddMessage("assistant", std::move(text));
    if (!thinking.empty()) message["reasoning_content"] = std::move(thinking);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
  }

  Json CallOf(const Json& block, const std::string& param) {
    const Json* input = Find(block, "input");
    if (input != nullptr && !input->is_object()) MustBe(param + ".input", "an object");
    Json function;
    function["name"] = Text(block, "name", param);
    function["arguments"] = input == nullptr ? "{}" : input->dump();
    return {{"id", Text(block, "id", param)}, {"type", "function"}, {"function", function}};
  }

  void ReadTools() {
    const Json* tools = Field("tools");
    if (tools == nullptr) return;
    if (!tools->is_array()) return MustBe("tools", "a list");
    for (size_t i = 0; i < tools->size() && !failed(); ++i) {
      const std::string param = absl::StrCat("tools[", i, "]");
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return MustBe(param, "an object");
      const std::string type = Text(tool, "type", param, false);
      if (!type.empty() && type != "custom") {
        return Refuse(param + ".type", absl::StrCat("'", type.substr(0, 64),
                                                    "' is a tool of Anthropic's servers; send one "
                                                    "with an 'input_schema'"));
      }
      std::string name = Text(tool, "name", param);
      const Json* schema = Find(tool, "input_schema");
      const Json* deferred = Find(tool, "defer_loading");
      if (deferred != nullptr && *deferred == true && !loaded_tools_.contains(name)) continue;
      if (!failed() && (schema == nullptr || !schema->is_object())) {
        MustBe(param + ".input_schema", "a JSON schema");
      }
      AddTool(std::move(name), Find(tool, "description"), schema, Find(tool, "strict"));
    }
  }

  void ReadToolChoice() {
    const Json* choice = Field("tool_choice");
    if (choice == nullptr || failed()) return;
    if (!choice->is_object()) return MustBe("tool_choice", "an object with a 'type'");
    const std::string type = Text(*choice, "type", "tool_choice");
    if (type == "any") {
      chat_["tool_choice"] = "required";
    } else if (type == "auto" || type == "none") {
      chat_["tool_choice"] = type;
    } else if (type == "tool") {
      chat_["tool_choice"] = {{"type", "function"},
                              {"function", {{"name", Text(*choice, "name", "tool_choice")}}}};
    } else {
      Fail("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none.");
    }
    const Json* single = Find(*choice, "disable_parallel_tool_use");
    if (single == nullptr) return;
    if (!single->is_boolean()) {
      return MustBe("tool_choice.disable_parallel_tool_use", "true or false");
    }
    chat_["parallel_tool_calls"] = !single->get<bool>();
  }

  void ReadThinking() {
    const Json* thinking = Field("thinking");
    if (thinking == nullptr || failed()) return;
    const std::string type = Text(*thinking, "type", "thinking");
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return Fail("thinking.type", "'thinking.type' must be enabled, disabled or adaptive.");
    }
    chat_["thinking"] = *thinking;
    const Json* display = Find(*thinking, "display");
    if (display == nullptr) return;
    if (*display == "omitted") {
      chat_["include_reasoning"] = false;
    } else if (*display != "summarized") {
      Fail("thinking.display", "'thinking.display' must be omitted or summarized.");
    }
  }

  void ReadOutput() {
    const Json* config = Field("output_config");
    if (config != nullptr && !config->is_object()) return MustBe("output_config", "an object");
    const Json* format = Field("output_format");
    if (config != nullptr) {
      if (const Json* effort = Find(*config, "effort")) chat_["reasoning_effort"] = *effort;
      if (const Json* newer = Find(*config, "format")) format = newer;
    }
    if (format == nullptr || failed()) return;
    const Json* schema = Find(*format, "schema");
    if (Text(*format, "type", "output_config.format") != "json_schema" || schema == nullptr) {
      return MustBe("output_config.format", "{\"type\": \"json_schema\", \"schema\": …}");
    }
    chat_["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"name", "answer"}, {"schema", *schema}}}};
  }

  bool is_count_ = false;   // no answer is begun
  size_t last_answer_ = 0;  // of the messages
  bool is_past_ = false;    // the message stands before the last answer
  std::set<std::string> left_out_;
  std::set<std::string> loaded_tools_;  // those of `defer_loading` that messages refer to
};

}  // namespace

std::variant<ChatRequest, ApiError> ParseMessagesRequest(absl::string_view body,
                                                         size_t json_depth_max) {
  return MessagesReader().Read(body, json_depth_max, /*is_count=*/false);
}

std::variant<ChatRequest, ApiError> ParseCountTokensRequest(absl::string_view body,
                                                            size_t json_depth_max) {
  auto read = MessagesReader().Read(body, json_depth_max, /*is_count=*/true);
  if (auto* request = std::get_if<ChatRequest>(&read)) {
    request->stream = false;
    request->generate.set_max_tokens(1);  // a rank that tells no tokens answers no more
    v1::TokenizeOptions& options = *request->generate.mutable_tokenize();
    options.set_count_only(true);
    // Behind an answer none is begun.
    const auto& messages = request->generate.messages();
    options.set_without_opening(!messages.empty() && messages.rbegin()->role() == "assistant");
  }
  return read;
}

}  // namespace macrame::agentd
