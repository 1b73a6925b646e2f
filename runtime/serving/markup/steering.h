#pragma once

// What a request makes of its answer beyond what the model chooses: an answer that must call a tool
// begins as its family begins calls; reasoning whose budget is spent is closed. Without a grammar
// that is all that can be promised: a model may still write what can't be read as a call. Pure.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace macrame::runtime::markup {

struct SteeringPlan {
  // What the answer begins with, whatever the model chooses.
  std::vector<int32_t> begin;
  // The opening of a call, for an answer without reasoning and for one behind it. Empty: none.
  std::vector<int32_t> call, call_after_reasoning;
  // The token with which the model itself begins reasoning.
  std::optional<int32_t> think_open;
  std::optional<uint32_t> reasoning_tokens_max;
  // What ends reasoning, and what ends it when it was ended so before.
  std::vector<int32_t> close, close_for_good;
  bool ends_with_first_call = false;
};

class Steering {
 public:
  explicit Steering(SteeringPlan plan);

  // Where the answer stands before its next token.
  struct Place {
    bool is_reasoning = false;
    bool is_before_content = false;
  };
  // The token that is taken in `chosen`'s place, mostly itself. `is_end`: it ends answers.
  int32_t Choose(int32_t chosen, bool is_end, const Place& place);
  // An answer that may end now, though the model did not end it.
  bool EndsAfter(uint32_t calls_ended) const {
    return plan_.ends_with_first_call && calls_ended > 0;
  }

  // Behind a call that had to be made nothing else is said: no text, and the answer ends with it.
  bool IsMuteAfter(uint32_t calls_ended) const { return !plan_.call.empty() && calls_ended > 0; }

  // The opening of a call was put in the model's mouth, to its end.
  bool has_opened_call() const { return opens_call_ && forced_.empty(); }

  uint32_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  int32_t Next();

  SteeringPlan plan_;
  std::deque<int32_t> forced_;  // to come
  bool has_reasoned_ = false;
  bool owes_call_ = false;
  bool opens_call_ = false;
  bool has_closed_ = false;
  uint32_t reasoning_tokens_ = 0;
};

}  // namespace macrame::runtime::markup
