#include "runtime/serving/markup/steering.h"

#include <utility>

namespace macrame::runtime::markup {

Steering::Steering(SteeringPlan plan)
    : plan_(std::move(plan)),
      forced_(plan_.begin.begin(), plan_.begin.end()),
      owes_call_(!plan_.call.empty()) {}

int32_t Steering::Next() {
  const int32_t token = forced_.front();
  forced_.pop_front();
  return token;
}

int32_t Steering::Choose(int32_t chosen, bool is_end, const Place& place) {
  if (place.is_reasoning) {
    has_reasoned_ = true;
    ++reasoning_tokens_;
  }
  if (!forced_.empty()) return Next();
  if (place.is_reasoning) {
    const bool is_spent = plan_.reasoning_tokens_max.has_value() &&
                          reasoning_tokens_ > *plan_.reasoning_tokens_max && !is_end;
    const std::vector<int32_t>& close = has_closed_ ? plan_.close_for_good : plan_.close;
    if (!is_spent || close.empty()) return chosen;
    has_closed_ = true;
    forced_.assign(close.begin(), close.end());
    return Next();
  }
  if (!owes_call_) return chosen;
  if (!place.is_before_content) {
    owes_call_ = false;
    return chosen;
  }
  // The model may reason first.
  if (!has_reasoned_ && plan_.think_open == chosen) return chosen;
  owes_call_ = false;
  const std::vector<int32_t>& call = has_reasoned_ ? plan_.call_after_reasoning : plan_.call;
  forced_.assign(call.begin(), call.end());
  opens_call_ = !forced_.empty();
  return forced_.empty() ? chosen : Next();
}

}  // namespace macrame::runtime::markup
