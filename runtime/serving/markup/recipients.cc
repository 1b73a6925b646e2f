// Functionary 3.2: each part of an answer says whom it is for. The prompt ends with the marker of
// the first one.
//
//   all
//   text>>>get_weather
//   {"city": "Rome"}

#include <array>
#include <optional>
#include <string>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 1> kMarker = {">>>"};
constexpr std::array<std::string_view, 1> kLineEnd = {"\n"};
constexpr std::string_view kEverybody = "all";

// The line that names a recipient, taken; none, and nothing is taken, where it names none.
Reading<std::optional<std::string>> ReadRecipient(Transcript& t) {
  TextSource& in = t.source;
  const std::optional<std::string> line = co_await in.TextTo(kLineEnd, kNameBytesMax);
  if (line.has_value() && (*line == kEverybody || t.tools.Has(*line))) {
    in.Skip(1);
    co_return line;
  }
  co_return std::optional<std::string>();
}

// The recipient behind a marker that stands next.
Reading<std::optional<std::string>> ReadMarker(Transcript& t) {
  t.source.Mark();
  t.source.Skip(kMarker[0].size());
  std::optional<std::string> recipient = co_await ReadRecipient(t);
  if (recipient.has_value()) {
    t.source.Forget();
  } else {
    t.source.Rewind();
  }
  co_return recipient;
}

// Up to the next part, whose recipient it gives; none: the answer is over.
Reading<std::optional<std::string>> ReadText(Transcript& t, bool is_code) {
  const auto take = [&t, is_code](std::string_view text) {
    if (!is_code) return t.sink.Content(text);
    std::string escaped;
    AppendEscaped(text, escaped);
    t.sink.Arguments(escaped);
  };
  for (;;) {
    const size_t which = co_await t.source.CopyTo(kMarker, take);
    if (which == TextSource::kNone) co_return std::optional<std::string>();
    std::optional<std::string> next = co_await ReadMarker(t);
    if (next.has_value()) co_return next;
    take(kMarker[0]);
    t.source.Skip(kMarker[0].size());
  }
}

Reading<std::optional<std::string>> ReadCall(Transcript& t, const std::string& name) {
  TextSource& in = t.source;
  t.sink.BeginCall(name);
  co_await in.SkipSpace();
  const std::optional<char> first = co_await in.Peek();
  std::optional<std::string> next;
  if (first.has_value() && first != '{') {
    // Code, which is what "python" is called with.
    t.sink.Arguments("{\"code\": \"");
    next = co_await ReadText(t, /*is_code=*/true);
    if (next.has_value() || !t.is_cut) t.sink.Arguments("\"}");
    t.sink.EndCall();
    co_return next;
  }
  bool whole = first.has_value();
  if (whole) whole = co_await CopyArguments(t);
  if (!first.has_value() && !t.is_cut) t.sink.Arguments("{}");
  if (!whole && first.has_value()) {
    co_await EndBroken(t, kMarker[0]);
  } else {
    t.sink.EndCall();
  }
  co_await in.SkipSpace();
  next = co_await ReadText(t, /*is_code=*/false);
  co_return next;
}

}  // namespace

Reading<bool> ReadRecipients(Transcript& t) {
  // The first part's marker is the prompt's; a model may write it again.
  co_await t.source.Accept(kMarker[0]);
  t.source.Mark();
  std::optional<std::string> recipient = co_await ReadRecipient(t);
  if (recipient.has_value()) {
    t.source.Forget();
  } else {
    t.source.Rewind();
    recipient = std::string(kEverybody);
  }
  while (recipient.has_value()) {
    std::optional<std::string> next;
    if (*recipient == kEverybody || !t.reads_calls) {
      t.is_header = false;
      next = co_await ReadText(t, /*is_code=*/false);
      t.is_header = true;
    } else {
      next = co_await ReadCall(t, *recipient);
    }
    recipient = std::move(next);
  }
  co_return true;
}

}  // namespace macrame::runtime::markup
