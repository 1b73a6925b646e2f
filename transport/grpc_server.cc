#include "transport/grpc_server.h"

#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "transport/byte_buffers.h"
#include "transport/call_places.h"
#include "transport/call_reactor.h"
#include "transport/client_hello.h"
#include "transport/connection_gate.h"
#include "transport/peer_channel.h"
#include "transport/status_codec.h"
#include "transport/tcp_acceptor.h"
#include "transport/tls_credentials.h"
#include "transport/trust.h"
#include "transport/unix_socket.h"

namespace macrame::transport {
namespace {

enum class Edge { kLocal, kTls, kPlain };

// "ipv4:10.0.0.7:4711" and "ipv6:%5Bfd00::7%5D:4711" → the address. Empty when it is neither.
std::string AddressOfPeer(const std::string& peer) {
  const bool is_v6 = absl::StartsWith(peer, "ipv6:");
  if (!is_v6 && !absl::StartsWith(peer, "ipv4:")) return "";
  std::string host = absl::StrReplaceAll(peer.substr(5), {{"%5B", "["}, {"%5D", "]"}});
  host.resize(std::min(host.size(), host.rfind(':')));
  if (is_v6 && host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  // A dual-stack socket shows IPv4 callers as mapped addresses.
  if (absl::StartsWith(host, "::ffff:") && host.find('.') != std::string::npos)
    host = host.substr(7);
  return host;
}

// Whom the caller says that it is; empty: it says nothing.
NodeId SaidNode(const grpc::GenericCallbackServerContext& context) {
  const auto found = context.client_metadata().find("macrame-node-id");
  if (found == context.client_metadata().end()) return NodeId();
  const std::string id(found->second.data(), found->second.size());
  return IsValidNodeId(id) ? NodeId(id) : NodeId();
}

// Who calls, by certificate, by socket, or (plain TCP) by its own word. Empty and not local: nobody
// that we know.
Caller IdentifyCaller(const grpc::GenericCallbackServerContext& context, Edge edge) {
  Caller caller;
  if (edge == Edge::kLocal) {
    caller.local = true;
    caller.node_id = SaidNode(context);
    return caller;
  }
  caller.address = AddressOfPeer(context.peer());
  if (edge == Edge::kPlain) {
    caller.node_id = SaidNode(context);
    return caller;
  }
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return caller;
  for (const grpc::string_ref& name : auth->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    const std::string_view text(name.data(), name.size());
    const NodeId id = NodeIdFromTlsName(text);
    if (!id.value().empty()) caller.node_id = id;
    if (std::string key = KeyIdFromTlsName(text); !key.empty()) caller.key_id = std::move(key);
  }
  // A certificate of this authority names a node or a key.
  if (!caller.key_id.empty()) caller.node_id = NodeId();
  return caller;
}

// What handlers hold: when the last copy goes without a word, the caller is told so.
class GrpcCall final : public ServerStream::Call {
 public:
  explicit GrpcCall(std::shared_ptr<CallReactor> reactor) : reactor_(std::move(reactor)) {}
  ~GrpcCall() override { reactor_->End(absl::InternalError("the agent dropped the call")); }

  bool Write(const google::protobuf::MessageLite& message) override {
    return reactor_->Write(message);
  }
  void Answer(const google::protobuf::MessageLite& message) override { reactor_->Answer(message); }
  void Finish(const absl::Status& status) override { reactor_->End(status); }
  void OnCancel(std::function<void()> on_cancel) override {
    reactor_->NotifyCancel(std::move(on_cancel));
  }

 private:
  const std::shared_ptr<CallReactor> reactor_;
};

}  // namespace

struct GrpcServer::Parts {
  Parts(Dispatcher& dispatcher_in, Duration limit)
      : dispatcher(dispatcher_in), message_limit(limit) {}

  struct Method {
    Access access;
    Remote remote;
    std::function<MessagePtr()> make;
    const google::protobuf::Descriptor* type;  // of what it makes
    AnyHandler handler;
  };

  class Service : public grpc::CallbackGenericService {
   public:
    explicit Service(Parts& parts) : parts_(parts) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      return parts_.OpenCall(context);
    }

