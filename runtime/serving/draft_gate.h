#pragma once

// How often a draft model is right about one answer, and when it is worth trying again after it was
// not. Pure; one for each answer.
//
// Each draft that was verified moves the rate. An answer for which drafts don't pay, or whose rate
// has fallen below kDraftRateMin, is left alone but for a try every so many tokens, whatever costs
// are taken to be, since they may have changed: kTryPauseMin tokens after it paid last, twice as
// many after each further try, up to kTryPauseMax.

#include <cstdint>

namespace macrame::runtime::engine {

inline constexpr double kDraftRateMin = 0.05;   // below this nothing is drafted, however cheap
inline constexpr double kDraftRateFirst = 0.6;  // of the first answer
inline constexpr uint32_t kTryPauseMin = 32;    // tokens of the answer
inline constexpr uint32_t kTryPauseMax = 1024;

class DraftGate {
 public:
  // `rate`: how often drafts were right in other answers. `tokens`: the sequence so far.
  DraftGate(double rate, uint32_t tokens);

  // How likely the next draft is right, if those before it are.
  double rate() const { return rate_; }
  // Whether it is to be tried although it would not pay at its rate.
  bool MayTry(uint32_t tokens) const { return tokens >= next_try_; }
  // It is tried now.
  void OnTry(uint32_t tokens);
  // It drafts because that pays.
  void OnPaid(uint32_t tokens);
  // A draft was verified; those before it were right.
  void OnVerified(bool is_right);

 private:
  double rate_;
  uint32_t pause_ = kTryPauseMin;
  uint32_t next_try_;
};

}  // namespace macrame::runtime::engine
