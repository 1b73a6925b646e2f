#pragma once

// What the readers of other APIs' requests have in common: they check their own fields and write
// the body of a chat request, which is read as any other (chat_request.h). Pure.

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/fields/bounded_json.h"

namespace macrame::agentd {

// A field's name in a chat and in the request that was read, for errors.
using FieldName = std::pair<absl::string_view, absl::string_view>;

class ChatTranslation {
 protected:
  // Into `body_`, an object; or the error is set.
  void ReadBody(absl::string_view body, size_t json_depth_max);
  // The first error stays.
  void Fail(const std::string& param, std::string message,
            absl::string_view code = "invalid_value");
  void MustBe(const std::string& param, absl::string_view what);  // invalid_type
  // "'param' can't be honoured: why."
  void Refuse(const std::string& param, absl::string_view why);
  bool failed() const { return error_.has_value(); }
  // Null when it is missing or null, or `object` is none.
  static const Json* Find(const Json& object, const char* name);
  const Json* Field(const char* name) const { return Find(body_, name); }
  // A member that has to be text; empty when it is missing or an error was set.
  std::string Text(const Json& object, const char* name, const std::string& param,
                   bool is_needed = true);
  // Body's field `name` as the chat's field `as`, if it is there.
  void Copy(const char* name, const char* as);
  // Fields that nobody here knows, for AnswerRequest::ignored.
  void NoteUnknown(std::span<const absl::string_view> known);
  void NoteIgnored(std::string name);
  // A tool in the chat's form.
  void AddTool(std::string name, const Json* description, const Json* parameters,
               const Json* strict);
  // An error of another reader's, in the words of this request's fields.
  static ApiError Renamed(ApiError failure, std::span<const FieldName> names);
  // What the chat's reader makes of it; its errors name this request's fields.
  std::variant<ChatRequest, ApiError> Finish(std::span<const FieldName> names);

  Json body_;
  Json chat_ = Json::object();
  std::optional<ApiError> error_;
  std::vector<std::string> ignored_;
};

}  // namespace macrame::agentd
