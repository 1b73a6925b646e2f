#include "agentd/agent_parts.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/version.h"
#include "agentd/base/web_url.h"
#include "agentd/services/webhook.h"

namespace macrame::agentd {
namespace {

Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }

v1::NodeIdentity FirstIdentity(const Config& config, const StateStore& store,
                               const std::string& machine) {
  v1::NodeIdentity identity;
  identity.set_node_id(store.node_id().value());
  identity.set_incarnation(store.incarnation().value());
  identity.set_hostname(config.node_name.empty() ? discovery::LocalHostname() : config.node_name);
  identity.set_agent_version(kAgentVersion);
  identity.set_machine(machine);
  return identity;
}

runtime::SupervisorOptions SupervisorOptionsOf(const Config& config, const StateStore& store) {
  runtime::SupervisorOptions options;
  options.node_id = store.node_id().value();
  options.state_folder = config.state_folder;
  options.rankd_path = config.rankd_path;
  options.core_dumps = config.core_dumps;
  options.kv_cache_disk_bytes = static_cast<uint64_t>(config.kv_cache_disk_mib) << 20;
  options.kv_cache_disk_hours = static_cast<uint32_t>(config.kv_cache_disk_hours);
  options.metal_fast_synch = config.metal_fast_synch == "on"    ? runtime::FastSynch::kOn
                             : config.metal_fast_synch == "off" ? runtime::FastSynch::kOff
                                                                : runtime::FastSynch::kAuto;
  return options;
}

discovery::InventoryInputs InventoryInputsOf(const Config& config, const StateStore& store) {
  discovery::InventoryInputs inputs;
  inputs.node_id = store.node_id();
  inputs.disk_paths = {"/", config.state_folder};
  inputs.models_memory_max_bytes = static_cast<uint64_t>(config.models_memory_max_mib) << 20;
  for (const std::string& folder : config.model_folders) {
    inputs.disk_paths.push_back(ExpandHome(folder));
  }
  return inputs;
}

discovery::LinkInputs LinkInputsOf(const OwnNode& own) {
  return {own.id(), own.identity().hostname(), kMlxVersion};
}

discovery::FailureLimits FailureLimitsOf(const Config& config) {
  discovery::FailureLimits limits;
  limits.heartbeat_interval = Ms(config.heartbeat_interval_ms);
  limits.suspect_after = Ms(config.suspect_after_ms);
  limits.dead_after = Ms(config.dead_after_ms);
  limits.unanswered_after = limits.dead_after * 5 / 8;
  limits.ask_after = std::min(limits.ask_after, limits.suspect_after * 2 / 3);
  return limits;
}

Consistency ConsistencyOf(const Config& config) {
  return config.consistency == "quorum" ? Consistency::kQuorum : Consistency::kAvailable;
}

ElectionOptions ElectionOptionsOf(const Config& config) {
  ElectionOptions options;
  options.lease = Ms(config.lease_ms);
  options.renew_interval = Ms(config.lease_ms) / 8;
  // So that a coordinator that was paused for half of its lease still has it.
  options.fresh_for = Ms(config.lease_ms) * 21 / 50;
  options.consistency = ConsistencyOf(config);
  options.minority_wait = std::chrono::seconds(config.minority_wait_s);
  options.first_members = static_cast<size_t>(config.quorum_first_members);
  return options;
}

IdentityGuardOptions GuardOptionsOf(const Config& config) {
  IdentityGuardOptions options;
  options.look = std::max(options.look, Ms(config.dead_after_ms));
  options.alone = std::max<Duration>(options.look, std::chrono::seconds(config.minority_wait_s));
  // Signs of life of the other come in at each heartbeat's interval.
  options.look_again = std::max(options.look_again, 4 * Ms(config.heartbeat_interval_ms));
  options.consistency = ConsistencyOf(config);
  return options;
}

HeartbeatOptions HeartbeatOptionsOf(const Config& config) {
  HeartbeatOptions options;
  options.interval = Ms(config.heartbeat_interval_ms);
  options.beacon_silence = std::min(options.interval * 7 / 4, Ms(config.suspect_after_ms) * 2 / 3);
  options.timeout = Ms(config.suspect_after_ms);
  return options;
}

GangLauncher::Options LaunchOptionsOf(const Config& config) {
  GangLauncher::Options options;
  options.connect_timeout_ms = static_cast<uint32_t>(config.rank_connect_timeout_ms);
  options.step_timeout_ms = static_cast<uint32_t>(config.rank_step_timeout_ms);
  options.queued_requests_max = static_cast<uint32_t>(config.queued_requests_max);
  return options;
}

// Answers of a gang that gave way, for whatever cause, go on for as long as those of a node that is
// told to stop; for a while also where such a node does not wait.
Duration GiveWayLimit(const Config& config) {
  return std::max<Duration>(kMovedOnGrace, std::chrono::seconds(config.drain_timeout_s));
}

GangReconcilerOptions ReconcilerOptionsOf(const Config& config) {
  GangReconcilerOptions options;
  // The ranks give up by themselves first, with words that say why.
  options.connecting_limit = Ms(config.rank_connect_timeout_ms) + std::chrono::seconds(10);
  options.drain_limit = GiveWayLimit(config);
  return options;
}

LinkTable::Options LinkOptionsOf(const Config& config, const transport::Clock& clock) {
  LinkTable::Options options;
  options.allow_vpn = config.allow_vpn;
  options.rdma_nodes_max = static_cast<uint32_t>(config.rdma_nodes_max);
  options.support_lists = {config.support_list.empty() ? config.state_folder + "/support.yaml"
                                                       : ExpandHome(config.support_list)};
  options.first_revision = clock.UnixMs();
  return options;
}

ModelDemand::Options DemandOptionsOf(const Config& config) {
  return {config.gateway_load_on_request, config.gateway_unload_for_requests,
          std::chrono::seconds(config.model_idle_unload_s)};
}

bool IsServing(const std::vector<v1::RankStatus>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const v1::RankStatus& rank) { return rank.requests_running() > 0; });
}

