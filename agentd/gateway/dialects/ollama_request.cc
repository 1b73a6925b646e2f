#include "agentd/gateway/dialects/ollama_request.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "agentd/gateway/dialects/chat_translation.h"
#include "agentd/gateway/dialects/foreign_parts.h"
#include "agentd/gateway/dialects/text_request.h"
#include "agentd/gateway/fields/request_fields.h"

namespace macrame::agentd {
namespace {

constexpr std::array<absl::string_view, 18> kOllamaFields = {
    "model",   "messages", "prompt",     "system",   "tools",        "format",
    "options", "stream",   "keep_alive", "think",    "raw",          "template",
    "suffix",  "images",   "context",    "logprobs", "top_logprobs", "input"};

// An option's name here and there.
constexpr std::array<FieldName, 9> kOptions = {FieldName{"temperature", "temperature"},
                                               FieldName{"top_p", "top_p"},
                                               FieldName{"top_k", "top_k"},
                                               FieldName{"min_p", "min_p"},
                                               FieldName{"typical_p", "typical_p"},
                                               FieldName{"repeat_penalty", "repetition_penalty"},
                                               FieldName{"presence_penalty", "presence_penalty"},
                                               FieldName{"frequency_penalty", "frequency_penalty"},
                                               FieldName{"stop", "stop"}};

constexpr std::array<FieldName, 5> kOllamaNames = {
    FieldName{"repetition_penalty", "options.repeat_penalty"},
    FieldName{"'max_tokens'", "'options.num_predict'"},
    FieldName{"response_format.json_schema.schema", "format"},
    FieldName{"response_format", "format"}, FieldName{"'reasoning_effort'", "'think'"}};

constexpr std::array<absl::string_view, 7> kEmbedFields = {
    "model", "input", "prompt", "options", "dimensions", "truncate", "keep_alive"};
// The older form's only input.
constexpr std::array<FieldName, 1> kOlderEmbedNames = {FieldName{"input", "prompt"}};

bool IsNegative(const Json& given) {
  const Json value = WholeNumber(given);
  return value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() < 0;
}

class OllamaReader : public ChatTranslation {
 public:
  std::variant<OllamaRequest, ApiError> Read(absl::string_view body, size_t json_depth_max,
                                             bool is_chat) {
    ReadBody(body, json_depth_max);
    if (failed()) return *error_;
    RefuseOthers();
    ReadCommon();
    OllamaRequest request;
    if (is_chat) {
      const Json* messages = Field("messages");
      request.is_load = messages == nullptr || messages->empty();
    } else {
      request.is_load = Field("prompt") == nullptr || *Field("prompt") == "";
    }
    if (failed()) return *error_;
    if (request.is_load) return ReadLoad(std::move(request));
    const Json* raw = Field("raw");
    if (raw != nullptr && !raw->is_boolean()) MustBe("raw", "true or false");
    if (!is_chat && raw != nullptr && *raw == true) return ReadRaw();
    is_chat ? ReadMessages() : ReadPrompt();
    ReadThink();
    ReadFormat();
    if (const Json* tools = Field("tools"); tools != nullptr && !tools->empty()) {
      chat_["tools"] = *tools;
    }
    auto read = Finish(kOllamaNames);
    if (auto* failure = std::get_if<ApiError>(&read)) return *failure;
    request.chat = std::move(std::get<ChatRequest>(read));
    return request;
  }

  std::variant<EmbeddingRequest, ApiError> ReadEmbed(absl::string_view body, size_t json_depth_max,
                                                     bool is_older) {
    ReadBody(body, json_depth_max);
    if (failed()) return *error_;
    Json embed;
    embed["model"] = WithoutLatest(Text(body_, "model", ""));
    const Json* input = Field(is_older ? "prompt" : "input");
    if (input == nullptr) {
      const char* name = is_older ? "prompt" : "input";
      Fail(name, absl::StrCat("'", name, "' is missing."), "missing_required_parameter");
    } else {
      embed["input"] = *input;
    }
    if (const Json* dimensions = Field("dimensions")) embed["dimensions"] = *dimensions;
    const Json* truncate = Field("truncate");
    // True is Ollama's default, which clients repeat. An input that is longer than the context is
    // an error all the same: what was left out of a text would be missing in silence.
    if (truncate != nullptr && !truncate->is_boolean() && !truncate->is_null()) {
      MustBe("truncate", "true or false");
    }
    NoteUnknown(kEmbedFields);
    if (const Json* options = Field("options")) {
      if (!options->is_object()) MustBe("options", "an object");
      for (const auto& [name, value] : options->items()) NoteIgnored("options." + name);
    }
    if (failed()) return *error_;
    auto read = ReadEmbeddingRequest(embed);
    if (auto* request = std::get_if<EmbeddingRequest>(&read)) {
      request->ignored.insert(request->ignored.end(), ignored_.begin(), ignored_.end());
    } else if (is_older) {
      return Renamed(std::get<ApiError>(std::move(read)), kOlderEmbedNames);
    }
    return read;
  }

