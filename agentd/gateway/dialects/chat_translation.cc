#include "agentd/gateway/dialects/chat_translation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "agentd/gateway/fields/bounded_json.h"

namespace macrame::agentd {

void ChatTranslation::ReadBody(absl::string_view body, size_t json_depth_max) {
  error_ = ParseJsonObject(body, json_depth_max, &body_);
}

void ChatTranslation::Fail(const std::string& param, std::string message, absl::string_view code) {
  if (!error_) error_ = BadRequest(std::move(message), param, std::string(code));
}

void ChatTranslation::MustBe(const std::string& param, absl::string_view what) {
  Fail(param, absl::StrCat("'", param, "' must be ", what, "."), "invalid_type");
}

void ChatTranslation::Refuse(const std::string& param, absl::string_view why) {
  Fail(param, absl::StrCat("'", param, "' can't be honoured: ", why, "."), "unsupported_parameter");
}

const Json* ChatTranslation::Find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string ChatTranslation::Text(const Json& object, const char* name, const std::string& param,
                                  bool is_needed) {
  const Json* value = Find(object, name);
  if (value == nullptr && !is_needed) return "";
  const std::string path = param.empty() ? std::string(name) : absl::StrCat(param, ".", name);
  if (value == nullptr) {
    Fail(path, absl::StrCat("'", path, "' is missing."), "missing_required_parameter");
  } else if (!value->is_string()) {
    MustBe(path, "a string");
  } else {
    return value->get<std::string>();
  }
  return "";
}

void ChatTranslation::Copy(const char* name, const char* as) {
  if (const Json* value = Field(name)) chat_[as] = *value;
}

void ChatTranslation::NoteUnknown(std::span<const absl::string_view> known) {
  if (failed()) return;
  for (const auto& [name, value] : body_.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) NoteIgnored(name);
  }
}

void ChatTranslation::NoteIgnored(std::string name) {
  if (ignored_.size() < kIgnoredNamesMax) ignored_.push_back(HeaderSafeName(name));
}

void ChatTranslation::AddTool(std::string name, const Json* description, const Json* parameters,
                              const Json* strict) {
  Json function;
  function["name"] = std::move(name);
  if (description != nullptr) function["description"] = *description;
  if (parameters != nullptr) function["parameters"] = *parameters;
  if (strict != nullptr) function["strict"] = *strict;
  chat_["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
}

ApiError ChatTranslation::Renamed(ApiError failure, std::span<const FieldName> names) {
  for (std::string* text : {&failure.message, &failure.param}) {
    *text = absl::StrReplaceAll(*text, names);
  }
  return failure;
}

std::variant<ChatRequest, ApiError> ChatTranslation::Finish(std::span<const FieldName> names) {
  if (error_) return *error_;
  auto read = ReadChatRequest(chat_);
  if (auto* failure = std::get_if<ApiError>(&read)) return Renamed(*std::move(failure), names);
  auto& request = std::get<ChatRequest>(read);
  request.ignored.insert(request.ignored.begin(), ignored_.begin(), ignored_.end());
  return std::move(request);
}

}  // namespace macrame::agentd
