#pragma once

// A model that plays an agent's four turns in the words of any family, through the very readers
// that a rank uses: "script-hermes", "script-harmony" and so on.
//
//   1  reasoning, a word, get_weather(city="Oslo")
//   2  get_weather(city="Rome", days=2) and get_time() at once
//   3  write_file with line ends, quotes and letters of two bytes
//   4  words, and no call
//
// The turn is one more than there are messages with calls. What the request asks of its answer is
// kept as a rank keeps it, but for what needs tokens.

#include <string>
#include <vector>

#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

std::vector<std::string> ScriptedFamilies();

// The chunks of one answer, the last with counts and the reason of its end.
std::vector<v1::GenerateChunk> ScriptedAnswer(const std::string& family,
                                              const v1::GenerateRequest& request);

// The same for an agent whose tools nobody here knows; `script` is JSON:
//
//   {"turns": [{"reasoning": "…", "text": "…", "calls": [{"name": …, "arguments": {…}}, …]}, …],
//    "replies": [{"to": "words of a message", "text": "…"}, …],
//    "last": "…"}
//
// Of a turn's calls the first is made whose tool is offered. Where there is none, or no turn is
// left, it answers with the first reply whose words it was told, or with `last`, in which $RESULT
// is what the last tool said.
std::vector<v1::GenerateChunk> AnswerByScript(const std::string& family, const std::string& script,
                                              const v1::GenerateRequest& request);

}  // namespace macrame::agentd
