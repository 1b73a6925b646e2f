#include "agentd/gateway/generation/model_answer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/base/model_failure.h"
#include "agentd/gateway/dialects/embedding_request.h"
#include "agentd/gateway/http/asio_names.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

using EventKind = GenerationFeed::EventKind;

// Events that have gathered go out in one write of about this size.
constexpr size_t kWriteBytesAim = 16 * 1024;
// Of numbers; more go out as they become text, which takes three times as much.
constexpr size_t kWholeEmbeddingsBytesMax = 256 * 1024;

// The cluster ended the answer, not the model.
bool IsEndFromOutside(const GenerationFeed::Event& event) {
  if (event.kind == EventKind::kChunk) {
    return event.chunk.finish_reason() == v1::FINISH_REASON_CANCELLED;
  }
  return event.kind == EventKind::kDone && !event.status.ok();
}

ApiError Unloaded(const std::string& model) {
  return HttpError(404,
                   absl::StrCat("The model '", model,
                                "' was unloaded while it answered. Load it again with "
                                "'clusterctl model load NAME'."),
                   "model_unloaded");
}

GenerationFeed::Bounds BoundsOf(const GatewayOptions& options, AnswerForm form, bool is_stream) {
  GenerationFeed::Bounds bounds;
  bounds.buffered_bytes = is_stream ? options.unsent_bytes_max : options.answer_bytes_max;
  if (IsEmbedding(form)) {
    // Collecting them waits for no client: what is too much is said there.
    bounds = {2 * options.embeddings_bytes_max, kInputsAtOnceMax, kInputQueuePatience};
  }
  bounds.is_whole = !is_stream;
  return bounds;
}

}  // namespace

void ModelAnswer::Begin(std::vector<v1::GenerateRequest> requests, bool is_stream) {
  const GatewayOptions& options = exchange_.options();
  GenerationFeed::Bounds bounds = BoundsOf(options, head_.form, is_stream);
  for (v1::GenerateRequest& request : requests) request.set_progress(true);
  // The others wait behind it, and behind one another.
  requests.front().set_queue_limit_ms(static_cast<uint32_t>(options.queue_limit.count()));
  if (TracedRequest* traced = exchange_.traced()) {
    traced->operation = OperationOf(head_.form);
    traced->answer_id = head_.id;
    traced->choices_per_prompt = head_.choices_per_prompt;
  }
  if (exchange_.IsSampled()) {
    bounds.keeps_facts = true;
    for (v1::GenerateRequest& request : requests) request.set_timings(true);
  }
  exchange_.record().handed_on = Clock::now();
  feed_ = GenerationFeed::Start(exchange_.state()->io, exchange_.Backend(), std::move(requests),
                                bounds);
}

net::awaitable<bool> ModelAnswer::Send(std::vector<v1::GenerateRequest> requests, bool is_stream) {
  if (auto fault = exchange_.CheckModelAccess(head_.model)) {
    co_return co_await exchange_.SendError(*std::move(fault));
  }
  exchange_.DropBody();
  Begin(std::move(requests), is_stream);
  auto watch = exchange_.connection().StartWatch([feed = feed_] { feed->ClientGone(); });
  bool more = false;
  if (is_stream) {
    more = co_await Stream();
    exchange_.record().first_piece = feed_->first_piece_at();
  } else {
    auto collected =
        std::visit([this](auto body_of) { return Collect(body_of); }, WriterOf(head_.form).body);
    more = co_await std::move(collected);
  }
  if (exchange_.IsSampled()) exchange_.traced()->calls = feed_->Facts();
  feed_->Close();
  co_await exchange_.connection().EndWatch(watch);
  co_return more;
}

void ModelAnswer::LogFailure(const absl::Status& status) const {
  if (status.ok()) return;
  const bool ours =
      status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kUnknown;
  spdlog::log(ours ? spdlog::level::warn : spdlog::level::info, "gateway: request '{}' failed: {}",
              exchange_.request_id(), std::string(status.message()));
}

bool ModelAnswer::WasUnloaded() {
  return FindModel(exchange_.Backend().ListModels(), DeploymentOfReplica(head_.model)) == nullptr;
}

