// Which agent of an access file's cluster answers: all addresses are tried at once, since a laptop
// reaches few of a node's, and its first bytes after the handshake show that it takes our
// certificate (in TLS 1.3 a refusal comes after the client's side of the handshake is over).

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/ids.h"
#include "proto/reasons.h"
#include "transport/access_file.h"
#include "transport/socket_address.h"
#include "transport/tls_stream.h"
#include "transport/trust.h"
#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

// Of one address, from the moment that all are tried.
constexpr Duration kConnectLimit = std::chrono::seconds(3);
constexpr Duration kHandshakeWait = std::chrono::seconds(3);
constexpr std::chrono::seconds kResolveLimit{4};
constexpr size_t kDialledMax = 32;

struct Place {
  std::string ip;
  int port = 0;
  std::string text() const { return HostPort(ip, port); }
};

// "10.0.0.7:4711", "[fd00::7]:4711", "studio", "studio:4711". Port 0: none was said.
std::optional<Place> SplitHostPort(const std::string& text) {
  Place place;
  const size_t bracket = text.find(']');
  const bool has_bracket = !text.empty() && text[0] == '[' && bracket != std::string::npos;
  const size_t colon = has_bracket ? text.find(':', bracket) : text.rfind(':');
  const bool bare_v6 = !has_bracket && text.find(':') != colon;  // several, and no brackets
  const bool has_port = colon != std::string::npos && !bare_v6;
  place.ip =
      has_bracket ? text.substr(1, bracket - 1) : text.substr(0, has_port ? colon : text.size());
  if (has_port && (!absl::SimpleAtoi(text.substr(colon + 1), &place.port) || place.port < 1 ||
                   place.port > 65535)) {
    return std::nullopt;
  }
  if (place.ip.empty()) return std::nullopt;
  return place;
}

// IPv4 and IPv6 addresses of a name. The system's resolver has no limit of its own that we know.
std::vector<std::string> Resolve(const std::string& name) {
  if (ParseSocketAddress(name, 1).has_value()) return {name};
  auto answered = std::make_shared<std::promise<std::vector<std::string>>>();
  std::future<std::vector<std::string>> answer = answered->get_future();
  std::thread([name, answered] {
    std::vector<std::string> ips;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) == 0) {
      for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        sockaddr_storage address{};
        std::memcpy(&address, one->ai_addr, std::min<size_t>(one->ai_addrlen, sizeof(address)));
        ips.push_back(IpText(address));
      }
      ::freeaddrinfo(found);
    }
    answered->set_value(std::move(ips));
  }).detach();
  if (answer.wait_for(kResolveLimit) != std::future_status::ready) return {};
  return answer.get();
}

std::string ShortName(const std::string& hostname) {
  return hostname.substr(0, hostname.find('.'));
}

bool IsMeant(const v1::AccessFileNode& node, const std::string& host) {
  if (absl::EqualsIgnoreCase(node.hostname(), host)) return true;
  if (absl::EqualsIgnoreCase(ShortName(node.hostname()), host)) return true;
  return IsBeginningOfId(host, node.node_id());
}

// First the best address of each node, then the second of each, and so on.
std::vector<Place> InTurns(const std::vector<const v1::AccessFileNode*>& nodes) {
  std::vector<Place> places;
  for (int turn = 0; turn < kAccessAddressesMax; ++turn) {
    for (const v1::AccessFileNode* node : nodes) {
      if (turn >= node->addresses_size() || places.size() >= kDialledMax) continue;
      const std::optional<Place> place = SplitHostPort(node->addresses(turn));
      if (place.has_value() && place->port > 0) places.push_back(*place);
    }
  }
  return places;
}

