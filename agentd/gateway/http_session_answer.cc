// The answering half of HttpSession: generations, streams, bytes to the client, and its departure.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/write.hpp>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/answer_writers.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/client_watch.h"
#include "agentd/gateway/dialect.h"
#include "agentd/gateway/http_session.h"
#include "agentd/gateway/routes.h"
#include "agentd/gateway/tenant.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

using EventKind = GenerationFeed::EventKind;

// Events that have gathered go out in one write of about this size.
constexpr size_t kWriteBytesAim = 16 * 1024;
// Of numbers; more go out as they become text, which takes three times as much.
constexpr size_t kWholeEmbeddingsBytesMax = 256 * 1024;
// What is still read from a client that was refused, so that it gets to see the answer.
constexpr size_t kLingerBytesMax = 16 * 1024 * 1024;
constexpr std::chrono::milliseconds kLingerMs{1000};

ApiError RankTellsNoTokens() {
  return HttpError(503,
                   "The node that serves the model runs a version that tells no tokens: "
                   "update it.",
                   "model_tells_no_tokens");
}

// `more` take the place of fields of the same name.
void MergeFields(HeaderFields more, HeaderFields* fields) {
  for (auto& field : more) {
    const auto same = std::find_if(fields->begin(), fields->end(),
                                   [&](const auto& one) { return one.first == field.first; });
    if (same != fields->end()) fields->erase(same);
    fields->push_back(std::move(field));
  }
}

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

int64_t ElapsedMs(Clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
}

}  // namespace

net::awaitable<void> HttpSession::WatchClient(std::shared_ptr<ClientWatch> watch) {
  // With a full buffer the client's end is noticed by the next write that fails.
  while (!watch->stopping && buffer_.size() + 4096 <= buffer_.max_size()) {
    auto [error, size] = co_await stream_.async_watch_some(buffer_.prepare(4096), kAwait);
    if (!error) {
      buffer_.commit(size);
    } else {
      if (!watch->stopping && feed_ != nullptr) feed_->ClientGone();
      co_return;
    }
  }
}

std::shared_ptr<HttpSession::ClientWatch> HttpSession::StartWatch() {
  stream_.expires_never();
  auto watch = std::make_shared<ClientWatch>(*state_->io);
  net::co_spawn(*state_->io, WatchClient(watch),
                net::bind_cancellation_slot(watch->stop.slot(), [watch](std::exception_ptr) {
                  watch->ended = true;
                  watch->ended_timer.cancel();
                }));
  return watch;
}

net::awaitable<void> HttpSession::EndWatch(std::shared_ptr<ClientWatch> watch) {
  watch->stopping = true;
  watch->stop.emit(net::cancellation_type::terminal);
  while (!watch->ended) {
    watch->ended_timer.expires_after(std::chrono::seconds(1));
    co_await watch->ended_timer.async_wait(kAwait);
  }
}

void HttpSession::LogFailure(const absl::Status& status) const {
  if (status.ok()) return;
  const bool ours =
      status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kUnknown;
  spdlog::log(ours ? spdlog::level::warn : spdlog::level::info, "gateway: request '{}' failed: {}",
              request_id_, std::string(status.message()));
}

bool HttpSession::WasUnloaded(const std::string& model) {
  return FindModel(Backend().ListModels(), DeploymentOfReplica(model)) == nullptr;
}

net::awaitable<bool> HttpSession::SendGenerationFailure(absl::Status status, std::string model) {
  LogFailure(status);
  co_return co_await SendError(FailureOf(status, model));
}

net::awaitable<bool> HttpSession::SendFailureOf(uint32_t choice, absl::Status status,
                                                AnswerHead head) {
  LogFailure(status);
  ApiError error = FailureOf(status, head.model);
  if (IsEmbedding(head.form)) NameInput(head, choice, &error);
  co_return co_await SendError(std::move(error));
}

