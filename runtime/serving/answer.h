#pragma once

// One answer in the making, on rank 0's engine thread: takes the logits of each step, gives the
// next token, and sends each piece of text, reasoning or a call as soon as it is certain. The last
// piece carries the finish reason and the counts.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/generation_job.h"
#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/sampling/row_sampling.h"

namespace macrame::runtime::engine {

// Logprobs that wait for their text. Only tokens without text, or in a stop string's beginning,
// wait for long; beyond this they go out without.
inline constexpr size_t kHeldLogprobsMax = 256;

class Answer {
 public:
  using OnChunk = std::function<void(const v1::GenerateChunk&)>;

  // `started`: when the request came to the engine.
  Answer(GenerationJob job, TextStream text, OnChunk on_chunk,
         std::chrono::steady_clock::time_point started);

  // How its next token is chosen, and that behind `ahead` more. Any thread, while nothing else is
  // called.
  RowSampling SamplingOfNext(uint32_t ahead) const;
  // The token that was chosen so: the next one; unset when the answer is over. An error is the
  // model's.
  absl::StatusOr<std::optional<int32_t>> Take(const absl::StatusOr<SampledToken>& sampled);
  // The same with logits of the last position so far.
  absl::StatusOr<std::optional<int32_t>> Next(std::span<const float> logits);
  // Whether a row that was chosen before the tokens it rests on were taken has to be chosen anew.
  bool MustChooseAnew(const absl::StatusOr<SampledToken>& sampled) const {
    return sampled.ok() && generation_.MustChooseAnew(*sampled);
  }
  // Its tokens are held to a structure: how many of the tokens may follow, as far as is known.
  bool has_structure() const { return generation_.has_structure(); }
  size_t Admitted(std::span<const int32_t> tokens) const { return generation_.Admitted(tokens); }
  // Ends it from outside: FINISH_REASON_CANCELLED.
  void Cancel();
  // Prompt tokens that were found in the prefix cache; tells clients.
  // `cold`: of those, read from disk.
  void SetCachedTokens(uint32_t tokens, uint32_t cold) {
    cached_tokens_ = tokens;
    cold_tokens_ = cold;
  }
  // Tokens that were run before they were chosen, and those of them that were right; tells clients.
  // `is_of_model`: a draft model's.
  void CountDrafted(bool is_of_model) { drafts_.Count(is_of_model); }
  void CountAccepted(bool is_of_model) { accepted_.Count(is_of_model); }

  // Of an answer that is over: DecodeStepUs of its last chunk.
  double decode_step_us() const { return decode_step_us_; }

 private:
  struct Drafts {
    uint32_t tokens = 0;
    uint32_t of_model = 0;  // of these
    void Count(bool is_of_model) {
      ++tokens;
      of_model += is_of_model ? 1 : 0;
    }
  };
  // The logprob of a token whose text is not certain yet.
  struct HeldLogprob {
    uint64_t text_begin = 0;
    TokenLogprob token{};
    std::vector<TokenLogprob> top{};
  };
  void Hold(const Generation::Outcome& outcome, const ChosenLogprob& logprob);
  void ReleaseLogprobs(const Generation::Outcome& outcome);
  void AddTo(v1::TokenLogprob& out, const TokenLogprob& token) const;
  void Add(const markup::MarkupEvent& event);
  bool HasNews() const;
  void Send();
  void Finish(v1::FinishReason reason);

  const GenerationJob job_;
  const std::function<std::string(int32_t)> bytes_of_;
  Generation generation_;
  const OnChunk on_chunk_;
  const std::chrono::steady_clock::time_point started_;
  std::optional<std::chrono::steady_clock::time_point> first_token_;
  v1::GenerateChunk chunk_;
  std::deque<HeldLogprob> held_;  // no more than kHeldLogprobsMax
  uint32_t cached_tokens_ = 0;
  Drafts drafts_;
  Drafts accepted_;
  uint32_t cold_tokens_ = 0;
  double decode_step_us_ = 0;
  bool begun_ = false;
  bool over_ = false;
};

// Microseconds that one decode step took, as an answer's last chunk tells: the prompt's last step
// gave the first token, so n tokens are n - 1 steps. 0 for other chunks and for answers of fewer
// than kTimedTokensMin tokens, which say little.
inline constexpr uint32_t kTimedTokensMin = 8;
double DecodeStepUs(const v1::GenerateChunk& chunk);

}  // namespace macrame::runtime::engine
