// The outermost reader: reasoning, content, and what tells a call from it.

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

Reading<bool> ReadBlock(Transcript& t, std::string_view opener) {
  bool read = false;
  switch (t.dialect.syntax) {
    case CallSyntax::kTagged:
      read = co_await ReadTaggedCalls(t, opener);
      break;
    case CallSyntax::kInvoke:
      read = co_await ReadInvokes(t, opener);
      break;
    case CallSyntax::kSections:
      read = co_await ReadSections(t, opener);
      break;
    case CallSyntax::kMistral:
      read = co_await ReadMistralCalls(t);
      break;
    case CallSyntax::kGemma:
      read = co_await ReadGemmaCalls(t);
      break;
    case CallSyntax::kPythonic:
      read = co_await ReadPythonicCalls(t, /*only_known=*/false);
      break;
    case CallSyntax::kPlainJson:
      if (opener == t.dialect.function.function_open) {
        read = co_await ReadFunction(t);
      } else {
        read = co_await ReadPythonTag(t);
      }
      break;
    case CallSyntax::kNone:
    case CallSyntax::kHarmony:
    case CallSyntax::kSolar:
    case CallSyntax::kRecipients:
    case CallSyntax::kNamedJson:
      break;
  }
  co_return read;
}

// Calls without an opener, which only an answer's beginning can be.
Reading<bool> ReadPlainCalls(Transcript& t) {
  TextSource& in = t.source;
  in.Mark();
  co_await in.SkipSpace();
  bool read = false;
  if (t.dialect.syntax == CallSyntax::kPlainJson) {
    read = co_await ReadPlainJsonCalls(t, /*only_known=*/true);
  } else if (t.dialect.syntax == CallSyntax::kPythonic) {
    read = co_await ReadPythonicCalls(t, /*only_known=*/true);
  } else if (t.dialect.syntax == CallSyntax::kNamedJson) {
    read = co_await ReadNamedJson(t);
  }
  if (!read) in.Rewind();
  co_return read;
}

// The call block at the opener that stands next. False: there is none, the opener is plain text and
// was taken.
Reading<bool> TryBlock(Transcript& t, std::string_view opener) {
  TextSource& in = t.source;
  in.Mark();
  in.Skip(opener.size());
  const bool read = co_await ReadBlock(t, opener);
  if (read) {
    in.Forget();
    co_return true;
  }
  in.Rewind();
  in.Skip(opener.size());
  co_return false;
}

std::vector<std::string_view> OpenersOf(const Transcript& t) {
  std::vector<std::string_view> openers;
  if (t.reads_calls) openers.assign(t.dialect.openers.begin(), t.dialect.openers.end());
  std::erase(openers, "");
  return openers;
}

// Behind the opening tag.
Reading<bool> ReadReasoning(Transcript& t) {
  std::vector<std::string_view> ends;
  if (t.dialect.calls_end_reasoning) ends = OpenersOf(t);
  ends.push_back(t.dialect.think_close);
  t.is_reasoning = true;
  t.calls_before_reasoning = t.sink.calls_begun();
  bool goes_on = true;
  while (goes_on) {
    const size_t which =
        co_await t.source.CopyTo(ends, [&t](std::string_view text) { t.sink.Reasoning(text); });
    if (which == TextSource::kNone) break;
    if (which + 1 == ends.size()) {
      t.source.Skip(ends[which].size());
      break;
    }
    const bool read = co_await TryBlock(t, ends[which]);
    if (!read) t.sink.Reasoning(ends[which]);
    goes_on = !read;
  }
  t.is_reasoning = false;
  t.sink.EndReasoning();
  co_return true;
}

// The tag that opens the answer behind reasoning; false: it has none.
Reading<bool> ReadAnswerOpen(Transcript& t) {
  if (t.dialect.answer_open.empty()) co_return false;
  t.source.Mark();
  co_await t.source.SkipSpace();
  const bool opens = co_await t.source.Accept(t.dialect.answer_open);
  if (opens) {
    t.source.Forget();
    t.sink.OpenAnswer();
  } else {
    t.source.Rewind();
  }
  co_return opens;
}

// The tag that closes the answer, which stands next. It is text where more than calls follows.
Reading<bool> ReadAnswerClose(Transcript& t, std::span<const std::string_view> openers) {
  const std::string_view tag = t.dialect.answer_close;
  const bool closes = co_await t.source.IsFollowedBy(tag.size(), openers);
  t.source.Skip(tag.size());
  if (closes) {
    t.sink.CloseAnswer();
  } else {
    t.sink.Content(tag);
  }
  co_return closes;
}

// Where an answer begins: within reasoning, with its opening tag, or with neither. True: the
// answer's own tag was opened.
Reading<bool> ReadOpening(Transcript& t) {
  if (t.dialect.think_open.empty()) co_return false;
  bool opens = t.is_reasoning;
  if (!opens) {
    t.source.Mark();
    co_await t.source.SkipSpace();
    // MiniMax M3 closes, at times, reasoning that it never began.
    const bool closes = !t.dialect.mark.empty() && co_await t.source.Accept(t.dialect.think_close);
    if (closes) co_await t.source.SkipSpace();
    opens = co_await t.source.Accept(t.dialect.think_open);
    if (opens || closes) {
      t.source.Forget();
    } else {
      t.source.Rewind();
    }
  }
  if (opens) co_await ReadReasoning(t);
  if (!opens && !t.follows_reasoning) co_return false;
  const bool is_tagged = co_await ReadAnswerOpen(t);
  co_return is_tagged;
}

}  // namespace

Reading<bool> ReadAnswer(Transcript& t) {
  if (t.dialect.syntax == CallSyntax::kHarmony) {
    co_await ReadHarmony(t);
    co_return true;
  }
  if (t.dialect.syntax == CallSyntax::kSolar) {
    co_await ReadSolar(t);
    co_return true;
  }
  if (t.dialect.syntax == CallSyntax::kRecipients) {
    co_await ReadRecipients(t);
    co_return true;
  }
  const bool is_tagged = co_await ReadOpening(t);
  if (t.reads_calls) co_await ReadPlainCalls(t);
  const std::vector<std::string_view> openers = OpenersOf(t);
  std::vector<std::string_view> marks = openers;
  if (is_tagged) marks.push_back(t.dialect.answer_close);
  if (t.dialect.thinks_anywhere) marks.push_back(t.dialect.think_open);
  for (;;) {
    const size_t which =
        co_await t.source.CopyTo(marks, [&t](std::string_view text) { t.sink.Content(text); });
    if (which == TextSource::kNone) co_return true;
    if (which < openers.size()) {
      const bool read = co_await TryBlock(t, marks[which]);
      if (!read) t.sink.Content(marks[which]);
    } else if (marks[which] == t.dialect.answer_close) {
      co_await ReadAnswerClose(t, openers);
    } else {
      t.source.Skip(marks[which].size());
      co_await ReadReasoning(t);
    }
  }
}

}  // namespace macrame::runtime::markup