ApiError ModelAnswer::FailureOf(const absl::Status& status) {
  LogFailure(status);
  // What an alias leads to is told to those alone who may know of it.
  const std::string& asked = exchange_.asked_model();
  const std::string& shown = WasUnloaded() && !asked.empty() ? asked : head_.model;
  return DescribeFailure(status, shown, exchange_.Backend());
}

template <typename Collected>
std::optional<ApiError> ModelAnswer::FaultOfEnd(const Event& event, const Collected& choice) {
  if (!event.status.ok()) {
    ApiError error = FailureOf(event.status);
    if (IsEmbedding(head_.form)) NameInput(head_, event.choice, &error);
    return error;
  }
  if (IsEmbedding(head_.form) && choice.bytes() == 0) {
    return HttpError(503,
                     "The node that serves the model runs a version without embeddings: update it.",
                     "model_has_no_embeddings");
  }
  if constexpr (std::is_same_v<Collected, CollectedTokens>) {
    if (choice.is_answer) {
      return HttpError(503,
                       "The node that serves the model runs a version that tells no tokens: "
                       "update it.",
                       "model_tells_no_tokens");
    }
  }
  return std::nullopt;
}

// `bytes`: of all choices so far.
template <typename Collected>
std::optional<ApiError> ModelAnswer::FaultOfPiece(const Collected& choice, size_t bytes) {
  const GatewayOptions& options = exchange_.options();
  const bool is_embedding = IsEmbedding(head_.form);
  const size_t bytes_max = is_embedding ? options.embeddings_bytes_max : options.answer_bytes_max;
  // All are as long as the first.
  if (is_embedding && choice.bytes() * head_.choices > bytes_max) {
    feed_->Close();
    return BadRequest(absl::StrCat("The answer would be too large: above ", bytes_max,
                                   " bytes. Send fewer inputs at once, or ask for fewer "
                                   "'dimensions'."),
                      "input", "answer_too_large");
  }
  if (bytes > bytes_max) {
    return HttpError(
        500,
        absl::StrCat("The answer is too large: above ", bytes_max,
                     " bytes. Ask for a stream, for less text or fewer 'top_logprobs'."),
        "answer_too_large");
  }
  if (choice.finish != v1::FINISH_REASON_CANCELLED) return std::nullopt;
  if (WasUnloaded()) return Unloaded(head_.model);
  return FailureOf(absl::CancelledError("The answer was ended by the cluster"));
}

template <typename Collected>
net::awaitable<bool> ModelAnswer::Collect(BodyOf<Collected> body_of) {
  std::vector<Collected> choices(head_.choices);
  size_t bytes = 0;
  AnswerPatience patience(exchange_.options().silence_ms, Clock::now());
  for (uint32_t left = head_.choices; left > 0;) {
    const Event event = co_await feed_->Next(patience.left());
    if (event.kind == EventKind::kGone) co_return false;
    patience.Hear(event);
    if (event.kind == EventKind::kSilence || patience.is_over()) {
      co_return co_await exchange_.SendError(
          HttpError(504, "The model did not answer in time.", "timed_out"));
    }
    if (event.kind == EventKind::kProgress) continue;
    Collected& choice = choices.at(event.choice);
    std::optional<ApiError> fault;
    if (event.kind == EventKind::kDone) {
      fault = FaultOfEnd(event, choice);
      --left;
    } else {
      bytes -= choice.bytes();
      if (event.kind == EventKind::kAgain) {
        choice = Collected();
        continue;
      }
      choice.Add(event.chunk);
      bytes += choice.bytes();
      fault = FaultOfPiece(choice, bytes);
    }
    if (fault.has_value()) co_return co_await exchange_.SendError(*std::move(fault));
  }
  if constexpr (std::is_same_v<Collected, CollectedEmbedding>) {
    if (bytes > kWholeEmbeddingsBytesMax) co_return co_await SendEmbeddings(std::move(choices));
  }
  HttpReply reply;
  reply.body = body_of(head_, choices);
  co_return co_await exchange_.SendReply(std::move(reply));
}

