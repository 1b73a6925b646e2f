#pragma once

// What the readers of one answer share, and the readers themselves, one file for each syntax.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/serving/markup/dialect.h"
#include "runtime/serving/markup/markup_sink.h"
#include "runtime/serving/markup/text_source.h"
#include "runtime/serving/markup/tool_set.h"

namespace macrame::runtime::markup {

struct Transcript {
  TextSource& source;
  MarkupSink& sink;
  const Dialect& dialect;
  const ToolSet& tools;
  bool reads_calls = false;
  bool is_reasoning = false;
  // The answer was cut off and not ended by the model: what is open stays open.
  bool is_cut = false;
  // What comes next is markup around messages (gpt-oss).
  bool is_header = false;
  // The prompt ends with closed reasoning.
  bool follows_reasoning = false;
  uint32_t calls_before_reasoning = 0;
  int nested_calls = 0;  // {"function": {"function": …
};

// A longer name is none, so that little is held back.
inline constexpr size_t kNameBytesMax = 256;
inline constexpr size_t kHeaderBytesMax = 512;
inline constexpr int kNestedCallsMax = 4;

// Each of these reads what stands behind an opener, with the source marked before it. False: no
// call stands there, nothing was told, and the caller rewinds. Once a call has begun it ends, too,
// whatever follows; and the mark is gone.

// The whole answer.
Reading<bool> ReadAnswer(Transcript& t);
// All messages of gpt-oss.
Reading<bool> ReadHarmony(Transcript& t);
// All messages of Solar Open.
Reading<bool> ReadSolar(Transcript& t);
// All parts of an answer of Functionary 3.2, the first without its marker.
Reading<bool> ReadRecipients(Transcript& t);

Reading<bool> ReadTaggedCalls(Transcript& t, std::string_view opener);
Reading<bool> ReadInvokes(Transcript& t, std::string_view opener);
Reading<bool> ReadSections(Transcript& t, std::string_view opener);
Reading<bool> ReadMistralCalls(Transcript& t);
Reading<bool> ReadGemmaCalls(Transcript& t);
// `only_known`: names of the request's tools only, where nothing but its form makes it a call.
Reading<bool> ReadPythonicCalls(Transcript& t, bool only_known);
Reading<bool> ReadPlainJsonCalls(Transcript& t, bool only_known);
// What Llama writes behind <|python_tag|>: calls as JSON, name.call(key=value), or code for a tool
// that is called "python".
Reading<bool> ReadPythonTag(Transcript& t);
// name.call(key=value), the dot and the word left out or not.
Reading<bool> ReadBuiltInCall(Transcript& t);
// A known tool's name, a line's end, and JSON; some behind one another.
Reading<bool> ReadNamedJson(Transcript& t);

// One {"name": …, "arguments": …}.
Reading<bool> ReadJsonCall(Transcript& t, bool only_known);
// A list of those, or one, or some behind one another.
Reading<bool> ReadJsonCalls(Transcript& t, bool only_known);
// The JSON of a call's arguments, whatever form it has. False when it is broken or cut.
Reading<bool> CopyArguments(Transcript& t);
// Ends a call whose arguments broke: what stands before the end of its block is theirs too, so that
// nothing is lost and no markup becomes content. An empty `closer`: nothing more is taken.
Reading<bool> EndBroken(Transcript& t, std::string_view closer);

// The text of a function's tags behind `function_open`: parameters, or a JSON object.
Reading<bool> ReadFunction(Transcript& t);
// The parameters of a call, each an element with the dialect's mark before its tags, behind the
// tag that names it.
Reading<bool> ReadElements(Transcript& t, std::string name);
// A call whose name and pairs stand between tags.
Reading<bool> ReadPairs(Transcript& t);

// A call's name as it may be written: quotes and white space around it taken away. Empty when it
// can't be one.
std::string_view NameIn(std::string_view text);

}  // namespace macrame::runtime::markup
