#pragma once

// The words of findings: symptom, cause and steps of the codes that need more than their one-line
// meaning. Pure. Internal to diagnosis.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

struct FindingText {
  std::string_view symptom, cause;
  std::vector<std::string_view> steps;
};
// Empty members where the code's own meaning and remedy say enough.
FindingText TextOf(std::string_view code);

// The command that a code's evidence comes from.
std::string SourceOf(std::string_view code);

// What makes a remembered refusal be looked at again.
std::span<const std::string_view> RetryTriggers();

}  // namespace macrame::transport
