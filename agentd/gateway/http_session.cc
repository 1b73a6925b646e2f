#include "agentd/gateway/http_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/beast/http/read.hpp>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/base/web_url.h"
#include "agentd/gateway/answer_writers.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/host_policy.h"
#include "agentd/gateway/read_aside.h"
#include "agentd/gateway/routes.h"
#include "agentd/gateway/tenant.h"
#include "transport/socket_address.h"

namespace macrame::agentd {
namespace {

// Requests that a client may send ahead while an answer is on its way.
constexpr size_t kSentAheadBytesMax = 64 * 1024;
constexpr int kStoppingRetrySeconds = 5;
// Browsers and proxies send some thirty. Each takes some 70 bytes beside its text.
constexpr int kHeadFieldsMax = 128;
// The first byte of a TLS connection; no method begins with it (RFC 8446, 5.1).
constexpr unsigned char kTlsHandshake = 0x16;

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string AddressOf(const net::ip::tcp::socket& socket) {
  beast::error_code gone;
  const auto remote = socket.remote_endpoint(gone);
  return gone ? "" : PlainAddress(remote.address()).to_string();
}

}  // namespace

net::ip::address PlainAddress(const net::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6());
}

HttpSession::HttpSession(std::shared_ptr<GatewayState> state, net::ip::tcp::socket socket)
    : state_(std::move(state)),
      address_(AddressOf(socket)),
      counted_as_(transport::CountedAddress(address_)),
      stream_(std::move(socket)),
      buffer_(state_->options.header_bytes_max + kSentAheadBytesMax) {
  state_->sessions.insert(this);
  ++state_->connections;
}

HttpSession::~HttpSession() {
  state_->sessions.erase(this);
  --state_->connections;
}

void HttpSession::Leave() {
  has_left_ = true;
  Abort();
}

void HttpSession::Abort() {
  if (feed_ != nullptr) feed_->ClientGone();
  beast::error_code ignored;
  stream_.socket().close(ignored);
}

net::awaitable<void> HttpSession::Run() {
  beast::error_code ignored;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
  bool more = true;
  if (state_->tls != nullptr) more = co_await SecureIfAsked();
  while (more && !state_->stopping) {
    more = co_await AwaitFirstByte();
    if (!more) break;
    const CountedRequest counted(state_);
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(state_->options.header_bytes_max));
    parser_->body_limit(state_->options.body_bytes_max);
    dialect_ = Dialect::kOpenAi;
    request_id_ = own_id_ = RandomId("req_");
    record_ = {};
    traced_.reset();
    record_.client_gone = true;  // until the last byte of its answer is written
    asked_model_.clear();
    ignored_.clear();
    by_model_.clear();
    access_headers_.clear();
    own_backend_.reset();
    started_ = record_.begun = Clock::now();
    keep_alive_ = false;
    stream_.expires_after(state_->options.header_ms);
    auto [error, size] = co_await http::async_read_header(stream_, buffer_, *parser_, kAwait);
    if (error) {
      more = co_await RefuseUnreadable(error);
    } else {
      more = co_await ServeOne();
    }
    EndRecord();
    if (record_.bytes_received > kLargeBodyBytes) GiveMemoryBackSoon(state_);
    // Nothing of a request stays with a connection that waits for the next one.
    parser_.reset();
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    copies_place_.reset();
    body_place_.reset();
    limited_.reset();
    own_backend_.reset();
  }
  if (stream_.socket().is_open()) co_await LingerAndClose();
}

net::awaitable<bool> HttpSession::SecureIfAsked() {
  const bool has_begun = co_await AwaitFirstByte();
  if (!has_begun) co_return false;
  if (*static_cast<const unsigned char*>(buffer_.data().data()) != kTlsHandshake) co_return true;
  std::shared_ptr<net::ssl::context> context = state_->tls->Current();
  if (context == nullptr) co_return false;  // the agent says why (HTTPS_NOT_READY)
  stream_.expires_after(state_->options.header_ms);
  const beast::error_code error = co_await stream_.Secure(std::move(context), buffer_);
  if (error) spdlog::debug("gateway: {}: no TLS: {}", address_, error.message());
  co_return !error;
}

net::awaitable<bool> HttpSession::AwaitFirstByte() {
  is_waiting_ = true;
  waiting_since_ = Clock::now();
  if (buffer_.size() > 0) co_return true;
  stream_.expires_after(state_->options.idle_ms);
  auto [error, size] = co_await stream_.async_read_some(buffer_.prepare(4096), kAwait);
  if (error) co_return false;
  buffer_.commit(size);
  waiting_since_ = Clock::now();  // a request is on its way: idle ones leave before it
  co_return true;
}

