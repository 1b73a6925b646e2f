#include "discovery/beacons/socket_beacon_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "discovery/beacons/active_alarms.h"
#include "discovery/beacons/beacon_socket.h"
#include "discovery/beacons/seed_address.h"
#include "discovery/beacons/unknown_node_reason.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "transport/asio_dispatcher.h"

namespace macrame::discovery {
namespace {

using boost::asio::ip::udp;

constexpr Duration kSeedResolveInterval = std::chrono::seconds(30);
constexpr Duration kPeerConnectedFor = std::chrono::seconds(5);
constexpr size_t kAnsweredMax = 256;
constexpr int kSilentBeacons = 3;  // that did not come from who sends one each settled interval

bool IsTransient(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == EINTR;
}

bool IsV6LinkLocal(const InterfaceAddress& address) {
  return address.is_v6 && absl::StartsWith(address.ip, "fe80:");
}

}  // namespace

class SocketBeaconService::Impl : public std::enable_shared_from_this<SocketBeaconService::Impl> {
 public:
  Impl(transport::AsioDispatcher& dispatcher, BeaconServiceOptions options,
       const v1::NodeIdentity& self, std::optional<BeaconTrust> trust,
       BeaconServiceCallbacks callbacks)
      : dispatcher_(dispatcher),
        options_(std::move(options)),
        self_(self),
        callbacks_(std::move(callbacks)),
        cluster_name_(trust ? trust->cluster_name : ""),
        codec_({NodeId(self.node_id()), Incarnation(self.incarnation()), self.control_port(),
                self.machine()},
               std::move(trust)),
        schedule_(options_.intervals),
        hearing_(NodeId(self.node_id())),
        resolver_(dispatcher.io()) {}

  void Start() {
    running_ = true;
    ParseSeeds();
    OpenSenders();
    PollInterfaces();
    ResolveSeeds();
    schedule_.StartBurst(dispatcher_.Now());
    ArmBeaconTimer();
  }

  void Stop() {
    running_ = false;
    dispatcher_.Cancel(beacon_timer_);
    dispatcher_.Cancel(poll_timer_);
    dispatcher_.Cancel(seed_timer_);
    resolver_.cancel();
    for (auto* socket : {&listen_v4_, &listen_v6_, &send_v4_, &send_v6_}) {
      if (*socket) (*socket)->Close();
      socket->reset();
    }
  }

  absl::Status SetTrust(std::optional<BeaconTrust> trust) {
    std::string name = trust ? trust->cluster_name : "";
    const absl::Status status = codec_.SetTrust(std::move(trust));
    if (!status.ok()) return status;
    cluster_name_ = std::move(name);
    Burst();
    return status;
  }

  void SetAllPeersConnected(bool connected) {
    if (connected == all_connected_) return;
    all_connected_ = connected;
    schedule_.SetSettled(connected, dispatcher_.Now());
    if (running_) ArmBeaconTimer();
  }

  void SetSignsOfLife(bool wanted) {
    if (wanted == signs_of_life_) return;
    signs_of_life_ = wanted;
    schedule_.SetSignsOfLife(wanted, dispatcher_.Now());
    if (running_) ArmBeaconTimer();
  }

  void SetTakesTurns(bool takes_turns) {
    if (takes_turns == takes_turns_) return;
    takes_turns_ = takes_turns;
    if (!running_) return;
    KeepDatagrams();
    ArmBeaconTimer();
  }

  void Turn() {
    if (!running_) return;
    SendDue();
    for (const auto& socket : {listen_v4_, listen_v6_}) {
      if (socket) socket->ReceiveKept();
    }
  }

  int Ask(const NodeId& member);
  void NotePeerConnected(const NodeId& peer);
  std::vector<v1::Reason> Problems() const;

  const std::vector<Interface>& interfaces() const { return interfaces_; }
  Hearing HearingOn(const std::string& name) const {
    return hearing_.StateOf(name, dispatcher_.Now());
  }
  uint64_t Count(BeaconVerdict verdict) const { return codec_.Count(verdict); }
  uint64_t beacons_sent() const { return beacons_sent_; }
  bool running() const { return running_; }

