// gpt-oss: the whole answer is messages with headers.
//
//   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>text
//   <|start|>assistant<|channel|>commentary to=functions.NAME
//   <|constrain|>json<|message|>{…}<|call|>

#include <array>
#include <optional>
#include <string>

#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
constexpr std::array<std::string_view, 5> kHeaderEnds = {kMessage, "<|end|>", "<|call|>",
                                                         "<|return|>", kStart};
// The last two begin the next message, where the model left the end of this one away.
constexpr std::array<std::string_view, 5> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", kStart,
                                                       kChannel};
constexpr size_t kTakenEnds = 3;

struct Header {
  std::string channel;
  std::string recipient;
};

std::string WordAfter(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + marker.size());
  return std::string(text.substr(0, text.find_first_of(" \t\r\n<")));
}

Header ParseHeader(std::string_view text) {
  Header header;
  header.channel = WordAfter(text, kChannel);
  header.recipient = WordAfter(text, "to=");
  constexpr std::string_view kFunctions = "functions.";
  if (header.recipient.starts_with(kFunctions)) header.recipient.erase(0, kFunctions.size());
  return header;
}

// A header that stands next, taken; none, and nothing is taken, when none does.
Reading<std::optional<Header>> ReadHeader(Transcript& t, bool is_first) {
  TextSource& in = t.source;
  in.Mark();
  std::string text;
  const bool starts = co_await in.Accept(kStart);
  if (!starts) {
    const bool has_channel = co_await in.Accept(kChannel);
    if (has_channel) text = kChannel;
    if (!has_channel && is_first) {
      const bool has_recipient = co_await in.Accept(" to=");
      if (has_recipient) text = " to=";
    }
  }
  if (starts || !text.empty()) {
    const std::optional<std::string> rest = co_await in.TextTo(kHeaderEnds, kHeaderBytesMax);
    if (rest.has_value()) text += *rest;
    bool whole = false;
    if (rest.has_value()) whole = co_await in.Accept(kMessage);
    if (whole) {
      in.Forget();
      co_return std::optional<Header>(ParseHeader(text));
    }
  }
  in.Rewind();
  co_return std::optional<Header>();
}

// The text of a message, its end too.
Reading<bool> ReadBody(Transcript& t, TextSource::Take take) {
  const size_t which = co_await t.source.CopyTo(kBodyEnds, std::move(take));
  if (which < kTakenEnds) t.source.Skip(kBodyEnds[which].size());
  co_return which != TextSource::kNone;
}

Reading<bool> ReadMessage(Transcript& t, const Header& header) {
  if (!header.recipient.empty() && t.reads_calls) {
    t.sink.BeginCall(header.recipient);
    bool any = false;
    co_await ReadBody(t, [&t, &any](std::string_view text) {
      any = true;
      t.sink.Arguments(text);
    });
    if (!any && !t.is_cut) t.sink.Arguments("{}");
    t.sink.EndCall();
  } else if (header.channel == "analysis") {
    t.is_reasoning = true;
    if (t.sink.has_reasoning()) t.sink.Reasoning("\n");
    co_await ReadBody(t, [&t](std::string_view text) { t.sink.Reasoning(text); });
    t.is_reasoning = false;
    t.sink.EndReasoning();
  } else {
    // Words before a call (commentary), and the answer itself (final).
    if (t.sink.has_content()) t.sink.Content("\n");
    t.is_header = header.channel != "final";
    co_await ReadBody(t, [&t](std::string_view text) { t.sink.Content(text); });
    t.is_header = true;
  }
  co_return true;
}

}  // namespace

Reading<bool> ReadHarmony(Transcript& t) {
  TextSource& in = t.source;
  bool is_in_header = false;
  for (bool is_first = true;; is_first = false) {
    const std::optional<char> next = co_await in.Peek();
    if (!next.has_value()) co_return true;
    const std::optional<Header> header = co_await ReadHeader(t, is_first);
    if (header.has_value()) {
      is_in_header = false;
      co_await ReadMessage(t, *header);
      continue;
    }
    // A token that stands where it has no meaning, or text without a header.
    bool is_token = false;
    for (const std::string_view token : kBodyEnds) {
      if (is_token) break;
      is_token = co_await in.Accept(token);
      if (is_token) is_in_header = token == kStart || token == kChannel;
    }
    if (is_token) continue;
    const bool is_message = co_await in.Accept(kMessage);
    if (is_message) continue;
    // A role, or a header that was cut off, is no content; one that never becomes a message is.
    if (is_in_header) {
      std::string held;
      const size_t which =
          co_await in.CopyTo(kBodyEnds, [&held](std::string_view text) { held += text; });
      const bool is_role = which != TextSource::kNone && kBodyEnds[which] == kChannel;
      if (!is_role && (which != TextSource::kNone || !t.is_cut)) t.sink.Content(held);
      continue;
    }
    co_await in.CopyTo(kBodyEnds, [&t](std::string_view text) { t.sink.Content(text); });
  }
}

}  // namespace macrame::runtime::markup