absl::StatusOr<std::vector<Place>> PlacesOf(const v1::AccessFile& file, const std::string& host) {
  std::vector<const v1::AccessFileNode*> nodes;
  for (const v1::AccessFileNode& node : file.nodes()) {
    if (host.empty() || IsMeant(node, host)) nodes.push_back(&node);
  }
  if (!nodes.empty() || host.empty()) return InTurns(nodes);
  std::optional<Place> place = SplitHostPort(host);
  if (!place.has_value()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("'", host, "' is no name or address of a host"));
  }
  if (place->port == 0) {
    for (const v1::AccessFileNode& node : file.nodes()) {
      const std::optional<Place> known =
          node.addresses_size() > 0 ? SplitHostPort(node.addresses(0)) : std::nullopt;
      if (known.has_value()) place->port = known->port;
      if (place->port != 0) break;
    }
  }
  std::vector<Place> places;
  for (std::string& ip : Resolve(place->ip)) {
    const Place one{std::move(ip), place->port};
    if (places.size() < kDialledMax &&
        std::none_of(places.begin(), places.end(),
                     [&](const Place& other) { return other.ip == one.ip; })) {
      places.push_back(one);
    }
  }
  if (places.empty()) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kAgentUnreachable,
                        absl::StrCat("no node of the access file is called '", place->ip,
                                     "', and this machine finds no address of that name"));
  }
  return places;
}

OwnedContext ContextOf(const v1::AccessFile& file) {
  OwnedContext context(SSL_CTX_new(TLS_client_method()));
  Owned<X509> authority = ParseCertificate(file.authority_certificate());
  Owned<X509> certificate = ParseCertificate(file.certificate());
  Owned<EVP_PKEY> key = ParseKey(file.private_key());
  const bool made =
      context != nullptr && authority != nullptr && certificate != nullptr && key != nullptr &&
      SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
      SSL_CTX_use_certificate(context.get(), certificate.get()) == 1 &&
      SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1 &&
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get()) == 1 &&
      SSL_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_SERVER) == 1;
  if (!made) return nullptr;
  constexpr unsigned char kHttp2[] = "\x02h2";
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2) - 1);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

NodeId NodeOf(const TlsStream& stream) {
  Owned<X509> leaf(SSL_get1_peer_certificate(stream.ssl()));
  if (leaf == nullptr) return NodeId();
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(leaf.get(), NID_subject_alt_name, nullptr, nullptr));
  NodeId node;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_DNS) continue;
    const auto* bytes = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName));
    const NodeId id = NodeIdFromTlsName(
        std::string_view(bytes, static_cast<size_t>(ASN1_STRING_length(name->d.dNSName))));
    if (!id.value().empty()) node = id;
  }
  GENERAL_NAMES_free(names);
  return node;
}

// `is_greeted`: the handshake was over on our side.
absl::Status WhyRefused(const TlsStream& stream, const Place& place, const absl::Status& status,
                        bool is_greeted) {
  const long why = SSL_get_verify_result(stream.ssl());
  if (absl::Status dates = CheckDates(why, place.text()); !dates.ok()) return dates;
  if (why != X509_V_OK) {
    return ReasonStatus(
        absl::StatusCode::kPermissionDenied, reasons::kWrongCluster,
        absl::StrCat("who answers at ", place.text(), " is no node of the access file's cluster"));
  }
  // gRPC's server closes without an alert when it does not take a certificate.
  if (is_greeted && absl::IsUnavailable(status)) {
    return ReasonStatus(
        absl::StatusCode::kPermissionDenied, reasons::kCertExpired,
        absl::StrCat(place.text(),
                     " does not take the access file's certificate: by its clock it has expired, "
                     "or it is of another cluster"));
  }
  return absl::UnavailableError(absl::StrCat(place.text(), ": ", status.message()));
}

absl::StatusOr<FoundAgent> Greet(SSL_CTX* context, int fd, const Place& place) {
  TlsStream stream(context, fd, TlsNow() + kHandshakeWait, nullptr);
  absl::Status status = stream.Connect();
  const bool is_greeted = status.ok();
  if (is_greeted) status = stream.AwaitData();
  if (!status.ok()) return WhyRefused(stream, place, status, is_greeted);
  FoundAgent found{place.text(), NodeOf(stream)};
  if (!found.node_id.value().empty()) return found;
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kWrongCluster,
                      absl::StrCat("who answers at ", place.text(), " is no node"));
}

struct Dialled {
  Place place;
  int fd = -1;
};