 private:
  struct Connected {
    MonotonicTime since;
    MonotonicTime last;
  };
  // Where a member's beacons come from: its own socket, which no other process shares.
  struct Way {
    std::string ip;
    uint16_t port = 0;
    uint32_t interface_index = 0;
    MonotonicTime heard_at;
  };
  struct ResolvedSeed {
    SeedAddress seed;
    std::vector<udp::endpoint> endpoints;
  };

  // Sockets and interfaces.
  void OpenSenders();
  void OpenListeners();
  std::shared_ptr<BeaconSocket> OpenListener(bool is_v6);
  void Receive(const std::shared_ptr<BeaconSocket>& socket);
  void PollInterfaces();
  bool RefreshInterfaces();
  bool IsUsed(const Interface& interface) const;
  void JoinGroups();
  void KeepDatagrams();
  // Sending.
  void Burst();
  void ArmBeaconTimer();
  void SendDue();
  enum class Kind { kWhole, kReplyWanted, kSignOfLife };
  void SendRound(Kind kind);
  void SendOn(const Interface& interface, Kind kind);
  void SendToSeeds(Kind kind);
  void SendAsks(const NodeId& member);
  void NoteWay(const NodeId& member, const Datagram& datagram);
  std::string MakeBeacon(Kind kind, const std::string& first_heard);
  int Send(bool is_v6, const std::string& bytes, const std::string& ip, uint16_t port,
           uint32_t interface_index);
  void ParseSeeds();
  void ResolveSeeds();
  void ResolveSeed(size_t index);
  // Hearing.
  void OnDatagram(const Datagram& datagram);
  void OnMemberBeacon(const v1::Beacon& beacon, const Datagram& datagram,
                      const Interface& interface);
  void OnOwnBeacon(const DecodedBeacon& decoded, const Datagram& datagram,
                   const Interface& interface);
  void Answer(const Datagram& datagram, const std::string& peer_id);
  const Interface* InterfaceOf(const Datagram& datagram) const;
  bool IsOwnAddress(const std::string& ip) const;
  v1::NodeIdentity IdentityOf(const v1::Beacon& beacon, const Datagram& datagram,
                              const Interface& interface) const;

  transport::AsioDispatcher& dispatcher_;
  const BeaconServiceOptions options_;
  const v1::NodeIdentity self_;
  const BeaconServiceCallbacks callbacks_;
  std::string cluster_name_;
  BeaconCodec codec_;
  BeaconSchedule schedule_;
  HearingTable hearing_;
  ActiveAlarms problems_;
  udp::resolver resolver_;

