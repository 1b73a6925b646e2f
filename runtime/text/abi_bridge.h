#pragma once

// Between the C ABI of the Rust library and C++ values: for the sources of this folder only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/text/macrame_text.h"

namespace macrame::runtime::text {

inline MacrameTextText Lend(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

inline std::string_view View(const MacrameTextText& text) {
  return {reinterpret_cast<const char*>(text.data), text.size};
}

// Copies what the library gave into a C++ value and hands it back to the library.
std::string TakeString(MacrameTextBytes bytes);
std::vector<int32_t> TakeIds(MacrameTextIds ids);

// Which Reason a failure gets, by the place it happens at.
struct FailureReasons {
  std::string_view missing;    // a file that isn't there
  std::string_view broken;     // a file that can't be used
  std::string_view arguments;  // the caller's text
};

// The status of a call; takes `error`. A template's refusal is InvalidArgument, TEMPLATE_REFUSED.
absl::Status TakeStatus(MacrameTextStatus status, MacrameTextBytes error,
                        const FailureReasons& reasons);

}  // namespace macrame::runtime::text
