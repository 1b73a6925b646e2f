#include "agentd/gateway/dialects/answer_stream.h"

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_answer.h"

namespace macrame::agentd {

std::string StreamComposer::Open() {
  std::string events;
  for (uint32_t choice = 0; choice < head_.choices; ++choice) {
    if (head_.form == AnswerForm::kChat) {
      events += OpenEvent(head_, choice);
    } else if (!head_.echoes.empty()) {
      events += EchoEvent(head_, choice);
      choices_.at(choice).characters = CharactersOf(head_.echoes.at(choice));
    }
  }
  return events;
}

std::string StreamComposer::ChatEvents(const v1::GenerateChunk& chunk, uint32_t choice) {
  std::string events;
  if (!chunk.reasoning().empty() && !head_.excludes_reasoning) {
    events += ReasoningEvent(head_, chunk.reasoning(), choice);
  }
  if (!chunk.text().empty() || !chunk.logprobs().empty()) {
    events += TextEvent(head_, chunk, choice);
  }
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    choices_.at(choice).has_calls = true;
    events += CallEvents(head_, call, choice);
  }
  return events;
}

std::string StreamComposer::Chunk(const v1::GenerateChunk& chunk, uint32_t choice) {
  Choice& answer = choices_.at(choice);
  UpdateCounts(chunk, &answer.counts);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    answer.finish = chunk.finish_reason();
  }
  if (head_.form == AnswerForm::kChat) return ChatEvents(chunk, choice);
  if (chunk.text().empty() && chunk.logprobs().empty()) return "";
  return TextCompletionEvent(head_, chunk, choice, &answer.characters);
}

std::string StreamComposer::Progress(const v1::PromptProgress& progress, uint32_t choice) {
  return head_.tells_progress ? ProgressEvent(head_, progress, choice) : "";
}

std::string StreamComposer::End(const absl::Status& status, uint32_t choice) {
  if (!status.ok()) return Fail(ApiErrorFromStatus(status));
  const Choice& over = choices_.at(choice);
  if (over.finish == v1::FINISH_REASON_CANCELLED) {
    return Fail(EndedByCluster());
  }
  const absl::string_view reason = FinishReasonName(over.finish, over.has_calls);
  std::string events = head_.form == AnswerForm::kChat
                           ? FinishEvent(head_, reason, choice)
                           : TextCompletionFinishEvent(head_, reason, choice);
  if (++choices_ended_ < head_.choices) return events;
  ended_ = true;
  if (head_.include_usage) {
    std::vector<TokenCounts> counts;
    for (const Choice& answer : choices_) counts.push_back(answer.counts);
    events += UsageEvent(head_, TotalCounts(counts, head_.choices_per_prompt));
  }
  return absl::StrCat(events, kDoneEvent);
}

std::string StreamComposer::Fail(const ApiError& error) {
  ended_ = true;
  return ErrorEvent(error);
}

}  // namespace macrame::agentd
