#include "transport/enrolment.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/socket_address.h"
#include "transport/tcp_acceptor.h"
#include "transport/tls_stream.h"
#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

// How long the owner may take over one answer.
constexpr Duration kAnswerLimit = std::chrono::seconds(4);

OwnedContext MakeContext(const SSL_METHOD* method) {
  OwnedContext context(SSL_CTX_new(method));
  if (context != nullptr) SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  return context;
}

OwnedContext ServerContext(const NodeCredentials& node) {
  OwnedContext context = MakeContext(TLS_server_method());
  Owned<X509> certificate = ParseCertificate(node.certificate_pem);
  Owned<X509> authority = ParseCertificate(node.authority_certificate_pem);
  Owned<EVP_PKEY> key = ParseKey(node.key_pem);
  const bool made = context != nullptr && certificate != nullptr && authority != nullptr &&
                    key != nullptr &&
                    SSL_CTX_use_certificate(context.get(), certificate.get()) == 1 &&
                    SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1 &&
                    SSL_CTX_add1_chain_cert(context.get(), authority.get()) == 1;
  if (!made) return nullptr;
  // Nobody comes twice: there is nothing to resume.
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

std::string PeerAddress(int fd) {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&from), &size) != 0) return "";
  return IpText(from);
}

// One answer, on its way from the owner's thread to the connection's.
struct Pending {
  std::mutex mutex;
  std::condition_variable there;
  std::optional<v1::EnrolResponse> answer;
};

}  // namespace

struct EnrolmentListener::Parts {
  ~Parts();
  struct Connection {
    enum class State { kOpen, kAsked, kLeaving };
    std::string address;
    std::string counted_as;
    std::thread thread;
    std::atomic<State> state{State::kOpen};
    std::atomic<bool> leave{false};
    std::atomic<bool> ended{false};
    // False: it is another state's already.
    bool Become(State next) {
      State open = State::kOpen;
      return state.compare_exchange_strong(open, next);
    }
  };
  void Take(int fd);
  void Serve(int fd, Connection& connection);
  void JoinEnded();
  void MakeRoom(const std::string& counted_as);

  OwnedContext context;
  OnQuestion on_question;
  std::unique_ptr<TcpAcceptor> acceptor;
  std::atomic<bool> stopping{false};
  // Oldest first; the acceptor's thread's own, until that has ended.
  std::list<Connection> connections;
};

EnrolmentListener::Parts::~Parts() {
  stopping = true;
  acceptor.reset();
  for (Connection& connection : connections) connection.leave = true;
  for (Connection& connection : connections) connection.thread.join();
}

void EnrolmentListener::Parts::JoinEnded() {
  connections.remove_if([](Connection& connection) {
    if (!connection.ended) return false;
    connection.thread.join();
    return true;
  });
}

void EnrolmentListener::Parts::MakeRoom(const std::string& counted_as) {
  std::map<std::string, size_t> places;
  size_t all = 0;
  for (const Connection& one : connections) {
    if (one.ended || one.state != Connection::State::kOpen) continue;
    ++places[one.counted_as];
    ++all;
  }
  std::string of = counted_as;
  if (places[counted_as] < kEnrolmentsPerAddressMax) {
    if (all < kEnrolmentsMax) return;
    size_t most = 0;
    for (const Connection& one : connections) {
      if (one.ended || one.state != Connection::State::kOpen) continue;
      if (places[one.counted_as] <= most) continue;
      most = places[one.counted_as];
      of = one.counted_as;
    }
  }
  for (Connection& one : connections) {
    if (one.ended || one.counted_as != of || !one.Become(Connection::State::kLeaving)) continue;
    one.leave = true;
    return;
  }
}

void EnrolmentListener::Parts::Take(int fd) {
  JoinEnded();
  if (connections.size() >= kEnrolmentThreadsMax) {
    ::close(fd);
    return;
  }
  const std::string address = PeerAddress(fd);
  const std::string counted_as = CountedAddress(address);
  MakeRoom(counted_as);
  Connection& connection = connections.emplace_back();
  connection.address = address;
  connection.counted_as = counted_as;
  connection.thread = std::thread([this, fd, &connection] {
    Serve(fd, connection);
    connection.ended = true;
  });
}