AlertService::Post WebhookOf(transport::Dispatcher& dispatcher, const Config& config) {
  std::optional<WebUrl> url = ParseWebUrl(config.alert_webhook);
  if (!url.has_value()) return nullptr;
  auto webhook =
      std::make_shared<Webhook>(dispatcher, *std::move(url), config.alert_webhook_authorization);
  return [webhook](std::string json, std::function<void(const absl::Status&)> done) {
    webhook->Post(std::move(json), std::move(done));
  };
}

AuditEntry AuditOf(const RefusedRequest& refused) {
  AuditEntry entry;
  entry.who = refused.key_id.empty() ? "nobody" : absl::StrCat("key ", refused.key_id);
  entry.what = absl::StrCat(refused.method, " ", refused.path);
  entry.from = refused.address;
  entry.outcome = absl::StrCat(refused.status, " ", refused.code);
  return entry;
}

}  // namespace

std::set<NodeId> NodeParts::Able() const {
  std::set<NodeId> able = members.Live();
  for (const NodeId& node : reports.Failing()) able.erase(node);
  for (const NodeId& node : unasked) able.erase(node);
  return able;
}

NodeParts::NodeParts(Platform& platform_in, const Config& config_in,
                     std::unique_ptr<StateStore> store_in, const std::string& machine,
                     const AgentEvents& events)
    : platform(platform_in),
      dispatcher(platform.dispatcher()),
      config(config_in),
      store(std::move(store_in)),
      self(store->node_id()),
      supervisor(platform.MakeSupervisor(SupervisorOptionsOf(config, *store))),
      prober(platform.MakeInventoryProber(InventoryInputsOf(config, *store), dispatcher.UnixMs())),
      own(dispatcher, FirstIdentity(config, *store, machine), *prober, *supervisor),
      guard(store->last_machine(), GuardOptionsOf(config), dispatcher.Now()),
      members(dispatcher, own.identity(), FailureLimitsOf(config),
              {events.on_member, events.on_probe, events.on_ask, events.on_gone}),
      election(self, ElectionOptionsOf(config), store->loaded_grant(), platform.Random(),
               dispatcher.Now()),
      channels(platform.ChannelMaker(self)),
      own_socket([this] { return platform.ConnectToSelf(config.socket_path, self); }) {}

