// Calls whose parameters stand between tags of their own: <parameter=city>…</parameter>,
// <parameter name="city">…</parameter>, <arg_key>city</arg_key><arg_value>…</arg_value>.

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 1> kTagEnd = {">"};

// Writes the members of a call's arguments, one behind the other.
class ArgumentsWriter {
 public:
  explicit ArgumentsWriter(Transcript& t) : t_(t) {}

  void Key(std::string_view key) {
    t_.sink.Arguments((count_++ == 0 ? "{" : ", ") + QuotedJson(key) + ": ");
  }
  // `is_whole`: no value was cut off.
  void End(bool is_whole) {
    if (is_whole && count_ == 0) t_.sink.Arguments("{}");
    if (is_whole && count_ > 0) t_.sink.Arguments("}");
    t_.sink.EndCall();
  }

 private:
  Transcript& t_;
  int count_ = 0;
};

// A text without the line's end that stands on each side of it, as it comes.
class TrimmedLines {
 public:
  explicit TrimmedLines(bool trims) : trims_(trims) {}

  std::string Push(std::string_view text) {
    if (!trims_) return std::string(text);
    held_.append(text);
    if (at_begin_ && !held_.empty()) {
      if (held_[0] == '\n') held_.erase(0, 1);
      at_begin_ = false;
    }
    const size_t keep = !held_.empty() && held_.back() == '\n' ? 1 : 0;
    std::string out = held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return out;
  }

 private:
  const bool trims_;
  std::string held_;
  bool at_begin_ = true;
};

struct ValueEnd {
  bool is_whole = true;     // not cut off
  bool ends_block = false;  // the block's closing tag stood there, or the text ended
};

// What a value ends with, and what may stand behind that. The tags that are empty do not exist.
struct ValueTags {
  std::string_view close;
  std::vector<std::string_view> behind;
};

ValueTags TagsOfValue(std::string_view close, std::vector<std::string_view> behind) {
  std::erase(behind, "");
  return {close, std::move(behind)};
}

// The first place from `from` on where one of the block's openers stands.
size_t FirstOpener(const Transcript& t, std::string_view text, size_t from) {
  size_t first = std::string_view::npos;
  for (const std::string& opener : t.dialect.openers)
    first = std::min(first, text.find(opener, from));
  return first;
}

// Of a value that a block's closing tag stands in (next): how far behind its own closing tag comes,
// with no other block beginning before; none: the block's tag ends it. A file that speaks of calls
// has such lines.
Reading<std::optional<size_t>> EndBehindCloser(Transcript& t, const ValueTags& tags) {
  TextSource& in = t.source;
  size_t longest = tags.close.size();
  for (const std::string& opener : t.dialect.openers) longest = std::max(longest, opener.size());
  size_t from = t.dialect.closer.size();
  for (;;) {
    const size_t opener = FirstOpener(t, in.rest(), from);
    const size_t close = in.rest().find(tags.close, from);
    if (opener < close) co_return std::optional<size_t>();
    if (close != std::string_view::npos) {
      const bool is_end = co_await in.IsFollowedBy(close + tags.close.size(), tags.behind);
      if (is_end) co_return std::optional<size_t>(close);
      from = close + tags.close.size();
      continue;
    }
    from = std::max(from, in.rest().size() - std::min(in.rest().size(), longest));
    const bool more = co_await in.More();
    if (!more) co_return std::optional<size_t>();
  }
}