void EnrolmentListener::Parts::Serve(int fd, Connection& connection) {
  Question question;
  question.address = connection.address;
  TlsStream stream(context.get(), fd, TlsNow() + kEnrolmentLimit, &connection.leave);
  if (!stream.Accept().ok()) return;
  const absl::StatusOr<std::string> said = stream.ReceiveFrame(kEnrolmentBytesMax);
  if (!said.ok() || !question.request.ParseFromString(*said)) return;
  if (!connection.Become(Connection::State::kAsked)) return;
  question.exported = stream.Exported(kEnrolmentExportBytes);
  auto pending = std::make_shared<Pending>();
  on_question(std::move(question), [pending](v1::EnrolResponse answer) {
    const std::lock_guard lock(pending->mutex);
    if (pending->answer.has_value()) return;
    pending->answer = std::move(answer);
    pending->there.notify_all();
  });
  std::unique_lock lock(pending->mutex);
  const MonotonicTime until = TlsNow() + kAnswerLimit;
  while (!pending->answer.has_value() && !stopping && TlsNow() < until) {
    pending->there.wait_for(lock, std::chrono::milliseconds(50));
  }
  if (!pending->answer.has_value()) return;
  std::string text = pending->answer->SerializeAsString();
  lock.unlock();
  // Whether it arrived is the caller's to say: it asks again.
  (void)stream.SendFrame(text);
  Wipe(text);
}

EnrolmentListener::EnrolmentListener(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
EnrolmentListener::~EnrolmentListener() = default;
int EnrolmentListener::port() const { return parts_->acceptor->port(); }

absl::StatusOr<std::unique_ptr<EnrolmentListener>> EnrolmentListener::Start(
    const std::string& ip, int port, const NodeCredentials& node, OnQuestion on_question) {
  auto parts = std::make_unique<Parts>();
  parts->context = ServerContext(node);
  if (parts->context == nullptr) {
    return absl::InternalError("this node's certificate can't be shown at the join port");
  }
  parts->on_question = std::move(on_question);
  absl::StatusOr<std::unique_ptr<TcpAcceptor>> acceptor = TcpAcceptor::Listen(ip, port);
  if (!acceptor.ok()) return acceptor.status();
  parts->acceptor = std::move(*acceptor);
  parts->acceptor->SetUnprovenMax(kEnrolmentsUnprovenMax);
  parts->acceptor->Begin([parts = parts.get()](int, int fd) { parts->Take(fd); });
  return std::unique_ptr<EnrolmentListener>(new EnrolmentListener(std::move(parts)));
}

namespace {

// Connected and non-blocking; -1 with errno.
int ConnectTo(const std::string& ip, int port, MonotonicTime until,
              const std::atomic<bool>* stopping) {
  const std::optional<SocketAddress> address = ParseSocketAddress(ip, port);
  if (!address.has_value()) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  const int fd = ::socket(address->family(), SOCK_STREAM, 0);
  if (fd < 0) return -1;
  MakeOwn(fd);
  int error = 0;
  if (::connect(fd, address->get(), address->size) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t error_size = sizeof(error);
      error = ETIMEDOUT;
      if (WaitForFd(fd, POLLOUT, until, stopping)) {
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size);
      }
    }
  }
  if (error == 0) return fd;
  ::close(fd);
  errno = error;
  return -1;
}

absl::Status WrongCluster(const std::string& where) {
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kWrongCluster,
                      absl::StrCat("who answers at ", where,
                                   " does not have the certificate that the token names"));
}

