#pragma once

// One connection: reads requests one after the other, checks them, answers. On the io thread only.
//
// Life of a request: head (limits, deadline) → Host → route → body (limits, deadline) →
// request checked → generation → body or event stream. While an answer is on its way the
// connection is read from as well: its end cancels the generation, and what a client has sent ahead
// waits for its turn.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "agentd/dashboard/snapshot_cache.h"
#include "agentd/gateway/answer_stream.h"
#include "agentd/gateway/api_error.h"
#include "agentd/gateway/chat_answer.h"
#include "agentd/gateway/chat_request.h"
#include "agentd/gateway/cluster_orders.h"
#include "agentd/gateway/connection_room.h"
#include "agentd/gateway/dialect.h"
#include "agentd/gateway/embedding_answer.h"
#include "agentd/gateway/embedding_request.h"
#include "agentd/gateway/gateway_access.h"
#include "agentd/gateway/gateway_state.h"
#include "agentd/gateway/generation_feed.h"
#include "agentd/gateway/http_reply.h"
#include "agentd/gateway/http_stream.h"
#include "agentd/gateway/ollama_answer.h"
#include "agentd/gateway/request_record.h"
#include "agentd/gateway/request_trace.h"
#include "agentd/gateway/response_store.h"
#include "agentd/gateway/routes.h"
#include "agentd/gateway/tenant.h"
#include "agentd/gateway/text_answer.h"
#include "agentd/gateway/text_request.h"
#include "agentd/gateway/token_answer.h"

namespace macrame::agentd {

// The address; IPv4 as such also where a dual-stack socket shows it as a mapped one.
boost::asio::ip::address PlainAddress(const boost::asio::ip::address& address);

// For those who change the coroutines: GCC 12 destroys temporaries of a `?:` inside a co_await
// expression twice. Choose first, await then.
class HttpSession {
 public:
  HttpSession(std::shared_ptr<GatewayState> state, boost::asio::ip::tcp::socket socket);
  ~HttpSession();

  // Until the connection is closed.
  boost::asio::awaitable<void> Run();
  // Closes the connection; Run ends soon after.
  void Abort();
  // Decides again on the request under way, by what its client sent with it. Ends it, and so the
  // connection, when it would not be let in any more; what is left of its rights counts from here.
  void RecheckAccess(const KeyTable& keys, uint64_t now_unix_ms);
  // Whose it is, and whether anything is done for it.
  ConnectionView View() const { return {counted_as_, is_waiting_, waiting_since_}; }
  // It was closed for another: it has no place any more.
  bool has_left() const { return has_left_; }
  void Leave();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  struct BodyWatch;
  struct ClientWatch;
  struct PendingPage;
  struct PendingOrder;