// The value of a parameter up to its closing tag, or to the block's where that is missing; the
// latter stays where it is.
Reading<ValueEnd> ReadValue(Transcript& t, const ValueKinds& kinds, const ValueTags& tags,
                            bool trims) {
  const std::array<std::string_view, 2> all_ends = {tags.close, t.dialect.closer};
  const auto ends = std::span(all_ends).first(t.dialect.closer.empty() ? 1 : 2);
  TrimmedLines trimmed(trims);
  const bool is_text = kinds.OnlyString();
  std::string value;
  const auto take = [&t, &trimmed, &value, is_text](std::string_view text) {
    const std::string certain = trimmed.Push(text);
    if (is_text) {
      std::string escaped;
      AppendEscaped(certain, escaped);
      t.sink.Arguments(escaped);
    } else {
      value += certain;
    }
  };
  if (is_text) t.sink.Arguments("\"");
  size_t which = TextSource::kNone;
  for (;;) {
    which = co_await t.source.CopyTo(ends, take);
    size_t text = 0;  // of what stands next, the tag with it
    if (which == 0) {
      const bool follows = co_await t.source.IsFollowedBy(tags.close.size(), tags.behind);
      if (!follows) text = tags.close.size();
    } else if (which == 1) {
      const std::optional<size_t> end = co_await EndBehindCloser(t, tags);
      text = end.value_or(0);
    }
    if (text == 0) break;
    take(t.source.rest().substr(0, text));
    t.source.Skip(text);
  }
  ValueEnd end;
  end.is_whole = which != TextSource::kNone || !t.is_cut;
  end.ends_block = which != 0;
  if (which == 0) t.source.Skip(tags.close.size());
  if (is_text && end.is_whole) t.sink.Arguments("\"");
  if (!is_text) t.sink.Arguments(end.is_whole ? ValueAsJson(value, kinds) : value);
  co_return end;
}

// The value of an attribute, as name="…"; none when there is none.
std::optional<std::string_view> Attribute(std::string_view tag, std::string_view name) {
  const std::string wanted = std::string(name) + "=";
  const size_t at = tag.find(wanted);
  if (at == std::string_view::npos || (at > 0 && !IsSpace(tag[at - 1]))) return std::nullopt;
  std::string_view value = tag.substr(at + wanted.size());
  if (value.empty()) return std::nullopt;
  if (value[0] == '"' || value[0] == '\'') {
    const size_t close = value.find(value[0], 1);
    if (close == std::string_view::npos) return std::nullopt;
    return value.substr(1, close - 1);
  }
  return value.substr(0, value.find_first_of(" \t\r\n"));
}

// The name within a tag: all of it, or its attribute `name`.
std::string_view NameOfTag(std::string_view tag, const Dialect& dialect) {
  const bool has_attributes = dialect.syntax == CallSyntax::kInvoke;
  return NameIn(has_attributes ? Attribute(tag, "name").value_or("") : tag);
}

ValueKinds KindsOfTag(const Transcript& t, std::string_view tag, std::string_view name,
                      std::string_view key) {
  ValueKinds kinds = t.tools.KindsOf(name, key);
  // DeepSeek says it itself.
  const auto says = Attribute(tag, "string");
  if (says == "true") {
    kinds = ValueKinds();
    kinds.is_known = kinds.string = true;
  } else if (says == "false") {
    kinds.string = false;
    if (kinds.is_known && !kinds.number && !kinds.boolean && !kinds.null && !kinds.object) {
      kinds.is_known = kinds.array;
    }
  }
  return kinds;
}

// A call's arguments as JSON, and the function's closing tag.
Reading<bool> ReadFunctionJson(Transcript& t) {
  const std::string_view close = t.dialect.function.function_close;
  const bool whole = co_await CopyArguments(t);
  if (whole) {
    t.sink.EndCall();
  } else {
    co_await EndBroken(t, close);
  }
  t.source.Mark();
  co_await t.source.SkipSpace();
  const bool closed = co_await t.source.Accept(close);
  if (closed) {
    t.source.Forget();
  } else {
    t.source.Rewind();
  }
  co_return true;
}

}  // namespace

