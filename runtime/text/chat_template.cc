#include "runtime/text/chat_template.h"

#include "proto/reason_codes.h"
#include "runtime/text/abi_bridge.h"

namespace macrame::runtime::text {
namespace {

constexpr FailureReasons kReasons = {reasons::kModelFileMissing, reasons::kTokenizerInvalid,
                                     reasons::kBadRequest};

MacrameTextChatArguments Arguments(const ChatPrompt& prompt) {
  MacrameTextChatArguments arguments{};
  arguments.messages_json = Lend(prompt.messages_json);
  arguments.tools_json = Lend(prompt.tools_json);
  arguments.kwargs_json = Lend(prompt.kwargs_json);
  arguments.add_generation_prompt = prompt.add_generation_prompt;
  arguments.has_time = prompt.local_unix_s.has_value();
  arguments.local_unix_s = prompt.local_unix_s.value_or(0);
  arguments.tokens_max = prompt.tokens_max;
  return arguments;
}

}  // namespace

void TemplateDeleter::operator()(MacrameTextTemplateHandle* handle) const {
  macrame_text_template_free(handle);
}

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::string& model_folder) {
  MacrameTextTemplateHandle* handle = nullptr;
  MacrameTextBytes error{};
  const auto status = macrame_text_template_load(Lend(model_folder), &handle, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  ChatTemplate chat_template;
  chat_template.handle_.reset(handle);
  return chat_template;
}

std::string ChatTemplate::Source(bool with_tools) const {
  MacrameTextBytes source{};
  const auto status = macrame_text_template_source(handle_.get(), with_tools, &source, nullptr);
  return status == 0 ? TakeString(source) : "";
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatPrompt& prompt) const {
  const MacrameTextChatArguments arguments = Arguments(prompt);
  MacrameTextBytes text{};
  MacrameTextBytes error{};
  const auto status = macrame_text_template_render(handle_.get(), &arguments, &text, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return TakeString(text);
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::EncodeChat(const Tokenizer& tokenizer,
                                                              const ChatPrompt& prompt) const {
  const MacrameTextChatArguments arguments = Arguments(prompt);
  MacrameTextIds ids{};
  MacrameTextBytes error{};
  const auto status =
      macrame_text_encode_chat(tokenizer.handle_.get(), handle_.get(), &arguments, &ids, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return TakeIds(ids);
}

}  // namespace macrame::runtime::text
