#pragma once

// Which of many names somebody means. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace macrame::runtime {

inline constexpr size_t kSuggestionsMax = 5;

// Somebody points at a folder: it begins with "/", "./", "../" or "~/", or is "." or "..".
bool IsModelPath(std::string_view name_or_path);

struct NameMatch {
  // All names that fit at the first rule that any fits; one: it is meant. Rules, in order: equal;
  // equal but for case; equal to the part after "ORG/"; the beginning or end of a name or of that
  // part.
  std::vector<std::string> fits;
  bool exact = false;  // by the first rule
};
NameMatch MatchName(std::string_view wanted, const std::vector<std::string>& names);

// Up to kSuggestionsMax names that differ from `wanted` by a few letters, or contain it, nearest
// first.
std::vector<std::string> SuggestedNames(std::string_view wanted,
                                        const std::vector<std::string>& names);

}  // namespace macrame::runtime
