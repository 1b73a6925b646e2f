// Solar Open: the whole answer is messages, the first without its head.
//
//   <|think|>reasoning<|end|><|begin|>assistant<|content|>text<|end|>
//   <|begin|>assistant<|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>NAME
//   <|tool_call:args|>{…}<|tool_call:end|><|calls|>

#include <array>
#include <optional>
#include <string>

#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::string_view kBegin = "<|begin|>", kThink = "<|think|>", kContent = "<|content|>",
                           kCalls = "<|tool_calls|>";
constexpr std::string_view kCallBegin = "<|tool_call:begin|>", kCallName = "<|tool_call:name|>",
                           kCallArguments = "<|tool_call:args|>", kCallEnd = "<|tool_call:end|>";
// The first four begin a part of the answer, the others end one.
constexpr std::array<std::string_view, 7> kMarkers = {kBegin,    kThink,      kContent,   kCalls,
                                                      "<|end|>", "<|calls|>", "<|flush|>"};
constexpr std::array<std::string_view, 2> kIdEnds = {kCallName, kCallEnd};
constexpr std::array<std::string_view, 2> kNameEnds = {kCallArguments, kCallEnd};

// Up to the next marker, which is taken where it ends this part.
Reading<bool> ReadPart(Transcript& t, TextSource::Take take) {
  const size_t which = co_await t.source.CopyTo(kMarkers, std::move(take));
  if (which != TextSource::kNone && which > 3) t.source.Skip(kMarkers[which].size());
  co_return true;
}

// Behind kCallBegin. False, and nothing was told, where no call stands there.
Reading<bool> ReadCall(Transcript& t) {
  TextSource& in = t.source;
  const std::optional<std::string> id = co_await in.TextTo(kIdEnds, kNameBytesMax);
  if (!id.has_value()) co_return false;
  const bool is_named = co_await in.Accept(kCallName);
  if (!is_named) co_return false;
  const std::optional<std::string> head = co_await in.TextTo(kNameEnds, kNameBytesMax);
  const std::string name(head.has_value() ? NameIn(*head) : "");
  if (name.empty()) co_return false;
  t.sink.BeginCall(name);
  in.Forget();
  const bool has_arguments = co_await in.Accept(kCallArguments);
  bool whole = true;
  if (has_arguments) co_await in.SkipSpace();
  const std::optional<char> first = co_await in.Peek();
  if (has_arguments && first != '<') {
    whole = co_await CopyArguments(t);
  } else if (first.has_value() || !t.is_cut) {
    t.sink.Arguments("{}");
  }
  if (whole) {
    t.sink.EndCall();
  } else {
    co_await EndBroken(t, kCallEnd);
  }
  co_await in.SkipSpace();
  co_await in.Accept(kCallEnd);
  co_return true;
}

Reading<bool> ReadCalls(Transcript& t) {
  TextSource& in = t.source;
  for (bool more = true; more;) {
    in.Mark();
    co_await in.SkipSpace();
    more = co_await in.Accept(kCallBegin);
    if (more) more = co_await ReadCall(t);
  }
  if (in.is_marked()) in.Rewind();
  // What is no call is what the model says.
  co_await ReadPart(t, [&t](std::string_view text) { t.sink.Content(text); });
  co_return true;
}

}  // namespace

Reading<bool> ReadSolar(Transcript& t) {
  TextSource& in = t.source;
  bool is_head = false;  // a role may stand here
  for (;;) {
    std::string held;
    const size_t which = co_await in.CopyTo(kMarkers, [&t, &held, is_head](std::string_view text) {
      if (is_head) held += text;
      if (!is_head) t.sink.Content(text);
    });
    if (which == TextSource::kNone) {
      if (!t.is_cut) t.sink.Content(held);
      co_return true;
    }
    const std::string_view marker = kMarkers[which];
    in.Skip(marker.size());
    is_head = marker == kBegin;
    if (marker == kThink) {
      t.is_reasoning = true;
      t.calls_before_reasoning = t.sink.calls_begun();
      if (t.sink.has_reasoning()) t.sink.Reasoning("\n");
      co_await ReadPart(t, [&t](std::string_view text) { t.sink.Reasoning(text); });
      t.is_reasoning = false;
      t.sink.EndReasoning();
    } else if (marker == kContent) {
      if (t.sink.has_content()) t.sink.Content("\n");
      t.is_header = false;
      co_await ReadPart(t, [&t](std::string_view text) { t.sink.Content(text); });
      t.is_header = true;
    } else if (marker == kCalls && t.reads_calls) {
      co_await ReadCalls(t);
    }
  }
}

}  // namespace macrame::runtime::markup
