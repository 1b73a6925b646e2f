#pragma once

// Reasons and failed calls as people and programs read them. Pure.

#include <string>

#include "absl/status/status.h"
#include "cli/format/message_json.h"
#include "cli/format/text.h"
#include "macrame/v1/common.pb.h"

namespace macrame::cli {

// "what happened; what to do", printable, one line; "no reason is given" of an empty one.
std::string ReasonSentence(const v1::Reason& reason);

// What, which node, what the machine said, what next: one block of lines.
std::string ErrorBlock(const absl::Status& status, const Style& style);
// {"error":{"code","message","hint","node","evidence"}}
Json ErrorDocument(const absl::Status& status);

}  // namespace macrame::cli
