// Calls between tags: <tool_call>…</tool_call>. What stands inside tells how it is written.

#include <optional>
#include <string>

#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

// The closing tag, and closing brackets too many before it.
Reading<bool> SkipCloser(Transcript& t) {
  TextSource& in = t.source;
  in.Mark();
  bool skipped = true;
  while (skipped) {
    co_await in.SkipSpace();
    skipped = co_await in.Accept("}");
    if (!skipped) skipped = co_await in.Accept("]");
  }
  const bool closed = co_await in.Accept(t.dialect.closer);
  if (closed) {
    in.Forget();
  } else {
    in.Rewind();
  }
  co_return closed;
}

Reading<bool> ReadOneTagged(Transcript& t, std::string_view opener) {
  TextSource& in = t.source;
  bool read = false;
  if (opener == t.dialect.function.function_open) {
    read = co_await ReadFunction(t);
  } else {
    co_await in.SkipSpace();
    const std::optional<char> first = co_await in.Peek();
    if (first == '{' || first == '[') {
      read = co_await ReadJsonCalls(t, /*only_known=*/false);
    } else {
      const bool is_function = co_await in.Accept(t.dialect.function.function_open);
      if (is_function) {
        read = co_await ReadFunction(t);
      } else if (!t.dialect.pair.key_open.empty()) {
        read = co_await ReadPairs(t);
      }
    }
  }
  if (read) co_await SkipCloser(t);
  co_return read;
}

}  // namespace

Reading<bool> ReadTaggedCalls(Transcript& t, std::string_view opener) {
  TextSource& in = t.source;
  if (t.dialect.block_open.empty() || opener != t.dialect.block_open) {
    const bool read = co_await ReadOneTagged(t, opener);
    co_return read;
  }
  // A block of them.
  const std::string_view call_open = t.dialect.openers.back();
  bool any = false;
  for (;;) {
    if (any) in.Mark();
    co_await in.SkipSpace();
    const bool opened = co_await in.Accept(call_open);
    bool read = false;
    if (opened) read = co_await ReadOneTagged(t, call_open);
    if (!read) break;
    any = true;
  }
  if (!any) co_return false;
  in.Rewind();
  in.Mark();
  co_await in.SkipSpace();
  const bool closed = co_await in.Accept(t.dialect.block_close);
  if (closed) {
    in.Forget();
  } else {
    in.Rewind();
  }
  co_return true;
}

}  // namespace macrame::runtime::markup
