// Calls as Python writes them: [get_weather(city="Paris"), get_time()].

#include <array>
#include <optional>
#include <string>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/python_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 1> kParenthesis = {"("};
constexpr std::array<std::string_view, 1> kEquals = {"="};

bool IsPythonName(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_letter && !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '-') return false;
  }
  return true;
}

// Whether a call's name, or its quotes, may begin so: what can't is not waited for.
bool MayBeginName(std::optional<char> c) {
  return c == '"' || c == '\'' || (c.has_value() && IsPythonName(std::string_view(&*c, 1)));
}

// The value of an argument; what stands behind it stays. False when the text ended within it.
Reading<bool> CopyPythonValue(Transcript& t) {
  PythonSpan span;
  std::string value;
  for (;;) {
    const std::string_view text = t.source.rest();
    const size_t read = span.Read(text);
    value.append(text.substr(0, read));
    t.source.Skip(read);
    if (span.is_over() || t.source.has_ended()) break;
    co_await t.source.More();
  }
  if (!span.is_over() && t.is_cut) {
    t.sink.Arguments(value);
    co_return false;
  }
  t.sink.Arguments(PythonAsJson(value).value_or(QuotedJson(value)));
  co_return span.is_over();
}

// Behind the parenthesis. Nothing was told when it gives false.
Reading<bool> ReadPythonCall(Transcript& t, const std::string& name) {
  TextSource& in = t.source;
  co_await in.SkipSpace();
  bool closed = co_await in.Accept(")");
  std::optional<std::string> key;
  if (!closed) {
    key = co_await in.TextTo(kEquals, kNameBytesMax);
    if (!key.has_value() || !IsPythonName(NameIn(*key))) co_return false;
    in.Skip(1);
  }
  t.sink.BeginCall(name);
  in.Forget();
  t.sink.Arguments("{");
  for (bool first = true; !closed; first = false) {
    t.sink.Arguments((first ? "" : ", ") + QuotedJson(NameIn(*key)) + ": ");
    const bool whole = co_await CopyPythonValue(t);
    if (!whole) {
      if (!t.is_cut) t.sink.Arguments("}");
      t.sink.EndCall();
      co_return true;
    }
    const bool comma = co_await in.Accept(",");
    if (comma) co_await in.SkipSpace();
    closed = co_await in.Accept(")");
    if (closed) break;
    key = co_await in.TextTo(kEquals, kNameBytesMax);
    if (!comma || !key.has_value() || !IsPythonName(NameIn(*key))) {
      co_await EndBroken(t, t.dialect.closer);
      co_return true;
    }
    in.Skip(1);
  }
  t.sink.Arguments("}");
  t.sink.EndCall();
  co_return true;
}

// A fence of code around the calls, or the end of one.
Reading<bool> SkipFence(Transcript& t) {
  co_await t.source.SkipSpace();
  const bool fenced = co_await t.source.Accept("```");
  if (fenced) {
    const bool named = co_await t.source.Accept("python");
    if (named) co_await t.source.SkipSpace();
  }
  co_return fenced;
}

// What closes the list, the fence and the block of calls.
Reading<bool> SkipEnds(Transcript& t, bool in_list, bool is_fenced) {
  TextSource& in = t.source;
  in.Rewind();
  in.Mark();
  co_await in.SkipSpace();
  bool closed = false;
  if (in_list) {
    closed = co_await in.Accept("]");
    if (closed) in.Mark();
    if (closed) co_await in.SkipSpace();
  }
  if (is_fenced) {
    const bool ends = co_await SkipFence(t);
    if (ends) in.Mark();
    if (ends) co_await in.SkipSpace();
  }
  const bool ended = co_await in.Accept(t.dialect.closer);
  if (ended) {
    in.Forget();
  } else {
    in.Rewind();
  }
  co_return ended;
}

}  // namespace

Reading<bool> ReadBuiltInCall(Transcript& t) {
  constexpr std::string_view kCall = ".call";
  const std::optional<std::string> head = co_await t.source.TextTo(kParenthesis, kNameBytesMax);
  if (!head.has_value()) co_return false;
  std::string_view name = NameIn(*head);
  if (name.ends_with(kCall) && !t.tools.Has(name)) name.remove_suffix(kCall.size());
  if (!t.tools.Has(name)) co_return false;
  t.source.Skip(1);
  const bool read = co_await ReadPythonCall(t, std::string(name));
  co_return read;
}

Reading<bool> ReadPythonicCalls(Transcript& t, bool only_known) {
  TextSource& in = t.source;
  bool any = false;
  co_await in.SkipSpace();
  bool is_fenced = false;
  if (!only_known) is_fenced = co_await SkipFence(t);
  const bool in_list = co_await in.Accept("[");
  if (only_known && !in_list) co_return false;
  for (;;) {
    if (any) in.Mark();
    co_await in.SkipSpace();
    if (any && in_list) {
      const bool comma = co_await in.Accept(",");
      if (comma) co_await in.SkipSpace();
    }
    const std::optional<char> next = co_await in.Peek();
    if (!MayBeginName(next)) break;
    const std::optional<std::string> head = co_await in.TextTo(kParenthesis, kNameBytesMax);
    const std::string name(head.has_value() ? NameIn(*head) : "");
    if (!IsPythonName(name) || (only_known && !t.tools.Has(name))) break;
    in.Skip(1);
    const bool read = co_await ReadPythonCall(t, name);
    if (!read) break;
    any = true;
  }
  if (!any) co_return false;
  co_await SkipEnds(t, in_list, is_fenced);
  co_return true;
}

}  // namespace macrame::runtime::markup