Reading<bool> ReadFunction(Transcript& t) {
  TextSource& in = t.source;
  const FunctionTags& tags = t.dialect.function;
  const std::optional<std::string> head = co_await in.TextTo(kTagEnd, kHeaderBytesMax);
  if (!head.has_value()) co_return false;
  const std::string name(NameOfTag(*head, t.dialect));
  if (name.empty()) co_return false;
  in.Skip(1);
  t.sink.BeginCall(name);
  in.Forget();
  if (!t.dialect.mark.empty()) {
    const bool read = co_await ReadElements(t, name);
    co_return read;
  }
  co_await in.SkipSpace();
  const std::optional<char> first = co_await in.Peek();
  if (first == '{') {
    co_await ReadFunctionJson(t);
    co_return true;
  }
  const std::vector<std::string_view> behind = {tags.parameter_open, tags.function_close,
                                                tags.function_open, t.dialect.closer};
  const ValueTags plain_tags = TagsOfValue(tags.parameter_close, behind);
  const std::string quoted_close = tags.quote_close + tags.parameter_close;
  const ValueTags quoted_tags = TagsOfValue(quoted_close, behind);
  ArgumentsWriter arguments(t);
  for (;;) {
    co_await in.SkipSpace();
    const bool has_more = co_await in.Accept(tags.parameter_open);
    if (!has_more) break;
    const std::optional<std::string> tag = co_await in.TextTo(kTagEnd, kHeaderBytesMax);
    const std::string key(tag.has_value() ? NameOfTag(*tag, t.dialect) : "");
    if (key.empty()) {
      arguments.End(!t.is_cut);
      co_return true;
    }
    in.Skip(1);
    arguments.Key(key);
    const ValueKinds kinds = KindsOfTag(t, *tag, name, key);
    const bool is_quoted = !tags.quote_open.empty() && co_await in.Accept(tags.quote_open);
    const ValueEnd end = co_await ReadValue(t, kinds, is_quoted ? quoted_tags : plain_tags,
                                            tags.drops_line_ends && !is_quoted);
    if (end.ends_block) {
      arguments.End(end.is_whole);
      co_return true;
    }
  }
  const bool closed = co_await in.Accept(tags.function_close);
  arguments.End(closed || !in.has_ended() || !t.is_cut);
  co_return true;
}

Reading<bool> ReadInvokes(Transcript& t, std::string_view opener) {
  TextSource& in = t.source;
  bool any = false;
  bool opened = opener == t.dialect.function.function_open;
  for (;;) {
    if (any) in.Mark();
    if (!opened) {
      co_await in.SkipSpace();
      opened = co_await in.Accept(t.dialect.function.function_open);
    }
    if (!opened) break;
    opened = false;
    const bool read = co_await ReadFunction(t);
    if (!read) break;
    any = true;
  }
  if (!any) co_return false;
  in.Rewind();
  if (t.dialect.closer.empty()) co_return true;
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

Reading<bool> ReadPairs(Transcript& t) {
  TextSource& in = t.source;
  const PairTags& tags = t.dialect.pair;
  std::vector<std::string_view> name_ends = {tags.key_open, t.dialect.closer};
  if (!tags.name_end.empty()) name_ends.push_back(tags.name_end);
  const std::array<std::string_view, 1> key_ends = {tags.key_close};
  const std::optional<std::string> head = co_await in.TextTo(name_ends, kNameBytesMax);
  if (!head.has_value()) co_return false;
  const std::string name(NameIn(*head));
  if (name.empty()) co_return false;
  t.sink.BeginCall(name);
  in.Forget();
  if (!tags.name_end.empty()) co_await in.Accept(tags.name_end);
  const ValueTags value_tags = TagsOfValue(tags.value_close, {tags.key_open, t.dialect.closer});
  ArgumentsWriter arguments(t);
  bool is_whole = true;
  for (;;) {
    co_await in.SkipSpace();
    const bool has_more = co_await in.Accept(tags.key_open);
    if (!has_more) break;
    const std::optional<std::string> key = co_await in.TextTo(key_ends, kNameBytesMax);
    if (!key.has_value()) break;
    in.Skip(tags.key_close.size());
    co_await in.SkipSpace();
    const bool has_value = co_await in.Accept(tags.value_open);
    if (!has_value) break;
    arguments.Key(NameIn(*key).empty() ? std::string_view(*key) : NameIn(*key));
    const ValueKinds kinds = t.tools.KindsOf(name, NameIn(*key));
    const ValueEnd end = co_await ReadValue(t, kinds, value_tags, /*trims=*/false);
    is_whole = end.is_whole;
    if (end.ends_block) break;
  }
  if (in.has_ended() && in.rest().empty() && t.is_cut) is_whole = false;
  arguments.End(is_whole);
  co_return true;
}

}  // namespace macrame::runtime::markup
