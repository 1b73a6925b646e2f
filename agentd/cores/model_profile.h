#pragma once

// What an order to change a model's profile does, and what the profile does to a request. Pure.

#include <array>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

inline constexpr int kAliasesMax = 16;  // of a model
inline constexpr size_t kAliasBytesMax = 256;
inline constexpr size_t kTemplateArgumentsBytesMax = 4096;
// Of a request: beyond it, its variables stay as they are.
inline constexpr size_t kOwnArgumentsBytesMax = 64 * 1024;
inline constexpr uint32_t kIdleUnloadMax_s = 30 * 24 * 3600;

// What ChangeProfileRequest.cleared may name; "template.NAME" and "alias.NAME" name one of them.
inline constexpr std::array<absl::string_view, 14> kProfileFields = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "thinking",
    "thinking_tokens",
    "max_tokens",
    "idle_unload",
    "pinned",
    "aliases",
};

struct ProfileChange {
  std::string value;  // a v1::ModelProfile, to be written; empty: the key is removed
  v1::ChangeProfileResponse response;
};

// `profiles`: of all models, by name. INVALID_ARGUMENT with BAD_REQUEST: a value out of its range
// (that of requests), template arguments that are no JSON object or too long, a field that nobody
// knows, an alias that is no line of text, that is another model's, or too many of them.
absl::StatusOr<ProfileChange> DecideProfile(
    const v1::ChangeProfileRequest& request,
    const std::map<std::string, v1::ModelProfile>& profiles);

// What the request says itself stays: one that says whether or how hard to think is left alone by
// all that the profile says of it. Of one for an embedding nothing changes; of one for tokens what
// its prompt is made of.
void ApplyProfile(const v1::ModelProfile& profile, v1::GenerateRequest* request);

// Alias to model.
std::map<std::string, std::string> AliasesOf(
    const std::map<std::string, v1::ModelProfile>& profiles);

}  // namespace macrame::agentd