  bool running_ = false;
  bool all_connected_ = false;
  bool signs_of_life_ = false;
  bool takes_turns_ = false;
  uint64_t news_ = 0;
  MonotonicTime other_version_at_{};
  std::shared_ptr<BeaconSocket> listen_v4_, listen_v6_, send_v4_, send_v6_;
  std::vector<Interface> interfaces_;  // all of the machine
  std::set<uint32_t> joined_;
  std::vector<ResolvedSeed> seeds_;
  std::map<NodeId, Connected> connected_;
  std::map<NodeId, std::vector<Way>> ways_;
  std::map<std::pair<std::string, uint16_t>, MonotonicTime> answered_;
  size_t heard_rotation_ = 0;
  uint64_t beacons_sent_ = 0;
  transport::Dispatcher::TimerId beacon_timer_ = 0;
  transport::Dispatcher::TimerId poll_timer_ = 0;
  transport::Dispatcher::TimerId seed_timer_ = 0;
};

// ---- Sockets and interfaces

void SocketBeaconService::Impl::OpenSenders() {
  int error = 0;
  send_v4_ = BeaconSocket::Open(dispatcher_.io(), false, 0, error);
  if (send_v4_) {
    Receive(send_v4_);
  } else {
    problems_.Raise("socket", MakeReason(reasons::kSendRefused,
                                         absl::StrCat("no UDP socket can be opened for beacons: ",
                                                      std::strerror(error)),
                                         self_.node_id()));
  }
  // A machine without IPv6 is no trouble.
  send_v6_ = BeaconSocket::Open(dispatcher_.io(), true, 0, error);
  if (send_v6_) Receive(send_v6_);
}

void SocketBeaconService::Impl::OpenListeners() {
  if (!listen_v4_) listen_v4_ = OpenListener(false);
  if (!listen_v6_ && send_v6_) listen_v6_ = OpenListener(true);
  KeepDatagrams();
}

void SocketBeaconService::Impl::KeepDatagrams() {
  for (const auto& socket : {listen_v4_, listen_v6_}) {
    if (socket) socket->SetKept(takes_turns_);
  }
}

std::shared_ptr<BeaconSocket> SocketBeaconService::Impl::OpenListener(bool is_v6) {
  int error = 0;
  const std::string key = is_v6 ? "port/v6" : "port/v4";
  auto socket = BeaconSocket::Open(dispatcher_.io(), is_v6, options_.port, error);
  if (socket) {
    problems_.Clear(key);
    joined_.clear();
    Receive(socket);
    return socket;
  }
  v1::Reason reason = MakeReason(reasons::kPortTaken,
                                 absl::StrCat("UDP port ", options_.port, is_v6 ? " (IPv6)" : "",
                                              " can't be listened on: ", std::strerror(error)),
                                 self_.node_id());
  reason.set_remedy(
      "end the program that holds the port, or one agentd of another user; or give "
      "all nodes another beacon port");
  problems_.Raise(key, reason);
  return nullptr;
}

void SocketBeaconService::Impl::Receive(const std::shared_ptr<BeaconSocket>& socket) {
  socket->StartReceiving([weak = weak_from_this()](const Datagram& datagram) {
    const auto self = weak.lock();
    if (self && self->running_) self->OnDatagram(datagram);
  });
}

bool SocketBeaconService::Impl::IsUsed(const Interface& interface) const {
  if (!interface.is_up) return false;
  const auto& named = options_.interfaces;
  if (std::find(named.begin(), named.end(), interface.name) != named.end()) return true;
  if (interface.is_loopback) return options_.use_loopback;
  // A tunnel reaches no neighbours, and Apple's peer-to-peer Wi-Fi carries no cluster.
  return named.empty() && interface.kind != v1::INTERFACE_KIND_VPN &&
         !absl::StartsWith(interface.name, "awdl") && !absl::StartsWith(interface.name, "llw");
}

bool SocketBeaconService::Impl::RefreshInterfaces() {
  auto listed = ListInterfaces(options_.kind_of);
  if (!listed.ok()) {
    problems_.Raise(
        "interfaces",
        MakeReason(reasons::kNoInterface, std::string(listed.status().message()), self_.node_id()));
    return false;
  }
  if (*listed == interfaces_) return false;
  const MonotonicTime now = dispatcher_.Now();
  for (const Interface& old : interfaces_) {
    const auto same = [&](const Interface& found) {
      return found.name == old.name && IsUsed(found);
    };
    if (std::none_of(listed->begin(), listed->end(), same)) {
      hearing_.RemoveInterface(old.name);
      joined_.erase(old.index);
      problems_.Clear("send/" + old.name);
    }
  }
  interfaces_ = *std::move(listed);
  size_t used = 0;
  for (const Interface& interface : interfaces_) {
    if (!IsUsed(interface)) continue;
    ++used;
    hearing_.AddInterface(interface.name, now);
  }
  if (used == 0) {
    problems_.Raise(
        "interfaces",
        MakeReason(reasons::kNoInterface, "no network interface is up that beacons may be sent on",
                   self_.node_id()));
  } else {
    problems_.Clear("interfaces");
  }
  return true;
}

void SocketBeaconService::Impl::PollInterfaces() {
  const bool changed = RefreshInterfaces();
  OpenListeners();
  JoinGroups();
  if (dispatcher_.Now() - other_version_at_ > kSilentBeacons * options_.intervals.settled) {
    problems_.Clear("version");
  }
  if (changed) {
    if (callbacks_.on_interfaces) callbacks_.on_interfaces(interfaces_);
    Burst();
  }
  poll_timer_ = dispatcher_.PostAfter(options_.interface_poll, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->running_) self->PollInterfaces();
  });
}

