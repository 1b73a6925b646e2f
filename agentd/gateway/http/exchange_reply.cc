// The part of Exchange that answers: replies, errors and streams as bytes.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {
namespace {

// A larger body is sent from where it is, behind the head.
constexpr size_t kBodyWithHeadBytesMax = 16 * 1024;

// `more` take the place of fields of the same name.
void MergeFields(HeaderFields more, HeaderFields* fields) {
  for (auto& field : more) {
    const auto same = std::find_if(fields->begin(), fields->end(),
                                   [&](const auto& one) { return one.first == field.first; });
    if (same != fields->end()) fields->erase(same);
    fields->push_back(std::move(field));
  }
}

int64_t ElapsedMs(Clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
}

}  // namespace

HeaderFields Exchange::CommonHeaders() const {
  HeaderFields headers;
  headers.emplace_back("date", HttpDate(static_cast<int64_t>(GatewayUnixMs() / 1000)));
  headers.emplace_back("x-request-id", request_id_);
  if (traced_.has_value()) {
    headers.emplace_back("traceresponse", TraceparentOf(traced_->context.trace_id, traced_->span_id,
                                                        traced_->context.flags));
  }
  headers.emplace_back("server", absl::StrCat("macrame/", options().version));
  headers.emplace_back("cache-control", "no-store");
  headers.emplace_back("openai-processing-ms", absl::StrCat(ElapsedMs(record_.begun)));
  if (dialect_ == Dialect::kAnthropic) headers.emplace_back("request-id", request_id_);
  for (auto& field : state()->cors.Headers(OriginOf(request())))
    headers.push_back(std::move(field));
  for (const auto& field : access_headers_) headers.push_back(field);
  if (!ignored_.empty()) headers.emplace_back("x-macrame-ignored-fields", ignored_);
  if (!by_model_.empty()) headers.emplace_back("x-macrame-model-dependent-fields", by_model_);
  return headers;
}

net::awaitable<bool> Exchange::SendError(ApiError error) {
  HttpReply reply;
  reply.status = error.http_status;
  reply.body = DialectErrorBody(dialect_, error, request_id_);
  if (error.retry_after_seconds > 0) {
    reply.headers.emplace_back("retry-after", absl::StrCat(error.retry_after_seconds));
  }
  co_return co_await SendReply(std::move(reply));
}

void Exchange::EndKeepAliveIfStopping() {
  // A body that was not read stands where the next request should; the connection ends here.
  if (BodyIsUnread() || state()->stopping || state()->draining) keep_alive_ = false;
}

net::awaitable<bool> Exchange::SendReply(HttpReply reply) {
  EndKeepAliveIfStopping();
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
  const bool head_only = parser_.is_header_done() && request().method() == http::verb::head;
  if (head_only) body = {};
  if (body.size() <= kBodyWithHeadBytesMax) absl::StrAppend(&bytes, std::exchange(body, {}));
  spdlog::debug("gateway: request '{}' answered {} after {} ms", request_id_, reply.status,
                ElapsedMs(record_.begun));
  const bool written = co_await Write(std::move(bytes), body);
  record_.client_gone = !written;
  co_return written&& keep_alive_;
}

net::awaitable<bool> Exchange::WriteStreamHead(std::string content_type, HeaderFields more) {
  record_.status = 200;
  ReplyHead head;
  head.content_type = content_type;
  const bool chunked = request().version() >= 11;
  if (!chunked || state()->draining) keep_alive_ = false;
  head.framing = chunked ? BodyFraming::kChunked : BodyFraming::kUntilClose;
  head.keep_alive = keep_alive_;
  head.headers = CommonHeaders();
  head.headers.emplace_back("x-accel-buffering", "no");
  MergeFields(std::move(more), &head.headers);
  co_return co_await Write(ComposeHead(head));
}

net::awaitable<bool> Exchange::WritePiece(std::string piece) {
  if (request().version() >= 11) piece = ComposeChunk(piece);
  co_return co_await Write(std::move(piece));
}

net::awaitable<bool> Exchange::EndStream() {
  bool written = true;
  if (request().version() >= 11) written = co_await Write(std::string(kLastChunk));
  record_.client_gone = !written;
  co_return written;
}

net::awaitable<bool> Exchange::Write(std::string bytes, absl::string_view more) {
  const HttpConnection::Written written = co_await connection_.Write(std::move(bytes), more);
  record_.bytes_sent += written.bytes;
  // Not of a "100 Continue".
  if (written.is_whole && record_.status != 0 && !record_.first_byte) {
    record_.first_byte = Clock::now();
  }
  co_return written.is_whole;
}

}  // namespace macrame::agentd
