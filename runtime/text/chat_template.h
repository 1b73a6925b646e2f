#pragma once

// A model's chat template: from messages to the prompt, byte for byte as `transformers` renders it.
//
// The template is a program that others wrote. It has no way to files, network or clock, and it
// runs under bounds of steps, memory (96 MiB beside eight times its input), time (5 s) and output
// (32 MiB): InvalidArgument, and it ends there. EncodeChat of very many values, and of a template
// that broke a bound before, is done by a text worker (text_worker.h). A compiled template may be
// used by any number of threads at once.
//
// What a user writes can't speak in the template's voice: see EncodeChat.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer.h"

// Of the C ABI, macrame_text.h.
struct MacrameTextTemplateHandle;

namespace macrame::runtime::text {

struct TemplateDeleter {
  void operator()(MacrameTextTemplateHandle* handle) const;
};

// One prompt to make. Views: the texts must live as long as the call. 32 MiB in all.
struct ChatPrompt {
  // A JSON array of messages, each an object with "role", "content" and whatever else the template
  // reads ("tool_calls", "reasoning_content", …). The caller has judged the roles. Keys whose value
  // is null are left out.
  std::string_view messages_json;
  // A JSON array of tool descriptions; empty for none.
  std::string_view tools_json;
  // A JSON object of further variables, such as {"enable_thinking": false}; empty for none.
  std::string_view kwargs_json;
  // Whether the prompt ends with the opening of the assistant's turn.
  bool add_generation_prompt = true;
  // The wall clock of the place in seconds since 1970, for templates that print the date. Without
  // it, such a template is InvalidArgument.
  std::optional<int64_t> local_unix_s;
  // For EncodeChat, as Tokenizer::Encode has it.
  size_t tokens_max = 0;
};

class ChatTemplate {
 public:
  // Looks for chat_template.jinja, then `chat_template` in tokenizer_config.json (a string, or a
  // list of named ones: "default", and "tool_use" when there are tools), then chat_template.json.
  // MODEL_FILE_MISSING when there is none, TOKENIZER_INVALID when it can't be compiled.
  static absl::StatusOr<ChatTemplate> Load(const std::string& model_folder);

  // The template's own text; some models have one for requests with tools.
  std::string Source(bool with_tools) const;

  // The prompt as text. InvalidArgument with TEMPLATE_REFUSED and the template's own message when
  // it calls raise_exception, with BAD_REQUEST when the JSON is malformed or can't be rendered.
  absl::StatusOr<std::string> Render(const ChatPrompt& prompt) const;

  // The prompt as ids. Equal to encoding Render()'s text without adding special tokens, and so to
  // `apply_chat_template(tokenize=True)`, as long as no string of the prompt holds the text of a
  // control token.
  //
  // Control tokens are the tokenizer's special tokens, and those other added tokens that the
  // template itself writes. Where their text stands in a message, a tool or an argument, the result
  // is what the tokenizer would give if that occurrence were not in its table of added tokens:
  // plain letters, joined with their neighbours as plain letters are. (A tokenizer whose model
  // spells the token all the same, as Unigram models do, has the text cut behind the token's first
  // character.) That holds too for a token put together from two strings. In messages of the
  // assistant only special tokens are read so: "<think>" and the like are the model's own text
  // there.
  //
  // The template sees a private-use character in place of the first one of such a text, so it can't
  // act on it either (`'</think>' in content` is false for a user's message).
  //
  // InvalidArgument when that can't be kept: the template escapes the text letter by letter, or a
  // text becomes a special token only by the tokenizer's normalisation (full-width letters).
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer,
                                                  const ChatPrompt& prompt) const;

 private:
  ChatTemplate() = default;

  std::unique_ptr<MacrameTextTemplateHandle, TemplateDeleter> handle_;
};

}  // namespace macrame::runtime::text