void SocketBeaconService::Impl::JoinGroups() {
  if (!listen_v6_) return;
  for (const Interface& interface : interfaces_) {
    if (!IsUsed(interface) || !interface.can_multicast || joined_.contains(interface.index))
      continue;
    const int error = listen_v6_->JoinGroup(kBeaconGroupV6, interface.index);
    if (error == 0) {
      joined_.insert(interface.index);
    } else {
      spdlog::debug("discovery: no multicast on {}: {}", interface.name, std::strerror(error));
    }
  }
}

// ---- Sending

void SocketBeaconService::Impl::Burst() {
  if (!running_) return;
  schedule_.StartBurst(dispatcher_.Now());
  ArmBeaconTimer();
}

void SocketBeaconService::Impl::ArmBeaconTimer() {
  dispatcher_.Cancel(beacon_timer_);
  beacon_timer_ = 0;
  if (takes_turns_ && !schedule_.in_burst()) return;
  const Duration wait = std::max(Duration(0), schedule_.NextDue() - dispatcher_.Now());
  beacon_timer_ = dispatcher_.PostAfter(wait, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !self->running_) return;
    self->SendDue();
    self->ArmBeaconTimer();
  });
}

void SocketBeaconService::Impl::SendDue() {
  const MonotonicTime now = dispatcher_.Now();
  const bool in_burst = schedule_.in_burst();
  if (schedule_.TakeDue(now)) {
    SendRound(in_burst ? Kind::kReplyWanted : Kind::kWhole);
  }
  if (schedule_.TakeSignOfLife(now)) SendRound(Kind::kSignOfLife);
}

void SocketBeaconService::Impl::SendRound(Kind kind) {
  // Agents that know nothing of news take a beacon with them for damaged, and find the whole ones.
  if (kind == Kind::kSignOfLife && callbacks_.news) news_ = callbacks_.news();
  for (const Interface& interface : interfaces_) {
    if (IsUsed(interface)) SendOn(interface, kind);
  }
  SendToSeeds(kind);
  if (kind != Kind::kSignOfLife) heard_rotation_ += codec_.last_heard_count();
}

void SocketBeaconService::Impl::SendOn(const Interface& interface, Kind kind) {
  std::set<std::string> targets;  // two addresses of one subnet share a broadcast address
  for (const InterfaceAddress& address : interface.addresses) {
    if (!address.broadcast.empty()) targets.insert(address.broadcast);
  }
  const bool sends_v6 =
      interface.can_multicast && (kind != Kind::kSignOfLife || targets.empty()) &&
      std::any_of(interface.addresses.begin(), interface.addresses.end(), IsV6LinkLocal);
  if (targets.empty() && !sends_v6) return;

  bool sent = false;
  int error = 0;
  for (const std::string& broadcast : targets) {
    const int failed = Send(false, MakeBeacon(kind, ""), broadcast, options_.port, interface.index);
    sent = sent || failed == 0 || IsTransient(failed);
    if (failed != 0) error = failed;
  }
  if (sends_v6) {
    const int failed =
        Send(true, MakeBeacon(kind, ""), kBeaconGroupV6, options_.port, interface.index);
    sent = sent || failed == 0 || IsTransient(failed);
    if (failed != 0 && error == 0) error = failed;
  }
  const std::string key = "send/" + interface.name;
  if (sent) {
    problems_.Clear(key);
  } else {
    problems_.Raise(key, MakeReason(reasons::kSendRefused,
                                    absl::StrCat("beacons can't be sent on ", interface.name, ": ",
                                                 std::strerror(error)),
                                    self_.node_id()));
  }
}

int SocketBeaconService::Impl::Send(bool is_v6, const std::string& bytes, const std::string& ip,
                                    uint16_t port, uint32_t interface_index) {
  const auto& socket = is_v6 ? send_v6_ : send_v4_;
  if (!socket) return EAFNOSUPPORT;
  const int error = socket->Send(bytes, ip, port, interface_index);
  if (error == 0) ++beacons_sent_;
  return error;
}