// Begins to connect; -1 when that fails at once.
int Dial(const Place& place) {
  const std::optional<SocketAddress> address = ParseSocketAddress(place.ip, place.port);
  if (!address.has_value()) return -1;
  const int fd = ::socket(address->family(), SOCK_STREAM, 0);
  if (fd < 0) return -1;
  MakeOwn(fd);
  if (::connect(fd, address->get(), address->size) == 0 || errno == EINPROGRESS) return fd;
  ::close(fd);
  return -1;
}

// Those that are connected, or failed, are taken out; connected ones are given to `take`, which
// says whether to go on.
template <typename Take>
void AwaitEach(std::vector<Dialled>& dialled, const Take& take) {
  const MonotonicTime until = TlsNow() + kConnectLimit;
  const MonotonicTime end = TlsNow() + kFindLimit - kHandshakeWait;
  while (!dialled.empty() && TlsNow() < end) {
    std::vector<pollfd> watched;
    for (const Dialled& one : dialled) watched.push_back({one.fd, POLLOUT, 0});
    // One that was slow over its handshake may have used up the time; others are there by then.
    const auto left = std::max<int64_t>(
        0, std::chrono::ceil<std::chrono::milliseconds>(until - TlsNow()).count());
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return;
    if (ready == 0 && left == 0) return;
    if (ready <= 0) continue;
    for (size_t i = watched.size(); i-- > 0;) {
      if (watched[i].revents == 0) continue;
      const Dialled one = dialled[i];
      dialled.erase(dialled.begin() + static_cast<std::ptrdiff_t>(i));
      int error = 0;
      socklen_t size = sizeof(error);
      ::getsockopt(one.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (!take(one, error)) return;
    }
  }
}

// What says most of what is wrong: a reason of ours before "refused".
absl::Status Unreachable(const std::vector<absl::Status>& failures,
                         const std::vector<Dialled>& silent, const std::string& cluster) {
  std::vector<std::string> tried;
  for (const absl::Status& failure : failures) {
    if (ReasonOf(failure).code() != reasons::kInternal) return failure;
    tried.emplace_back(failure.message());
  }
  for (const Dialled& one : silent) tried.push_back(absl::StrCat(one.place.text(), ": no answer"));
  v1::Reason reason =
      MakeReason(reasons::kAgentUnreachable,
                 absl::StrCat("no agent of the cluster '", cluster, "' answers",
                              tried.empty() ? ": the access file has no address"
                                            : absl::StrCat(" (", absl::StrJoin(tried, "; "), ")")));
  reason.set_remedy(
      "see whether agentd runs there and its control port is reached from here; name a node's "
      "present address with --host, or make a new access file");
  return ReasonStatus(absl::StatusCode::kUnavailable, reason);
}

}  // namespace

absl::StatusOr<FoundAgent> FindAgent(const v1::AccessFile& file, const std::string& host) {
  absl::StatusOr<std::vector<Place>> places = PlacesOf(file, host);
  if (!places.ok()) return places.status();
  OwnedContext context = ContextOf(file);
  if (context == nullptr) return absl::InternalError("OpenSSL does not take the access file");
  std::vector<Dialled> dialled;
  for (const Place& place : *places) {
    if (const int fd = Dial(place); fd >= 0) dialled.push_back({place, fd});
  }
  std::optional<FoundAgent> found;
  std::vector<absl::Status> failures;
  AwaitEach(dialled, [&](const Dialled& one, int error) {
    if (error != 0) {
      ::close(one.fd);
      failures.push_back(
          absl::UnavailableError(absl::StrCat(one.place.text(), ": ", std::strerror(error))));
      return true;
    }
    absl::StatusOr<FoundAgent> agent = Greet(context.get(), one.fd, one.place);
    if (agent.ok()) {
      found = *std::move(agent);
    } else {
      failures.push_back(agent.status());
    }
    return !found.has_value();
  });
  for (const Dialled& one : dialled) ::close(one.fd);
  if (found.has_value()) return *std::move(found);
  return Unreachable(failures, dialled, file.cluster_name());
}

}  // namespace macrame::transport