net::awaitable<bool> HttpSession::RefuseUnreadable(beast::error_code error) {
  keep_alive_ = false;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_return co_await SendError(
        HttpError(431,
                  absl::StrCat("The request's head is larger than ",
                               state_->options.header_bytes_max, " bytes."),
                  "head_too_large"));
  }
  if (error == http::error::body_limit) {
    // Announced in the head, so it comes before anybody looked at the rest of that.
    if (!own_backend_.has_value()) {
      BeginRequest(Path());
      if (auto fault = CheckHead()) co_return co_await SendError(*std::move(fault));
      if (auto refusal = CheckAccess(Path())) co_return co_await SendError(*std::move(refusal));
    }
    co_return co_await SendError(HttpError(
        413, absl::StrCat("The body is larger than ", state_->options.body_bytes_max, " bytes."),
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
  beast::error_code ignored;
  stream_.socket().close(ignored);
  co_return false;
}

std::string HttpSession::Path() const {
  absl::string_view target = Plain(parser_->get().target());
  if (absl::StartsWithIgnoreCase(target, "http://")) {
    const size_t slash = target.find('/', 7);
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  return std::string(target.substr(0, target.find('?')));
}

absl::string_view HttpSession::Origin() const { return Plain(parser_->get()[http::field::origin]); }

std::string HttpSession::Authority() const {
  const absl::string_view target = Plain(parser_->get().target());
  if (absl::StartsWithIgnoreCase(target, "http://")) {
    return std::string(target.substr(7, target.find('/', 7) - 7));
  }
  return std::string(Plain(parser_->get()[http::field::host]));
}

bool HttpSession::BodyIsUnread() const {
  return parser_.has_value() && parser_->is_header_done() && !parser_->is_done();
}

std::optional<ApiError> HttpSession::CheckHead() const {
  const auto& request = parser_->get();
  if (std::distance(request.begin(), request.end()) > kHeadFieldsMax) {
    return HttpError(431,
                     absl::StrCat("The request's head has more than ", kHeadFieldsMax, " fields."),
                     "head_too_large");
  }
  const size_t hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() >= 11)) {
    return HttpError(400, "The request must carry one Host header.", "malformed_http");
  }
  if (request.version() != 10 && request.version() != 11) {
    return HttpError(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here.", "malformed_http");
  }
  if (request.count(http::field::content_length) > 1 ||
      request.count(http::field::transfer_encoding) > 1 ||
      (request.count(http::field::transfer_encoding) == 1 &&
       !beast::iequals(request[http::field::transfer_encoding], "chunked"))) {
    return HttpError(400, "The body's length is not stated in one plain way.", "malformed_http");
  }
  // Its key has crossed the network by now; the next one should not.
  if (state_->tls != nullptr && !stream_.is_secure() && !IsFromLoopback()) {
    return HttpError(400, "This gateway speaks TLS to other machines: use https:// here.",
                     "tls_required");
  }
  if (hosts == 0) return std::nullopt;  // HTTP/1.0: no browser
  beast::error_code error;
  const auto local = stream_.socket().local_endpoint(error);
  const bool over_loopback = error || PlainAddress(local.address()).is_loopback();
  if (!IsHostAllowed(HostOf(Authority()), over_loopback, state_->options.allowed_hosts)) {
    return HttpError(403,
                     "This Host is not served here. Use localhost or an address of this machine, "
                     "or have the name added to gateway_hosts in its agentd.yaml.",
                     "host_not_allowed");
  }
  return std::nullopt;
}

std::optional<ApiError> HttpSession::CheckContentType(bool may_be_untold) const {
  const auto& request = parser_->get();
  const absl::string_view encoding = Plain(request[http::field::content_encoding]);
  const absl::string_view type = Plain(request[http::field::content_type]);
  const absl::string_view plain = absl::StripAsciiWhitespace(
      absl::string_view(type.data(), std::min(type.find(';'), type.size())));
  // A web page can send other types anywhere without asking first; this one it can't. Programs that
  // name none, or just bytes, are known from pages in that browsers say where a body comes from.
  // The last one is what `curl -d` says.
  const bool is_untold = plain.empty() || plain == "application/octet-stream" ||
                         absl::EqualsIgnoreCase(plain, "application/x-www-form-urlencoded");
  const bool is_program = may_be_untold && is_untold &&
                          request.find(http::field::origin) == request.end() &&
                          request.find("sec-fetch-site") == request.end();
  if (!is_program && !absl::EqualsIgnoreCase(plain, "application/json")) {
    return HttpError(415, "Send the body as 'content-type: application/json'.",
                     "unsupported_media_type");
  }
  if (!encoding.empty() && encoding != "identity") {
    return HttpError(415, "Send the body without a content-encoding.", "unsupported_media_type");
  }
  return std::nullopt;
}

void HttpSession::BeginRequest(const std::string& path) {
  dialect_ = DialectOfPath(path);
  // One path, two APIs: Anthropic's clients say who they are.
  const bool is_of_models = path == "/v1/models" || absl::StartsWith(path, "/v1/models/");
  if (is_of_models && parser_->get().count("anthropic-version") > 0) {
    dialect_ = Dialect::kAnthropic;
  }
  TakeRequestId();
  record_.method = MethodName(Plain(parser_->get().method_string()));
  if (const Route* route = FindRoute(path)) record_.route = std::string(route->path);
  if (state_->options.traces.take) BeginTrace();
}

net::awaitable<bool> HttpSession::ServeOne() {
  const auto& request = parser_->get();
  const std::string path = Path();
  BeginRequest(path);
  if (auto fault = CheckHead()) co_return co_await SendError(*std::move(fault));
  keep_alive_ = request.keep_alive() && !state_->draining;
  const Route* route = FindRoute(path);
  // Browsers ask without the key that the request itself will have.
  if (route != nullptr && request.method() == http::verb::options &&
      state_->cors.Allows(Origin())) {
    co_return co_await SendReply(state_->cors.Preflight(
        route->methods, Plain(request[http::field::access_control_request_headers])));
  }
  if (auto refusal = CheckAccess(path)) co_return co_await SendError(*std::move(refusal));
  if (route == nullptr) {
    co_return co_await SendError(HttpError(404, UnknownPathText(), "unknown_path"));
  }
  if (!MethodFits(*route, Plain(request.method_string()))) {
    co_return co_await SendReply(MethodNotAllowed(*route, dialect_, request_id_));
  }
  if (!route->has_body) is_waiting_ = GivesWay(path);
  if (IsDashboard(*route)) co_return co_await ServeDashboard(*route, path);
  // Who asks after its health is to send others elsewhere while requests are still taken.
  const bool is_health = route->kind == RouteKind::kHealth;
  if (route->has_body ? state_->refusing : (is_health && state_->draining)) {
    ApiError error =
        HttpError(503, "This node is about to stop; ask another one.", "node_stopping");
    error.retry_after_seconds = kStoppingRetrySeconds;
    co_return co_await SendError(std::move(error));
  }
  if (route->has_body) {
    if (auto fault = CheckLimits()) co_return co_await SendError(*std::move(fault));
    if (auto fault = CheckContentType(/*may_be_untold=*/true))
      co_return co_await SendError(*std::move(fault));
    const bool complete = co_await ReadBody();
    if (!complete) co_return false;
    if (route->kind == RouteKind::kChat) co_return co_await ServeChat();
    if (route->kind == RouteKind::kText) co_return co_await ServeText();
    if (route->kind == RouteKind::kEmbeddings) co_return co_await ServeEmbeddings();
    co_return co_await ServeDialect(route->kind);
  }
  if (route->kind == RouteKind::kStoredResponse) {
    co_return co_await ServeStoredResponse(PercentDecode(path.substr(route->path.size())));
  }
  if (route->kind == RouteKind::kMetrics && state_->options.metrics) {
    co_return co_await ServeMetrics();
  }
  auto reply = AnswerSimpleRoute(*route, path, state_->options, Backend(), dialect_);
  if (auto* error = std::get_if<ApiError>(&reply)) co_return co_await SendError(std::move(*error));
  co_return co_await SendReply(std::move(std::get<HttpReply>(reply)));
}

net::awaitable<bool> HttpSession::ServeChat() {
  auto parsed = co_await ReadAside(ParseChatRequest);
  co_return co_await ServeAs(std::move(parsed), AnswerForm::kChat, "chatcmpl-");
}

net::awaitable<bool> HttpSession::ServeText() {
  auto parsed = co_await ReadAside(ParseTextRequest);
  if (auto* error = std::get_if<ApiError>(&parsed)) co_return co_await SendError(std::move(*error));
  TextRequest& text = std::get<TextRequest>(parsed);
  AnswerHead head = HeadOf(text, "cmpl-");
  head.form = AnswerForm::kText;
  if (auto fault = CheckModelAccess(head.model)) co_return co_await SendError(*std::move(fault));
  const size_t answers = text.prompts.size() * text.choices;
  std::optional<ApiError> no_room = co_await RoomForCopies(
      (text.choices - 1) * record_.bytes_received + (answers - 1) * text.generate.ByteSizeLong());
  if (no_room.has_value()) co_return co_await SendError(*std::move(no_room));
  std::vector<v1::GenerateRequest> requests = RequestsOfPrompts(text);
  head.choices = static_cast<uint32_t>(requests.size());
  if (text.echo) {
    for (const v1::GenerateRequest& one : requests) head.echoes.push_back(one.prompt());
  }
  co_return co_await Answer(std::move(head), std::move(requests), text.stream);
}

net::awaitable<bool> HttpSession::ServeEmbeddings() {
  auto parsed = co_await ReadAside(ParseEmbeddingRequest);
  co_return co_await ServeInputs(std::move(parsed), AnswerForm::kEmbedding);
}

// Sets what of the request the connection knows, too.
AnswerHead HttpSession::HeadOf(AnswerRequest& answer, const char* id_prefix) {
  ignored_ = absl::StrJoin(answer.ignored, ",");
  by_model_ = absl::StrJoin(answer.by_model, ",");
  answer.generate.set_request_id(IdForRank());
  asked_model_ = answer.generate.deployment();
  answer.generate.set_deployment(
      state_->options.aliases.Resolve(answer.generate.deployment(), Backend()));
  record_.model = answer.generate.deployment();
  SetTenant(WhoAsks(), &answer.generate);
  AnswerHead head;
  head.id = RandomId(id_prefix);
  head.request_id = request_id_;
  head.created_unix_seconds = UnixSeconds();
  head.model = answer.generate.deployment();
  head.system_fingerprint = absl::StrCat("macrame-", state_->options.version);
  head.include_usage = answer.include_usage;
  head.tells_progress = answer.return_progress;
  head.choices_per_prompt = answer.choices;
  head.has_logprobs = answer.generate.has_top_logprobs();
  return head;
}

net::awaitable<bool> HttpSession::Answer(AnswerHead head, std::vector<v1::GenerateRequest> requests,
                                         bool stream) {
  if (auto fault = CheckModelAccess(head.model)) co_return co_await SendError(*std::move(fault));
  // The request is read from it.
  std::string().swap(parser_->get().body());
  const GatewayOptions& options = state_->options;
  GenerationFeed::Bounds bounds;
  bounds.buffered_bytes = stream ? options.unsent_bytes_max : options.answer_bytes_max;
  if (IsEmbedding(head.form)) {
    // Collecting them waits for no client: what is too much is said there.
    bounds = {2 * options.embeddings_bytes_max, kInputsAtOnceMax, kInputQueuePatience};
  }
  bounds.is_whole = !stream;
  for (v1::GenerateRequest& request : requests) request.set_progress(true);
  // The others wait behind it, and behind one another.
  requests.front().set_queue_limit_ms(static_cast<uint32_t>(options.queue_limit.count()));
  if (traced_.has_value()) {
    traced_->operation = OperationOf(head.form);
    traced_->answer_id = head.id;
    traced_->choices_per_prompt = head.choices_per_prompt;
  }
  if (IsTraced()) {
    bounds.keeps_facts = true;
    for (v1::GenerateRequest& request : requests) request.set_timings(true);
  }
  record_.handed_on = Clock::now();
  feed_ = GenerationFeed::Start(state_->io, Backend(), std::move(requests), bounds);
  auto watch = StartWatch();
  bool more = false;
  if (stream) {
    more = co_await StreamAnswer(std::move(head));
  } else if (IsEmbedding(head.form)) {
    more = co_await CollectAnswer<CollectedEmbedding>(std::move(head), EmbeddingListBody);
  } else if (IsOfTokens(head.form)) {
    more = co_await CollectAnswer<CollectedTokens>(std::move(head), TokensBody);
  } else if (head.form == AnswerForm::kText) {
    more = co_await CollectAnswer<CollectedText>(std::move(head), TextCompletionBody);
  } else {
    more = co_await CollectAnswer<CollectedAnswer>(std::move(head), AnswerBody);
  }
  if (stream) record_.first_piece = feed_->first_piece_at();
  if (IsTraced()) KeepFacts();
  feed_->Close();
  feed_.reset();
  co_await EndWatch(watch);
  co_return more;
}

}  // namespace macrame::agentd