std::string SocketBeaconService::Impl::MakeBeacon(Kind kind, const std::string& first_heard) {
  v1::Beacon beacon;
  beacon.set_hostname(self_.hostname());
  beacon.set_agent_version(self_.agent_version());
  beacon.set_sent_unix_ms(dispatcher_.UnixMs());
  beacon.set_reply_wanted(kind == Kind::kReplyWanted);
  if (kind == Kind::kSignOfLife) {
    beacon.set_news(news_);
    return codec_.Encode(std::move(beacon));
  }
  if (!first_heard.empty()) beacon.add_heard_node_ids(first_heard);
  const std::vector<NodeId> heard = hearing_.HeardLately(dispatcher_.Now());
  // Not all may find room: each round begins where the last one ended.
  for (size_t i = 0; i < heard.size(); ++i) {
    const std::string& id = heard[(heard_rotation_ + i) % heard.size()].value();
    if (id != first_heard) beacon.add_heard_node_ids(id);
  }
  return codec_.Encode(std::move(beacon));
}

void SocketBeaconService::Impl::ParseSeeds() {
  seeds_.clear();
  for (const std::string& text : options_.seeds) {
    const auto seed = ParseSeed(text, options_.port);
    if (!seed.ok() || seeds_.size() >= kSeedsMax) {
      problems_.Raise("seed/" + text,
                      MakeReason(reasons::kSeedUnresolved,
                                 seed.ok() ? absl::StrCat("more than ", kSeedsMax, " seeds: '",
                                                          text, "' is left out")
                                           : std::string(seed.status().message()),
                                 self_.node_id()));
      continue;
    }
    seeds_.push_back({*seed, {}});
  }
}

void SocketBeaconService::Impl::ResolveSeeds() {
  for (size_t i = 0; i < seeds_.size(); ++i) ResolveSeed(i);
  if (seeds_.empty()) return;
  seed_timer_ = dispatcher_.PostAfter(kSeedResolveInterval, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->running_) self->ResolveSeeds();
  });
}

void SocketBeaconService::Impl::ResolveSeed(size_t index) {
  const SeedAddress& seed = seeds_[index].seed;
  resolver_.async_resolve(
      seed.host, std::to_string(seed.port),
      [weak = weak_from_this(), index](const boost::system::error_code& failed,
                                       const udp::resolver::results_type& results) {
        const auto self = weak.lock();
        if (!self || !self->running_) return;
        ResolvedSeed& resolved = self->seeds_[index];
        const std::string key = "seed/" + resolved.seed.host;
        if (failed) {  // the addresses of before are kept
          self->problems_.Raise(
              key, MakeReason(reasons::kSeedUnresolved,
                              absl::StrCat("seed '", resolved.seed.host, "': ", failed.message()),
                              self->self_.node_id()));
          return;
        }
        self->problems_.Clear(key);
        const bool is_first = resolved.endpoints.empty();
        resolved.endpoints.clear();
        for (const auto& result : results) resolved.endpoints.push_back(result.endpoint());
        if (is_first) self->Burst();
      });
}

// Seeds answer whole beacons, so that who is behind one hears of them too.
void SocketBeaconService::Impl::SendToSeeds(Kind kind) {
  if (kind == Kind::kWhole) kind = Kind::kReplyWanted;
  for (const ResolvedSeed& seed : seeds_) {
    const std::string key = "seed-send/" + seed.seed.host;
    int error = 0;
    bool sent = seed.endpoints.empty();
    for (const udp::endpoint& endpoint : seed.endpoints) {
      const bool is_v6 = endpoint.address().is_v6();
      const uint32_t zone = is_v6 ? endpoint.address().to_v6().scope_id() : 0;
      std::string ip = endpoint.address().to_string();
      ip = ip.substr(0, ip.find('%'));
      const int failed = Send(is_v6, MakeBeacon(kind, ""), ip, endpoint.port(), zone);
      sent = sent || failed == 0 || IsTransient(failed);
      if (failed != 0) error = failed;
    }
    if (sent) {
      problems_.Clear(key);
    } else {
      problems_.Raise(key, MakeReason(reasons::kSendRefused,
                                      absl::StrCat("beacons can't be sent to seed '",
                                                   seed.seed.host, "': ", std::strerror(error)),
                                      self_.node_id()));
    }
  }
}