template <typename Collected>
net::awaitable<bool> HttpSession::CollectAnswer(
    AnswerHead head, std::string (*body_of)(const AnswerHead&, const std::vector<Collected>&)) {
  std::vector<Collected> choices(head.choices);
  const bool is_embedding = IsEmbedding(head.form);
  const size_t bytes_max =
      is_embedding ? state_->options.embeddings_bytes_max : state_->options.answer_bytes_max;
  size_t bytes = 0;
  AnswerPatience patience(state_->options.silence_ms, Clock::now());
  for (uint32_t left = head.choices; left > 0;) {
    const GenerationFeed::Event event = co_await feed_->Next(patience.left());
    if (event.kind == EventKind::kGone) co_return false;
    patience.Hear(event);
    if (event.kind == EventKind::kSilence || patience.is_over()) {
      co_return co_await SendError(
          HttpError(504, "The model did not answer in time.", "timed_out"));
    }
    if (event.kind == EventKind::kProgress) continue;
    Collected& choice = choices.at(event.choice);
    if (event.kind == EventKind::kAgain) {
      bytes -= choice.bytes();
      choice = Collected();
      continue;
    }
    if (event.kind == EventKind::kDone) {
      if (!event.status.ok()) co_return co_await SendFailureOf(event.choice, event.status, head);
      if (is_embedding && choice.bytes() == 0) {
        co_return co_await SendError(HttpError(
            503, "The node that serves the model runs a version without embeddings: update it.",
            "model_has_no_embeddings"));
      }
      if constexpr (std::is_same_v<Collected, CollectedTokens>) {
        if (choice.is_answer) co_return co_await SendError(RankTellsNoTokens());
      }
      --left;
      continue;
    }
    const size_t before = choice.bytes();
    choice.Add(event.chunk);
    bytes += choice.bytes() - before;
    // All are as long as the first.
    if (is_embedding && choice.bytes() * head.choices > bytes_max) {
      feed_->Close();
      co_return co_await SendError(BadRequest(
          absl::StrCat("The answer would be too large: above ", bytes_max,
                       " bytes. Send fewer inputs at once, or ask for fewer 'dimensions'."),
          "input", "answer_too_large"));
    }
    if (bytes > bytes_max) {
      co_return co_await SendError(HttpError(
          500,
          absl::StrCat("The answer is too large: above ", bytes_max,
                       " bytes. Ask for a stream, for less text or fewer 'top_logprobs'."),
          "answer_too_large"));
    }
    if (choice.finish == v1::FINISH_REASON_CANCELLED) {
      if (WasUnloaded(head.model)) co_return co_await SendError(Unloaded(head.model));
      co_return co_await SendGenerationFailure(
          absl::CancelledError("The answer was ended by the cluster"), head.model);
    }
  }
  if constexpr (std::is_same_v<Collected, CollectedEmbedding>) {
    if (bytes > kWholeEmbeddingsBytesMax) {
      co_return co_await SendEmbeddings(std::move(head), std::move(choices));
    }
  }
  HttpReply reply;
  reply.body = body_of(head, choices);
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<bool> HttpSession::SendEmbeddings(AnswerHead head,
                                                 std::vector<CollectedEmbedding> embeddings) {
  if (BodyIsUnread() || state_->stopping || state_->draining) keep_alive_ = false;
  bool alive = co_await WriteStreamHead("application/json");
  std::string gathered = EmbeddingListOpening(head);
  uint64_t tokens = 0;
  for (size_t i = 0; alive && i < embeddings.size(); ++i) {
    gathered += EmbeddingItem(head, i, std::exchange(embeddings[i].numbers, {}));
    tokens += embeddings[i].counts.prompt_tokens;
    if (gathered.size() < kWriteBytesAim) continue;
    alive = co_await WritePiece(std::exchange(gathered, std::string()));
  }
  gathered += EmbeddingListEnding(head, tokens);
  if (alive) alive = co_await WritePiece(std::move(gathered));
  if (alive) alive = co_await EndStream();
  co_return alive&& keep_alive_;
}

template net::awaitable<bool> HttpSession::CollectAnswer(
    AnswerHead head,
    std::string (*body_of)(const AnswerHead&, const std::vector<CollectedAnswer>&));
template net::awaitable<bool> HttpSession::CollectAnswer(
    AnswerHead head, std::string (*body_of)(const AnswerHead&, const std::vector<CollectedText>&));
template net::awaitable<bool> HttpSession::CollectAnswer(
    AnswerHead head,
    std::string (*body_of)(const AnswerHead&, const std::vector<CollectedEmbedding>&));
template net::awaitable<bool> HttpSession::CollectAnswer(
    AnswerHead head,
    std::string (*body_of)(const AnswerHead&, const std::vector<CollectedTokens>&));

net::awaitable<bool> HttpSession::StreamAnswer(AnswerHead head) {
  // Errors that come before the first piece of text still get their own HTTP status.
  const auto patience = std::min(state_->options.first_piece_ms, state_->options.silence_ms);
  const Clock::time_point limit = Clock::now() + patience;
  GenerationFeed::Event first = co_await feed_->Next(patience);
  while (first.kind == EventKind::kProgress && !head.tells_progress) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    if (left.count() <= 0) break;
    first = co_await feed_->Next(left);
  }
  if (first.kind == EventKind::kGone) co_return false;
  if (first.kind == EventKind::kDone && !first.status.ok()) {
    co_return co_await SendGenerationFailure(first.status, head.model);
  }
  const std::string model = head.model;
  const std::unique_ptr<AnswerStream> writer = StreamOf(std::move(head));
  bool alive = co_await WriteStreamHead(std::string(writer->content_type()));
  std::string open = writer->Open();
  if (alive && !open.empty()) alive = co_await WritePiece(std::move(open));
  if (alive) alive = co_await PumpEvents(*writer, std::move(first), model);
  if (alive) alive = co_await EndStream();
  spdlog::debug("gateway: request '{}' {} after {} ms", request_id_,
                alive ? "streamed" : "lost its client", ElapsedMs(started_));
  if (!alive) {
    // A cut connection tells the client that this was not the end.
    beast::error_code ignored;
    stream_.socket().close(ignored);
  }
  co_return alive&& keep_alive_;
}

