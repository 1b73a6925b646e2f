#include "runtime/process/generate_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/process/rank_boot.h"
#include "runtime/process/termination_message.h"
#include "runtime/serving/solo_sequence.h"

namespace macrame::runtime::engine {
namespace {

absl::StatusOr<GenerationJob> MakeJob(const GenerateOptions& options, const BootedRank& rank) {
  const bool is_embedding = !options.embedding_file.empty();
  if (options.prompt_tokens.empty()) {
    v1::GenerateRequest request = options.request;
    if (is_embedding) request.mutable_embedding();
    return PrepareJob(request, *rank.text, rank.config.vocab_size, rank.context_length,
                      /*seed=*/0, LocalUnixSeconds());
  }
  const absl::Status fits = CheckPrompt(options.prompt_tokens, rank.config.vocab_size,
                                        rank.context_length, is_embedding ? 0 : 1);
  if (!fits.ok()) return fits;
  GenerationJob job;
  job.prompt = options.prompt_tokens;
  job.limits.prompt_tokens = static_cast<uint32_t>(job.prompt.size());
  job.limits.max_tokens = options.request.max_tokens();
  job.limits.context_length = rank.context_length;
  if (is_embedding) job.embedding = EmbeddingPlan{rank.config.pooling, 0};
  if (is_embedding ? rank.config.pooling != Pooling::kNone : rank.config.has_head) return job;
  return absl::InvalidArgumentError(is_embedding ? "the model makes no embeddings"
                                                 : "the model makes no text");
}

absl::Status WriteFloats(const std::string& path, std::span<const float> numbers) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size_bytes()));
  file.close();
  return file ? absl::OkStatus() : absl::InternalError(absl::StrCat(path, " can't be written"));
}

absl::Status WriteEmbedding(const GenerateOptions& options, const GenerationJob& job,
                            ForwardEngine& engine) {
  SoloSequence sequence(engine);
  const auto rows = sequence.Forward(job.prompt, 0, job.embedding->rows(), [] { return true; });
  if (!rows.ok()) return rows.status();
  PoolingSum sum(*job.embedding);
  sum.Add(0, *rows, static_cast<size_t>(engine.hidden_size()));
  const auto embedding = sum.Finish();
  if (!embedding.ok()) return embedding.status();
  return WriteFloats(options.embedding_file, *embedding);
}

// Logits of every position of the prompt, and of each token that greedy decoding adds.
absl::Status WriteLogits(const GenerateOptions& options, const GenerationJob& job,
                         ForwardEngine& engine) {
  std::ofstream file(options.logits_file, std::ios::binary | std::ios::trunc);
  const auto always = [] { return true; };
  SoloSequence sequence(engine);
  auto rows = sequence.Forward(job.prompt, 0, LogitRows::kAll, always);
  int position = static_cast<int>(job.prompt.size());
  for (uint32_t made = 0; rows.ok(); ++made) {
    file.write(reinterpret_cast<const char*>(rows->data()),
               static_cast<std::streamsize>(rows->size() * sizeof(float)));
    if (made + 1 >= options.request.max_tokens()) break;
    const std::span<const float> last(rows->data() + rows->size() - engine.vocab_size(),
                                      static_cast<size_t>(engine.vocab_size()));
    const auto token = SampleToken(last, {}, 0);
    if (!token.ok()) return token.status();
    const int32_t next[] = {*token};
    rows = sequence.Forward(next, position++, LogitRows::kLast, always);
  }
  file.close();
  if (!file) return absl::InternalError(absl::StrCat(options.logits_file, " can't be written"));
  return rows.status();
}

TextStream StreamOf(const BootedRank& rank) {
  if (rank.text == nullptr) {
    return {[](int32_t) { return std::string(); }, [] { return std::string(); }};
  }
  auto stream = std::make_shared<text::StreamDecoder>(rank.text->tokenizer.NewStream(true));
  return {[stream](int32_t id) { return stream->Push(id); }, [stream] { return stream->Finish(); },
          TokenBytesOf(rank.text)};
}

absl::Status AnswerAlone(const GenerateOptions& options, const GenerationJob& job,
                         BootedRank& rank) {
  nlohmann::json tokens = nlohmann::json::array();
  std::string text;
  v1::GenerateChunk last;
  const std::atomic<bool> cancelled = false;
  const absl::Status status =
      RunJob(job, *rank.engine, StreamOf(rank), cancelled, [&](const v1::GenerateChunk& chunk) {
        if (!options.json) {
          std::fwrite(chunk.text().data(), 1, chunk.text().size(), stdout);
          std::fflush(stdout);
        }
        for (const int32_t token : chunk.token_ids()) tokens.push_back(token);
        text += chunk.text();
        last = chunk;
      });
  if (!status.ok()) return status;
  if (!options.json) {
    std::fputc('\n', stdout);
    return status;
  }
  const nlohmann::json result = {{"prompt_tokens", job.prompt},
                                 {"tokens", tokens},
                                 {"text", text},
                                 {"finish_reason", v1::FinishReason_Name(last.finish_reason())},
                                 {"completion_tokens", last.completion_tokens()},
                                 {"prefill_ms", last.prefill_ms()},
                                 {"decode_ms", last.decode_ms()}};
  std::printf("%s\n",
              result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return status;
}

}  // namespace

int RunGenerateCommand(const GenerateOptions& options) {
  TerminationMessage termination(options.spec);
  Watchdog watchdog([&](const std::string& what, std::chrono::milliseconds limit) {
    termination.Say(StalledStatus(what, limit));
    _exit(kExitStalled);
  });
  BootOptions boot;
  boot.needs_text = options.prompt_tokens.empty();
  boot.types = options.types;
  boot.bound = options.bound;
  if (options.prefill_chunk_tokens > 0) boot.prefill_chunk_tokens = options.prefill_chunk_tokens;
  auto rank = BootRank(options.spec, watchdog, boot);
  absl::Status status = rank.status();
  if (status.ok()) {
    const auto job = MakeJob(options, **rank);
    status = job.status();
    if (status.ok() && job->embedding.has_value()) {
      status = WriteEmbedding(options, *job, *(*rank)->engine);
    } else if (status.ok() && !options.logits_file.empty()) {
      status = WriteLogits(options, *job, *(*rank)->engine);
    } else if (status.ok()) {
      status = AnswerAlone(options, *job, **rank);
    }
    if (status.ok()) (*rank)->engine->Announce(StepKind::kStop).IgnoreError();
  }
  if (status.ok()) return kExitOrderly;
  termination.Say(status);
  return absl::IsInvalidArgument(status) && rank.ok() ? kExitUsage : ExitCodeOf(status);
}

}  // namespace macrame::runtime::engine