void SocketBeaconService::Impl::NoteWay(const NodeId& member, const Datagram& datagram) {
  const MonotonicTime now = dispatcher_.Now();
  const Way way{datagram.source_ip, datagram.source_port, datagram.zone(), now};
  if (ways_.size() >= kReplayNodesMax) {
    std::erase_if(ways_, [now](const auto& entry) {
      return now - entry.second.front().heard_at > kAskedWhereHeardFor;
    });
  }
  std::vector<Way>& ways = ways_[member];
  std::erase_if(ways, [&](const Way& known) {
    return (known.ip == way.ip && known.interface_index == way.interface_index) ||
           now - known.heard_at > kAskedWhereHeardFor;
  });
  if (ways.size() >= kAskedWaysMax) ways.pop_back();
  ways.insert(ways.begin(), way);
}

int SocketBeaconService::Impl::Ask(const NodeId& member) {
  const auto found = ways_.find(member);
  if (!running_ || found == ways_.end()) return 0;
  std::erase_if(found->second, [now = dispatcher_.Now()](const Way& way) {
    return now - way.heard_at > kAskedWhereHeardFor;
  });
  if (found->second.empty()) {
    ways_.erase(found);
    return 0;
  }
  SendAsks(member);
  dispatcher_.PostAfter(kAskAgain, [weak = weak_from_this(), member] {
    const auto self = weak.lock();
    if (self && self->running_) self->SendAsks(member);
  });
  return 2;
}

void SocketBeaconService::Impl::SendAsks(const NodeId& member) {
  const auto found = ways_.find(member);
  if (found == ways_.end()) return;
  for (const Way& way : found->second) {
    const bool is_v6 = way.ip.find(':') != std::string::npos;
    Send(is_v6, MakeBeacon(Kind::kReplyWanted, ""), way.ip, way.port, way.interface_index);
  }
}

// ---- Hearing

bool SocketBeaconService::Impl::IsOwnAddress(const std::string& ip) const {
  if (absl::StartsWith(ip, "127.") || ip == "::1") return true;
  for (const Interface& interface : interfaces_) {
    for (const InterfaceAddress& address : interface.addresses) {
      if (address.ip == ip) return true;
    }
  }
  return false;
}

const Interface* SocketBeaconService::Impl::InterfaceOf(const Datagram& datagram) const {
  const Interface* by_index = nullptr;
  const Interface* by_address = nullptr;
  for (const Interface& interface : interfaces_) {
    if (interface.index == datagram.interface_index) by_index = &interface;
    for (const InterfaceAddress& address : interface.addresses) {
      if (address.ip == datagram.source_ip) by_address = &interface;
    }
  }
  // What another agent of this machine says to one of its addresses takes the way of the loopback.
  if (by_index == nullptr || by_index->is_loopback) {
    return by_address != nullptr ? by_address : by_index;
  }
  return by_index;
}

void SocketBeaconService::Impl::OnDatagram(const Datagram& datagram) {
  const Interface* interface = InterfaceOf(datagram);
  if (interface == nullptr || !IsUsed(*interface)) return;
  const DecodedBeacon decoded = codec_.Decode(datagram.bytes);
  switch (decoded.verdict) {
    case BeaconVerdict::kMember:
      OnMemberBeacon(decoded.beacon, datagram, *interface);
      return;
    case BeaconVerdict::kOwn:
    case BeaconVerdict::kIdClash:
      OnOwnBeacon(decoded, datagram, *interface);
      return;
    case BeaconVerdict::kOtherVersion:
      other_version_at_ = dispatcher_.Now();
      problems_.Raise("version", MakeReason(reasons::kVersionSkew,
                                            absl::StrCat("beacons of another version come from ",
                                                         datagram.source_ip),
                                            self_.node_id()));
      return;
    case BeaconVerdict::kMalformed:
      if (codec_.Count(BeaconVerdict::kMalformed) != 1) return;
      spdlog::info(
          "discovery: {} sends datagrams to UDP port {} that are no beacons; they are ignored and "
          "counted",
          datagram.source_ip, options_.port);
      return;
    default:
      break;
  }
  const uint64_t now_ms = dispatcher_.UnixMs();
  const auto unknown = UnknownNodeOf(decoded, datagram.source_ip, cluster_name_, now_ms);
  if (!unknown.has_value()) return;
  hearing_.HeardOther(dispatcher_.Now());
  if (callbacks_.on_unknown_node) callbacks_.on_unknown_node(*unknown);
}