StateParts::StateParts(Platform& platform_in, const Config& config_in,
                       std::unique_ptr<StateStore> store_in, const std::string& machine,
                       const AgentEvents& events, const Later& later)
    : NodeParts(platform_in, config_in, std::move(store_in), machine, events),
      replicator(dispatcher, self, *store, election, channels, {},
                 {[this] {
                    if (ConsistencyOf(config) == Consistency::kAvailable) return Able();
                    return member_writer.listed().empty() ? members.All() : member_writer.listed();
                  },
                  [this] { return members.Live(); },
                  [this] {
                    std::set<NodeId> known = members.All();
                    known.insert(member_writer.listed().begin(), member_writer.listed().end());
                    return known;
                  },
                  [this] {
                    return ConsistencyOf(config) == Consistency::kAvailable ||
                           !member_writer.listed().empty();
                  },
                  events.on_state_changed, later.note_apart}),
      leases(dispatcher, election, *store, replicator, channels, Ms(config.lease_ms) / 4,
             {events.on_became_coordinator, events.on_lost_coordination, events.on_obeys_changed,
              [this](const NodeId& node, bool reached) { members.NoteCall(node, reached); },
              later.send_lease}),
      member_writer({dispatcher, election, leases, replicator, members, self},
                    ConsistencyOf(config)),
      trust(dispatcher, self, config.cluster_secret_file, channels, members, events.on_renewed),
      gateway_certificate(
          config.gateway_tls_authority
              ? std::make_unique<GatewayCertificate>(
                    GatewayCertificate::Parts{dispatcher, trust, channels, members, own},
                    config.state_folder, config.gateway_hosts)
              : nullptr),
      revocations({dispatcher, election, *store, replicator, member_writer, members, channels, self,
                   events.on_revoked}) {}

GangParts::GangParts(Platform& platform_in, const Config& config_in,
                     std::unique_ptr<StateStore> store_in, const std::string& machine,
                     const AgentEvents& events, const Later& later)
    : StateParts(platform_in, config_in, std::move(store_in), machine, events, later),
      links({dispatcher, own, members, election, replicator, channels,
             [this] { return IsServing(own.ranks()); }, changes,
             platform.MakeLinkProber(LinkInputsOf(own),
                                     std::chrono::seconds(config.link_probe_interval_s)),
             platform.MakeLinkMeasurer()},
            LinkOptionsOf(config, dispatcher)),
      library(platform.MakeModelLibrary(config.model_folders, config.rankd_path)),
      second_engine(platform.MakeSecondEngineProbe()),
      device(platform.MakeDeviceProbe()),
      orders(
          election, *library, *supervisor,
          {[this] { return config.ring_bind.empty() ? std::string("0.0.0.0") : config.ring_bind; },
           [this] { return own.memory(); }, [this] { return own.draining(); }}),
      calls(self, channels, orders, *library),
      views(dispatcher, own, members, reports, election, *store, replicator.desired()),
      planner(dispatcher, calls, views, links, replicator, config.transport),
      launcher(calls, links, LaunchOptionsOf(config)),
      gang_controller({dispatcher, election, replicator, views, planner, launcher, calls, links},
                      ReconcilerOptionsOf(config), changes) {}

