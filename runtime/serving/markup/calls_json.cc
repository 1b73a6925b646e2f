// Calls as JSON: {"name": "…", "arguments": {…}}, in the many ways in which models write it.

#include <array>
#include <optional>
#include <string>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 1> kLineEnd = {"\n"};
constexpr std::string_view kPythonTool = "python";

bool IsNameKey(std::string_view key) {
  return key == "name" || key == "function" || key == "tool" || key == "tool_name";
}
bool IsArgumentsKey(std::string_view key) {
  return key == "arguments" || key == "parameters" || key == "args";
}

// What is known of a call while its object is read.
struct CallInJson {
  std::optional<std::string> name;
  std::optional<std::string> held;  // arguments that stood before the name
  bool has_begun = false;
  bool has_ended = false;
};

void Begin(Transcript& t, CallInJson& call) {
  t.sink.BeginCall(*call.name);
  t.source.Forget();
  call.has_begun = true;
}

// The value behind a key; false when it is broken.
Reading<bool> ReadMember(Transcript& t, std::string_view key, bool only_known, CallInJson& call) {
  TextSource& in = t.source;
  const std::optional<char> first = co_await in.Peek();
  if (IsNameKey(key) && first == '"') {
    call.name = co_await ReadJsonString(in, kNameBytesMax);
    if (!call.name.has_value() || call.name->empty()) co_return false;
    co_return !only_known || t.tools.Has(*call.name);
  }
  if (key == "function" && first == '{') {
    if (t.nested_calls >= kNestedCallsMax) co_return false;
    ++t.nested_calls;
    const bool nested = co_await ReadJsonCall(t, only_known);
    --t.nested_calls;
    call.has_begun = call.has_ended = nested;
    co_return nested;
  }
  if (IsArgumentsKey(key) && call.name.has_value() && !call.has_begun) {
    Begin(t, call);
    const bool whole = co_await CopyArguments(t);
    co_return whole;
  }
  std::string value;
  const bool whole = co_await CopyJson(in, [&value](std::string_view text) { value += text; });
  if (whole && IsArgumentsKey(key) && !call.has_begun) call.held = value;
  co_return whole;
}

// Arguments that are a JSON string hold JSON themselves.
std::string Unwrapped(const std::string& value) {
  if (value == "null") return "{}";
  const auto decoded = DecodeJsonString(value);
  if (!decoded.has_value()) return value;
  return decoded->empty() ? "{}" : *decoded;
}

}  // namespace

std::string_view NameIn(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  const bool is_quoted = text.size() >= 2 && text.front() == text.back() &&
                         (text.front() == '"' || text.front() == '\'');
  if (is_quoted) text = text.substr(1, text.size() - 2);
  return text.find_first_of(" \t\r\n<>{}\"") == std::string_view::npos ? text : "";
}

Reading<bool> EndBroken(Transcript& t, std::string_view closer) {
  if (!closer.empty()) {
    const std::array<std::string_view, 1> ends = {closer};
    co_await t.source.CopyTo(ends, [&t](std::string_view text) { t.sink.Arguments(text); });
  }
  t.sink.EndCall();
  co_return true;
}

Reading<bool> CopyArguments(Transcript& t) {
  const std::optional<char> first = co_await t.source.Peek();
  if (first == '{' || first == '[') {
    const bool whole =
        co_await CopyJson(t.source, [&t](std::string_view text) { t.sink.Arguments(text); });
    co_return whole;
  }
  std::string value;
  const bool whole = co_await CopyJson(t.source, [&](std::string_view text) { value += text; });
  t.sink.Arguments(whole ? Unwrapped(value) : value);
  co_return whole;
}

// {"name": arguments}, behind the bracket.
Reading<bool> ReadKeyedCall(Transcript& t) {
  TextSource& in = t.source;
  co_await in.SkipSpace();
  const std::optional<std::string> name = co_await ReadJsonString(in, kNameBytesMax);
  if (!name.has_value() || name->empty()) co_return false;
  co_await in.SkipSpace();
  const bool separated = co_await in.Accept(":");
  if (!separated) co_return false;
  co_await in.SkipSpace();
  t.sink.BeginCall(*name);
  in.Forget();
  bool whole = co_await CopyArguments(t);
  if (whole) {
    co_await in.SkipSpace();
    whole = co_await in.Accept("}");
    t.sink.EndCall();
  } else {
    co_await EndBroken(t, t.dialect.closer);
  }
  co_return true;
}