 private:
  void RefuseOthers() {
    const auto refuse = [this](const char* name, absl::string_view why) {
      const Json* value = Field(name);
      const bool is_set = value != nullptr && !value->empty() && *value != "" && *value != false;
      if (is_set) Refuse(name, why);
    };
    refuse("images", "only text is supported");
    refuse("template", "a chat goes through the model's own template; 'raw' leaves it out");
    refuse("suffix", "text is continued, not filled in");
    refuse("context", "send the conversation as 'messages' to /api/chat");
    refuse("logprobs", "log probabilities come with /v1/chat/completions");
    NoteUnknown(kOllamaFields);
  }

  void ReadCommon() {
    chat_["model"] = WithoutLatest(Text(body_, "model", ""));
    const Json* stream = Field("stream");
    if (stream != nullptr && !stream->is_boolean()) MustBe("stream", "true or false");
    chat_["stream"] = stream == nullptr || *stream == true;
    const Json* options = Field("options");
    if (options == nullptr) return;
    if (!options->is_object()) return MustBe("options", "an object");
    for (const auto& [name, value] : options->items()) {
      if (!value.is_null()) ReadOption(name, value);
    }
  }

  void ReadOption(const std::string& name, const Json& value) {
    const auto known = std::find_if(kOptions.begin(), kOptions.end(),
                                    [&](const FieldName& option) { return option.first == name; });
    if (known != kOptions.end()) {
      chat_[std::string(known->second)] = value;
    } else if (name == "seed") {
      // A negative one is any.
      if (!IsNegative(value)) chat_["seed"] = value;
    } else if (name == "num_predict") {
      // 0, -1 and -2: as many as fit.
      if (value != 0 && !IsNegative(value)) chat_["max_tokens"] = value;
    } else if ((name == "mirostat" && value != 0) || (name == "tfs_z" && value != 1)) {
      Refuse(absl::StrCat("options.", name), "use 'top_p', 'min_p' or 'typical_p'");
    } else {
      NoteIgnored(absl::StrCat("options.", name));
    }
  }

  std::variant<OllamaRequest, ApiError> ReadLoad(OllamaRequest request) {
    const Json* keep = Field("keep_alive");
    if (keep != nullptr && (*keep == 0 || *keep == "0" || *keep == "0s")) {
      Refuse("keep_alive",
             "models are unloaded by whoever runs the cluster: 'clusterctl model unload NAME'");
      return *error_;
    }
    auto model = chat_["model"].get<std::string>();
    if (model.empty() || model.size() > kModelNameBytesMax) {
      Fail("model", absl::StrCat("'model' must have 1 to ", kModelNameBytesMax, " bytes."));
      return *error_;
    }
    request.chat.generate.set_deployment(std::move(model));
    return request;
  }

  std::variant<OllamaRequest, ApiError> ReadRaw() {
    if (Field("format") != nullptr) ReadFormat();
    for (const char* name : {"think", "tools"}) {
      if (Field(name) != nullptr) NoteIgnored(name);
    }
    // Ollama's own clients send an empty one.
    if (!Text(body_, "system", "", false).empty()) {
      Refuse("system", "'raw' sends the prompt as it is");
    }
    chat_["prompt"] = Text(body_, "prompt", "");
    if (failed()) return *error_;
    auto read = ReadTextRequest(chat_);
    if (auto* failure = std::get_if<ApiError>(&read)) {
      return Renamed(*std::move(failure), kOllamaNames);
    }
    auto& text = std::get<TextRequest>(read);
    OllamaRequest request;
    static_cast<AnswerRequest&>(request.chat) = text;
    request.chat.generate = RequestOfPrompt(text.generate, text.prompts.at(0), 0);
    // Ollama has no limit of its own.
    if (!chat_.contains("max_tokens")) request.chat.generate.set_max_tokens(0);
    request.chat.ignored = ignored_;
    return request;
  }

  void ReadPrompt() {
    const std::string system = Text(body_, "system", "", false);
    if (!system.empty()) chat_["messages"].push_back({{"role", "system"}, {"content", system}});
    chat_["messages"].push_back({{"role", "user"}, {"content", Text(body_, "prompt", "")}});
  }

  void ReadMessages() {
    const Json& messages = *Field("messages");
    if (!messages.is_array() || messages.size() > kMessagesMax) {
      return MustBe("messages", absl::StrCat("a list of at most ", kMessagesMax, " messages"));
    }
    size_t last_answer = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
      const Json* role = Find(messages[i], "role");
      if (role != nullptr && *role == "assistant") last_answer = i;
    }
    for (size_t i = 0; i < messages.size() && !failed(); ++i) {
      ReadMessage(messages[i], absl::StrCat("messages[", i, "]"), i < last_answer);
    }
  }

