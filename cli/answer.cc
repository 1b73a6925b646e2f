#include "cli/answer.h"

#include <algorithm>
#include <chrono>
#include <istream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/interrupt.h"
#include "cli/repaint.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

constexpr size_t kPromptBytesMax = 4 * 1024 * 1024;

const char* FinishWord(v1::FinishReason finish) {
  switch (finish) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

std::string Timed(uint32_t tokens, double ms) {
  std::string text = Plural(tokens, "token");
  if (ms > 0) {
    absl::StrAppend(&text, " in ", Milliseconds(ms), " (", Rate(tokens * 1000.0 / ms),
                    " tokens/s)");
  }
  return text;
}

// What of the prompt was not computed, and why no more; nothing when the cache had no part in it.
std::string CacheLine(const Answer& answer) {
  const bool has_miss = !answer.miss.kind().empty() && answer.miss.kind() != "empty";
  if (answer.cached_tokens == 0 && !has_miss) return "";
  std::string text = absl::StrCat(Plural(answer.cached_tokens, "token"), " of the prompt cached");
  if (answer.cold_tokens > 0) absl::StrAppend(&text, ", ", answer.cold_tokens, " from disk");
  if (has_miss) absl::StrAppend(&text, "; ", Printable(answer.miss.text(), false));
  return absl::StrCat(text, "\n");
}

Json AnswerDocument(const std::string& model, const Answer& answer) {
  Json document = Document("Completion");
  document["model"] = model;
  document["text"] = answer.text;
  if (!answer.reasoning.empty()) document["reasoning"] = answer.reasoning;
  for (const AnswerCall& call : answer.calls) {
    document["tool_calls"].push_back(
        {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  document["finish_reason"] = FinishWord(answer.finish);
  document["prompt_tokens"] = answer.prompt_tokens;
  document["completion_tokens"] = answer.completion_tokens;
  document["cached_tokens"] = answer.cached_tokens;
  document["cold_tokens"] = answer.cold_tokens;
  document["prefix_miss"] = answer.miss.text();
  document["prefill_ms"] = answer.prefill_ms;
  document["decode_ms"] = answer.decode_ms;
  document["first_text_ms"] = answer.first_text_ms;
  return document;
}

// Writes an answer while it comes. Reasoning is dimmed on a terminal and left out of files; a call
// begins a line of its own. On a terminal, how far the prompt is stands where the answer will.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(const Invocation& run) : run_(run) {}

  void Print(const v1::GenerateChunk& chunk) {
    if (chunk.has_progress()) return PrintProgress(chunk.progress());
    EndProgress();
    if (!chunk.reasoning().empty() && run_.environment.out_is_terminal) {
      Begin(Part::kReasoning);
      Write(run_.style.Dim(Printable(chunk.reasoning(), true)), chunk.reasoning());
    }
    if (!chunk.text().empty()) {
      Begin(Part::kText);
      Write(Shown(chunk.text()), chunk.text());
    }
    for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
      if (!call.name().empty()) {
        EndLine();
        part_ = Part::kCall;
        Write(run_.style.Bold(absl::StrCat("→ ", Shown(call.name()))) + " ", " ");
      }
      if (!call.arguments().empty()) Write(Shown(call.arguments()), call.arguments());
    }
    *run_.environment.out << std::flush;
  }
  void EndLine() {
    EndProgress();
    if (is_in_line_) *run_.environment.out << "\n" << std::flush;
    is_in_line_ = false;
  }

 private:
  enum class Part { kNone, kReasoning, kText, kCall };

  // A model's words must not steer the terminal; a file gets them as they are.
  std::string Shown(const std::string& text) const {
    return run_.environment.out_is_terminal ? Printable(text, true) : text;
  }
  // An answer that began, and was interrupted, stays as it is.
  void PrintProgress(const v1::PromptProgress& progress) {
    if (!run_.environment.out_is_terminal || part_ != Part::kNone) return;
    if (!progress_.has_value()) progress_.emplace(run_.environment);
    progress_->Show(run_.style.Dim(ProgressText(progress)) + "\n");
  }
  void EndProgress() {
    if (!progress_.has_value()) return;
    progress_->Clear();
    progress_.reset();
  }
  void Begin(Part part) {
    if (part != part_ && part_ != Part::kNone) EndLine();
    part_ = part;
  }
  void Write(const std::string& shown, const std::string& text) {
    *run_.environment.out << shown;
    is_in_line_ = text.back() != '\n';
  }

  const Invocation& run_;
  Part part_ = Part::kNone;
  bool is_in_line_ = false;
  std::optional<Repainter> progress_;  // while it is shown
};

}  // namespace

std::string ProgressText(const v1::PromptProgress& progress) {
  const std::string tokens = Plural(progress.prompt_tokens(), "token");
  if (progress.is_queued()) {
    return absl::StrCat("waiting for a turn: other requests are answered first (", tokens, ")");
  }
  const uint64_t total = std::max(progress.prompt_tokens(), 1u);
  std::string text = absl::StrCat(
      "reading the prompt: ", uint64_t{progress.computed_tokens()} * 100 / total, " % of ", tokens);
  if (progress.cached_tokens() > 0) {
    absl::StrAppend(&text, ", ", progress.cached_tokens(), " of them cached");
  }
  return text;
}

void Answer::Add(const v1::GenerateChunk& chunk, double now_ms) {
  const bool has_news =
      !chunk.text().empty() || !chunk.reasoning().empty() || !chunk.tool_calls().empty();
  if (first_text_ms < 0 && has_news) first_text_ms = now_ms;
  text += chunk.text();
  reasoning += chunk.reasoning();
  reasoning_tokens = std::max(reasoning_tokens, chunk.reasoning_tokens());
  for (const v1::ToolCallDelta& delta : chunk.tool_calls()) {
    if (delta.index() >= calls.size()) calls.emplace_back();
    AnswerCall& call = calls[std::min<size_t>(delta.index(), calls.size() - 1)];
    call.id += delta.id();
    call.name += delta.name();
    call.arguments += delta.arguments();
  }
  prompt_tokens = std::max(prompt_tokens, chunk.prompt_tokens());
  completion_tokens = std::max(completion_tokens, chunk.completion_tokens());
  cached_tokens = std::max(cached_tokens, chunk.cached_tokens());
  cold_tokens = std::max(cold_tokens, chunk.cold_tokens());
  if (chunk.has_prefix_miss()) miss = chunk.prefix_miss();
  prefill_ms = std::max(prefill_ms, chunk.prefill_ms());
  decode_ms = std::max(decode_ms, chunk.decode_ms());
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
}

std::string AnswerStatistics(const Answer& answer) {
  std::string text = absl::StrCat("prompt ", Timed(answer.prompt_tokens, answer.prefill_ms),
                                  ", answer ", Timed(answer.completion_tokens, answer.decode_ms));
  if (answer.reasoning_tokens > 0) {
    absl::StrAppend(&text, ", ", answer.reasoning_tokens, " of them reasoning");
  }
  if (answer.first_text_ms >= 0) {
    absl::StrAppend(&text, ", first text after ", Milliseconds(answer.first_text_ms));
  }
  return absl::StrCat(text, ", finish: ", FinishWord(answer.finish), "\n", CacheLine(answer));
}

absl::StatusOr<std::string> ReadQuestion(std::istream& in) {
  std::string text;
  char block[65536];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<size_t>(in.gcount()));
    if (text.size() > kPromptBytesMax) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kPromptTooLong,
                          "the prompt on stdin has more than 4 MiB");
    }
  }
  if (const size_t at = FirstNonUtf8(text); at < text.size()) {
    v1::Reason reason = MakeReason(reasons::kBadRequest,
                                   absl::StrCat("the prompt on stdin is not text in UTF-8: byte ",
                                                at + 1, " of it begins no ", "character"));
    reason.set_remedy("convert it first, for example with 'iconv -f latin1 -t utf-8'");
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Asked Converse(const Invocation& run, const v1::GenerateRequest& request) {
  // A client that was cancelled asks nothing any more: each question has its own.
  AgentClient client(run.options.agent);
  Asked asked;
  AnswerPrinter printer(run);
  const auto begin = std::chrono::steady_clock::now();
  InterruptWatch interrupt([&] { client.Cancel(); });
  v1::GenerateRequest sent = request;
  sent.set_progress(run.wants_table() && run.environment.out_is_terminal);
  asked.ended = client.Infer(sent, [&](const v1::GenerateChunk& chunk) {
    const std::chrono::duration<double, std::milli> now = std::chrono::steady_clock::now() - begin;
    asked.answer.Add(chunk, now.count());
    if (run.wants_table()) printer.Print(chunk);
  });
  if (run.wants_table()) printer.EndLine();
  if (interrupt.interrupted()) asked.interrupted = interrupt.exit_code();
  return asked;
}

int AskOnce(const Invocation& run, const v1::GenerateRequest& request) {
  const Asked asked = Converse(run, request);
  if (asked.interrupted != 0) return asked.interrupted;
  if (!asked.ended.ok()) return run.Fail(asked.ended);
  if (!run.wants_table()) run.PrintDocument(AnswerDocument(request.deployment(), asked.answer));
  if (run.wants_table() && !run.options.quiet) {
    *run.environment.err << run.err_style.Dim(AnswerStatistics(asked.answer));
  }
  return kExitOk;
}

}  // namespace macrame::cli
