// Gemma's calls: call:name{key:<|"|>text<|"|>,number:1,list:[…],object:{…}}.

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/python_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr int kGemmaDepthMax = 32;
constexpr size_t kBareBytesMax = 4096;
constexpr std::array<std::string_view, 1> kBrace = {"{"};
constexpr std::array<std::string_view, 1> kColon = {":"};
constexpr std::array<std::string_view, 3> kBareEnds = {",", "}", "]"};

std::string BareAsJson(std::string_view raw) {
  while (!raw.empty() && IsSpace(raw.front())) raw.remove_prefix(1);
  while (!raw.empty() && IsSpace(raw.back())) raw.remove_suffix(1);
  if (nlohmann::json::accept(raw)) return std::string(raw);
  return PythonAsJson(raw).value_or(QuotedJson(raw));
}

Reading<bool> CopyQuoted(Transcript& t) {
  const std::array<std::string_view, 1> ends = {t.dialect.quote};
  t.sink.Arguments("\"");
  const size_t which = co_await t.source.CopyUntil(ends, [&t](std::string_view text) {
    std::string escaped;
    AppendEscaped(text, escaped);
    t.sink.Arguments(escaped);
  });
  if (which != TextSource::kNone || !t.is_cut) t.sink.Arguments("\"");
  co_return which != TextSource::kNone;
}

Reading<bool> CopyGemma(Transcript& t, int depth);

// Behind the opening bracket. Objects have keys.
Reading<bool> CopyMembers(Transcript& t, bool is_object, int depth) {
  TextSource& in = t.source;
  const std::string_view close = is_object ? "}" : "]";
  t.sink.Arguments(is_object ? "{" : "[");
  for (bool first = true;; first = false) {
    co_await in.SkipSpace();
    bool closed = co_await in.Accept(close);
    if (!closed && !first) {
      const bool comma = co_await in.Accept(",");
      if (!comma) co_return false;
      co_await in.SkipSpace();
      closed = co_await in.Accept(close);
    }
    if (closed) break;
    if (!first) t.sink.Arguments(", ");
    if (is_object) {
      const std::optional<std::string> key = co_await in.TextTo(kColon, kNameBytesMax);
      if (!key.has_value()) co_return false;
      in.Skip(1);
      std::string_view name = *key;
      const std::string& quote = t.dialect.quote;
      if (name.starts_with(quote)) name.remove_prefix(quote.size());
      if (name.ends_with(quote)) name.remove_suffix(quote.size());
      t.sink.Arguments(QuotedJson(NameIn(name).empty() ? name : NameIn(name)) + ": ");
    }
    const bool whole = co_await CopyGemma(t, depth + 1);
    if (!whole) co_return false;
  }
  t.sink.Arguments(close);
  co_return true;
}

Reading<bool> CopyGemma(Transcript& t, int depth) {
  TextSource& in = t.source;
  if (depth > kGemmaDepthMax) co_return false;
  co_await in.SkipSpace();
  bool whole = false;
  const bool is_quoted = co_await in.Accept(t.dialect.quote);
  if (is_quoted) {
    whole = co_await CopyQuoted(t);
    co_return whole;
  }
  const std::optional<char> first = co_await in.Peek();
  if (first == '{' || first == '[') {
    in.Skip(1);
    whole = co_await CopyMembers(t, first == '{', depth);
  } else if (first == '"') {
    whole = co_await CopyJson(in, [&t](std::string_view text) { t.sink.Arguments(text); });
  } else {
    const std::optional<std::string> bare = co_await in.TextTo(kBareEnds, kBareBytesMax);
    whole = bare.has_value();
    if (whole) t.sink.Arguments(BareAsJson(*bare));
  }
  co_return whole;
}

}  // namespace

Reading<bool> ReadGemmaCalls(Transcript& t) {
  TextSource& in = t.source;
  bool any = false;
  for (;;) {
    if (any) in.Mark();
    co_await in.SkipSpace();
    const bool is_call = co_await in.Accept("call:");
    if (!is_call) break;
    const std::optional<std::string> head = co_await in.TextTo(kBrace, kNameBytesMax);
    const std::string name(head.has_value() ? NameIn(*head) : "");
    if (name.empty()) break;
    t.sink.BeginCall(name);
    in.Forget();
    any = true;
    const bool whole = co_await CopyGemma(t, 0);
    if (whole) {
      t.sink.EndCall();
    } else {
      co_await EndBroken(t, t.dialect.closer);
    }
  }
  if (!any) co_return false;
  in.Rewind();
  in.Mark();
  co_await in.SkipSpace();
  const bool closed = co_await in.Accept(t.dialect.closer);
  if (closed) {
    in.Forget();
  } else {
    in.Rewind();
  }
  co_return true;
}

}  // namespace macrame::runtime::markup