   private:
    Parts& parts_;
  };

  // gRPC's server with one set of credentials.
  struct Serving {
    explicit Serving(Parts& parts) : service(parts) {}
    ~Serving() { End(Duration::zero()); }
    void End(Duration grace) {
      if (server == nullptr) return;
      server->Shutdown(std::chrono::system_clock::now() + grace);
      server->Wait();
      server.reset();
    }
    Service service;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections;
    std::unique_ptr<grpc::Server> server;
  };

  grpc::ServerGenericBidiReactor* OpenCall(grpc::GenericCallbackServerContext* context);
  // At a unix socket's target, or (empty) for what the acceptor lets in. Null: it did not start.
  std::unique_ptr<Serving> Start(const std::string& target,
                                 std::shared_ptr<grpc::ServerCredentials> credentials);
  // False, and the call is not counted, when the caller is revoked.
  bool NoteCall(const Caller& caller, Remote remote, const std::shared_ptr<CallReactor>& call);
  // OK, or why a caller of that kind is never answered. Any thread.
  absl::Status CheckKind(const std::string& path, const Method& method, const Caller& caller) const;
  // Owner thread.
  void Observe(const Caller& caller, std::string_view path,
               const google::protobuf::MessageLite& request,
               const std::weak_ptr<CallReactor>& watched);
  absl::Status CheckCaller(const Method& method, const Caller& caller) const;
  // Whether a call may be read; begins to. Owner thread.
  void Admit(std::string_view path, const Method& method, const Caller& caller,
             const std::shared_ptr<CallReactor>& call);
  // Reads it, once it has a place. Any thread.
  void Enter(const Caller& caller, bool has_members_place,
             const std::shared_ptr<CallReactor>& call);
  // A member's call waits for no one, and what its caller asks for and leaves is done all the same:
  // whether it still is one is looked at with the message at hand.
  bool WasMember(const NodeId& node);
  void NoteMember(const NodeId& node, bool is_one);
  // On gRPC's thread, with the request at hand.
  void Deliver(std::string_view path, const Method& method, const Caller& caller,
               std::shared_ptr<CallReactor> call, const grpc::ByteBuffer& buffer);

  Dispatcher& dispatcher;
  const Duration message_limit;
  std::map<std::string, Method, std::less<>> methods;  // fixed once started
  std::function<bool(const NodeId&)> is_member;        // likewise
  PersonCheck person_check;                            // likewise
  Observer observer;                                   // likewise
  Edge edge = Edge::kLocal;
  const std::shared_ptr<CallPlaces> places = std::make_shared<CallPlaces>();
  // Gone with the server, so that a call still queued on the owner thread does nothing.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  std::mutex present_mutex;          // never held with the other
  std::unique_ptr<Serving> present;  // replaced under it: the acceptor's thread uses it
  std::unique_ptr<Serving> former;   // of the credentials before: new connections don't come here
  std::mutex mutex;
  std::set<NodeId> revoked;                              // under the mutex
  std::set<NodeId> were_members;                         // when last looked at; under the mutex
  std::vector<std::weak_ptr<CallReactor>> calls_by_tls;  // under the mutex
  std::unique_ptr<TcpAcceptor> acceptor;
};

bool GrpcServer::Parts::NoteCall(const Caller& caller, Remote remote,
                                 const std::shared_ptr<CallReactor>& call) {
  call->SetCaller(caller.node_id, caller.key_id, remote);
  const std::lock_guard lock(mutex);
  if (revoked.contains(caller.node_id)) return false;
  if (calls_by_tls.size() >= 2 * static_cast<size_t>(kCallsMax)) {
    std::erase_if(calls_by_tls, [](const auto& weak) { return weak.expired(); });
  }
  calls_by_tls.push_back(call);
  return true;
}

void GrpcServer::Parts::Observe(const Caller& caller, std::string_view path,
                                const google::protobuf::MessageLite& request,
                                const std::weak_ptr<CallReactor>& watched) {
  const std::shared_ptr<CallReactor> call = watched.lock();
  if (!observer || call == nullptr) return;
  OnEnded on_ended = observer(caller, path, request);
  if (!on_ended) return;
  call->NotifyEnded([weak = std::weak_ptr<bool>(alive), on_ended](const absl::Status& status) {
    if (!weak.expired()) on_ended(status);
  });
}

absl::Status GrpcServer::Parts::CheckCaller(const Method& method, const Caller& caller) const {
  if (!caller.key_id.empty()) {
    return person_check ? person_check(caller.key_id, method.remote)
                        : absl::PermissionDeniedError("no access file is taken here");
  }
  if (method.access != Access::kMember || caller.local) return absl::OkStatus();
  if (is_member && is_member(caller.node_id)) return absl::OkStatus();
  v1::Reason reason = MakeReason(
      reasons::kNotReady,
      absl::StrCat("the node that was asked does not know node ", ShortId(caller.node_id),
                   ", which passed this on, as a member yet: no heartbeat of it came in"));
  reason.set_remedy(
      "try again in a second; if it stays so, 'clusterctl links' tells whether the two reach each "
      "other");
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
}

absl::Status GrpcServer::Parts::CheckKind(const std::string& path, const Method& method,
                                          const Caller& caller) const {
  if (caller.local) return absl::OkStatus();
  if (!caller.key_id.empty()) {
    if (method.remote != Remote::kNobody) return absl::OkStatus();
    return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kLocalOnly,
                        absl::StrCat(path, " is not answered to an access file"));
  }
  if (caller.node_id.value().empty()) {
    return absl::UnauthenticatedError("the caller shows no node id");
  }
  if (method.access != Access::kLocal) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kLocalOnly,
                      absl::StrCat(path, " is answered on the agent's own machine alone"));
}

