#pragma once

// How a model speaks in a chat beyond plain text: which dialect it writes calls and reasoning in,
// in what form its template wants past calls, and what a request makes of its answer.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/chat_turns.h"
#include "runtime/serving/markup/dialect.h"
#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/structure/call_grammar.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace macrame::runtime::engine {

using TokenSpellings = std::map<int32_t, std::string>;

// How a template wants the calls of past turns.
enum class PastCalls {
  kListed,    // in `tool_calls`
  kContent,   // it shows none of those: in the content, as the model writes them
  kMetadata,  // GLM 4: a message a call, its name in `metadata` and its arguments as content
};

// Where a template reads the request's tools.
enum class ToolsPlace {
  kVariable,      // in `tools`, where transformers puts them
  kSystem,        // in the system message's `tools`, as a list
  kSystemAsText,  // there, as the text that is shown (Phi-4-mini)
};

struct ChatVoice : TurnRules {
  PastCalls past_calls = PastCalls::kListed;
  std::string result_role = "tool";  // of a call's result; GLM 4: "observation"
  std::shared_ptr<const markup::Dialect> dialect;
  bool takes_tools = false;  // the template reads them
  ToolsPlace tools_place = ToolsPlace::kVariable;
  // The template joins a call's arguments to text instead of writing them as JSON itself.
  bool arguments_as_text = false;
  bool nine_letter_ids = false;  // it refuses other ids of calls
  // Special tokens of the dialect, which decoders leave out: those of reasoning, and all.
  std::shared_ptr<const TokenSpellings> reasoning_tokens, all_tokens;
  std::set<int32_t> end_tokens;  // beside the model's own
};

ChatVoice VoiceOf(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer);

// BAD_REQUEST when the template can't show the request's tools to the model.
absl::Status CheckTools(const v1::GenerateRequest& request, const ChatVoice& voice);

// The first `count` messages for the template, told by the voice's rules of turns. Arguments of
// past calls are objects there, or text where the voice says so; arguments that are no JSON object,
// which a model may have written, stand in one under "invalid_json". A tool's message without a
// name has that of its call. Calls and results that the template would leave out without a word are
// told in the way that it shows. Where the template reads tools in the system message, the first
// one has the request's; if there is none, one is put first.
std::string MessagesJson(const v1::GenerateRequest& request, int count, const ChatVoice& voice);

// The template's further variables, the switch of reasoning among them.
std::string TemplateArgumentsJson(const v1::GenerateRequest& request);

// What is content, reasoning and calls in the answer, and what it is made to begin with. `seed`
// makes ids of calls unique where the request has no id.
absl::StatusOr<AnswerShape> ShapeOf(const v1::GenerateRequest& request, const ChatVoice& voice,
                                    const text::Tokenizer& tokenizer,
                                    std::span<const int32_t> prompt, uint64_t seed);

// Calls that the model may make by itself, where a tool is strict and that can be kept.
struct OwnCalls {
  std::string lark;    // of what stands behind the opener
  int32_t opener = 0;  // the token
};
std::optional<OwnCalls> OwnCallsOf(const v1::GenerateRequest& request, const ChatVoice& voice,
                                   const text::Tokenizer& tokenizer);

// The grammar of the call that the answer must make; unset where none must be, or the family does
// not write arguments as JSON.
std::optional<ForcedCall> ForcedCallOf(const v1::GenerateRequest& request, const ChatVoice& voice);

// Where in a chat's answer the structure begins: behind reasoning, and unless it calls a tool.
void AddStructurePlaces(const v1::GenerateRequest& request, const ChatVoice& voice,
                        const text::Tokenizer& tokenizer, StructurePlan& plan);

}  // namespace macrame::runtime::engine
