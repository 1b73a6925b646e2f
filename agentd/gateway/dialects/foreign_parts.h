#pragma once

// Parts of conversations that were begun with another provider: images, searches of its servers,
// sealed reasoning. A model that reads text is told what can be told, so that a session can go on
// here. Pure.

#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/fields/bounded_json.h"

namespace macrame::agentd {

// What stands in the place of a part that is not text: "[An image was here. …]".
std::string LeftOutSentence(absl::string_view type);

// Whether the part holds an image.
bool IsImagePart(absl::string_view type);

// Whether nothing of the part can be told: reasoning that only its provider can read.
bool IsSealedPart(absl::string_view type);

// The texts within a part, one line each: titles, addresses and words, not what is encoded.
std::string TextsWithin(const Json& part);

// What a call of a tool on the provider's servers was: "[The tool web_search was called with {…}]".
std::string ServerCallSentence(const std::string& name, const Json& input);
// And its result.
std::string ServerResultSentence(absl::string_view type, const Json& result);

}  // namespace macrame::agentd
