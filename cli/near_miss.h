#pragma once

// "Did you mean": the nearest of some names. Pure.

#include <string>
#include <vector>

namespace macrame::cli {

// Insertions, deletions, replacements and swaps of neighbours between two words.
int EditDistance(const std::string& a, const std::string& b);
// The nearest name within a third of the word's length (at least 1); empty when there is none.
std::string NearMiss(const std::string& word, const std::vector<std::string>& names);

}  // namespace macrame::cli
