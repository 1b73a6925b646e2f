#pragma once

// When an answer's tokens are held to a structure. Its content is; reasoning before it is free.
// Pure but for the constraint that it is given.
//
//   waiting    reasoning, or markup before the content: free
//   opening    nothing was said: the structure may begin, or reasoning
//   behind     reasoning just ended: one token of line ends, which is markup too, or the structure
//   behind line  the same without further line ends
//   held       within the structure
//   free       the answer became a tool call, or the call's structure is complete
//
// A structure of calls that the model makes by itself waits until one is opened and begins anew
// with each.
//
// A row with drafts before it is judged by these, as if they had been taken. That reasoning ends
// among them is not seen: only its text tells. Such a row is free, and chosen anew when it turns
// out to count (`is_held` says how it was chosen).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/serving/sampling/token_constraint.h"

namespace macrame::runtime::engine {

struct StructurePlan {
  std::shared_ptr<const TokenConstraint> constraint;  // null: none; each answer takes a fork
  std::optional<int32_t> think_open;                  // with which the model may begin to reason
  std::vector<int32_t> line_ends;                     // tokens that it may put behind its reasoning
  std::vector<int32_t> call_openers;                  // with which it may begin to call instead
  // It is a call's that the answer must make: begins behind the opening that is put in the model's
  // mouth, and the answer is free behind it.
  bool is_of_call = false;
  // With is_of_call: it is that of each call that the model opens, with one of `call_openers`.
  bool awaits_calls = false;
};

class StructuredContent {
 public:
  // `begins_with_content`: as far as the prompt and the model's markup say.
  StructuredContent(const StructurePlan& plan, bool begins_with_content);

  bool has_structure() const { return constraint_ != nullptr; }
  // Whether the next token is held to the structure.
  bool is_held() const { return has_structure() && IsHeld(state_); }
  // Sets the logits of tokens without a place behind `ahead` to minus infinity. False: the row
  // behind `ahead` is free, nothing was done.
  absl::StatusOr<bool> Mask(std::span<const int32_t> ahead, std::span<float> logits) const;
  // The next token was taken; `is_content`: what comes behind it is content. Of a call's structure:
  // its opening was said.
  absl::Status Take(int32_t token, bool is_content);
  // A call began before the structure did: the answer is that call's.
  void NoteCall();
  // How many of the tokens may follow, as far as is known.
  size_t Admitted(std::span<const int32_t> tokens) const;
  // The structure is complete, and nothing may follow.
  bool is_over() const { return has_structure() && !plan_.is_of_call && constraint_->is_over(); }
  // Its beginning is told by what was put in the model's mouth.
  bool is_of_forced_call() const { return plan_.is_of_call && !plan_.awaits_calls; }

 private:
  enum class State { kWaiting, kOpening, kBehind, kBehindLine, kHeld, kFree };
  // Where tokens that are none of the structure's lead, and how many of them those are.
  struct Place {
    State state = State::kWaiting;
    size_t taken = 0;
  };
  static bool IsHeld(State state) { return state != State::kWaiting && state != State::kFree; }
  // Where a token that is none of the structure's leads; unset: it has no place.
  std::optional<State> After(State state, int32_t token) const;
  Place PlaceBehind(std::span<const int32_t> tokens) const;
  // Tokens that have a place beside the structure's own.
  std::vector<int32_t> Others(State state) const;

  std::unique_ptr<TokenConstraint> constraint_;
  const StructurePlan plan_;
  State state_;
};

}  // namespace macrame::runtime::engine
