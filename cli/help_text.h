#pragma once

// What stands below the flags of each subcommand's --help, and what people type who know other
// tools.

#include <string>
#include <string_view>

namespace macrame::cli {

// Examples of "clusterctl model load" and so on, then the flags that every subcommand takes with
// their defaults.
std::string HelpFooter(std::string_view path);

// The examples alone, or "".
std::string ExamplesOf(std::string_view path);

// "clusterctl devices list" for "nodes": what does here what this word does elsewhere; empty: it is
// not known.
std::string WordOfOtherTools(std::string_view word);

}  // namespace macrame::cli
