#include "agentd/gateway/http/exchange.h"

#include <spdlog/spdlog.h>

#include <boost/beast/http/read.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/base/web_url.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/request_id.h"

namespace macrame::agentd {
namespace {

constexpr int kStoppingRetrySeconds = 5;

std::string NewSpanId() {
  // Half of 128 random bits, which are never all zero but for a broken source.
  std::string id = RandomId("").substr(0, kSpanIdDigits);
  if (id.find_first_not_of('0') == std::string::npos) id.back() = '1';
  return id;
}

int64_t UnixOffsetNs() {
  using std::chrono::nanoseconds;
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(wall).count() -
         std::chrono::duration_cast<nanoseconds>(steady).count();
}

}  // namespace

ApiError NodeIsStopping() {
  ApiError error = HttpError(503, "This node is about to stop; ask another one.", "node_stopping");
  error.retry_after_seconds = kStoppingRetrySeconds;
  return error;
}

Exchange::Exchange(HttpConnection& connection)
    : connection_(connection), counted_(connection.state()), own_id_(RandomId("req_")) {
  parser_.header_limit(static_cast<uint32_t>(options().header_bytes_max));
  parser_.body_limit(options().body_bytes_max);
  request_id_ = own_id_;
  record_.client_gone = true;  // until the last byte of its answer is written
  record_.client_address = connection.address();
  record_.begun = Clock::now();
}

net::awaitable<bool> Exchange::Run() {
  HttpStream& stream = connection_.stream();
  stream.expires_after(options().header_ms);
  auto [error, size] =
      co_await http::async_read_header(stream, connection_.buffer(), parser_, kAwait);
  path_ = PathOf(request());
  bool more = false;
  if (error) {
    more = co_await RefuseUnreadable(error);
  } else {
    more = co_await Serve();
  }
  EndRecord();
  if (record_.bytes_received > kLargeBodyBytes) GiveMemoryBackSoon(state());
  co_return more;
}

void Exchange::BeginRequest() {
  dialect_ = DialectOfPath(path_);
  // One path, two APIs: Anthropic's clients say who they are.
  const bool is_of_models = path_ == "/v1/models" || absl::StartsWith(path_, "/v1/models/");
  if (is_of_models && request().count("anthropic-version") > 0) dialect_ = Dialect::kAnthropic;
  TakeRequestId();
  record_.method = MethodName(Plain(request().method_string()));
  endpoint_ = state()->endpoints->Find(path_);
  if (endpoint_ != nullptr) record_.route = std::string(endpoint_->path);
  if (options().traces.take) BeginTrace();
}

net::awaitable<bool> Exchange::Serve() {
  BeginRequest();
  if (auto fault = CheckHead(request(), connection_.arrival(), options().allowed_hosts)) {
    co_return co_await SendError(*std::move(fault));
  }
  keep_alive_ = request().keep_alive() && !state()->draining;
  // Browsers ask without the key that the request itself will have.
  if (endpoint_ != nullptr && request().method() == http::verb::options &&
      state()->cors.Allows(OriginOf(request()))) {
    co_return co_await SendReply(state()->cors.Preflight(
        endpoint_->methods, Plain(request()[http::field::access_control_request_headers])));
  }
  if (auto refusal = CheckAccess()) co_return co_await SendError(*std::move(refusal));
  if (endpoint_ == nullptr) {
    co_return co_await SendError(
        HttpError(404, state()->endpoints->UnknownPathText(), "unknown_path"));
  }
  if (!MethodFits(*endpoint_, Plain(request().method_string()))) {
    co_return co_await SendReply(MethodNotAllowed(*endpoint_, dialect_, request_id_));
  }
  co_return co_await AnswerAt(*endpoint_);
}

net::awaitable<bool> Exchange::AnswerAt(const Endpoint& endpoint) {
  if (endpoint.body == BodyUse::kNone) {
    // What anybody may ask for, and what another machine asks for without a key, gives its
    // connection no hold on its place.
    const bool is_open =
        state()->endpoints->AccessOf(Plain(request().method_string()), path_).is_open;
    connection_.set_is_waiting(is_open ||
                               (principal().key_id.empty() && !connection_.IsFromLoopback()));
  } else if (endpoint.body == BodyUse::kRead) {
    if (state()->refusing) co_return co_await SendError(NodeIsStopping());
    if (auto fault = CheckLimits()) co_return co_await SendError(*std::move(fault));
    if (auto fault = CheckContentType(request(), /*may_be_untold=*/true))
      co_return co_await SendError(*std::move(fault));
    const bool complete = co_await ReadBody();
    if (!complete) co_return false;
  }
  co_return co_await endpoint.answer(*this);
}

net::awaitable<bool> Exchange::RefuseUnreadable(beast::error_code error) {
  keep_alive_ = false;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_return co_await SendError(HttpError(
        431,
        absl::StrCat("The request's head is larger than ", options().header_bytes_max, " bytes."),
        "head_too_large"));
  }
  if (error == http::error::body_limit) {
    // Announced in the head, so it comes before anybody looked at the rest of that.
    if (!own_backend_.has_value()) {
      BeginRequest();
      if (auto fault = CheckHeadAndAccess()) co_return co_await SendError(*std::move(fault));
    }
    co_return co_await SendError(HttpError(
        413, absl::StrCat("The body is larger than ", options().body_bytes_max, " bytes."),
        "body_too_large"));
  }
  // A connection that ended or ran out of time is beyond an answer; only bad HTTP gets one.
  const bool malformed = error.category() == make_error_code(http::error::bad_method).category() &&
                         error != http::error::end_of_stream &&
                         error != http::error::partial_message;
  if (malformed) {
    co_return co_await SendError(
        HttpError(400, absl::StrCat("Malformed HTTP: ", error.message(), "."), "malformed_http"));
  }
  connection_.Close();
  co_return false;
}

