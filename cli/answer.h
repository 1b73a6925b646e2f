#pragma once

// An answer of a model while it comes: put together, shown, and told of. What `model infer`, `run`
// and `chat` have in common.

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::cli {

struct AnswerCall {
  std::string id, name, arguments;
};

// What came, put together.
struct Answer {
  std::string text, reasoning;
  std::vector<AnswerCall> calls;
  uint32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, cold_tokens = 0;
  v1::PrefixMiss miss;
  double prefill_ms = 0, decode_ms = 0, first_text_ms = -1;
  uint32_t reasoning_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;

  // `now_ms`: since the question was asked.
  void Add(const v1::GenerateChunk& chunk, double now_ms);
};

// Tokens and speed of prompt and answer, a line each for what there is to say.
std::string AnswerStatistics(const Answer& answer);

// How far a prompt is, as a line.
std::string ProgressText(const v1::PromptProgress& progress);

// All of a stream as a question; PROMPT_TOO_LONG beyond 4 MiB, BAD_REQUEST where it is not UTF-8.
absl::StatusOr<std::string> ReadQuestion(std::istream& in);

// What became of one question.
struct Asked {
  Answer answer;
  absl::Status ended;
  int interrupted = 0;  // the exit code when Ctrl-C or SIGTERM ended it; else 0
};
// Asks, and shows the answer on stdout while it comes when tables are wanted; Ctrl-C ends the
// answer.
Asked Converse(const Invocation& run, const v1::GenerateRequest& request);

// One question of a command: the answer on stdout (or its document), statistics on stderr. Returns
// the exit code.
int AskOnce(const Invocation& run, const v1::GenerateRequest& request);

}  // namespace macrame::cli
