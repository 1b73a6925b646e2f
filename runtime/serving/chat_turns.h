#pragma once

// The turns of a chat in the form that a model's template takes.
//
// Some templates refuse turns of one role in a row, a system message, a first turn that is not the
// user's, or several calls in one message. Such a chat is told as the models' reference code tells
// it: neighbors of one role are joined by an empty line, an empty user turn is put first, and
// system text stands before the first user turn. Pure, apart from the probes, which render a
// template.

#include <vector>

#include "macrame/v1/rank.pb.h"
#include "runtime/text/chat_template.h"

namespace macrame::runtime::engine {

// What a template refuses, or leaves out without a word.
struct TurnRules {
  bool one_system_message = false;  // system messages behind the first message
  bool no_system_message = false;   // all system messages
  bool alternating_turns = false;   // two turns of one role, or a first turn that is not the user's
  bool one_call_a_turn = false;     // several calls in one message
  bool no_calls = false;            // calls and their results

  bool operator==(const TurnRules&) const = default;
};

// The rules of a template, found by rendering short chats. `takes_tools`: the template reads tools.
TurnRules ProbeTurnRules(const text::ChatTemplate& chat_template, bool takes_tools);

// Rules for a chat that the template refused under `rules`, from the mildest to the strictest.
// Empty when there is nothing left to try.
std::vector<TurnRules> StricterRules(const TurnRules& rules);

// The first `count` messages of the request, told by `rules`.
std::vector<v1::ChatMessage> TurnsOf(const v1::GenerateRequest& request, int count,
                                     const TurnRules& rules);

}  // namespace macrame::runtime::engine