net::awaitable<bool> ModelAnswer::SendEmbeddings(std::vector<CollectedEmbedding> embeddings) {
  exchange_.EndKeepAliveIfStopping();
  bool alive = co_await exchange_.WriteStreamHead("application/json");
  std::string gathered = EmbeddingListOpening(head_);
  uint64_t tokens = 0;
  for (size_t i = 0; alive && i < embeddings.size(); ++i) {
    gathered += EmbeddingItem(head_, i, std::exchange(embeddings[i].numbers, {}));
    tokens += embeddings[i].counts.prompt_tokens;
    if (gathered.size() < kWriteBytesAim) continue;
    alive = co_await exchange_.WritePiece(std::exchange(gathered, std::string()));
  }
  gathered += EmbeddingListEnding(head_, tokens);
  if (alive) alive = co_await exchange_.WritePiece(std::move(gathered));
  if (alive) alive = co_await exchange_.EndStream();
  co_return alive&& exchange_.keep_alive();
}

net::awaitable<bool> ModelAnswer::Stream() {
  // Errors that come before the first piece of text still get their own HTTP status.
  const GatewayOptions& options = exchange_.options();
  const auto patience = std::min(options.first_piece_ms, options.silence_ms);
  const Clock::time_point limit = Clock::now() + patience;
  Event first = co_await feed_->Next(patience);
  while (first.kind == EventKind::kProgress && !head_.tells_progress) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    if (left.count() <= 0) break;
    first = co_await feed_->Next(left);
  }
  if (first.kind == EventKind::kGone) co_return false;
  if (first.kind == EventKind::kDone && !first.status.ok()) {
    co_return co_await exchange_.SendError(FailureOf(first.status));
  }
  const std::unique_ptr<AnswerStream> writer = WriterOf(head_.form).stream(head_);
  bool alive = co_await exchange_.WriteStreamHead(std::string(writer->content_type()));
  std::string open = writer->Open();
  if (alive && !open.empty()) alive = co_await exchange_.WritePiece(std::move(open));
  if (alive) alive = co_await PumpEvents(*writer, std::move(first));
  if (alive) alive = co_await exchange_.EndStream();
  spdlog::debug("gateway: request '{}' {}", exchange_.request_id(),
                alive ? "streamed" : "lost its client");
  // A cut connection tells the client that this was not the end.
  if (!alive) exchange_.connection().Close();
  co_return alive&& exchange_.keep_alive();
}

std::string ModelAnswer::TextOf(AnswerStream& writer, const Event& event) {
  if (event.kind == EventKind::kSilence) return writer.KeepAlive();
  if (IsEndFromOutside(event) && WasUnloaded()) {
    LogFailure(event.status);
    return writer.Fail(Unloaded(head_.model));
  }
  if (event.kind == EventKind::kChunk) return writer.Chunk(event.chunk, event.choice);
  if (event.kind == EventKind::kProgress) {
    return writer.Progress(event.chunk.progress(), event.choice);
  }
  LogFailure(event.status);
  return writer.End(event.status, event.choice);
}

net::awaitable<bool> ModelAnswer::PumpEvents(AnswerStream& writer, Event event) {
  const GatewayOptions& options = exchange_.options();
  const auto patience = std::min(options.keep_alive_ms, options.silence_ms);
  AnswerPatience silence(options.silence_ms, exchange_.record().begun);
  Clock::time_point last_written = Clock::now();  // the head
  std::string gathered;
  for (;;) {
    if (event.kind == EventKind::kGone) co_return false;
    silence.Hear(event);
    if (silence.is_over()) {
      gathered += writer.Fail(HttpError(504, "The model went silent.", "timed_out"));
    } else {
      gathered += TextOf(writer, event);
      const bool is_quiet = Clock::now() - last_written >= options.keep_alive_ms;
      if (event.kind == EventKind::kProgress && gathered.empty() && is_quiet) {
        gathered = writer.KeepAlive();
      }
    }
    const bool more_at_hand = !writer.ended() && feed_->HasMore();
    if (!gathered.empty() && (!more_at_hand || gathered.size() >= kWriteBytesAim)) {
      const bool written = co_await exchange_.WritePiece(std::exchange(gathered, std::string()));
      if (!written) co_return false;
      last_written = Clock::now();
    }
    if (writer.ended()) co_return true;
    event = co_await feed_->Next(patience);
  }
}

}  // namespace macrame::agentd
