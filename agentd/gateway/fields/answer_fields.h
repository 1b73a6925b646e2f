#pragma once

// What requests for answers have in common, chats and text prompts alike: which model, how long,
// where it stops, whether it streams, whose it is; and which fields are refused or unknown. Pure.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/fields/request_fields.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kModelNameBytesMax = 256;
inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 512;
inline constexpr int64_t kMaxTokensMax = 2'147'483'647;
inline constexpr size_t kIgnoredNamesMax = 16;

struct AnswerRequest {
  v1::GenerateRequest generate;  // all but request_id
  uint32_t choices = 1;          // answers that are wanted of a prompt: RequestsOfChoices
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  std::vector<std::string> ignored{};  // names of fields that nobody knows, safe for a header
  // Names of fields that some families of models follow and others don't, which shows in the
  // answer alone.
  std::vector<std::string> by_model{};
};

// A field that would change the answer and that no engine here can follow. `harmless` values (the
// field's own default) pass, as null does.
struct RefusedField {
  absl::string_view name;
  bool (*harmless)(const Json& value);
  absl::string_view why;
};

bool IsEmptyList(const Json& value);  // or an empty object
bool IsFalse(const Json& value);
bool IsZero(const Json& value);
bool IsOne(const Json& value);
bool Never(const Json& value);

// Those of other engines that no request may have.
extern const std::span<const RefusedField> kRefusedEverywhere;
void RefuseFields(RequestFields& fields, std::span<const RefusedField> refused);

void ReadModel(RequestFields& fields, AnswerRequest& request);
void ReadMaxTokens(RequestFields& fields, AnswerRequest& request);
void ReadStop(RequestFields& fields, AnswerRequest& request);
void ReadStream(RequestFields& fields, AnswerRequest& request);
// user, safety_identifier, cache_salt.
void ReadWhose(RequestFields& fields, AnswerRequest& request);
// A field's name as a header may hold it.
std::string HeaderSafeName(absl::string_view name);
// Names what neither the functions above and ReadSamplingFields read, nor `refused` has, nor
// `is_known` says to be known.
void ListIgnored(const RequestFields& fields, std::span<const RefusedField> refused,
                 bool (*is_known)(absl::string_view), AnswerRequest& request);

}  // namespace macrame::agentd
