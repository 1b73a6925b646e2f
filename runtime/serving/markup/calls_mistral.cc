// Mistral's calls: [TOOL_CALLS] with a list of JSON, or with name[CALL_ID]id[ARGS]JSON.

#include <array>
#include <optional>
#include <string>

#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 3> kNameEnds = {"[ARGS]", "[CALL_ID]", "{"};
constexpr std::array<std::string_view, 1> kIdEnd = {"[ARGS]"};

}  // namespace

Reading<bool> ReadMistralCalls(Transcript& t) {
  TextSource& in = t.source;
  co_await in.SkipSpace();
  const std::optional<char> first = co_await in.Peek();
  if (first == '[' || first == '{') {
    const bool read = co_await ReadJsonCalls(t, /*only_known=*/false);
    co_return read;
  }
  const std::optional<std::string> head = co_await in.TextTo(kNameEnds, kNameBytesMax);
  if (!head.has_value()) co_return false;
  const std::string name(NameIn(*head));
  if (name.empty()) co_return false;
  const bool has_id = co_await in.Accept("[CALL_ID]");
  if (has_id) {
    const std::optional<std::string> id = co_await in.TextTo(kIdEnd, kNameBytesMax);
    if (!id.has_value()) co_return false;
  }
  const bool separated = co_await in.Accept("[ARGS]");
  if (!separated && has_id) co_return false;
  t.sink.BeginCall(name);
  in.Forget();
  co_await in.SkipSpace();
  const bool whole = co_await CopyArguments(t);
  if (whole) {
    t.sink.EndCall();
  } else {
    co_await EndBroken(t, "[TOOL_CALLS]");
  }
  co_return true;
}

}  // namespace macrame::runtime::markup