Reading<bool> ReadJsonCall(Transcript& t, bool only_known) {
  TextSource& in = t.source;
  const bool opened = co_await in.Accept("{");
  if (!opened) co_return false;
  if (t.dialect.name_is_key) {
    const bool read = co_await ReadKeyedCall(t);
    co_return read;
  }
  CallInJson call;
  for (;;) {
    co_await in.SkipSpace();
    const bool comma = co_await in.Accept(",");
    if (comma) co_await in.SkipSpace();
    const bool closed = co_await in.Accept("}");
    if (closed) break;
    const std::optional<std::string> key = co_await ReadJsonString(in, kNameBytesMax);
    bool whole = key.has_value();
    if (whole) {
      co_await in.SkipSpace();
      whole = co_await in.Accept(":");
    }
    if (whole) {
      co_await in.SkipSpace();
      whole = co_await ReadMember(t, *key, only_known, call);
    }
    if (whole) continue;
    if (call.has_begun && !call.has_ended) co_await EndBroken(t, t.dialect.closer);
    co_return call.has_begun;
  }
  if (!call.has_begun) {
    if (!call.name.has_value()) co_return false;
    Begin(t, call);
    t.sink.Arguments(call.held.has_value() ? Unwrapped(*call.held) : "{}");
  }
  if (!call.has_ended) t.sink.EndCall();
  co_return true;
}

Reading<bool> ReadJsonCalls(Transcript& t, bool only_known) {
  TextSource& in = t.source;
  bool any = false;
  co_await in.SkipSpace();
  const bool in_list = co_await in.Accept("[");
  for (;;) {
    if (any) in.Mark();
    co_await in.SkipSpace();
    if (any && in_list) {
      const bool comma = co_await in.Accept(",");
      if (comma) co_await in.SkipSpace();
    }
    const bool read = co_await ReadJsonCall(t, only_known);
    if (!read) break;
    any = true;
  }
  if (!any) co_return false;
  in.Rewind();
  if (in_list) {
    in.Mark();
    co_await in.SkipSpace();
    const bool closed = co_await in.Accept("]");
    if (closed) {
      in.Forget();
    } else {
      in.Rewind();
    }
  }
  co_return true;
}

Reading<bool> ReadPlainJsonCalls(Transcript& t, bool only_known) {
  TextSource& in = t.source;
  bool any = co_await ReadJsonCalls(t, only_known);
  // Some write several behind one another, with semicolons.
  for (bool more = any; more;) {
    in.Mark();
    co_await in.SkipSpace();
    more = co_await in.Accept(";");
    if (more) co_await in.SkipSpace();
    if (more) more = co_await ReadJsonCall(t, only_known);
    if (!more) in.Rewind();
  }
  co_return any;
}

Reading<bool> ReadPythonTag(Transcript& t) {
  TextSource& in = t.source;
  co_await in.SkipSpace();
  const std::optional<char> first = co_await in.Peek();
  if (first == '{' || first == '[') {
    const bool read = co_await ReadPlainJsonCalls(t, /*only_known=*/false);
    if (read || first == '{') co_return read;
    in.Rewind();
    in.Mark();
    in.Skip(t.dialect.openers[0].size());
  } else {
    const bool read = co_await ReadBuiltInCall(t);
    if (read) co_return true;
    in.Rewind();
    in.Mark();
    in.Skip(t.dialect.openers[0].size());
  }
  if (!t.tools.Has(kPythonTool)) co_return false;
  t.sink.BeginCall(kPythonTool);
  in.Forget();
  t.sink.Arguments("{\"code\": \"");
  co_await in.CopyTo({}, [&t](std::string_view text) {
    std::string escaped;
    AppendEscaped(text, escaped);
    t.sink.Arguments(escaped);
  });
  if (!t.is_cut) t.sink.Arguments("\"}");
  t.sink.EndCall();
  co_return true;
}

Reading<bool> ReadNamedJson(Transcript& t) {
  TextSource& in = t.source;
  bool any = false;
  for (;;) {
    if (any) in.Mark();
    co_await in.SkipSpace();
    const std::optional<std::string> line = co_await in.TextTo(kLineEnd, kNameBytesMax);
    const std::string name(line.has_value() ? NameIn(*line) : "");
    if (name.empty() || !t.tools.Has(name)) break;
    co_await in.SkipSpace();
    const std::optional<char> first = co_await in.Peek();
    if (first != '{') break;
    t.sink.BeginCall(name);
    in.Forget();
    any = true;
    const bool whole = co_await CopyArguments(t);
    if (whole) {
      t.sink.EndCall();
    } else {
      co_await EndBroken(t, "");
    }
  }
  if (any) in.Rewind();
  co_return any;
}

}  // namespace macrame::runtime::markup
