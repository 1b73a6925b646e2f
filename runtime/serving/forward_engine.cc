#include "runtime/serving/forward_engine.h"

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

ForwardEngine::ForwardEngine(const ModelConfig& config, const ShardPlace& place,
                             WeightLoader& loader, GangLink& link, Watchdog& watchdog,
                             ForwardLimits limits)
    : config_(config),
      place_(place),
      link_(link),
      watchdog_(watchdog),
      limits_(limits),
      cache_(place.layer_end - place.layer_begin, limits.context_length),
      decoder_(config, place, loader, [this](const mx::array& partial) { return Sum(partial); }) {}

mx::array ForwardEngine::Sum(const mx::array& partial) const {
  if (place_.tp == 1) return partial;
  const mx::array sum =
      mx::distributed::all_sum(mx::astype(partial, link_.wire_type()), link_.stage_group());
  return mx::astype(sum, decoder_.activation_type());
}

absl::Status ForwardEngine::SendStep(Step step) {
  if (link_.leader() == nullptr) return absl::OkStatus();
  step.number = next_step_++;
  return link_.leader()->Send(step);
}

absl::Status ForwardEngine::Announce(StepKind kind) {
  Step step;
  step.kind = kind;
  return SendStep(std::move(step));
}

absl::Status ForwardEngine::AnnounceVerify(const v1::VerifyGroupRequest& request) {
  return SendStep(VerifyStepOf(request));
}

absl::StatusOr<std::vector<float>> ForwardEngine::Forward(std::span<const int32_t> tokens,
                                                          int begin, LogitRows rows,
                                                          const std::function<bool()>& keep_going) {
  const int end = begin + static_cast<int>(tokens.size());
  MACRAME_CHECK(!tokens.empty() && begin >= 0 && end <= limits_.context_length)
      << "positions [" << begin << ", " << end << ") of " << limits_.context_length;
  std::vector<float> logits;
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), static_cast<size_t>(limits_.prefill_chunk_tokens));
    const bool last = count == tokens.size();
    Step step;
    step.begin = static_cast<uint32_t>(begin);
    step.tokens.assign(tokens.begin(), tokens.begin() + static_cast<int64_t>(count));
    step.logit_rows = last || rows == LogitRows::kAll ? rows : LogitRows::kNone;
    absl::Status status = SendStep(step);
    if (status.ok()) status = RunStep(step, &logits);
    if (!status.ok()) return status;
    tokens = tokens.subspan(count);
    begin += static_cast<int>(count);
    if (!last && !keep_going()) return absl::CancelledError("the request was cancelled");
  }
  return logits;
}

absl::Status ForwardEngine::Follow(const Step& step) {
  const uint64_t end = uint64_t{step.begin} + step.tokens.size();
  if (step.tokens.empty() || end > static_cast<uint64_t>(limits_.context_length)) {
    return absl::InternalError(
        absl::StrCat("rank 0 sent a step up to position ", end, " of ", limits_.context_length));
  }
  for (const int32_t token : step.tokens) {
    if (token < 0 || token >= config_.vocab_size) {
      return absl::InternalError(absl::StrCat("rank 0 sent token ", token));
    }
  }
  return RunStep(step, nullptr);
}

absl::Status ForwardEngine::RunStep(const Step& step, std::vector<float>* logits) {
  const auto guard = watchdog_.Watch("a forward step", limits_.step_limit);
  try {
    RunStages(step, logits);
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the system refused memory for a forward step");
  } catch (const std::exception& error) {
    if (link_.single()) return absl::InternalError(error.what());
    return ReasonStatus(absl::StatusCode::kUnavailable, "RANK_EXITED",
                        absl::StrCat("the link to a neighbouring rank failed: ", error.what()));
  }
}

void ForwardEngine::RunStages(const Step& step, std::vector<float>* logits) {
  const int count = static_cast<int>(step.tokens.size());
  const int rows = step.logit_rows == LogitRows::kAll    ? count
                   : step.logit_rows == LogitRows::kLast ? 1
                                                         : 0;
  const int rank = link_.single() ? 0 : link_.group().rank();
  const int world = link_.single() ? 1 : link_.group().size();
  mx::array hidden =
      place_.embeds
          ? decoder_.Embed(step.tokens)
          : mx::astype(mx::distributed::recv({1, count, config_.hidden_size}, link_.wire_type(),
                                             rank - place_.tp, link_.group()),
                       decoder_.activation_type());
  hidden = decoder_.Run(std::move(hidden), cache_, static_cast<int>(step.begin));

  mx::array result = hidden;
  if (!place_.normalizes) {
    result = mx::distributed::send(mx::astype(hidden, link_.wire_type()), rank + place_.tp,
                                   link_.group());
  } else if (place_.has_head && rows > 0) {
    result = decoder_.Logits(hidden, rows);
    if (rank != 0) result = mx::distributed::send(result, 0, link_.group());
  }
  std::vector<mx::array> outputs{result};
  cache_.AppendBuffers(outputs);
  mx::eval(outputs);

  if (rank != 0 || rows == 0) return;
  if (!place_.has_head) {
    result = mx::distributed::recv({rows, config_.vocab_size}, mx::float32, world - place_.tp,
                                   link_.group());
    mx::eval(result);
  }
  const float* values = result.data<float>();
  logits->insert(logits->end(), values, values + result.size());
}

}  // namespace macrame::runtime::engine