grpc::ServerGenericBidiReactor* GrpcServer::Parts::OpenCall(
    grpc::GenericCallbackServerContext* context) {
  auto reactor = std::make_shared<CallReactor>(dispatcher, places);
  CallReactor* const raw = reactor.get();
  const auto found = methods.find(context->method());
  if (found == methods.end()) {
    reactor->Refuse(absl::UnimplementedError(
        absl::StrCat("this agent does not know ", context->method(), "; do the versions differ?")));
    return raw;
  }
  const Caller caller = IdentifyCaller(*context, edge);
  if (absl::Status kind = CheckKind(found->first, found->second, caller); !kind.ok()) {
    reactor->Refuse(kind);
    return raw;
  }
  if (!caller.local && !NoteCall(caller, found->second.remote, reactor)) {
    reactor->Refuse(ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNodeRevoked,
                                 "the caller was taken out of this cluster",
                                 caller.node_id.value()));
    return raw;
  }
  const std::string_view path = found->first;
  const Method* method = &found->second;
  reactor->Begin(method->type, [this, path, method, caller](std::shared_ptr<CallReactor> call,
                                                            const grpc::ByteBuffer& buffer) {
    Deliver(path, *method, caller, std::move(call), buffer);
  });
  if (caller.local || (caller.key_id.empty() && WasMember(caller.node_id))) {
    Enter(caller, /*has_members_place=*/true, reactor);
    return raw;
  }
  dispatcher.Post(
      [this, weak = std::weak_ptr<bool>(alive), path, method, caller, call = std::move(reactor)] {
        if (!weak.expired()) Admit(path, *method, caller, call);
      });
  return raw;
}

void GrpcServer::Parts::Admit(std::string_view path, const Method& method, const Caller& caller,
                              const std::shared_ptr<CallReactor>& call) {
  const absl::Status allowed = CheckCaller(method, caller);
  if (!allowed.ok()) {
    Observe(caller, path, *method.make(), call);  // what it asks for is not read
    return call->End(allowed);
  }
  const bool is_one = caller.key_id.empty() && is_member && is_member(caller.node_id);
  NoteMember(caller.node_id, is_one);
  Enter(caller, is_one, call);
}

bool GrpcServer::Parts::WasMember(const NodeId& node) {
  const std::lock_guard lock(mutex);
  return were_members.contains(node);
}

void GrpcServer::Parts::NoteMember(const NodeId& node, bool is_one) {
  const std::lock_guard lock(mutex);
  if (is_one) {
    were_members.insert(node);
  } else {
    were_members.erase(node);
  }
}

