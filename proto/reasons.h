#pragma once

// Reasons: why something is not so, with a stable code, and how they travel inside an absl::Status.
//
// A code is written out once, in reason_codes.h, and listed in reasons.cc with the remedy that
// people are given when the place that raises it knows no better one.

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "macrame/v1/common.pb.h"
#include "proto/reason_codes.h"

namespace macrame {

struct ReasonCode {
  std::string_view code;     // as in reason_codes.h
  std::string_view meaning;  // one line, for docs and --explain
  std::string_view remedy;   // the default remedy; empty when there is none
  // Who can carry the remedy out: "root", "admin" (an administrator of that machine), "hands" (who
  // is at the cables), "in person" (at that Mac, in Recovery), "user session" (logged in at its
  // screen). Empty: anyone, or nothing to do.
  std::string_view who = "";
};

std::span<const ReasonCode> AllReasonCodes();
// Null when the code is unknown.
const ReasonCode* FindReasonCode(std::string_view code);

// A Reason with the code's default remedy. `code` must be listed (checked).
v1::Reason MakeReason(std::string_view code, std::string message, std::string node_id = "");

// The status carries the whole Reason as a payload; its message is "message. remedy".
absl::Status ReasonStatus(absl::StatusCode status_code, const v1::Reason& reason);
absl::Status ReasonStatus(absl::StatusCode status_code, std::string_view code, std::string message,
                          std::string node_id = "");

// The Reason inside a status; for one that has none, code INTERNAL and the status's message.
v1::Reason ReasonOf(const absl::Status& status);

// The payload's type URL, for those who carry a status over a wire.
inline constexpr std::string_view kReasonPayloadUrl = "type.macrame/macrame.v1.Reason";

}  // namespace macrame