  // What the head alone tells: the dialect, the request id and the route.
  void BeginRequest(const std::string& path);
  // These return whether the connection can take another request.
  boost::asio::awaitable<bool> ServeOne();
  // With the body at hand.
  boost::asio::awaitable<bool> ServeChat();
  boost::asio::awaitable<bool> ServeText();
  boost::asio::awaitable<bool> ServeEmbeddings();
  // What other APIs than OpenAI's chats, texts and embeddings are asked, by the route.
  boost::asio::awaitable<bool> ServeDialect(RouteKind kind);
  boost::asio::awaitable<bool> ServeAs(std::variant<ChatRequest, ApiError> parsed, AnswerForm form,
                                       const char* id_prefix);
  boost::asio::awaitable<bool> ServeInputs(std::variant<EmbeddingRequest, ApiError> parsed,
                                           AnswerForm form);
  boost::asio::awaitable<bool> ServeResponse();
  // GET and DELETE of one that was kept.
  boost::asio::awaitable<bool> ServeStoredResponse(std::string id);
  struct StoredText {
    ResponseStore::Text text;
    uint64_t since_unix_ms = 0;  // of its turn
  };
  // One text of a stored response, once there is room for it. Nothing of the response is held while
  // that is waited for. `is_previous`: a request goes on from it.
  boost::asio::awaitable<std::variant<StoredText, ApiError>> TakeStored(
      std::string id, ResponseStore::Text ResponseStore::Turn::*which, bool is_previous);
  boost::asio::awaitable<bool> ServeOllama(RouteKind kind);
  boost::asio::awaitable<bool> ServeOllamaModel();
  // What a request with TokenizeOptions is answered.
  boost::asio::awaitable<absl::StatusOr<v1::GenerateChunk>> AskForTokens(
      std::string model, v1::GenerateRequest request);
  // What requests of the model may ask for, as its entry rank has it.
  boost::asio::awaitable<ModelAbilities> AbilitiesOf(std::string model);
  boost::asio::awaitable<bool> ServeMetrics();
  // http_session_dashboard.cc
  boost::asio::awaitable<bool> ServeDashboard(const Route& route, std::string path);
  boost::asio::awaitable<bool> SendPage(std::string path);
  // The status as JSON, not older than about a second; null when the agent does not tell it.
  boost::asio::awaitable<std::shared_ptr<const dashboard::Snapshot>> FreshSnapshot();
  // What of the newest whoever asks may know.
  std::shared_ptr<const dashboard::Snapshot> KnownSnapshot();
  boost::asio::awaitable<bool> SendSnapshot();
  boost::asio::awaitable<bool> SendLatencies();
  boost::asio::awaitable<bool> StreamSnapshots();
  boost::asio::awaitable<bool> PumpSnapshots(std::shared_ptr<ClientWatch> watch);
  bool HasEtag(absl::string_view etag) const;
  // http_session_orders.cc
  boost::asio::awaitable<bool> ServeOrder(const Route& route);
  boost::asio::awaitable<bool> GiveOrderAndAnswer(ClusterOrder order);
  boost::asio::awaitable<bool> SendAccess();
  // Whether the request says of itself that it comes from the page that this gateway serves, opened
  // on this machine.
  bool IsOwnPage() const;
  // The connection's other end is a program of somebody whom this agent obeys on its socket.
  bool IsOfObeyedUser();
  bool FindObeyedUser() const;
  AnswerHead HeadOf(AnswerRequest& answer, const char* id_prefix);
  boost::asio::awaitable<bool> Answer(AnswerHead head, std::vector<v1::GenerateRequest> requests,
                                      bool stream);
  boost::asio::awaitable<bool> StreamAnswer(AnswerHead head);
  // One body: `Collected` puts an answer together, `body_of` all of them.
  template <typename Collected>
  boost::asio::awaitable<bool> CollectAnswer(AnswerHead head,
                                             std::string (*body_of)(const AnswerHead&,
                                                                    const std::vector<Collected>&));
  boost::asio::awaitable<bool> SendReply(HttpReply reply);
  // In pieces, so that no more than one of them stands as text.
  boost::asio::awaitable<bool> SendEmbeddings(AnswerHead head,
                                              std::vector<CollectedEmbedding> embeddings);
  boost::asio::awaitable<bool> SendError(ApiError error);
  boost::asio::awaitable<bool> RefuseUnreadable(boost::beast::error_code error);

  boost::asio::awaitable<bool> AwaitFirstByte();
  // Where the gateway has a certificate and the client begins a TLS handshake, to its end. False:
  // the connection is of no use.
  boost::asio::awaitable<bool> SecureIfAsked();
  bool IsFromLoopback() const;
  // http_session_body.cc
  // Until a body of so many bytes has a place among all, for as long as others are waited for.
  boost::asio::awaitable<bool> AwaitRoom(std::optional<BodyPlace>* place, size_t bytes);
  boost::asio::awaitable<bool> AwaitBodyRoom();
  // Each of several answers has the whole request: so many bytes beside the body. Nothing: there is
  // room for them.
  boost::asio::awaitable<std::optional<ApiError>> RoomForCopies(size_t bytes);
  // The request's answer has so many bytes of a stored response, which count as a body's until the
  // request ends. Nothing: there is room for them.
  boost::asio::awaitable<std::optional<ApiError>> RoomForStored(size_t bytes);
  // The body into the parser; an error reply is sent when that fails.
  boost::asio::awaitable<bool> ReadBody();
  // read_aside.h: what `read` makes of the body and of how deep it may be: here when that is small,
  // else on the thread for large ones, so that nobody else waits for it. It touches nothing else of
  // this session.
  template <typename Result>
  boost::asio::awaitable<Result> ReadAside(Result (*read)(absl::string_view body, size_t depth));
  template <typename Result>
  boost::asio::awaitable<Result> ReadAside(std::function<Result(absl::string_view, size_t)> read);
  // `more` is sent behind `bytes`, and is not copied: it lives until then.
  boost::asio::awaitable<bool> WriteAll(std::string bytes, absl::string_view more = {});
  boost::asio::awaitable<bool> WriteStreamHead(std::string content_type, HeaderFields more = {});
  // One piece of a stream, framed as the client's HTTP version wants it.
  boost::asio::awaitable<bool> WritePiece(std::string piece);
  boost::asio::awaitable<bool> EndStream();
  // Events up to the end, beginning with `event`; false when the client is gone.
  boost::asio::awaitable<bool> PumpEvents(AnswerStream& composer, GenerationFeed::Event event,
                                          std::string model);
  // It is no longer among those that are asked for.
  bool WasUnloaded(const std::string& model);
  boost::asio::awaitable<bool> SendGenerationFailure(absl::Status status, std::string model);
  // Of one of several answers that go into one body.
  boost::asio::awaitable<bool> SendFailureOf(uint32_t choice, absl::Status status, AnswerHead head);
  boost::asio::awaitable<void> LingerAndClose();

