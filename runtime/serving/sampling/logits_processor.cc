#include "runtime/serving/sampling/logits_processor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

absl::Status Bad(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest, std::move(message));
}

absl::Status CheckRange(const char* name, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Bad(absl::StrCat(name, " is ", value, ", not in [", least, ", ", most, "]"));
}

}  // namespace

absl::Status CheckLogitRules(const LogitRules& rules, int vocab_size) {
  absl::Status status = CheckRange("repetition_penalty", rules.repetition_penalty,
                                   kRepetitionPenaltyMin, kRepetitionPenaltyMax);
  status.Update(CheckRange("presence_penalty", rules.presence_penalty, -kPenaltyMax, kPenaltyMax));
  status.Update(
      CheckRange("frequency_penalty", rules.frequency_penalty, -kPenaltyMax, kPenaltyMax));
  if (rules.biases.size() > kLogitBiasesMax) {
    status.Update(Bad(absl::StrCat("logit_bias has ", rules.biases.size(), " entries, more than ",
                                   kLogitBiasesMax)));
  }
  for (const auto& [token, bias] : rules.biases) {
    if (!status.ok()) break;
    if (token < 0 || token >= vocab_size) {
      return Bad(absl::StrCat("logit_bias names token ", token, ", the model has ", vocab_size));
    }
    status = CheckRange("a logit_bias", bias, -kLogitBiasMax, kLogitBiasMax);
  }
  return status;
}

LogitsProcessor::LogitsProcessor(const LogitRules& rules, uint32_t min_tokens,
                                 const std::set<int32_t>& end_tokens,
                                 std::span<const int32_t> prompt)
    : repeats_(rules.repetition_penalty != 1.0),
      counts_answer_(rules.presence_penalty != 0.0 || rules.frequency_penalty != 0.0),
      has_rules_(repeats_ || counts_answer_ || !rules.biases.empty()),
      repetition_(static_cast<float>(rules.repetition_penalty)),
      presence_(rules.presence_penalty),
      frequency_(rules.frequency_penalty),
      min_tokens_(min_tokens),
      biases_(rules.biases.begin(), rules.biases.end()) {
  if (min_tokens > 0) end_tokens_.assign(end_tokens.begin(), end_tokens.end());
  if (!repeats_) return;
  for (const int32_t token : prompt) said_.try_emplace(token, 0);
}

void LogitsProcessor::Take(int32_t token) {
  ++taken_;
  if (counts_tokens()) ++said_[token];
}

float LogitsProcessor::Penalised(float logit, uint32_t count) const {
  logit = logit > 0.0F ? logit / repetition_ : logit * repetition_;
  if (count == 0) return logit;
  return static_cast<float>(logit - frequency_ * count - presence_);
}

std::span<const float> LogitsProcessor::Process(std::span<const float> logits,
                                                std::span<const int32_t> ahead,
                                                std::vector<float>& scratch) const {
  const bool may_end = taken_ + ahead.size() >= min_tokens_;
  if (!has_rules_ && may_end) return logits;
  scratch.assign(logits.begin(), logits.end());
  // The files of some models name tokens that their tables don't have.
  const auto has = [&](int32_t token) { return static_cast<size_t>(token) < logits.size(); };
  for (const auto& [token, bias] : biases_) {
    if (has(token)) scratch[static_cast<size_t>(token)] += bias;
  }
  for (const auto& [token, count] : said_) {
    if (!has(token)) continue;
    float& logit = scratch[static_cast<size_t>(token)];
    logit = Penalised(logit, count);
  }
  for (size_t i = 0; counts_tokens() && i < ahead.size(); ++i) {
    const int32_t token = ahead[i];
    if (!has(token)) continue;
    const auto bias = biases_.find(token);
    const auto said = said_.find(token);
    const auto new_ones =
        std::count(ahead.begin(), ahead.begin() + static_cast<int64_t>(i) + 1, token);
    const float logit = logits[static_cast<size_t>(token)];
    scratch[static_cast<size_t>(token)] =
        Penalised(bias == biases_.end() ? logit : logit + bias->second,
                  (said == said_.end() ? 0 : said->second) + static_cast<uint32_t>(new_ones));
  }
  for (size_t i = 0; !may_end && i < end_tokens_.size(); ++i) {
    if (!has(end_tokens_[i])) continue;
    scratch[static_cast<size_t>(end_tokens_[i])] = -std::numeric_limits<float>::infinity();
  }
  return scratch;
}

}  // namespace macrame::runtime::engine