void GrpcServer::Parts::Enter(const Caller& caller, bool has_members_place,
                              const std::shared_ptr<CallReactor>& call) {
  absl::StatusOr<CallPlaces::Place> place = places->Take(caller, has_members_place);
  if (!place.ok()) return call->End(place.status());
  if (!call->Enter(*place)) return places->GiveBack(*place);
  if (caller.local) return call->StartReading(std::nullopt);
  if (caller.key_id.empty()) return call->StartReading(message_limit);
  const std::weak_ptr<CallReactor> waiting = call;
  places->Read(caller.key_id, waiting,
               [waiting, places = places, key_id = caller.key_id, limit = message_limit] {
                 if (const auto begun = waiting.lock()) return begun->StartReading(limit);
                 places->EndRead(key_id);
               });
}

void GrpcServer::Parts::Deliver(std::string_view path, const Method& method, const Caller& caller,
                                std::shared_ptr<CallReactor> call, const grpc::ByteBuffer& buffer) {
  MessagePtr message = method.make();
  if (!FromByteBuffer(buffer, message.get())) {
    return call->End(absl::InvalidArgumentError("the request can't be parsed"));
  }
  ServerStream stream(std::make_shared<GrpcCall>(call));
  dispatcher.Post([this, weak = std::weak_ptr<bool>(alive), path, method = &method, caller,
                   message = std::move(message), call = std::move(call), stream] {
    if (weak.expired() || !call->TakeUp()) return;
    Observe(caller, path, *message, call);
    // Of persons this was asked, and what changed since has ended the call.
    const bool is_node = caller.key_id.empty();
    const absl::Status allowed = is_node ? CheckCaller(*method, caller) : absl::OkStatus();
    if (allowed.ok()) {
      method->handler(caller, message, stream);
      return call->NoteHandled();
    }
    NoteMember(caller.node_id, false);
    stream.Finish(allowed);
  });
}

std::unique_ptr<GrpcServer::Parts::Serving> GrpcServer::Parts::Start(
    const std::string& target, std::shared_ptr<grpc::ServerCredentials> credentials) {
  auto serving = std::make_unique<Serving>(*this);
  grpc::ServerBuilder builder;
  if (target.empty()) {
    serving->connections = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        std::move(credentials));
  } else {
    builder.AddListeningPort(target, std::move(credentials));
  }
  builder.RegisterCallbackGenericService(&serving->service);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                                  kHandshakeLimit - kFirstBytesLimit)
                                                  .count()));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  // The kernel says when a process at the other end of a unix socket is gone. One that is stopped
  // for a while (Ctrl-Z, a busy machine) is not, and goes on where it was.
  if (target.empty()) {
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  }
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  serving->server = builder.BuildAndStart();
  if (serving->server == nullptr) return nullptr;
  return serving;
}

GrpcServer::GrpcServer(Dispatcher& dispatcher, Duration message_limit)
    : parts_(std::make_unique<Parts>(dispatcher, message_limit)) {}

GrpcServer::~GrpcServer() { Stop(Duration::zero()); }

void GrpcServer::HandleAny(std::string_view method, Access access, Remote remote,
                           std::function<MessagePtr()> make, AnyHandler handler) {
  MACRAME_CHECK(parts_->present == nullptr) << "methods are registered before the start";
  const MessagePtr empty = make();
  const auto* type = dynamic_cast<const google::protobuf::Message&>(*empty).GetDescriptor();
  parts_->methods[std::string(method)] = {access, remote, std::move(make), type,
                                          std::move(handler)};
}

void GrpcServer::SetMemberCheck(std::function<bool(const NodeId&)> is_member) {
  MACRAME_CHECK(parts_->present == nullptr) << "who is a member is told before the start";
  parts_->is_member = std::move(is_member);
}

void GrpcServer::SetPersonCheck(PersonCheck check) {
  MACRAME_CHECK(parts_->present == nullptr) << "what keys may do is told before the start";
  parts_->person_check = std::move(check);
}

