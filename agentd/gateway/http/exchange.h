#pragma once

// One request and its answer. On the io thread only.
//
// Life: head (limits, deadline), Host, endpoint, who asks, body (limits, deadline), the endpoint's
// answer (one reply or a stream), then access log, trace and metrics.
//
// Ownership: its connection makes it when a request begins, and destroys it when Run has ended and
// before another request is waited for. All that is known of a request is a member here or in a
// coroutine that Run awaits, so nothing of it reaches the next one, and nothing is reset by hand.
// What is called later than that must not name the exchange. What the agent answers (metrics,
// status, orders) is taken by an object of its own that the callback shares. A generation is told
// by its feed, which Close makes deaf. The connection's watch is ended before Run returns.
// A client that leaves, a connection that is closed for another and a gateway that stops end the
// feed and the socket, so Run returns as after an answer. All other waits have limits.
//
// For those who change the coroutines: GCC 12 destroys temporaries of a `?:` inside a co_await
// expression twice. Choose first, await then.

#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/access/gateway_access.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/http_reply.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/dialects/dialect.h"
#include "agentd/gateway/http/endpoint_table.h"
#include "agentd/gateway/http/gateway_state.h"
#include "agentd/gateway/http/http_connection.h"
#include "agentd/gateway/http/request_head.h"
#include "agentd/gateway/http/request_record.h"
#include "agentd/gateway/http/request_trace.h"

namespace macrame::agentd {

class Exchange {
 public:
  explicit Exchange(HttpConnection& connection);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Reads the request and answers it. Whether the connection can take another one.
  boost::asio::awaitable<bool> Run();
  // Whether the request would still be let in, by what its client sent with it. What is left of its
  // rights counts from here.
  bool MayGoOn(const KeyTable& keys, uint64_t now_unix_ms);

  // What follows is for endpoints.
  HttpConnection& connection() { return connection_; }
  const std::shared_ptr<GatewayState>& state() const { return connection_.state(); }
  const GatewayOptions& options() const { return state()->options; }
  const HttpRequest& request() const { return parser_.get(); }
  const std::string& path() const { return path_; }
  // The part of the path behind the endpoint's, where that ends in a slash, without escapes.
  std::string Name() const;
  const std::string& request_id() const { return request_id_; }
  std::string IdForRank() const;
  Dialect dialect() const { return dialect_; }
  RequestRecord& record() { return record_; }
  // Null: the request is not traced.
  TracedRequest* traced() { return traced_.has_value() ? &*traced_ : nullptr; }
  bool IsSampled() const { return traced_.has_value() && traced_->context.is_sampled(); }
  const std::string& asked_model() const { return asked_model_; }
  // The model as the body names it, and as it is called here.
  void NoteModel(std::string asked, std::string model);
  // Names of fields for the answer's header: those without effect, and those that only some models
  // follow.
  void NoteFields(std::string ignored, std::string by_model);

  // exchange_access.cc. What there is for whoever asks, once they were let in (checked).
  PrincipalBackend& Backend() { return own_backend_.value(); }
  const Principal& principal() const { return own_backend_->principal(); }
  Asker WhoAsks() const;
  // Whether the request may come, and as whom. An error is to be sent.
  std::optional<ApiError> CheckAccess();
  // Whether its key has something left of its limits; it counts from here on.
  std::optional<ApiError> CheckLimits();
  // Whether its model may be used.
  std::optional<ApiError> CheckModelAccess(const std::string& model);
  // Tells whoever keeps the audit log that the request was refused.
  void NoteRefused(const ApiError& error, const std::string& key_id) const;

  // exchange_body.cc. The body into the parser; when that fails an error is sent.
  boost::asio::awaitable<bool> ReadBody();
  // As it was announced; nullopt: it was not.
  std::optional<uint64_t> AnnouncedBytes() const;
  // The request was read from it, and it takes no more memory.
  void DropBody() { std::string().swap(parser_.get().body()); }
  // Each of several answers has the whole request: so many bytes beside the body. Nothing: there is
  // room for them.
  boost::asio::awaitable<std::optional<ApiError>> RoomForCopies(size_t bytes);
  // The request's answer has so many bytes of a stored response, which count as a body's until the
  // request ends. Nothing: there is room for them.
  boost::asio::awaitable<std::optional<ApiError>> RoomForStored(size_t bytes);

  // exchange_reply.cc. These return whether the connection can take another request.
  boost::asio::awaitable<bool> SendReply(HttpReply reply);
  boost::asio::awaitable<bool> SendError(ApiError error);
  // A stream: its head, pieces framed as the client's HTTP version wants them, and its end. False:
  // the client is gone.
  boost::asio::awaitable<bool> WriteStreamHead(std::string content_type, HeaderFields more = {});
  boost::asio::awaitable<bool> WritePiece(std::string piece);
  boost::asio::awaitable<bool> EndStream();
  // An answer of known parts that is sent as a stream: its connection goes on as after a reply.
  void EndKeepAliveIfStopping();
  bool keep_alive() const { return keep_alive_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  struct BodyWatch;

  // What the head alone tells: the dialect, the request id and the endpoint.
  void BeginRequest();
  boost::asio::awaitable<bool> Serve();
  // With the body at hand where the endpoint has one; before, what speaks against that.
  boost::asio::awaitable<bool> AnswerAt(const Endpoint& endpoint);
  boost::asio::awaitable<bool> RefuseUnreadable(boost::beast::error_code error);
  std::optional<ApiError> CheckHeadAndAccess();
  // The client's own id, if it sent a proper one.
  void TakeRequestId();
  void BeginTrace();
  void EndRecord();

  AccessQuestion Question() const;
  bool BodyIsUnread() const { return parser_.is_header_done() && !parser_.is_done(); }
  // Until a body of so many bytes has a place among all, for as long as others are waited for.
  boost::asio::awaitable<bool> AwaitRoom(std::optional<BodyPlace>* place, size_t bytes);
  boost::asio::awaitable<bool> AwaitBodyRoom();
  HeaderFields CommonHeaders() const;
  boost::asio::awaitable<bool> Write(std::string bytes, absl::string_view more = {});

  HttpConnection& connection_;
  const CountedRequest counted_;
  Parser parser_;
  std::string path_;          // once the head was read
  std::string request_id_;    // as the client is told
  const std::string own_id_;  // made here; the same, unless the client has one
  RequestRecord record_;
  std::optional<TracedRequest> traced_;  // of a trace, which may be none that is sampled
  const Endpoint* endpoint_ = nullptr;   // null: there is none at its path
  bool keep_alive_ = false;
  std::optional<PrincipalBackend> own_backend_;  // of whoever was let in
  bool by_own_page_ = false;                     // it was let in as the own page's
  std::optional<LimitedRequest> limited_;        // while it counts against its key's limits
  std::optional<BodyPlace> body_place_;          // of the body that is received or answered
  std::optional<BodyPlace> copies_place_;        // of its copies, or of a stored response
  HeaderFields access_headers_;                  // of each answer
  Dialect dialect_ = Dialect::kOpenAi;           // how errors look
  std::string asked_model_;
  std::string ignored_;
  std::string by_model_;
};

// 503: who asks is to ask another node.
ApiError NodeIsStopping();

}  // namespace macrame::agentd
