#pragma once

// "Did you mean": the nearest of some names. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace macrame {

// Insertions, deletions, replacements and swaps of neighbours between two words.
int EditDistance(std::string_view a, std::string_view b);
// The nearest name, whatever the case, within a third of the word's length (at least 1); empty when
// there is none.
std::string SuggestedName(std::string_view word, const std::vector<std::string>& names);
// "; did you mean 'load'?", to be put behind the error that names the word; empty when nothing is
// near.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

// "a, b, c", and of long lists the first with how many more there are.
std::string NameList(const std::vector<std::string>& names);

}  // namespace macrame
