#pragma once

// What a benchmark's requests come to, and what it asks. Pure: times and seeds are handed in.

#include <cstdint>
#include <string>
#include <vector>

namespace macrame::cli {

// So many users at a time, each with a prompt and an answer of about so many tokens.
struct BenchCase {
  uint32_t users = 1;
  uint32_t prompt_tokens = 128;
  uint32_t answer_tokens = 64;
};

// One request as its client saw it. Milliseconds since the case began.
struct BenchSample {
  double sent_ms = 0;
  double first_token_ms = -1;  // none came
  double last_token_ms = -1;
  double ended_ms = 0;
  uint32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  uint32_t first_tokens = 0;  // that came together with the first
  std::string error;          // empty: it was answered
};

struct BenchRow {
  BenchCase asked;
  uint32_t requests = 0, errors = 0;
  std::string first_error;
  // Of what was answered; means over requests.
  double prompt_tokens = 0, answer_tokens = 0;
  uint64_t cached_tokens = 0;  // of all prompts
  double ttft_p50_ms = 0, ttft_p95_ms = 0, ttft_max_ms = 0;
  // Time per output token of an answer: from its first token to its last, over the tokens between.
  // Not between two arrivals: of tokens that come together most would seem to take no time at all.
  double tpot_p50_ms = 0, tpot_p95_ms = 0;
  // Tokens a second of all users together. Prefill: prompt tokens that were not cached, over the
  // time in which any request waited for its first token; decode: the tokens after the first, over
  // the time in which any answer was under way; total: all of both over all of the time.
  double prefill_rate = 0, decode_rate = 0, total_rate = 0;
  double seconds = 0;
};

BenchRow Summarize(const BenchCase& asked, const std::vector<BenchSample>& samples);

// The value that `share` of them don't exceed (nearest rank); 0 when there are none.
double QuantileOf(std::vector<double> values, double share);

// A text of `words` words of which the first `shared_words` are the same for every `number`; what
// comes after differs from its first word on, so that no cache of an earlier prompt holds it.
std::string BenchPrompt(uint64_t seed, uint64_t number, uint32_t words, uint32_t shared_words);

}  // namespace macrame::cli