void GrpcServer::RecheckPersons() {
  if (!parts_->person_check) return;
  std::vector<std::shared_ptr<CallReactor>> open;
  {
    const std::lock_guard lock(parts_->mutex);
    for (const auto& weak : parts_->calls_by_tls) {
      auto call = weak.lock();
      if (call != nullptr && !call->key_id().empty()) open.push_back(std::move(call));
    }
  }
  for (const auto& call : open) {
    const absl::Status may = parts_->person_check(call->key_id(), call->remote());
    if (!may.ok()) call->Revoke(may);
  }
}

void GrpcServer::SetObserver(Observer observer) {
  MACRAME_CHECK(parts_->present == nullptr) << "an observer is told before the start";
  parts_->observer = std::move(observer);
}

absl::StatusOr<int> GrpcServer::StartTcp(const std::string& ip, int port,
                                         std::shared_ptr<grpc::ServerCredentials> credentials,
                                         bool plain) {
  MACRAME_CHECK(parts_->present == nullptr) << "a server is started once";
  parts_->edge = plain ? Edge::kPlain : Edge::kTls;
  absl::StatusOr<std::unique_ptr<TcpAcceptor>> acceptor = TcpAcceptor::Listen(ip, port);
  if (!acceptor.ok()) return acceptor.status();
  parts_->present = parts_->Start("", std::move(credentials));
  if (parts_->present == nullptr) return absl::InternalError("gRPC's server did not start");
  parts_->acceptor = std::move(*acceptor);
  const auto take = [this](int listener_fd, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener_fd;
    connection.fd = fd;
    const std::lock_guard lock(parts_->present_mutex);
    parts_->present->connections->HandleNewConnection(&connection);
  };
  if (plain) {
    parts_->acceptor->Begin(take);
  } else {
    parts_->acceptor->Begin(take, JudgeOpening, ProtocolVersionAlert());
  }
  return parts_->acceptor->port();
}

absl::Status GrpcServer::UseCredentials(std::shared_ptr<grpc::ServerCredentials> credentials) {
  MACRAME_CHECK(parts_->acceptor != nullptr) << "only a TCP server has credentials";
  auto fresh = parts_->Start("", std::move(credentials));
  if (fresh == nullptr) return absl::InternalError("gRPC's server did not start");
  {
    const std::lock_guard lock(parts_->present_mutex);
    std::swap(parts_->present, fresh);
    std::swap(parts_->former, fresh);
  }
  // What is left in `fresh` are the credentials before the last: its connections end here.
  return absl::OkStatus();
}

void GrpcServer::SetRevoked(std::set<NodeId> nodes) {
  std::vector<std::shared_ptr<CallReactor>> ended;
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->revoked = std::move(nodes);
    for (const auto& weak : parts_->calls_by_tls) {
      auto call = weak.lock();
      if (call != nullptr && parts_->revoked.contains(call->caller())) ended.push_back(call);
    }
  }
  for (const auto& call : ended) {
    call->Revoke(ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNodeRevoked,
                              "the caller was taken out of this cluster", call->caller().value()));
  }
}

void GrpcServer::SetKnownAddresses(std::set<std::string> addresses) {
  if (parts_->acceptor != nullptr) parts_->acceptor->SetKnown(std::move(addresses));
}

std::string GrpcServer::ListenerTrouble() const {
  return parts_->acceptor != nullptr ? parts_->acceptor->Trouble() : "";
}

absl::Status GrpcServer::StartUnix(const std::string& path) {
  MACRAME_CHECK(parts_->present == nullptr) << "a server is started once";
  parts_->edge = Edge::kLocal;
  absl::Status prepared = PrepareSocketPath(path);
  if (!prepared.ok()) return prepared;
  parts_->present = parts_->Start(SocketTarget(path), PlainServerCredentials());
  if (parts_->present == nullptr) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kPortTaken,
                        absl::StrCat("nothing can be served at ", path));
  }
  return RestrictSocket(path);
}

void GrpcServer::Stop(Duration grace) {
  if (parts_->present == nullptr) return;
  parts_->acceptor.reset();
  parts_->former.reset();
  parts_->present->End(grace);
  parts_->present.reset();
}

}  // namespace macrame::transport
