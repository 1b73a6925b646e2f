#pragma once

// What a request does to a row of logits before a token is chosen from it: biases, penalties for
// what was said already, no end before so many tokens. Pure.
//
// In this order, which is Hugging Face's and vLLM's, for each token:
//   1. logit_bias is added (OpenAI's map of token ids to -100 … 100).
//   2. repetition_penalty, of tokens that stand anywhere in the prompt or in the answer, as
//      Hugging Face and vLLM count: a logit above 0 is divided by it, another is multiplied.
//   3. frequency_penalty times how often the token stands in the answer is subtracted.
//   4. presence_penalty is subtracted where it stands in the answer at all. For these two the
//      prompt does not count, as with OpenAI.
//   5. While the answer has fewer than min_tokens tokens, those that would end it have no chance.
//
// All of it follows from the list of tokens: an answer that is taken up again elsewhere (its tokens
// are taken one by one), or whose tokens are run before they are chosen, goes on as it would have.
//
// Memory: one entry of a map for each different token, so never more than the sequence has, and
// none where no penalty asks for it. An array as wide as the vocabulary would be half a megabyte
// for each answer, those that wait included.

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace macrame::runtime::engine {

inline constexpr size_t kLogitBiasesMax = 1024;
inline constexpr double kLogitBiasMax = 100.0;  // and -100
inline constexpr double kPenaltyMax = 2.0;      // and -2
inline constexpr double kRepetitionPenaltyMin = 0.01;
inline constexpr double kRepetitionPenaltyMax = 100.0;

struct LogitRules {
  double repetition_penalty = 1.0;  // 1: none
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int32_t, float>> biases{};  // each token once
};

// BAD_REQUEST, naming the field, for what is beyond the bounds above or no token of the vocabulary.
absl::Status CheckLogitRules(const LogitRules& rules, int vocab_size);

// Of one answer.
class LogitsProcessor {
 public:
  LogitsProcessor(const LogitRules& rules, uint32_t min_tokens, const std::set<int32_t>& end_tokens,
                  std::span<const int32_t> prompt);

  // Whether the row that the next token is chosen from is another than the model's.
  bool changes_next() const { return has_rules_ || taken_ < min_tokens_; }
  // The answer's next token.
  void Take(int32_t token);
  // The row that the token behind `ahead` is chosen from, where these follow what was taken: in
  // `scratch`, or `logits` where nothing changes. Any thread, while nothing else is called.
  std::span<const float> Process(std::span<const float> logits, std::span<const int32_t> ahead,
                                 std::vector<float>& scratch) const;

 private:
  bool counts_tokens() const { return repeats_ || counts_answer_; }
  float Penalised(float logit, uint32_t count) const;

  const bool repeats_ = false;        // a repetition penalty
  const bool counts_answer_ = false;  // a presence or frequency penalty
  const bool has_rules_ = false;
  const float repetition_ = 1.0F;
  const double presence_ = 0.0;
  const double frequency_ = 0.0;
  const uint32_t min_tokens_ = 0;
  std::vector<int32_t> end_tokens_;  // while min_tokens_ asks for them
  absl::flat_hash_map<int32_t, float> biases_;
  absl::flat_hash_map<int32_t, uint32_t> said_;  // how often in the answer; 0: in the prompt alone
  uint32_t taken_ = 0;
};

}  // namespace macrame::runtime::engine