  boost::asio::awaitable<void> WatchClient(std::shared_ptr<ClientWatch> watch);
  std::shared_ptr<ClientWatch> StartWatch();
  boost::asio::awaitable<void> EndWatch(std::shared_ptr<ClientWatch> watch);

  // The faults of a request's head, before any route is looked at.
  std::optional<ApiError> CheckHead() const;
  // `may_be_untold`: programs that name no type, or just bytes, send JSON all the same.
  std::optional<ApiError> CheckContentType(bool may_be_untold) const;
  // What decides on the request under way. Its texts are the parser's and `path`'s.
  AccessQuestion QuestionOf(const std::string& path) const;
  // Whether a request without a body gives its connection no hold on its place: what anybody may
  // ask for, and what another machine asks for without a key.
  bool GivesWay(const std::string& path) const;
  // Whether the request may come, and as whom (principal, limits). An error is to be sent.
  std::optional<ApiError> CheckAccess(const std::string& path);
  // Whether its key has something left of its limits; it counts from here on.
  std::optional<ApiError> CheckLimits();
  // Whether its model may be used.
  std::optional<ApiError> CheckModelAccess(const std::string& model);
  // As whoever asks may be told of it.
  ApiError FailureOf(const absl::Status& status, const std::string& model);
  // A request was refused: whoever keeps the audit log is told.
  void NoteRefused(const ApiError& error, const std::string& key_id) const;
  Asker WhoAsks() const;
  // What there is for whoever asks.
  InferenceBackend& Backend();
  std::string Path() const;
  std::string Authority() const;
  bool BodyIsUnread() const;
  HeaderFields CommonHeaders() const;
  void LogFailure(const absl::Status& status) const;
  absl::string_view Origin() const;
  // The client's own id, if it sent a proper one.
  void TakeRequestId();
  std::string IdForRank() const;
  void EndRecord();
  // http_session_trace.cc: whether the request is traced, what is kept of its answers, its end.
  void BeginTrace();
  void KeepFacts();
  void EndTrace();
  bool IsTraced() const { return traced_.has_value() && traced_->context.is_sampled(); }

  std::shared_ptr<GatewayState> state_;
  const std::string address_;
  const std::string counted_as_;  // where addresses have shares (transport::CountedAddress)
  bool is_waiting_ = true;
  bool has_left_ = false;
  std::chrono::steady_clock::time_point waiting_since_ = std::chrono::steady_clock::now();
  HttpStream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<GenerationFeed> feed_;  // the generation under way
  std::string request_id_;                // as the client is told
  std::string own_id_;                    // made here; the same, unless the client has one
  RequestRecord record_;
  std::optional<TracedRequest> traced_;  // of a trace, which may be none that is sampled
  std::chrono::steady_clock::time_point started_;
  bool keep_alive_ = false;
  std::optional<bool> is_of_obeyed_user_;        // once it was looked at
  std::optional<PrincipalBackend> own_backend_;  // of the request's principal
  bool by_own_page_ = false;                     // it was let in as the own page's
  std::optional<LimitedRequest> limited_;        // while it counts against its key's limits
  std::optional<BodyPlace> body_place_;          // of the body that is received or answered
  std::optional<BodyPlace> copies_place_;        // of its copies, or of a stored response
  HeaderFields access_headers_;                  // of each answer to this request
  Dialect dialect_ = Dialect::kOpenAi;           // of the request's path: how errors look
  std::string asked_model_;                      // as the body names it
  std::string ignored_;                          // names of fields without effect, for a header
  std::string by_model_;                         // and of those that only some models follow
};

}  // namespace macrame::agentd
