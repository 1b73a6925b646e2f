#pragma once

// How --help and the manual page show options, what stands below them, and the words that users of
// other tools try.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace macrame::cli {

// The kind of value an option takes: "NUMBER [1..64]", "DURATION", "{on,off}", or the type_name
// that it was given, else its own name ("MODEL" of --model). Empty for a flag.
std::string ValueKind(const CLI::Option& option);

// Shows ValueKind where CLI11 would show the type of the C++ variable. Subcommands inherit it from
// the root.
std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter();

// Examples of "clusterctl model load" and so on. For a subcommand, also the flags that every
// subcommand takes, with their defaults.
std::string HelpFooter(std::string_view path);

// The examples alone, or "".
std::string ExamplesOf(std::string_view path);

// "clusterctl devices list" for "nodes": what does here what this word does elsewhere; empty: it is
// not known.
std::string WordOfOtherTools(std::string_view word);

}  // namespace macrame::cli