// That the server's certificate is one of the authority whose digest the token has. The handshake
// has shown that the server has its key.
absl::Status CheckServer(const TlsStream& stream, const JoinToken& token, const std::string& where,
                         int64_t unix_s) {
  Owned<X509> leaf(SSL_get1_peer_certificate(stream.ssl()));
  const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(stream.ssl());
  X509* authority = nullptr;
  for (int i = 0; chain != nullptr && i < sk_X509_num(chain); ++i) {
    X509* const one = sk_X509_value(chain, i);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (X509_digest(one, EVP_sha256(), digest, &size) == 1 &&
        std::string_view(reinterpret_cast<const char*>(digest), size) == token.authority_digest) {
      authority = one;
    }
  }
  if (leaf == nullptr || authority == nullptr || X509_check_ca(authority) != 1) {
    return WrongCluster(where);
  }
  Owned<X509_STORE> store(X509_STORE_new());
  Owned<X509_STORE_CTX> check(X509_STORE_CTX_new());
  if (X509_STORE_add_cert(store.get(), authority) != 1 ||
      X509_STORE_CTX_init(check.get(), store.get(), leaf.get(), nullptr) != 1) {
    return absl::InternalError("OpenSSL has no room for a check");
  }
  X509_STORE_CTX_set_purpose(check.get(), X509_PURPOSE_SSL_SERVER);
  X509_STORE_CTX_set_time(check.get(), 0, static_cast<time_t>(unix_s));
  if (X509_verify_cert(check.get()) == 1) return absl::OkStatus();
  absl::Status dates = CheckDates(X509_STORE_CTX_get_error(check.get()), where);
  if (!dates.ok()) return dates;
  return WrongCluster(where);
}

absl::StatusOr<v1::EnrolResponse> EnrolAt(SSL_CTX* context, const std::string& ip,
                                          const JoinToken& token, v1::EnrolRequest request,
                                          int64_t unix_s, const std::atomic<bool>* stopping) {
  const MonotonicTime until = TlsNow() + kEnrolmentLimit;
  const int fd = ConnectTo(ip, token.port, until, stopping);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  TlsStream stream(context, fd, until, stopping);
  absl::Status status = stream.Connect();
  if (!status.ok()) return status;
  status = CheckServer(stream, token, absl::StrCat(ip, " port ", token.port), unix_s);
  if (!status.ok()) return status;
  request.set_proof(JoinProof(token.secret, stream.Exported(kEnrolmentExportBytes), token.id,
                              NodeId(request.node_id()), request.certificate_request()));
  status = stream.SendFrame(request.SerializeAsString());
  if (!status.ok()) return status;
  absl::StatusOr<std::string> said = stream.ReceiveFrame(kEnrolmentBytesMax);
  if (!said.ok()) return said.status();
  v1::EnrolResponse response;
  if (!response.ParseFromString(*said)) return absl::UnavailableError("its answer is malformed");
  Wipe(*said);
  return response;
}

}  // namespace

absl::StatusOr<v1::EnrolResponse> Enrol(const JoinToken& token, const NodeId& node_id,
                                        const std::string& hostname, const std::string& request_der,
                                        int64_t unix_s, const std::atomic<bool>* stopping) {
  v1::EnrolRequest request;
  request.set_token_id(token.id);
  request.set_node_id(node_id.value());
  request.set_hostname(hostname);
  request.set_certificate_request(request_der);
  OwnedContext context = MakeContext(TLS_client_method());
  if (context == nullptr) return absl::InternalError("OpenSSL has no TLS 1.3");
  std::vector<std::string> tried;
  for (const std::string& ip : token.ips) {
    absl::StatusOr<v1::EnrolResponse> response =
        EnrolAt(context.get(), ip, token, request, unix_s, stopping);
    if (response.ok() && !response->has_refusal()) return response;
    if (response.ok()) {
      return ReasonStatus(absl::StatusCode::kPermissionDenied, response->refusal());
    }
    // Somebody else's machine may have one of the addresses here: the next is tried all the same.
    if (ReasonOf(response.status()).code() == reasons::kClockWrong) return response.status();
    tried.push_back(absl::StrCat(ip, ": ", response.status().message()));
    if (ReasonOf(response.status()).code() == reasons::kWrongCluster && ip == token.ips.back()) {
      return response.status();
    }
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kJoinUnreachable,
                      absl::StrCat("nobody lets this node in at port ", token.port, " (",
                                   absl::StrJoin(tried, "; "), ")"));
}

}  // namespace macrame::transport
