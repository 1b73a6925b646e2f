#include "runtime/serving/text_probe.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/config/python_json.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProbe = "Hello! 1 + 1 = 2";

absl::Status Unusable(std::string_view code, const std::string& path, std::string message) {
  v1::Reason reason = MakeReason(std::string(code), std::move(message));
  reason.set_remedy(absl::StrCat("compare ", fs::path(path).filename().string(),
                                 " with the source's, put a whole one in its place, and load the "
                                 "model again"));
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

absl::Status Broken(std::string_view code, const std::string& path, std::string_view what) {
  return Unusable(code, path, absl::StrCat(path, ": ", std::string(what)));
}

absl::Status CheckObject(const std::string& folder, const char* name, std::string_view code) {
  const std::string path = absl::StrCat(folder, "/", name);
  const auto text = transport::ReadRegularFile(path, kTextConfigBytesMax);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return Unusable(code, path, std::string(text.status().message()));
  if (ParsePythonJson(*text).is_object()) return absl::OkStatus();
  return Broken(code, path, "it is not a JSON object: it is broken or incomplete");
}

absl::Status CheckIds(const std::string& folder, const std::vector<int32_t>& ids, int vocab_size) {
  for (const int32_t id : ids) {
    if (vocab_size <= 0 || (id >= 0 && id < vocab_size)) continue;
    return Broken(reasons::kTokenizerInvalid, absl::StrCat(folder, "/tokenizer.json"),
                  absl::StrCat("it gives token ", id, ", and the model has ", vocab_size,
                               ": it is another model's"));
  }
  return absl::OkStatus();
}

std::string TemplatePath(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"chat_template.jinja", "chat_template.json"}) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (fs::exists(path, error)) return path;
  }
  return absl::StrCat(folder, "/tokenizer_config.json");
}

v1::GenerateRequest Conversation(const std::vector<const char*>& roles) {
  v1::GenerateRequest request;
  for (const char* role : roles) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(role);
    message.set_content(std::string(kProbe));
  }
  return request;
}

absl::Status ProbeTemplate(const std::string& folder, const ModelText& text, int vocab_size) {
  const std::vector<const char*> conversations[] = {
      {"user"}, {"system", "user"}, {"user", "assistant", "user"}};
  absl::Status failed;
  for (const std::vector<const char*>& roles : conversations) {
    const v1::GenerateRequest request = Conversation(roles);
    const auto ids = EncodeMessages(request, request.messages_size(), text, /*local_unix_s=*/0,
                                    /*opens_answer=*/true);
    if (ids.ok()) return CheckIds(folder, *ids, vocab_size);
    if (ReasonOf(ids.status()).code() == reasons::kTemplateRefused) continue;
    if (failed.ok()) failed = ids.status();
  }
  if (failed.ok()) return absl::OkStatus();
  return Broken(reasons::kTokenizerInvalid, TemplatePath(folder),
                absl::StrCat("a conversation of one message can't be rendered: ",
                             ReasonOf(failed).message()));
}

}  // namespace

absl::Status CheckTextFiles(const std::string& folder) {
  const absl::Status sampling =
      CheckObject(folder, "generation_config.json", reasons::kModelConfigInvalid);
  if (!sampling.ok()) return sampling;
  return CheckObject(folder, "tokenizer_config.json", reasons::kTokenizerInvalid);
}

absl::Status ProbeText(const std::string& folder, const ModelText& text, int vocab_size) {
  const std::string path = absl::StrCat(folder, "/tokenizer.json");
  const auto ids = text.tokenizer.Encode(kProbe, /*add_special_tokens=*/true,
                                         /*special_tokens_in_text=*/false);
  if (!ids.ok()) {
    return Broken(reasons::kTokenizerInvalid, path,
                  absl::StrCat("a text can't be encoded: ", ReasonOf(ids.status()).message()));
  }
  if (const absl::Status status = CheckIds(folder, *ids, vocab_size); !status.ok()) return status;
  if (const auto back = text.tokenizer.Decode(*ids, /*skip_special_tokens=*/true); !back.ok()) {
    return Broken(reasons::kTokenizerInvalid, path,
                  absl::StrCat("tokens can't be decoded: ", ReasonOf(back.status()).message()));
  }
  if (!text.chat_template.has_value() || !text.embedding.has_head) return absl::OkStatus();
  return ProbeTemplate(folder, text, vocab_size);
}

}  // namespace macrame::runtime::engine