  // `is_past`: it stands before the last answer, so the client can't take it back.
  void ReadMessage(const Json& message, const std::string& param, bool is_past) {
    if (!message.is_object()) return MustBe(param, "an object");
    const Json* images = Find(message, "images");
    const bool has_images = images != nullptr && !images->empty();
    if (has_images && !is_past) return Refuse(param + ".images", "only text is supported");
    const std::string role = Text(message, "role", param);
    Json out;
    out["role"] = role;
    std::string content = Text(message, "content", param, false);
    if (has_images) {
      NoteIgnored("images");
      absl::StrAppend(&content, content.empty() ? "" : "\n", LeftOutSentence("image"));
    }
    out["content"] = std::move(content);
    const std::string thinking = Text(message, "thinking", param, false);
    if (!thinking.empty()) out["reasoning_content"] = thinking;
    if (const Json* calls = Find(message, "tool_calls")) ReadCalls(*calls, param, &out);
    if (role == "tool") NameCall(message, param, &out);
    chat_["messages"].push_back(std::move(out));
  }

  // Ollama's calls have no id: they are numbered, and results take theirs in turn.
  void ReadCalls(const Json& calls, const std::string& param, Json* out) {
    if (!calls.is_array()) return MustBe(param + ".tool_calls", "a list");
    for (const Json& given : calls) {
      if (!given.is_object()) return MustBe(param + ".tool_calls", "a list of objects");
      Json call = given;
      if (Find(call, "id") == nullptr) call["id"] = absl::StrCat("call_", calls_seen_);
      ++calls_seen_;
      call["type"] = "function";
      const Json* function = Find(call, "function");
      const Json* name = function == nullptr ? nullptr : Find(*function, "name");
      if (!call["id"].is_string() || name == nullptr || !name->is_string()) {
        return MustBe(param + ".tool_calls", "a list of calls with 'function.name'");
      }
      open_calls_.emplace_back(call["id"].get<std::string>(), name->get<std::string>());
      (*out)["tool_calls"].push_back(std::move(call));
    }
  }

  void NameCall(const Json& message, const std::string& param, Json* out) {
    std::string name = Text(message, "tool_name", param, false);
    if (name.empty()) name = Text(message, "name", param, false);
    if (!name.empty()) (*out)["name"] = name;
    std::string id = Text(message, "tool_call_id", param, false);
    const auto open =
        std::find_if(open_calls_.begin(), open_calls_.end(), [&](const FieldText& call) {
          return id.empty() ? name.empty() || call.second == name : call.first == id;
        });
    if (open != open_calls_.end()) {
      id = open->first;
      open_calls_.erase(open);
    }
    if (!id.empty()) (*out)["tool_call_id"] = id;
  }

  void ReadThink() {
    const Json* think = Field("think");
    if (think == nullptr || failed()) return;
    if (think->is_boolean()) {
      chat_["enable_thinking"] = *think;
    } else if (*think == "low" || *think == "medium" || *think == "high" || *think == "max") {
      chat_["reasoning_effort"] = *think;
    } else {
      MustBe("think", "true, false, 'low', 'medium', 'high' or 'max'");
    }
  }

  void ReadFormat() {
    const Json* format = Field("format");
    if (format == nullptr || *format == "") return;
    if (*format == "json") {
      chat_["response_format"] = {{"type", "json_object"}};
    } else if (format->is_object()) {
      chat_["response_format"] = {{"type", "json_schema"},
                                  {"json_schema", {{"name", "format"}, {"schema", *format}}}};
    } else {
      MustBe("format", "'json' or a JSON schema");
    }
  }

  using FieldText = std::pair<std::string, std::string>;
  std::deque<FieldText> open_calls_;  // id and name of calls without a result
  size_t calls_seen_ = 0;
};

}  // namespace

std::string WithoutLatest(std::string model) {
  constexpr absl::string_view kLatest = ":latest";
  if (absl::EndsWith(model, kLatest)) model.resize(model.size() - kLatest.size());
  return model;
}

std::variant<OllamaRequest, ApiError> ParseOllamaChat(absl::string_view body,
                                                      size_t json_depth_max) {
  return OllamaReader().Read(body, json_depth_max, /*is_chat=*/true);
}

std::variant<OllamaRequest, ApiError> ParseOllamaGenerate(absl::string_view body,
                                                          size_t json_depth_max) {
  return OllamaReader().Read(body, json_depth_max, /*is_chat=*/false);
}

std::variant<EmbeddingRequest, ApiError> ParseOllamaEmbed(absl::string_view body,
                                                          size_t json_depth_max) {
  return OllamaReader().ReadEmbed(body, json_depth_max, /*is_older=*/false);
}

std::variant<EmbeddingRequest, ApiError> ParseOllamaEmbeddings(absl::string_view body,
                                                               size_t json_depth_max) {
  return OllamaReader().ReadEmbed(body, json_depth_max, /*is_older=*/true);
}

}  // namespace macrame::agentd
