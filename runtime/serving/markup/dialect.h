#pragma once

// How a family of models writes reasoning and tool calls. A dialect is data; the readers in
// `calls_*.cc` know the few syntaxes that there are.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serving/markup/markup_sink.h"

namespace macrame::runtime::markup {

enum class CallSyntax {
  kNone,        // calls are not looked for
  kTagged,      // between tags: JSON, <function=…>, or <arg_key>: what stands there tells
  kInvoke,      // <invoke name="…"><parameter name="…">
  kSections,    // control tokens around name and JSON: Kimi K2, DeepSeek V3 and V3.1
  kMistral,     // [TOOL_CALLS] with a list of JSON, or with name[ARGS]JSON
  kGemma,       // call:name{key:value}
  kHarmony,     // channels of gpt-oss: the whole answer is markup
  kSolar,       // messages of Solar Open: the whole answer is markup
  kRecipients,  // >>>name and a line's end before each part of the answer: Functionary 3.2
  kNamedJson,   // an answer that is a tool's name and, on the next line, JSON: GLM 4
  kPlainJson,   // an answer that is a JSON object: Llama 3
  kPythonic,    // [name(key=value)]: Llama 4, with tags LFM2
};

// The tags of functions and parameters in kTagged and kInvoke.
struct FunctionTags {
  std::string function_open, function_close;    // "<function=", "</function>"
  std::string parameter_open, parameter_close;  // "<parameter=", "</parameter>"
  bool drops_line_ends = false;                 // one line's end on each side of a value
  std::string quote_open{}, quote_close{};      // may stand around a value: "<![CDATA[", "]]>"
};

// The tags of names and values beside one another: GLM.
struct PairTags {
  std::string key_open, key_close, value_open, value_close;
  std::string name_end{};  // may stand behind a call's name
};

// The control tokens of kSections.
struct SectionTokens {
  std::string section_end, call_begin, separator, call_end;
  std::string other_section_end{};  // as some answers spell it
};

struct Dialect {
  std::string name;  // for logs and tests
  CallSyntax syntax = CallSyntax::kNone;
  // What a call, or a block of them, begins and ends with; `closer` may be empty.
  std::vector<std::string> openers;
  std::string closer;
  std::string block_open, block_close;  // around several of kTagged; empty: there are none
  FunctionTags function;
  PairTags pair;
  SectionTokens section;
  std::string quote;  // of kGemma's strings
  // Of kInvoke, where it stands before each tag: parameters are elements named after them.
  std::string mark;
  bool name_is_key = false;       // JSON calls are {"name": arguments}
  bool json_in_function = false;  // what stands in a function's tags is JSON

  std::string think_open, think_close;  // empty: no reasoning is told apart
  bool thinks_anywhere = false;         // reasoning may begin behind content, too
  bool calls_end_reasoning = false;     // an opener within reasoning ends it
  // What the answer behind reasoning may stand between; empty: it has no tags.
  std::string answer_open, answer_close;
  CallIdStyle id_style = CallIdStyle::kCall;

  // What an answer that must call begins with: any tool, or the one that takes "$NAME"'s place
  // ("$INDEX": the number of calls before). Empty: the family has no such beginning.
  std::string forced_any, forced_named;

  // Control tokens that end an answer, which the model's own files may not say.
  std::vector<std::string> ends;
  // Spellings that must reach the reader although tokenizers count them as special tokens.
  std::vector<std::string> control;
};

// Whether all of an answer is markup, its content too.
bool IsAllMarkup(const Dialect& dialect);

// By the chat template's text, and by the vocabulary where a template says nothing of the reasoning
// that its model writes. `has_token`: whether a token is spelled so.
Dialect ChooseDialect(std::string_view chat_template,
                      const std::function<bool(std::string_view)>& has_token);

// Whether a prompt leaves the answer within reasoning. `prompt_end`: its last part as text,
// control tokens too.
bool OpensReasoning(const Dialect& dialect, std::string_view prompt_end);
// Whether a prompt ends with reasoning that is closed: the answer follows it.
bool ClosesReasoning(const Dialect& dialect, std::string_view prompt_end);

// What an answer is made to begin with, `name` empty: any tool. Empty when the family has nothing.
std::string ForcedOpening(const Dialect& dialect, std::string_view name, uint32_t calls_before);
// What ends reasoning whose budget is spent. `ends_for_good`: it was ended so before.
std::string ForcedClosing(const Dialect& dialect, bool ends_for_good);

}  // namespace macrame::runtime::markup