void SocketBeaconService::Impl::OnOwnBeacon(const DecodedBeacon& decoded, const Datagram& datagram,
                                            const Interface& interface) {
  // Before the list of interfaces, which `interface` is one of, may be made anew.
  const v1::NodeIdentity identity = IdentityOf(decoded.beacon, datagram, interface);
  if (decoded.verdict == BeaconVerdict::kOwn) {
    if (IsOwnAddress(datagram.source_ip)) return;
    // The address may be as new as this.
    if (RefreshInterfaces()) {
      if (callbacks_.on_interfaces) callbacks_.on_interfaces(interfaces_);
      if (IsOwnAddress(datagram.source_ip)) return;
    }
  }
  if (callbacks_.on_own_id_elsewhere) {
    callbacks_.on_own_id_elsewhere(identity, decoded.beacon.news() != 0);
  }
}

v1::NodeIdentity SocketBeaconService::Impl::IdentityOf(const v1::Beacon& beacon,
                                                       const Datagram& datagram,
                                                       const Interface& interface) const {
  v1::NodeIdentity identity;
  identity.set_node_id(beacon.node_id());
  identity.set_incarnation(beacon.incarnation());
  identity.set_hostname(beacon.hostname());
  identity.set_control_port(beacon.control_port());
  identity.set_agent_version(beacon.agent_version());
  identity.set_machine(beacon.machine());
  v1::NodeAddress& address = *identity.add_addresses();
  // Agents of one machine listen on 127.0.0.1, whatever address a multicast left by.
  address.set_ip(interface.is_loopback ? "127.0.0.1" : datagram.source_ip);
  address.set_interface_name(interface.name);
  address.set_interface_kind(interface.kind);
  for (const InterfaceAddress& own : interface.addresses) {
    if (InSameSubnet(own.ip, address.ip(), own.prefix_length)) {
      address.set_prefix_length(own.prefix_length);
    }
  }
  return identity;
}

void SocketBeaconService::Impl::OnMemberBeacon(const v1::Beacon& beacon, const Datagram& datagram,
                                               const Interface& interface) {
  const auto& heard = beacon.heard_node_ids();
  const bool lists_us = std::find(heard.begin(), heard.end(), self_.node_id()) != heard.end();
  hearing_.Heard(interface.name, NodeId(beacon.node_id()), lists_us, dispatcher_.Now());
  const v1::NodeIdentity identity = IdentityOf(beacon, datagram, interface);
  NoteWay(NodeId(beacon.node_id()), datagram);
  if (beacon.reply_wanted()) Answer(datagram, beacon.node_id());
  if (callbacks_.on_peer_clock) {
    callbacks_.on_peer_clock(NodeId(beacon.node_id()), beacon.sent_unix_ms());
  }
  if (callbacks_.on_peer) callbacks_.on_peer(identity);
  if (callbacks_.on_beacon) {
    callbacks_.on_beacon({NodeId(beacon.node_id()), beacon.machine(), beacon.control_port(),
                          beacon.incarnation(), beacon.sequence(), beacon.news()});
  }
}

