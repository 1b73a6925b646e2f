#pragma once

// What a traced request's feed keeps of one call to an entry rank: times, counts, and no text. A
// value.

#include <chrono>
#include <optional>
#include <string>

#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/base/token_counts.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

struct CallFacts {
  using Time = std::chrono::steady_clock::time_point;

  Time begun;                       // handed to the backend
  std::optional<Time> first_piece;  // of its answer, from the backend
  std::optional<Time> last_piece;   // the one with the finish reason
  std::optional<Time> ended;        // unset: nobody waited for its end
  TokenCounts counts{};
  uint32_t draft_tokens = 0;
  uint32_t accepted_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  bool has_calls = false;  // of tools
  std::optional<v1::RequestTimings> timings;
  std::string failure_code;  // a reason's; empty: it did not fail
  CallRoute route;

  // A piece of the answer; none of `progress`.
  void AddChunk(const v1::GenerateChunk& chunk, Time come) {
    if (!first_piece.has_value()) first_piece = come;
    has_calls = has_calls || chunk.tool_calls_size() > 0;
    UpdateCounts(chunk, &counts);
    if (chunk.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
    finish = chunk.finish_reason();
    draft_tokens = chunk.draft_tokens();
    accepted_tokens = chunk.accepted_tokens();
    if (chunk.has_timings()) timings = chunk.timings();
    last_piece = come;
  }
};

}  // namespace macrame::agentd