net::awaitable<bool> HttpSession::PumpEvents(AnswerStream& composer, GenerationFeed::Event event,
                                             std::string model) {
  const auto patience = std::min(state_->options.keep_alive_ms, state_->options.silence_ms);
  AnswerPatience silence(state_->options.silence_ms, started_);
  Clock::time_point last_written = Clock::now();  // the head
  std::string gathered;
  for (;;) {
    if (event.kind == EventKind::kGone) co_return false;
    silence.Hear(event);
    if (silence.is_over()) {
      gathered += composer.Fail(HttpError(504, "The model went silent.", "timed_out"));
    } else if (event.kind == EventKind::kSilence) {
      gathered += composer.KeepAlive();
    } else if (IsEndFromOutside(event) && WasUnloaded(model)) {
      LogFailure(event.status);
      gathered += composer.Fail(Unloaded(model));
    } else if (event.kind == EventKind::kChunk) {
      gathered += composer.Chunk(event.chunk, event.choice);
    } else if (event.kind == EventKind::kProgress) {
      gathered += composer.Progress(event.chunk.progress(), event.choice);
      const bool is_quiet = Clock::now() - last_written >= state_->options.keep_alive_ms;
      if (gathered.empty() && is_quiet) gathered = composer.KeepAlive();
    } else {
      LogFailure(event.status);
      gathered += composer.End(event.status, event.choice);
    }
    const bool more_at_hand = !composer.ended() && feed_->HasMore();
    if (!gathered.empty() && (!more_at_hand || gathered.size() >= kWriteBytesAim)) {
      const bool written = co_await WritePiece(std::exchange(gathered, std::string()));
      if (!written) co_return false;
      last_written = Clock::now();
    }
    if (composer.ended()) co_return true;
    event = co_await feed_->Next(patience);
  }
}

HeaderFields HttpSession::CommonHeaders() const {
  HeaderFields headers;
  headers.emplace_back("date", HttpDate(static_cast<int64_t>(GatewayUnixMs() / 1000)));
  headers.emplace_back("x-request-id", request_id_);
  if (traced_.has_value()) {
    headers.emplace_back("traceresponse", TraceparentOf(traced_->context.trace_id, traced_->span_id,
                                                        traced_->context.flags));
  }
  headers.emplace_back("server", absl::StrCat("macrame/", state_->options.version));
  headers.emplace_back("cache-control", "no-store");
  headers.emplace_back("openai-processing-ms", absl::StrCat(ElapsedMs(started_)));
  if (dialect_ == Dialect::kAnthropic) headers.emplace_back("request-id", request_id_);
  for (auto& field : state_->cors.Headers(Origin())) headers.push_back(std::move(field));
  for (const auto& field : access_headers_) headers.push_back(field);
  if (!ignored_.empty()) headers.emplace_back("x-macrame-ignored-fields", ignored_);
  if (!by_model_.empty()) headers.emplace_back("x-macrame-model-dependent-fields", by_model_);
  return headers;
}

