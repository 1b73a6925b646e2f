#include "runtime/serving/structure/call_grammar.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "runtime/serving/structure/ignorable_keywords.h"

namespace macrame::runtime::engine {
namespace {

using markup::CallSyntax;
using nlohmann::ordered_json;

bool WritesJson(const markup::Dialect& dialect) {
  switch (dialect.syntax) {
    case CallSyntax::kPlainJson:
    case CallSyntax::kMistral:
    case CallSyntax::kSections:
    case CallSyntax::kHarmony:
    case CallSyntax::kSolar:
    case CallSyntax::kRecipients:
    case CallSyntax::kNamedJson:
      return true;
    case CallSyntax::kTagged:
      return std::string_view(dialect.forced_named).ends_with("\"arguments\": ");
    default:
      return false;
  }
}

// What a call ends with behind its arguments.
std::string EndingOf(const markup::Dialect& dialect) {
  const auto opens_with = [&dialect](std::string_view part) {
    return dialect.forced_named.find(part) != std::string::npos;
  };
  switch (dialect.syntax) {
    case CallSyntax::kPlainJson:
      return dialect.json_in_function ? dialect.function.function_close : "}";
    case CallSyntax::kTagged:
      return absl::StrCat(opens_with("[{") ? "}]" : "}\n", dialect.closer);
    case CallSyntax::kMistral:
      return opens_with("[ARGS]") ? "" : "}]";
    case CallSyntax::kSolar:
    case CallSyntax::kSections:
      return absl::StrCat(opens_with("```json") ? "\n```" : "", dialect.section.call_end,
                          dialect.section.section_end);
    default:
      return "";
  }
}

// Text as Lark's literals, with special tokens by their ids between.
std::string LiteralsOf(std::string_view text, const std::map<int32_t, std::string>& special) {
  std::string lark, plain;
  const auto flush = [&] {
    if (!plain.empty()) absl::StrAppend(&lark, ordered_json(plain).dump(), " ");
    plain.clear();
  };
  while (!text.empty()) {
    size_t taken = 0;
    for (const auto& [token, spelling] : special) {
      if (spelling.empty() || !text.starts_with(spelling)) continue;
      flush();
      absl::StrAppend(&lark, "<[", token, "]> ");
      taken = spelling.size();
      break;
    }
    if (taken == 0) plain += text.front();
    text.remove_prefix(taken == 0 ? 1 : taken);
  }
  flush();
  return lark;
}

std::string ArgumentsOf(const ordered_json& function, bool by_schema) {
  ordered_json schema = ordered_json::object();
  if (by_schema) schema = function.value("parameters", ordered_json::object());
  DropIgnorableKeywords(&schema);
  if (!schema.is_object() || schema.empty()) schema = {{"type", "object"}};
  // As white space and oneOf are read in a JSON schema (runtime/text/src/grammar.rs).
  schema["x-guidance"] = {{"whitespace_flexible", false},
                          {"item_separator", ", ?"},
                          {"key_separator", ": ?"},
                          {"coerce_one_of", true}};
  return schema.dump();
}

// A member that is a text; empty where it is anything else.
std::string TextAt(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

struct CallsBehind {
  std::string said;  // that comes before
  std::string name;  // of the tool; empty: any
  uint32_t calls_before = 0;
  bool always_by_schema = false;  // else only where a tool is strict
};

std::optional<ForcedCall> GrammarBehind(const CallsBehind& calls, const markup::Dialect& dialect,
                                        const std::string& tools_json,
                                        const std::map<int32_t, std::string>& special) {
  const ordered_json tools = ordered_json::parse(tools_json, nullptr, false);
  if (!WritesJson(dialect) || !tools.is_array()) return std::nullopt;
  const std::string ending = LiteralsOf(EndingOf(dialect), special);
  ForcedCall call;
  std::string start, rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    const auto found = tools[i].find("function");  // none where the tool is no object
    if (found == tools[i].end() || !found->is_object()) continue;
    const ordered_json& function = *found;
    const std::string tool = TextAt(function, "name");
    if (tool.empty() || (!calls.name.empty() && tool != calls.name)) continue;
    const std::string opening = markup::ForcedOpening(dialect, tool, calls.calls_before);
    if (!opening.starts_with(calls.said)) return std::nullopt;
    const auto strict = function.find("strict");
    const bool is_strict = strict != function.end() && *strict == true;
    absl::StrAppend(&start, start.empty() ? "start: " : " | ", "call", i);
    absl::StrAppend(&rules, "call", i, ": ",
                    LiteralsOf(std::string_view(opening).substr(calls.said.size()), special),
                    "%json ", ArgumentsOf(function, calls.always_by_schema || is_strict), " ",
                    ending, "\n");
    call.is_strict = call.is_strict || is_strict;
  }
  if (start.empty()) return std::nullopt;
  call.lark = absl::StrCat(start, "\n", rules);
  return call;
}

}  // namespace

std::optional<ForcedCall> GrammarOfForcedCall(const markup::Dialect& dialect,
                                              const std::string& tools_json,
                                              const std::string& name, uint32_t calls_before,
                                              const std::map<int32_t, std::string>& special) {
  return GrammarBehind(
      {markup::ForcedOpening(dialect, name, calls_before), name, calls_before, true}, dialect,
      tools_json, special);
}

std::optional<std::string> GrammarOfOwnCall(const markup::Dialect& dialect,
                                            const std::string& tools_json,
                                            const std::string& opener,
                                            const std::map<int32_t, std::string>& special) {
  const bool ends_alone = (dialect.syntax == CallSyntax::kTagged && !dialect.closer.empty() &&
                           dialect.forced_named.find("[{") == std::string::npos) ||
                          (dialect.syntax == CallSyntax::kMistral &&
                           dialect.forced_named.find("[ARGS]") != std::string::npos);
  if (!ends_alone || opener.empty()) return std::nullopt;
  auto call = GrammarBehind({opener, "", 0, false}, dialect, tools_json, special);
  if (!call.has_value() || !call->is_strict) return std::nullopt;
  return std::move(call->lark);
}

}  // namespace macrame::runtime::engine