void SocketBeaconService::Impl::Answer(const Datagram& datagram, const std::string& peer_id) {
  const MonotonicTime now = dispatcher_.Now();
  if (answered_.size() >= kAnsweredMax) {
    std::erase_if(answered_,
                  [now](const auto& entry) { return now - entry.second > kAnswerInterval; });
    if (answered_.size() >= kAnsweredMax) return;
  }
  const auto [place, is_new] =
      answered_.try_emplace({datagram.source_ip, datagram.source_port}, now);
  if (!is_new) {
    if (now - place->second < kAnswerInterval) return;
    place->second = now;
  }
  const bool is_v6 = datagram.source_ip.find(':') != std::string::npos;
  Send(is_v6, MakeBeacon(Kind::kWhole, peer_id), datagram.source_ip, datagram.source_port,
       datagram.zone());
}

// ---- What is told to others

void SocketBeaconService::Impl::NotePeerConnected(const NodeId& peer) {
  const MonotonicTime now = dispatcher_.Now();
  std::erase_if(connected_,
                [now](const auto& entry) { return now - entry.second.last > kPeerConnectedFor; });
  const auto [place, is_new] = connected_.try_emplace(peer, Connected{now, now});
  place->second.last = now;
}

std::vector<v1::Reason> SocketBeaconService::Impl::Problems() const {
  const MonotonicTime now = dispatcher_.Now();
  std::vector<v1::Reason> problems = problems_.Problems();
  const std::vector<NodeId> heard = hearing_.HeardLately(now);
  for (v1::Reason& reason : hearing_.Problems(now)) {
    // Nobody on one of several networks is how networks are.
    if (reason.code() == reasons::kHeardNobody && !heard.empty()) continue;
    problems.push_back(std::move(reason));
  }
  for (const auto& [peer, times] : connected_) {
    if (now - times.last > kPeerConnectedFor || times.last - times.since < kHearingJudgedAfter) {
      continue;
    }
    if (std::find(heard.begin(), heard.end(), peer) != heard.end()) continue;
    v1::Reason reason =
        MakeReason(reasons::kBeaconsMissing,
                   absl::StrCat("node ", ShortId(peer),
                                " is connected, but its beacons do not come in: it is "
                                "on another subnet, or a firewall drops UDP ",
                                options_.port),
                   peer.value());
    problems.push_back(std::move(reason));
  }
  return problems;
}

// ---- SocketBeaconService

SocketBeaconService::SocketBeaconService(transport::AsioDispatcher& dispatcher,
                                         BeaconServiceOptions options, const v1::NodeIdentity& self,
                                         std::optional<BeaconTrust> trust,
                                         BeaconServiceCallbacks callbacks)
    : impl_(std::make_shared<Impl>(dispatcher, std::move(options), self, std::move(trust),
                                   std::move(callbacks))) {}

SocketBeaconService::~SocketBeaconService() { Stop(); }

void SocketBeaconService::Start() {
  MACRAME_CHECK(!impl_->running()) << "SocketBeaconService started twice";
  impl_->Start();
}

void SocketBeaconService::Stop() {
  if (impl_->running()) impl_->Stop();
}

absl::Status SocketBeaconService::SetTrust(std::optional<BeaconTrust> trust) {
  return impl_->SetTrust(std::move(trust));
}

void SocketBeaconService::SetAllPeersConnected(bool connected) {
  impl_->SetAllPeersConnected(connected);
}
void SocketBeaconService::SetSignsOfLife(bool wanted) { impl_->SetSignsOfLife(wanted); }
void SocketBeaconService::SetTakesTurns(bool takes_turns) { impl_->SetTakesTurns(takes_turns); }
void SocketBeaconService::Turn() { impl_->Turn(); }
int SocketBeaconService::Ask(const NodeId& member) { return impl_->Ask(member); }
void SocketBeaconService::NotePeerConnected(const NodeId& peer) { impl_->NotePeerConnected(peer); }
const std::vector<Interface>& SocketBeaconService::interfaces() const {
  return impl_->interfaces();
}
std::vector<v1::Reason> SocketBeaconService::Problems() const { return impl_->Problems(); }
uint64_t SocketBeaconService::beacons_sent() const { return impl_->beacons_sent(); }
uint64_t SocketBeaconService::Count(BeaconVerdict verdict) const { return impl_->Count(verdict); }
Hearing SocketBeaconService::HearingOn(const std::string& interface_name) const {
  return impl_->HearingOn(interface_name);
}

}  // namespace macrame::discovery
