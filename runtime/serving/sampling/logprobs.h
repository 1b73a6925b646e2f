#pragma once

// How likely the model held a token, and what it held likelier. Pure.
//
// Of the model's own distribution: the softmax of its logits at temperature 1, before biases,
// penalties, temperature and cuts. So a number says what the model makes of the text, whatever the
// request asks of the choice, and does not give away a bias that was set. vLLM does the same
// (logprobs_mode "raw_logprobs"), and so does OpenAI's API.

#include <cstdint>
#include <span>
#include <vector>

namespace macrame::runtime::engine {

inline constexpr uint32_t kTopLogprobsMax = 20;
// In place of what has no probability at all, as OpenAI's API says it.
inline constexpr float kLogprobMin = -9999.0F;

struct TokenLogprob {
  int32_t token = 0;
  float logprob = kLogprobMin;  // natural logarithm
};

struct ChosenLogprob {
  float logprob = kLogprobMin;
  std::vector<TokenLogprob> top;  // the likeliest tokens, in order; equal ones by id
};

// Of `token`, with the `top` likeliest beside it.
ChosenLogprob LogprobsOf(std::span<const float> logits, int32_t token, uint32_t top);

}  // namespace macrame::runtime::engine
