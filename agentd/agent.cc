#include "agentd/agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/agent_impl.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/base/version.h"
#include "agentd/cores/cluster_pause.h"
#include "agentd/cores/member_list.h"
#include "agentd/cores/node_news.h"
#include "agentd/node/lost_nodes.h"
#include "proto/reasons.h"
#include "runtime/second_engine/worker_process.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

namespace macrame::agentd {
namespace {

// Every wake-up of an idle agent costs; no limit of the protocol is finer than kTick. While nothing
// happens transport::kTimerGrid is enough: what falls due between two of its points has its own
// time (LeaseClient::NextDue).
constexpr Duration kTick = std::chrono::milliseconds(100);
// Nothing happens when nothing did for so long.
constexpr Duration kBusyFor = std::chrono::seconds(3);
constexpr Duration kBusyAtStart = std::chrono::seconds(5);
// Beacons that are due so soon go with this tick.
constexpr Duration kBeaconSlack = std::chrono::milliseconds(40);
constexpr Duration kSecretPoll = std::chrono::seconds(1);
constexpr Duration kPersonsPause = std::chrono::seconds(1);
constexpr Duration kModelScanInterval = std::chrono::seconds(30);
constexpr char kInsecureName[] = "insecure-dev";
// A beacon that is older says nothing of the present.
constexpr Duration kPeerClockKept = std::chrono::seconds(15);
constexpr size_t kPeerClocksMax = 256;
// A listening server that does not start is tried again after so long.
constexpr Duration kCredentialsRetry = std::chrono::seconds(30);

#ifdef __APPLE__
constexpr char kEngineDevice[] = "metal";
#else
constexpr char kEngineDevice[] = "cpu";
#endif

}  // namespace

AgentEvents Agent::Impl::MakeEvents() {
  AgentEvents events;
  events.on_member = [this](const auto& event) { OnMember(event); };
  events.on_probe = [this](const NodeId& node) {
    if (parts_.guard.standing() != Standing::kRefused) parts_.heartbeats.SendTo(node);
  };
  events.on_ask = [this](const NodeId& node) {
    return parts_.guard.standing() == Standing::kRefused ? 0 : parts_.beacons->Ask(node);
  };
  events.on_gone = [this](const NodeId& node) { parts_.leases.OnGone(node); };
  events.on_renewed = [this](const auto& credentials) { OnRenewed(credentials); };
  events.on_revoked = [this](const auto& nodes) { OnRevoked(nodes); };
  events.on_became_coordinator = [this](const FencePair& fence) {
    parts_.replicator.BeginLeading(fence);
    // What was written may have taken long enough to lose the lead again.
    if (parts_.election.Leading(dispatcher_.Now()) != fence) return;
    parts_.gang_controller.BeginLeading(fence);
    parts_.member_writer.BeginLeading();
    // What others reported before does not count under this lead.
    parts_.heartbeats.SendNews();
    parts_.changes.Note(Change::kCoordinator);
  };
  events.on_lost_coordination = [this] {
    parts_.gang_controller.StopLeading();
    parts_.replicator.StopLeading();
    parts_.cluster_service.StopLeading();
    parts_.changes.Note(Change::kCoordinator);
  };
  events.on_obeys_changed = [this] {
    const auto coordinator = parts_.election.Coordinator(dispatcher_.Now());
    if (coordinator.has_value()) {
      parts_.metrics_service.NoteCoordinator(coordinator->coordinator.value());
    }
    if (coordinator.has_value() && coordinator->coordinator != parts_.self) {
      parts_.replicator.ForgetKept();
      parts_.gang_controller.ForgetKept();
      parts_.member_writer.ForgetAlone();
    }
    parts_.event_service.NoteCoordinator();
    parts_.changes.Note(Change::kCoordinator);
  };
  events.on_state_changed = [this] { OnStateChanged(); };
  events.on_heartbeat = [this](const NodeId& from, bool changed) {
    parts_.heartbeats.NoteReceived(from);
    OnHeartbeat(from, changed);
  };
  events.on_answer = [this](const NodeId& from, v1::HeartbeatResponse answer) {
    OnAnswer(from, std::move(answer));
  };
  events.make_heartbeat = [this] { return MakeHeartbeat(); };
  events.is_urgent = [this](const NodeId& node) { return IsUrgent(node); };
  events.problems = [this] { return Problems(); };
  return events;
}

// Those who only read the desired state; at the start, too, when it came from the disk.
void Agent::Impl::TellOfState() {
  parts_.caller_view.NoteState();
  parts_.event_service.NoteState();
  parts_.router.Refresh();
  parts_.metrics_service.NoteGangs(parts_.replicator.desired());
  const DesiredState& desired = parts_.replicator.desired();
  parts_.access->SetKeys(desired.api_keys(), desired.tenants());
  if (parts_.peer_server != nullptr) parts_.peer_server->RecheckPersons();
  parts_.energy.SetKeys(desired.api_keys());
}

void Agent::Impl::OnStateChanged() {
  parts_.member_writer.Take();
  parts_.revocations.TakeState();
  TellOfState();
  parts_.changes.Note(Change::kState);
}

void Agent::Impl::ReadChanges() {
  parts_.changes.ReadAll([this] { parts_.cluster_service.NoteChange(); });
  parts_.changes.Read({Change::kInventory, Change::kLinks, Change::kMembers, Change::kRanks,
                       Change::kReport, Change::kState},
                      [this] { parts_.gang_controller.Wake(); });
  parts_.changes.Read({Change::kCoordinator, Change::kDeparture, Change::kDeployment,
                       Change::kMembers, Change::kRanks, Change::kState},
                      [this] { Hurry(); });
}

absl::Status Agent::Impl::Start() {
  ReadChanges();
  spdlog::info("agentd {} of node {} ({}), run {}", kAgentVersion, parts_.own.identity().hostname(),
               ShortId(parts_.self), parts_.own.identity().incarnation());
  absl::Status status = StartTraces();
  if (!status.ok()) return status;
  StartIdentity();
  StartOwnParts();
  status = parts_.local_server->StartUnix(config_.socket_path);
  if (status.ok() && !config_.socket_group.empty()) {
    status = transport::ShareSocket(config_.socket_path, config_.socket_group);
  }
  if (!status.ok()) return status;
  status = StartTrust();
  if (!status.ok()) return status;
  StartGateway();
  parts_.member_writer.Take();
  MembersChanged();
  busy_until_ = dispatcher_.Now() + kBusyAtStart;
  dispatcher_.Post([this] { Tick(); });
  return absl::OkStatus();
}

void Agent::Impl::StartOwnParts() {
  parts_.supervisor->OnChange([this] {
    parts_.own.ForgetRanks();
    parts_.links.NoteRanks(parts_.own.ranks());
    parts_.changes.Note(Change::kRanks);
    if (!stopping_ && parts_.guard.is_sure()) parts_.heartbeats.SendNews();
  });
  const absl::Status engine = parts_.supervisor->Start();
  parts_.prober->Start([this](const v1::Inventory&) { parts_.changes.Note(Change::kInventory); });
  if (engine.ok()) {
    v1::Engine mlx;
    mlx.set_name("mlx");
    mlx.set_version(kMlxVersion);
    mlx.set_device(kEngineDevice);
    engines_ = {mlx};
    TellEngines();
    parts_.library->ExpectSecondEngine();
    parts_.second_engine->Start(config_.mlx_lm_python,
                                [this](runtime::SecondEngine second) { Took(std::move(second)); });
    parts_.device->Start(config_.rankd_path, [this](std::optional<uint64_t> working_set_bytes) {
      working_set_bytes_ = working_set_bytes;
      if (working_set_bytes.has_value()) TellEngines();
    });
  } else {
    spdlog::warn("no ranks can be started on this node: {}", LogText(engine));
    engine_trouble_ =
        MakeReason(reasons::kEngineMissing, std::string(engine.message()), parts_.self.value());
  }
  parts_.router.SetLooking(!parts_.library->has_looked());
  parts_.library->Start(kModelScanInterval, [this](std::vector<v1::LocalModel> models) {
    parts_.prober->SetModels(std::move(models));
    parts_.router.SetLooking(false);
  });
  TellOfState();
  parts_.links.Start();
}

void Agent::Impl::TellEngines() { parts_.prober->SetEngines(engines_, working_set_bytes_); }

// What was found of mlx-lm, or what it lacks.
void Agent::Impl::Took(runtime::SecondEngine second) {
  if (second.mlx_lm.has_value()) {
    v1::Engine mlx_lm;
    mlx_lm.set_name(runtime::kMlxLmEngine);
    mlx_lm.set_version(second.mlx_lm->version);
    mlx_lm.set_device(second.mlx_lm->device);
    engines_.push_back(mlx_lm);
    TellEngines();
    parts_.supervisor->SetPython(second.mlx_lm->python);
    spdlog::info("mlx-lm {} ({}) serves models that rankd does not know", second.mlx_lm->version,
                 second.mlx_lm->python);
  } else if (!config_.mlx_lm_python.empty()) {
    spdlog::warn("no second engine: {}", LogText(absl::NotFoundError(second.why_not)));
  }
  parts_.library->SetSecondEngine(std::move(second));
}

absl::Status Agent::Impl::StartTrust() {
  if (config_.insecure_dev) return JoinInsecure();
  const absl::StatusOr<ClusterTrust> trust = parts_.trust.Load();
  if (trust.ok()) return Join(*trust);
  if (!absl::IsNotFound(trust.status())) return trust.status();
  lost_ = ReadMembershipRecord(config_.state_folder);
  if (lost_.has_value()) {
    const v1::Reason lost = LostMembership();
    spdlog::critical("{}; {}", lost.message(), lost.remedy());
    StartBeacons(std::nullopt);
    return absl::OkStatus();
  }
  spdlog::warn("no cluster secret at {}: this node stands alone until the file appears",
               config_.cluster_secret_file);
  StartBeacons(std::nullopt);
  return absl::OkStatus();
}

absl::Status Agent::Impl::Join(const ClusterTrust& trust) {
  absl::StatusOr<std::string> fingerprint =
      transport::ClusterFingerprint(trust.node.authority_certificate_pem);
  if (!fingerprint.ok()) return fingerprint.status();
  absl::Status served = ServePeers(transport::TlsServerCredentials(trust.node), false);
  if (!served.ok()) return served;
  parts_.channels.UseTls(trust.node);
  parts_.reporter.SetCluster(trust.cluster_id, trust.cluster_name, false);
  spdlog::info("member of cluster {} ({}){}", trust.cluster_name, trust.cluster_id.substr(0, 8),
               parts_.trust.keeper() ? ", with its secret file" : "");
  for (const v1::Reason& reason : parts_.trust.Problems()) spdlog::error("{}", reason.message());
  joined_ = true;
  lost_.reset();
  const absl::Status kept = WriteMembershipRecord(
      config_.state_folder, {config_.cluster_secret_file, trust.cluster_name});
  if (!kept.ok()) {
    spdlog::error("the next start needs --cluster-secret-file {}: {}", config_.cluster_secret_file,
                  LogText(kept));
  }
  parts_.revocations.SetAuthority(trust.node.authority_certificate_pem, trust.cluster_id);
  StartBeacons(discovery::BeaconTrust{trust.cluster_name, *fingerprint, trust.beacon_key});
  return absl::OkStatus();
}

void Agent::Impl::OnRenewed(const transport::NodeCredentials& credentials) {
  const uint64_t renewal = ++renewal_;
  if (parts_.peer_server == nullptr) return;
  const absl::Status used =
      parts_.peer_server->UseCredentials(transport::TlsServerCredentials(credentials));
  if (!used.ok()) {
    spdlog::error("the new certificate is not shown to callers, tried again in {} s: {}",
                  std::chrono::duration_cast<std::chrono::seconds>(kCredentialsRetry).count(),
                  LogText(used));
    dispatcher_.PostAfter(kCredentialsRetry, [this, credentials, renewal] {
      if (renewal == renewal_) OnRenewed(credentials);
    });
  }
  parts_.channels.UseTls(credentials);
  parts_.heartbeats.Wake();
}

void Agent::Impl::OnRevoked(const std::set<NodeId>& nodes) {
  if (parts_.peer_server != nullptr) parts_.peer_server->SetRevoked(nodes);
  for (const NodeId& node : nodes) {
    if (!revoked_.insert(node).second) continue;
    parts_.gang_controller.NoteDead(node);
    parts_.router.NoteDead(node);
    parts_.enrolment.NoteRevoked(node);
    parts_.cluster_service.NoteDead(node);
  }
  parts_.channels.SetRevoked(nodes);
  parts_.members.SetRevoked(nodes);
  parts_.changes.Note(Change::kMembers);
}

void Agent::Impl::NotePeerClock(const NodeId& node, uint64_t sent_unix_ms) {
  const MonotonicTime now = dispatcher_.Now();
  if (peer_clocks_.size() >= kPeerClocksMax) {
    std::erase_if(peer_clocks_,
                  [now](const auto& entry) { return now - entry.second.heard > kPeerClockKept; });
    if (peer_clocks_.size() >= kPeerClocksMax) return;
  }
  peer_clocks_[node] = {sent_unix_ms, now};
}

// It still has the beacon key; nothing else is heard of it.
bool Agent::Impl::HeardRevoked(const v1::NodeIdentity& identity) {
  const NodeId node(identity.node_id());
  if (!revoked_.contains(node)) return false;
  v1::UnknownNode unknown_node;
  unknown_node.set_node_id(node.value());
  unknown_node.set_hostname(identity.hostname());
  if (identity.addresses_size() > 0) unknown_node.set_address(identity.addresses(0).ip());
  *unknown_node.mutable_reason() = MakeReason(
      reasons::kNodeRevoked,
      absl::StrCat(identity.hostname(), " was taken out of this cluster for good"), node.value());
  unknown_node.set_last_heard_unix_ms(dispatcher_.UnixMs());
  parts_.members.HeardUnknownNode(unknown_node);
  return true;
}

absl::Status Agent::Impl::JoinInsecure() {
  spdlog::warn("INSECURE: no TLS and no secret; anybody on this machine can give orders");
  absl::Status served = ServePeers(transport::PlainServerCredentials(), true);
  if (!served.ok()) return served;
  parts_.channels.UsePlain();
  parts_.reporter.SetCluster(kInsecureName, kInsecureName, true);
  joined_ = true;
  StartBeacons(discovery::BeaconTrust{kInsecureName, std::string(8, '\0'), std::string(32, '\0')});
  return absl::OkStatus();
}

absl::Status Agent::Impl::ServePeers(std::shared_ptr<grpc::ServerCredentials> credentials,
                                     bool plain) {
  auto server = parts_.platform.MakeServer();
  server->SetMemberCheck([this](const NodeId& node) { return parts_.members.IsMember(node); });
  server->SetPersonCheck([this](const std::string& key_id, Remote needed) {
    return parts_.access_file_service.CheckPerson(key_id, needed);
  });
  // What persons on other machines are answered passes what they may know.
  ViewedServer viewed(*server, parts_.caller_view);
  parts_.agent_service.Register(viewed);
  parts_.cluster_service.Register(viewed);
  parts_.link_service.RegisterAgent(viewed);
  parts_.link_service.RegisterCluster(viewed);
  parts_.trace_service.RegisterAgent(viewed);
  parts_.verify_service.RegisterAgent(viewed);
  parts_.pause_service.Register(viewed);
  parts_.profile_service.Register(viewed);
  parts_.enrolment.RegisterAgent(viewed);
  parts_.event_service.Register(viewed);
  parts_.energy.Register(viewed);
  parts_.access_service.RegisterCluster(viewed);
  // What other agents never ask, and an access file's clusterctl may.
  parts_.trace_service.RegisterCluster(viewed);
  parts_.verify_service.RegisterCluster(viewed);
  parts_.enrolment.RegisterLocal(viewed);
  parts_.metrics_service.RegisterLocal(viewed);
  parts_.access_service.RegisterLocal(viewed);
  parts_.retention_service.RegisterAgent(viewed);
  parts_.retention_service.RegisterCluster(viewed);
  parts_.access_file_service.RegisterLocal(viewed);
  server->SetObserver(AuditObserver(parts_.audit));
  absl::StatusOr<int> port = server->StartTcp(
      config_.control_bind, static_cast<int>(config_.control_port), std::move(credentials), plain);
  if (!port.ok()) return port.status();
  parts_.peer_server = std::move(server);
  parts_.own.SetControlPort(static_cast<uint32_t>(*port));
  spdlog::info("agents reach this one at {}", HostPort(config_.control_bind, *port));
  return absl::OkStatus();
}

void Agent::Impl::StartBeacons(std::optional<discovery::BeaconTrust> trust) {
  discovery::BeaconServiceOptions options;
  options.port = static_cast<uint16_t>(config_.discovery_port);
  options.use_loopback = config_.discovery_loopback;
  options.interfaces = BeaconInterfaces();
  options.seeds = config_.discovery_seeds;
  options.intervals.sign_of_life = std::chrono::milliseconds(config_.heartbeat_interval_ms);
  options.intervals.slack = kBeaconSlack;
  discovery::BeaconServiceCallbacks callbacks;
  callbacks.on_peer_clock = [this](const NodeId& node, uint64_t sent_unix_ms) {
    NotePeerClock(node, sent_unix_ms);
  };
  callbacks.on_peer = [this](const v1::NodeIdentity& identity) {
    if (HeardRevoked(identity)) return;
    const bool is_known = parts_.members.IsAlive(NodeId(identity.node_id()));
    parts_.members.HeardCandidate(identity);
    if (is_known) return;
    parts_.heartbeats.Wake();
    if (parts_.guard.standing() != Standing::kRefused) parts_.heartbeats.Tick();
  };
  callbacks.on_beacon = [this](const discovery::HeardBeacon& beacon) { OnBeacon(beacon); };
  callbacks.news = [this] { return NewsOf(MakeNews()); };
  callbacks.on_unknown_node = [this](const v1::UnknownNode& unknown_node) {
    parts_.members.HeardUnknownNode(unknown_node);
  };
  callbacks.on_own_id_elsewhere = [this](const v1::NodeIdentity& other, bool is_sign_of_life) {
    OnOwnIdBeacon(other, is_sign_of_life);
  };
  callbacks.on_interfaces = [this](const std::vector<discovery::Interface>& interfaces) {
    TakeInterfaces(interfaces);
  };
  parts_.beacons.reset();
  parts_.beacons = parts_.platform.MakeBeaconService(std::move(options), parts_.own.identity(),
                                                     std::move(trust), std::move(callbacks));
  parts_.beacons->Start();
  TakeInterfaces(parts_.beacons->interfaces());
}

bool Agent::Impl::IsBoundToOneAddress() const {
  return config_.control_bind != "0.0.0.0" && config_.control_bind != "::";
}

// Beacons on an interface say "reach me at the address that this came from": where the control port
// is bound to one address, only the interface that has it tells the truth.
std::vector<std::string> Agent::Impl::BeaconInterfaces() const {
  if (!config_.discovery_interfaces.empty() || !IsBoundToOneAddress()) {
    return config_.discovery_interfaces;
  }
  const absl::StatusOr<std::vector<discovery::Interface>> all =
      discovery::ListInterfaces(discovery::KindFromName);
  if (!all.ok()) return {};
  for (const discovery::Interface& one : *all) {
    for (const discovery::InterfaceAddress& address : one.addresses) {
      if (address.ip == config_.control_bind) return {one.name};
    }
  }
  return {};
}

void Agent::Impl::TakeInterfaces(const std::vector<discovery::Interface>& interfaces) {
  std::vector<v1::NodeAddress> all =
      discovery::NodeAddresses(interfaces, config_.discovery_loopback || config_.insecure_dev);
  if (IsBoundToOneAddress()) {
    // Reached at that one address only.
    v1::NodeAddress bound;
    bound.set_ip(config_.control_bind);
    for (const v1::NodeAddress& address : all) {
      if (address.ip() == config_.control_bind) bound = address;
    }
    all = {bound};
  }
  parts_.own.SetAddresses(all);
  TellSelf();
}

void Agent::Impl::PollSecret() {
  const absl::StatusOr<ClusterTrust> trust = parts_.trust.Load();
  absl::Status status = trust.status();
  if (trust.ok()) status = Join(*trust);
  if (status.ok() || absl::IsNotFound(status)) return;
  const std::string trouble(status.message());
  if (trouble != secret_trouble_) spdlog::error("{}", trouble);
  secret_trouble_ = trouble;
}

void Agent::Impl::Tick() {
  if (stopping_) return;
  const MonotonicTime now = dispatcher_.Now();
  if (!joined_ && now - secret_polled_ >= kSecretPoll) {
    secret_polled_ = now;
    PollSecret();
  }
  // What came in counts before anybody is judged.
  parts_.beacons->Turn();
  WatchIdentity();
  WatchDials();
  if (parts_.guard.is_sure() && !lost_.has_value()) {
    parts_.leases.Tick();
    parts_.member_writer.Tick();
  }
  TellOfDisk();
  // Somebody who has lost the node itself from sight must not take a copy of it for the node.
  if (parts_.guard.standing() != Standing::kRefused) {
    if (NeedsFreshReports()) parts_.heartbeats.KeepFresh();
    parts_.heartbeats.Tick();
  }
  parts_.replicator.Tick();
  parts_.members.Tick();
  parts_.trust.Tick();
  if (parts_.gateway_certificate != nullptr) parts_.gateway_certificate->Tick();
  parts_.revocations.Tick();
  parts_.enrolment.Tick();
  parts_.links.Tick();
  parts_.gang_controller.Tick();
  parts_.cluster_service.Tick();
  parts_.demand.Tick();
  parts_.energy.Tick();
  parts_.alerts.Tick();
  parts_.retention_service.Tick();
  if (parts_.peer_server != nullptr && now - persons_checked_ >= kPersonsPause) {
    persons_checked_ = now;
    parts_.peer_server->RecheckPersons();
  }
  const discovery::MembershipTable& table = parts_.members.table();
  const bool has_members = !table.Members().empty();
  parts_.beacons->SetAllPeersConnected(has_members && table.AllMembersAlive());
  // A copy says nothing in the name of the node that it was copied from.
  parts_.beacons->SetSignsOfLife(has_members && parts_.guard.standing() != Standing::kRefused);
  parts_.beacons->SetTakesTurns(IsQuiet());
  if (departure_.has_value()) StepDeparture();
  ArmTick();
}

void Agent::Impl::ArmTick() {
  const MonotonicTime now = dispatcher_.Now();
  const bool may_rest = IsQuiet() && parts_.gang_controller.IsIdle() &&
                        parts_.cluster_service.IsIdle() && parts_.replicator.IsIdle();
  tick_at_ = now + kTick;
  if (may_rest) {
    // Where long timers end too.
    tick_at_ = std::min(dispatcher_.NextGridPoint(),
                        now + std::chrono::milliseconds(config_.heartbeat_interval_ms) / 2);
    const MonotonicTime due = parts_.leases.NextDue();
    if (due > now) tick_at_ = std::min(tick_at_, due);
  }
  tick_timer_ = dispatcher_.PostAt(tick_at_, [this] {
    tick_timer_ = 0;
    Tick();
  });
}

void Agent::Impl::Hurry() {
  const MonotonicTime now = dispatcher_.Now();
  busy_until_ = std::max(busy_until_, now + kBusyFor);
  if (tick_timer_ == 0 || tick_at_ <= now + kTick) return;
  dispatcher_.Cancel(tick_timer_);
  ArmTick();
}

bool Agent::Impl::IsQuiet() const {
  return dispatcher_.Now() >= busy_until_ && !parts_.heartbeats.IsSearching() &&
         !parts_.views.AnyDraining();
}

// Who can't write grants nothing: everybody counts on it no more, or again, at once.
void Agent::Impl::TellOfDisk() {
  const bool fails = parts_.store->failure().has_value();
  if (fails) Hurry();
  if (std::exchange(told_failing_, fails) == fails || !parts_.guard.is_sure()) return;
  parts_.heartbeats.SendToAll();
}

// A machine that may be a copy finds out by who refuses it.
bool Agent::Impl::NeedsFreshReports() const {
  return !parts_.guard.is_sure() || parts_.views.AnyDraining() ||
         parts_.cluster_service.IsWatched();
}

void Agent::Impl::OnBeacon(const discovery::HeardBeacon& beacon) {
  using Worth = MemberMonitor::BeaconWorth;
  const Worth worth = parts_.members.HeardBeacon(beacon);
  parts_.heartbeats.NoteBeacon(beacon, worth);
  const bool may_call = parts_.guard.standing() != Standing::kRefused;
  if (worth == Worth::kWantsHeartbeat && may_call) parts_.heartbeats.Tick();
}

void Agent::Impl::OnMember(const discovery::MembershipEvent& event) {
  using discovery::MembershipChange;
  parts_.event_service.NoteMember(event);
  switch (event.change) {
    case MembershipChange::kForgotten:
      parts_.reports.Forget(event.node);
      parts_.links.Forget(event.node);
      parts_.cluster_service.NoteDead(event.node);
      parts_.channels.Forget(event.node);
      parts_.heartbeats.Forget(event.node);
      break;
    case MembershipChange::kRestarted:
      parts_.reports.Forget(event.node);
      parts_.replicator.NoteRestarted(event.node);
      break;
    case MembershipChange::kDead:
      parts_.metrics_service.NoteDead(event.node);
      parts_.gang_controller.NoteDead(event.node);
      parts_.router.NoteDead(event.node);
      parts_.cluster_service.NoteDead(event.node);
      break;
    default:
      break;
  }
  parts_.links.NoteMember(event.node, event.change == MembershipChange::kJoined ||
                                          event.change == MembershipChange::kRestarted ||
                                          event.change == MembershipChange::kAlive);
  parts_.heartbeats.TakeAddresses();
  MembersChanged();
  parts_.changes.Note(Change::kMembers);
}

void Agent::Impl::MembersChanged() {
  if (parts_.peer_server != nullptr) {
    std::set<std::string> known;
    for (const discovery::Member* member : parts_.members.table().Members()) {
      for (const v1::NodeAddress& address : member->identity.addresses())
        known.insert(address.ip());
    }
    parts_.peer_server->SetKnownAddresses(std::move(known));
  }
  parts_.election.SetBeside(parts_.members.Live());
  able_ = parts_.Able();
  if (parts_.guard.is_sure() && !lost_.has_value())
    parts_.leases.OnMembersChanged(able_, parts_.members.All());
}

void Agent::Impl::OnHeartbeat(const NodeId& from, bool changed) {
  parts_.beacons->NotePeerConnected(from);
  if (const NodeReport* report = parts_.reports.Find(from)) {
    parts_.replicator.NoteDigest(from, report->state_digest);
  }
  if (!changed) return;
  if (parts_.Able() != able_) MembersChanged();
  parts_.changes.Note(Change::kReport);
}

void Agent::Impl::OnAnswer(const NodeId& from, v1::HeartbeatResponse answer) {
  if (answer.has_refused()) return OnRefused(answer);
  if (!answer.has_own() || !parts_.members.IsMember(from)) return;
  parts_.guard.OnTaken(from);
  if (answer.own().has_links()) parts_.links.Take(from, answer.own().links());
  const bool changed =
      parts_.reports.Take(from, std::move(*answer.mutable_own()), dispatcher_.Now());
  OnHeartbeat(from, changed);
}

// One of the two is coordinator, or nobody is.
bool Agent::Impl::IsUrgent(const NodeId& node) const {
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(dispatcher_.Now());
  return !coordinator.has_value() || coordinator->coordinator == parts_.self ||
         coordinator->coordinator == node;
}

v1::HeartbeatRequest Agent::Impl::MakeNews() {
  const MonotonicTime now = dispatcher_.Now();
  v1::HeartbeatRequest request;
  *request.mutable_identity() = parts_.own.identity();
  request.set_inventory_revision(parts_.own.inventory().revision());
  request.set_links_revision(parts_.links.own().revision());
  for (const v1::RankStatus& rank : parts_.own.ranks()) *request.add_ranks() = rank;
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(now);
  if (coordinator.has_value()) *request.mutable_coordinator() = ToProto(*coordinator);
  request.set_draining(parts_.own.draining());
  for (const NodeId& node : parts_.members.Undialled()) {
    request.add_undialled_node_ids(node.value());
  }
  if (parts_.store->failure().has_value()) {
    *request.mutable_state_failure() = *parts_.store->failure();
    request.mutable_state_failure()->set_node_id(parts_.self.value());
  } else if (!parts_.guard.is_sure()) {
    // It grants and keeps nothing yet, so nobody is to count on it.
    *request.mutable_state_failure() = *parts_.guard.Problem();
  }
  return request;
}

v1::HeartbeatRequest Agent::Impl::MakeHeartbeat() {
  v1::HeartbeatRequest request = MakeNews();
  *request.mutable_load() = parts_.own.load();
  request.set_state_digest(parts_.replicator.table().Digest());
  request.set_sent_unix_ms(dispatcher_.UnixMs());
  request.set_sequence(++heartbeat_sequence_);
  return request;
}

v1::Reason Agent::Impl::LostMembership() const {
  v1::Reason reason = MakeReason(
      reasons::kNoSecret,
      absl::StrCat("this node is a member of cluster '", lost_->cluster_name,
                   "', and neither the secret file ", config_.cluster_secret_file,
                   " nor the certificate beside it is there: it takes part in no cluster"),
      parts_.self.value());
  reason.set_remedy(absl::StrCat(
      "put the file back, or start agentd with --cluster-secret-file and its new place, or join "
      "with 'clusterctl cluster join'; to leave that cluster, remove ",
      MembershipRecordPath(config_.state_folder), " and start agentd again"));
  return reason;
}

std::vector<v1::Reason> Agent::Impl::Problems() const {
  std::vector<v1::Reason> problems;
  if (lost_.has_value()) {
    problems.push_back(LostMembership());
  } else if (!joined_) {
    problems.push_back(
        MakeReason(reasons::kNoSecret,
                   absl::StrCat("this node has no cluster secret and stands alone; it looks for ",
                                config_.cluster_secret_file),
                   parts_.self.value()));
  }
  if (parts_.beacons != nullptr) {
    for (v1::Reason& reason : parts_.beacons->Problems()) problems.push_back(std::move(reason));
  }
  for (const v1::Reason& reason : {gateway_trouble_, engine_trouble_, parts_.alerts.trouble()}) {
    if (!reason.code().empty()) problems.push_back(reason);
  }
  if (parts_.peer_server != nullptr && !parts_.peer_server->ListenerTrouble().empty()) {
    problems.push_back(MakeReason(
        reasons::kListenerFailed,
        absl::StrCat(
            "no agent can connect to this one at ",
            HostPort(config_.control_bind, static_cast<int>(parts_.own.identity().control_port())),
            ": ", parts_.peer_server->ListenerTrouble(), ". It is tried again each second"),
        parts_.own.id().value()));
  }
  AddOneWay(problems);
  if (const auto paused = PausedReason(parts_.replicator.desired())) problems.push_back(*paused);
  if (const auto clash = parts_.guard.Problem(); clash.has_value()) problems.push_back(*clash);
  if (const auto keys = KeysReason()) problems.push_back(*keys);
  if (parts_.gateway_certificate != nullptr) {
    if (const auto https = parts_.gateway_certificate->Problem()) problems.push_back(*https);
  }
  if (!parts_.audit.trouble().empty()) {
    problems.push_back(MakeReason(
        reasons::kAuditUnwritable,
        absl::StrCat("the audit log of this node can't be written: ", parts_.audit.trouble()),
        parts_.self.value()));
  }
  for (const v1::Reason& reason : parts_.library->broken()) problems.push_back(reason);
  if (!parts_.library->has_looked()) {
    problems.push_back(MakeReason(reasons::kNotReady,
                                  "this node is still looking through its model folders",
                                  parts_.self.value()));
  }
  for (const v1::Reason& reason : parts_.replicator.lost_writes()) problems.push_back(reason);
  AddTrustProblems(problems);
  return problems;
}

void Agent::Impl::AddTrustProblems(std::vector<v1::Reason>& problems) const {
  for (v1::Reason& reason : parts_.trust.Problems()) problems.push_back(std::move(reason));
  for (v1::Reason& reason : parts_.enrolment.Problems()) problems.push_back(std::move(reason));
  // The others say so, or their signed word has reached this node.
  if (!parts_.heartbeats.own_refusal().code().empty() || parts_.revocations.Has(parts_.self)) {
    problems.push_back(MakeReason(reasons::kNodeRevoked,
                                  "this node was taken out of the cluster: the others refuse it",
                                  parts_.self.value()));
  }
  const MonotonicTime now = dispatcher_.Now();
  for (const auto& [node, why] : parts_.heartbeats.Refused()) {
    const auto clock = peer_clocks_.find(node);
    if (clock == peer_clocks_.end() || now - clock->second.heard > kPeerClockKept) continue;
    const auto sent_s = static_cast<int64_t>(clock->second.sent_unix_ms / 1000);
    problems.push_back(
        ReasonOfRefusedPeer({node, parts_.members.table().DisplayName(node), why, sent_s},
                            static_cast<int64_t>(dispatcher_.UnixMs() / 1000)));
  }
}

Agent::Agent(Platform& platform, const Config& config, std::unique_ptr<StateStore> store,
             std::string machine)
    : impl_(std::make_unique<Impl>(platform, config, std::move(store), machine)) {}

Agent::~Agent() = default;

absl::Status Agent::Start() { return impl_->Start(); }

AgentParts& Agent::parts() { return impl_->parts(); }

void Agent::Shutdown(std::function<void()> done) { impl_->Shutdown(std::move(done)); }

}  // namespace macrame::agentd
