#include "agentd/gateway/dialects/token_request.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_translation.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/prompt_fields.h"

namespace macrame::agentd {
namespace {

constexpr std::array<absl::string_view, 12> kTokenFields = {"model",
                                                            "prompt",
                                                            "messages",
                                                            "tools",
                                                            "tokens",
                                                            "chat_template",
                                                            "continue_final_message",
                                                            "add_special_tokens",
                                                            "mm_processor_kwargs",
                                                            "add_generation_prompt",
                                                            "return_token_strs",
                                                            "chat_template_kwargs"};

class TokenRequestReader : public ChatTranslation {
 public:
  std::variant<ChatRequest, ApiError> ReadText(absl::string_view body, size_t json_depth_max) {
    ReadBody(body, json_depth_max);
    if (failed()) return *error_;
    Refuse("return_token_strs", "ask /detokenize what an id stands for", false);
    Refuse("continue_final_message", "an answer can't be begun for the model", false);
    Refuse("chat_template", "a chat goes through the model's own template", nullptr);
    Refuse("mm_processor_kwargs", "only text is supported", nullptr);
    NoteUnknown(kTokenFields);
    Copy("model", "model");
    const bool is_text = Field("prompt") != nullptr;
    if (is_text == (Field("messages") != nullptr)) {
      Fail("prompt", "Send either 'prompt' or 'messages'.");
    }
    if (is_text) {
      // The chat's reader checks the rest.
      chat_["messages"] = Json::array({{{"role", "user"}, {"content", ""}}});
    } else {
      for (const char* name : {"messages", "tools", "chat_template_kwargs"}) Copy(name, name);
    }
    const bool adds_special = Flag("add_special_tokens", is_text);
    if (!is_text && adds_special) {
      ChatTranslation::Refuse("add_special_tokens", "a chat's template has them already");
    }
    const std::string prompt = is_text ? Text(body_, "prompt", "") : "";
    const bool opens = Flag("add_generation_prompt", true);
    auto read = Finish({});
    if (auto* request = std::get_if<ChatRequest>(&read)) {
      v1::GenerateRequest& generate = request->generate;
      generate.set_max_tokens(1);  // a rank that tells no tokens answers no more
      generate.mutable_tokenize()->set_add_special_tokens(adds_special);
      generate.mutable_tokenize()->set_without_opening(!opens);
      if (is_text) {
        generate.clear_messages();
        generate.set_prompt(prompt);
      }
    }
    return read;
  }

  std::variant<ChatRequest, ApiError> ReadTokens(absl::string_view body, size_t json_depth_max) {
    // A parsed id takes 16 bytes where the body's two may name it.
    if (HasLongerList(body, json_depth_max, kTokensMax)) {
      ApiError error = HttpError(413,
                                 absl::StrCat("One /detokenize takes at most ", kTokensMax,
                                              " token ids. Send them in several requests."),
                                 "too_many_tokens");
      error.param = "tokens";
      return error;
    }
    ReadBody(body, json_depth_max);
    if (failed()) return *error_;
    Copy("model", "model");
    NoteUnknown(kTokenFields);
    const Json* tokens = Field("tokens");
    if (tokens == nullptr || !tokens->is_array()) {
      MustBe("tokens", absl::StrCat("a list of at most ", kTokensMax, " token ids"));
      return *error_;
    }
    chat_["messages"] = Json::array({{{"role", "user"}, {"content", ""}}});
    auto read = Finish({});
    auto* request = std::get_if<ChatRequest>(&read);
    if (request == nullptr) return read;
    v1::GenerateRequest& generate = request->generate;
    generate.clear_messages();
    generate.set_max_tokens(1);
    generate.mutable_tokenize()->set_detokenize(true);
    for (size_t i = 0; i < tokens->size(); ++i) {
      const Json& id = (*tokens)[i];
      if (!IsTokenId(id)) {
        MustBe(absl::StrCat("tokens[", i, "]"), "a token id");
        return *error_;
      }
      generate.add_prompt_token_ids(id.get<int32_t>());
    }
    return read;
  }

 private:
  void Refuse(const char* name, absl::string_view why, const Json& harmless) {
    const Json* value = Field(name);
    if (value != nullptr && *value != harmless) ChatTranslation::Refuse(name, why);
  }

  bool Flag(const char* name, bool otherwise) {
    const Json* value = Field(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      MustBe(name, "true or false");
      return otherwise;
    }
    return value->get<bool>();
  }
};

}  // namespace

std::variant<ChatRequest, ApiError> ParseTokenizeRequest(absl::string_view body,
                                                         size_t json_depth_max) {
  return TokenRequestReader().ReadText(body, json_depth_max);
}

std::variant<ChatRequest, ApiError> ParseDetokenizeRequest(absl::string_view body,
                                                           size_t json_depth_max) {
  return TokenRequestReader().ReadTokens(body, json_depth_max);
}

}  // namespace macrame::agentd
