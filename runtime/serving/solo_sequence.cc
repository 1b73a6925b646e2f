#include "runtime/serving/solo_sequence.h"

#include <algorithm>

#include "proto/check.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {

absl::StatusOr<std::vector<float>> SoloSequence::Forward(std::span<const int32_t> tokens, int begin,
                                                         LogitRows rows,
                                                         const std::function<bool()>& keep_going) {
  const int context = engine_.limits().context_length;
  MACRAME_CHECK(!tokens.empty() && (begin == 0 || begin == end_) &&
                begin + static_cast<int>(tokens.size()) <= context)
      << tokens.size() << " tokens at position " << begin << " of " << context;
  ForwardStep step;
  if (begin == 0 && end_ > 0) step.closed_slots.push_back(0);
  if (begin == 0) end_ = 0;
  std::vector<float> logits;
  bool is_cancelled = false;
  while (!tokens.empty()) {
    const auto chunk = static_cast<size_t>(engine_.limits().prefill_chunk_tokens);
    const size_t count = std::min(tokens.size(), chunk);
    const bool last = count == tokens.size();
    Segment segment;
    segment.begin = static_cast<uint32_t>(end_);
    segment.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    const bool is_all = rows == LogitRows::kAll || rows == LogitRows::kHiddenAll;
    segment.logit_rows = last || is_all ? rows : LogitRows::kNone;
    const int after = end_ + static_cast<int>(count);
    for (int block = BlocksFor(end_); block < BlocksFor(after); ++block) {
      segment.new_blocks.push_back(block);
    }
    step.segments = {std::move(segment)};
    if (engine_.steps_in_flight() == engine_.steps_in_flight_max()) {
      const absl::Status awaited = AwaitOne(logits);
      if (!awaited.ok()) return awaited;
    }
    const absl::Status submitted = engine_.Submit(step);
    if (!submitted.ok()) return submitted;
    step.closed_slots.clear();
    end_ = after;
    tokens = tokens.subspan(count);
    is_cancelled = !last && !keep_going();
    if (is_cancelled) break;
  }
  while (engine_.steps_in_flight() > 0) {
    const absl::Status awaited = AwaitOne(logits);
    if (!awaited.ok()) return awaited;
  }
  if (is_cancelled) return absl::CancelledError("the request was cancelled");
  return logits;
}

absl::Status SoloSequence::AwaitOne(std::vector<float>& logits) {
  const auto part = engine_.Await();
  if (part.ok()) logits.insert(logits.end(), part->numbers.begin(), part->numbers.end());
  return part.status();
}

absl::Status SoloSequence::Close() {
  if (end_ == 0) return absl::OkStatus();
  end_ = 0;
  ForwardStep step;
  step.closed_slots = {0};
  return engine_.Run(step).status();
}

absl::Status RunJob(const GenerationJob& job, ForwardEngine& engine, TextStream text,
                    const std::atomic<bool>& cancelled, const Answer::OnChunk& on_chunk) {
  Answer answer(job, std::move(text), on_chunk, std::chrono::steady_clock::now());
  SoloSequence sequence(engine);
  const auto keep_going = [&] { return !cancelled.load(std::memory_order_relaxed); };
  auto logits = sequence.Forward(job.prompt, 0, LogitRows::kLast, keep_going);
  int position = static_cast<int>(job.prompt.size());
  absl::Status status = logits.status();
  while (status.ok() && keep_going()) {
    const auto token = answer.Next(*logits);
    if (!token.ok() || !token->has_value()) {
      status = token.status();
      break;
    }
    const int32_t next[] = {**token};
    logits = sequence.Forward(next, position++, LogitRows::kLast, keep_going);
    status = logits.status();
  }
  if (!status.ok() && !absl::IsCancelled(status)) return status;
  answer.Cancel();
  return sequence.Close();
}

}  // namespace macrame::runtime::engine