std::optional<ApiError> Exchange::CheckHeadAndAccess() {
  if (auto fault = CheckHead(request(), connection_.arrival(), options().allowed_hosts)) {
    return fault;
  }
  return CheckAccess();
}

std::string Exchange::Name() const {
  return endpoint_ == nullptr ? "" : PercentDecode(path_.substr(endpoint_->path.size()));
}

void Exchange::NoteModel(std::string asked, std::string model) {
  asked_model_ = std::move(asked);
  record_.model = std::move(model);
}

void Exchange::NoteFields(std::string ignored, std::string by_model) {
  ignored_ = std::move(ignored);
  by_model_ = std::move(by_model);
}

void Exchange::TakeRequestId() {
  const absl::string_view id = Plain(request()["x-request-id"]);
  if (IsRequestId(id)) request_id_ = std::string(id);
}

std::string Exchange::IdForRank() const {
  // Ranks make ids of tool calls from it, which must differ even where a client sends one id twice.
  return request_id_ == own_id_ ? own_id_ : absl::StrCat(request_id_, "/", own_id_);
}

void Exchange::BeginTrace() {
  // Whoever looks after the agent again and again is traced where it says so itself.
  const double ratio = IsProbe(record_.route) ? 0 : options().traces.ratio;
  auto context = ContextOf(FieldsOf(request(), "traceparent"), FieldsOf(request(), "tracestate"),
                           ratio, [] { return RandomId(""); });
  if (!context.has_value()) return;
  record_.trace_id = context->trace_id;
  traced_.emplace();
  traced_->context = *std::move(context);
  traced_->span_id = NewSpanId();
}

// Tells of the request that is over; nothing of a connection that ended without one.
void Exchange::EndRecord() {
  if (record_.status == 0 && !parser_.is_header_done()) return;
  record_.ended = Clock::now();
  record_.request_id = request_id_;
  spdlog::log(
      IsProbe(record_.route) && record_.status < 400 ? spdlog::level::debug : spdlog::level::info,
      "gateway: {}", AccessLine(record_));
  if (IsSampled()) options().traces.take(SpansOf(record_, *traced_, {UnixOffsetNs(), NewSpanId}));
  if (options().on_request) options().on_request(record_);
}

}  // namespace macrame::agentd
