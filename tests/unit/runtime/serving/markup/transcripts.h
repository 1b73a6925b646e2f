#pragma once

// What models of each family write, and what it is. Shared by the unit test and the fuzz target.

#include <string>
#include <vector>

#include "runtime/serving/markup/answer_markup.h"

namespace macrame::runtime::markup {

struct TranscriptCase {
  std::string family;  // a key of TemplateOf
  std::string what;
  std::string text;          // of the answer, control tokens as they are spelled
  std::string told;          // Told() of it
  std::string prompt_end{};  // empty: nothing that matters
  bool is_cut = false;
};

// A chat template by which ChooseDialect knows the family; the parts that tell it, not more.
std::string TemplateOf(const std::string& family);
// OpenAI's `tools` that the transcripts call.
const char* TranscriptTools();
const std::vector<TranscriptCase>& TranscriptCases();

// The parts of TranscriptCases.
const std::vector<TranscriptCase>& JsonTranscripts();
const std::vector<TranscriptCase>& TagTranscripts();
const std::vector<TranscriptCase>& ControlTranscripts();
const std::vector<TranscriptCase>& NativeTranscripts();

MarkupTraits TraitsOf(const TranscriptCase& transcript);

// Events as one line a thing: "say: …", "think: …", "call 0 NAME: ARGUMENTS", with " …" behind
// arguments whose call has not ended. Line ends within are written \n.
std::string Told(const std::vector<MarkupEvent>& events);

// All events of `text` cut before each of `cuts`.
std::vector<MarkupEvent> EventsOf(const TranscriptCase& transcript,
                                  const std::vector<size_t>& cuts);

}  // namespace macrame::runtime::markup
