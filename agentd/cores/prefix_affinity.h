#pragma once

// Which replica of a model has computed the beginning of a prompt before: a conversation that goes
// on is fastest where its last turn was answered. Pure.
//
// A prompt is taken apart into steps: the tools, each message, and of long texts each kStepBytes;
// a step's hash covers everything up to its end, and the tenant, whose cache is its own. What a
// replica was sent is remembered as the hashes of its steps. It is a guess: the replica may have
// dropped its cache meanwhile, and another node's gateway may have sent it more.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kStepBytes = 4096;
// Of a prompt beyond so many steps the rest is not looked at.
inline constexpr size_t kStepsMax = 1024;
// Hashes that are remembered of a replica, at most twice as many.
inline constexpr size_t kStepsRemembered = 8192;

struct PromptStep {
  uint64_t hash = 0;
  size_t bytes = 0;  // from the prompt's beginning to the step's end
};

std::vector<PromptStep> PromptSteps(const v1::GenerateRequest& request);

// What one replica was sent. Owner thread.
class PrefixMemory {
 public:
  // Bytes of the longest beginning that it was sent before.
  size_t Matched(const std::vector<PromptStep>& steps) const;
  void Note(const std::vector<PromptStep>& steps);

 private:
  // Two generations: the older one is dropped when the younger one is full.
  absl::flat_hash_set<uint64_t> young_, old_;
};

}  // namespace macrame::agentd
