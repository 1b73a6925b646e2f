#pragma once

// What the engine's collective libraries print or throw, recognised. Pure: lines in, reason out.
// The texts are MLX 0.32's own (jaccl, ring, launch), matched on the parts that do not change
// between releases; errno values are macOS's. Any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/common.pb.h"

namespace macrame::runtime {

struct RecognisedMessage {
  v1::Reason reason;  // code, message with the figures, remedy, who, evidence = the line itself
  bool is_symptom = false;  // a consequence: another rank's message, or a probe, may know the cause
  std::string
      phase;  // "spawn", "rendezvous", "queue_pair", "first_collective", "weights", "run", "gpu"
};
// Of what MLX's Metal says: nothing that a link could cause.
inline constexpr std::string_view kGpuFaultPhase = "gpu";

// One line, or a message of several.
std::optional<RecognisedMessage> RecogniseMessage(std::string_view text);

// Of all that one rank said last: causes before symptoms, the first before the later.
std::optional<RecognisedMessage> RecogniseLastLines(std::string_view last_lines);

// Of the termination messages of several ranks: the one that failed first at the root.
struct RankWords {
  int rank;
  std::string text;
};
std::optional<std::pair<int, RecognisedMessage>> RecogniseGang(const std::vector<RankWords>& ranks);

}  // namespace macrame::runtime