net::awaitable<bool> HttpSession::SendError(ApiError error) {
  HttpReply reply;
  reply.status = error.http_status;
  reply.body = DialectErrorBody(dialect_, error, request_id_);
  if (error.retry_after_seconds > 0) {
    reply.headers.emplace_back("retry-after", absl::StrCat(error.retry_after_seconds));
  }
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<bool> HttpSession::SendReply(HttpReply reply) {
  // A body that was not read stands where the next request should; the connection ends here.
  if (BodyIsUnread() || state_->stopping || state_->draining) keep_alive_ = false;
  record_.status = reply.status;
  absl::string_view body = reply.body;
  if (reply.shared_body != nullptr) body = *reply.shared_body;
  if (!reply.fixed_body.empty()) body = reply.fixed_body;
  ReplyHead head;
  head.status = reply.status;
  head.content_type = reply.content_type;
  head.content_length = body.size();
  head.keep_alive = keep_alive_;
  head.headers = CommonHeaders();
  MergeFields(std::move(reply.headers), &head.headers);
  // Its length would have to be that of the body that the client has.
  if (reply.status == 304) head.framing = BodyFraming::kUntilClose;
  std::string bytes = ComposeHead(head);
  const bool head_only = parser_->is_header_done() && parser_->get().method() == http::verb::head;
  if (head_only) body = {};
  // A large body is sent from where it is. A small one leaves in one piece with the head.
  if (body.size() <= kWriteBytesAim) absl::StrAppend(&bytes, std::exchange(body, {}));
  spdlog::debug("gateway: request '{}' answered {} after {} ms", request_id_, reply.status,
                ElapsedMs(started_));
  const bool written = co_await WriteAll(std::move(bytes), body);
  record_.client_gone = !written;
  co_return written&& keep_alive_;
}

net::awaitable<bool> HttpSession::WriteStreamHead(std::string content_type, HeaderFields more) {
  record_.status = 200;
  ReplyHead head;
  head.content_type = content_type;
  const bool chunked = parser_->get().version() >= 11;
  if (!chunked || state_->draining) keep_alive_ = false;
  head.framing = chunked ? BodyFraming::kChunked : BodyFraming::kUntilClose;
  head.keep_alive = keep_alive_;
  head.headers = CommonHeaders();
  head.headers.emplace_back("x-accel-buffering", "no");
  MergeFields(std::move(more), &head.headers);
  co_return co_await WriteAll(ComposeHead(head));
}

net::awaitable<bool> HttpSession::WritePiece(std::string piece) {
  if (parser_->get().version() >= 11) piece = ComposeChunk(piece);
  co_return co_await WriteAll(std::move(piece));
}

net::awaitable<bool> HttpSession::EndStream() {
  bool written = true;
  if (parser_->get().version() >= 11) written = co_await WriteAll(std::string(kLastChunk));
  record_.client_gone = !written;
  co_return written;
}

net::awaitable<bool> HttpSession::WriteAll(std::string bytes, absl::string_view more) {
  if (!stream_.socket().is_open()) co_return false;
  stream_.expires_after(state_->options.write_ms);
  const std::array<net::const_buffer, 2> parts = {net::buffer(bytes),
                                                  net::const_buffer(more.data(), more.size())};
  auto [error, size] = co_await net::async_write(stream_, parts, kAwait);
  record_.bytes_sent += size;
  // Not of a "100 Continue".
  if (!error && record_.status != 0 && !record_.first_byte) record_.first_byte = Clock::now();
  co_return !error;
}

net::awaitable<void> HttpSession::LingerAndClose() {
  beast::error_code error;
  stream_.expires_after(kLingerMs);
  co_await stream_.EndSecurely();
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, error);
  size_t read = 0;
  while (!error && read < kLingerBytesMax) {
    buffer_.clear();
    auto [failure, size] = co_await stream_.async_read_some(buffer_.prepare(16 * 1024), kAwait);
    error = failure;
    read += size;
  }
  stream_.socket().close(error);
}

}  // namespace macrame::agentd