AgentParts::AgentParts(Platform& platform_in, const Config& config_in,
                       std::unique_ptr<StateStore> store_in, const std::string& machine,
                       const AgentEvents& events)
    : GangParts(platform_in, config_in, std::move(store_in), machine, events,
                {[this](const v1::GangRecord& record) { gang_controller.NoteApart(record); },
                 [this](const NodeId& node, const v1::LeaseRequest& request,
                        LeaseClient::LeaseDone done) {
                   heartbeats.SendLease(node, request, std::move(done));
                 }}),
      router(dispatcher, self, replicator, channels, *supervisor, GiveWayLimit(config)),
      energy({dispatcher, views, gang_controller, channels, members, self}),
      reporter({dispatcher, election, members, member_writer, views, gang_controller, own, links,
                energy, events.problems}),
      heartbeats(
          dispatcher, channels, members, self, HeartbeatOptionsOf(config),
          {events.make_heartbeat, [this]() -> const v1::Inventory& { return own.inventory(); },
           [this](const NodeId& node) { return reports.KnownRevision(node); },
           [this]() -> const v1::NodeLinks& { return links.own(); },
           [this](const NodeId& node) { return links.KnownRevision(node); }, events.on_answer,
           [this](const NodeId& node) { return reports.NewsHeard(node); }, events.is_urgent}),
      link_service({dispatcher, links, views, election, replicator, members, channels,
                    gang_controller, *supervisor, self, [this] { return reporter.Problems(); }}),
      trace_service({channels, replicator, *supervisor, self}),
      verify_service({dispatcher, channels, members, *library, replicator, self, &views}),
      pause_service({dispatcher, election, channels, own}, replicator),
      profile_service({dispatcher, election, channels, own}, replicator, reporter),
      alerts({dispatcher, election, reporter, self, events.problems}, config.alert_webhook,
             WebhookOf(dispatcher, config)),
      agent_service({dispatcher, own, guard, members, reports, leases, replicator, orders, *library,
                     router, links, events.make_heartbeat, events.on_heartbeat}),
      access(std::make_shared<GatewayAccess>(
          [this](const RefusedRequest& refused) {
            dispatcher.Post([this, entry = AuditOf(refused)] { audit.AddRefused(entry); });
          },
          std::chrono::hours(config.response_retention_h))),
      caller_view({replicator, views, access}),
      cluster_service({dispatcher, election, channels, own, replicator, gang_controller, planner,
                       reporter, router, member_writer, views, caller_view, config.log_file}),
      enrolment({dispatcher, own, trust, revocations, members, heartbeats, config.control_bind,
                 static_cast<int>(config.join_port)}),
      demand({dispatcher, election, gang_controller, reporter, router, own_socket,
              replicator.desired()},
             DemandOptionsOf(config)),
      metrics_service({dispatcher, reporter, cluster_service, heartbeats, own, demand, energy,
                       [this] { return gateway.get(); }, GatewayOptions().connections_max}),
      event_service({dispatcher, election, channels, members, views, replicator, self}),
      audit(dispatcher, config.state_folder),
      access_service({{dispatcher, election, channels, own}, replicator, audit}),
      retention_service({dispatcher, own, channels, members, access}),
      access_file_service({dispatcher, own, replicator, trust, members,
                           [this](const transport::Caller& caller, const v1::CreateKeyRequest& key,
                                  transport::RpcServer::Reply<v1::CreateKeyResponse> reply) {
                             access_service.CreateKey(caller, key, std::move(reply));
                           }}),
      gateway_orders({audit, own_socket, views}),
      local_server(platform.MakeServer()) {
  Connect(machine);
  RegisterLocal();
}

void AgentParts::Connect(const std::string& machine) {
  guard.SetSelf(own.identity());
  election.SetMachine(machine);
  router.SetIsDead([this](const NodeId& node) {
    const discovery::Member* member = members.table().Find(node);
    return member != nullptr && member->state == v1::NODE_STATE_DEAD;
  });
  replicator.SetKeeps([this](std::string_view key) { return gang_controller.Keeps(key); });
  cluster_service.SetUnused([this](Duration unused_for) { return demand.Unused(unused_for); });
  gang_controller.SetOnNews([this](const Notify& news) { event_service.NoteDeployment(news); });
}

void AgentParts::RegisterLocal() {
  cluster_service.Register(*local_server);
  link_service.RegisterCluster(*local_server);
  trace_service.RegisterCluster(*local_server);
  verify_service.RegisterCluster(*local_server);
  pause_service.Register(*local_server);
  profile_service.Register(*local_server);
  enrolment.RegisterLocal(*local_server);
  metrics_service.RegisterLocal(*local_server);
  event_service.Register(*local_server);
  energy.Register(*local_server);
  access_service.RegisterCluster(*local_server);
  access_service.RegisterLocal(*local_server);
  retention_service.RegisterCluster(*local_server);
  access_file_service.RegisterLocal(*local_server);
  local_server->SetObserver(AuditObserver(audit));
}

}  // namespace macrame::agentd
