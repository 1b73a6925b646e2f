// Calls between control tokens: Kimi K2's, DeepSeek V3's and V3.1's.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 1> kLineEnd = {"\n"};

// "functions.get_weather:0": Kimi says the call's id.
std::string_view NameInId(std::string_view id) {
  std::string_view name = NameIn(id);
  if (name.starts_with("functions.")) name.remove_prefix(10);
  const size_t colon = name.rfind(':');
  const bool has_number = colon != std::string_view::npos &&
                          name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return has_number ? name.substr(0, colon) : name;
}

// Up to the call's end, behind its arguments.
Reading<bool> EndSectionCall(Transcript& t, bool is_whole) {
  const SectionTokens& tokens = t.dialect.section;
  std::vector<std::string_view> ends = {tokens.call_end, tokens.section_end, tokens.call_begin};
  if (!tokens.other_section_end.empty()) ends.push_back(tokens.other_section_end);
  const size_t which = co_await t.source.CopyTo(ends, [&t, is_whole](std::string_view text) {
    if (!is_whole) t.sink.Arguments(text);
  });
  if (which == 0) t.source.Skip(tokens.call_end.size());
  t.sink.EndCall();
  co_return true;
}

// Behind call_begin.
Reading<bool> ReadSectionCall(Transcript& t) {
  TextSource& in = t.source;
  const SectionTokens& tokens = t.dialect.section;
  const std::array<std::string_view, 2> head_ends = {tokens.separator, tokens.call_end};
  std::optional<std::string> head = co_await in.TextTo(head_ends, kNameBytesMax);
  if (!head.has_value()) co_return false;
  const bool separated = co_await in.Accept(tokens.separator);
  if (!separated) co_return false;
  bool is_fenced = false;
  if (t.dialect.id_style != CallIdStyle::kIndex && NameIn(*head) == "function") {
    // V3: the name stands behind the separator, the arguments in a fence.
    head = co_await in.TextTo(kLineEnd, kNameBytesMax);
    if (!head.has_value()) co_return false;
    co_await in.SkipSpace();
    is_fenced = co_await in.Accept("```json");
  }
  const std::string name(NameInId(*head));
  if (name.empty()) co_return false;
  t.sink.BeginCall(name);
  in.Forget();
  co_await in.SkipSpace();
  const std::optional<char> first = co_await in.Peek();
  bool is_whole = false;
  if (first == '{') {
    is_whole = co_await CopyArguments(t);
  } else if (first == '<') {
    t.sink.Arguments("{}");
    is_whole = true;
  }
  if (is_fenced) {
    co_await in.SkipSpace();
    co_await in.Accept("```");
  }
  co_await EndSectionCall(t, is_whole);
  co_return true;
}

}  // namespace

Reading<bool> ReadSections(Transcript& t, std::string_view opener) {
  TextSource& in = t.source;
  const SectionTokens& tokens = t.dialect.section;
  bool any = false;
  bool is_open = opener == tokens.call_begin;
  for (;;) {
    if (any) in.Mark();
    if (!is_open) {
      co_await in.SkipSpace();
      is_open = co_await in.Accept(tokens.call_begin);
    }
    if (!is_open) break;
    is_open = false;
    const bool read = co_await ReadSectionCall(t);
    if (!read) break;
    any = true;
  }
  if (!any) co_return false;
  in.Rewind();
  in.Mark();
  co_await in.SkipSpace();
  bool closed = co_await in.Accept(tokens.section_end);
  if (!closed && !tokens.other_section_end.empty()) {
    closed = co_await in.Accept(tokens.other_section_end);
  }
  if (closed) {
    in.Forget();
  } else {
    in.Rewind();
  }
  co_return true;
}

}  // namespace macrame::runtime::markup
