#pragma once

// All parts of a running agent, in the order in which they are made; they go in the reverse order,
// so that nobody is called back after what it uses. Internal to agent*.cc. Owner thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/config/config.h"
#include "agentd/cores/changes.h"
#include "agentd/cores/election.h"
#include "agentd/cores/identity_guard.h"
#include "agentd/cores/state_store.h"
#include "agentd/gangs/deployment_planner.h"
#include "agentd/gangs/gang_controller.h"
#include "agentd/gangs/gang_launcher.h"
#include "agentd/gateway/gateway.h"
#include "agentd/links/link_table.h"
#include "agentd/node/gateway_certificate.h"
#include "agentd/node/heartbeat_sender.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/node_calls.h"
#include "agentd/node/node_trust.h"
#include "agentd/node/node_views.h"
#include "agentd/node/own_node.h"
#include "agentd/node/own_socket.h"
#include "agentd/node/peer_channels.h"
#include "agentd/node/rank_orders.h"
#include "agentd/node/report_table.h"
#include "agentd/platform.h"
#include "agentd/services/access_file_service.h"
#include "agentd/services/access_service.h"
#include "agentd/services/agent_service.h"
#include "agentd/services/alert_service.h"
#include "agentd/services/caller_view.h"
#include "agentd/services/cluster_service.h"
#include "agentd/services/energy_service.h"
#include "agentd/services/enrolment_service.h"
#include "agentd/services/event_service.h"
#include "agentd/services/gateway_orders.h"
#include "agentd/services/generate_router.h"
#include "agentd/services/link_service.h"
#include "agentd/services/metrics_service.h"
#include "agentd/services/model_demand.h"
#include "agentd/services/pause_service.h"
#include "agentd/services/profile_service.h"
#include "agentd/services/retention_service.h"
#include "agentd/services/status_reporter.h"
#include "agentd/services/trace_exporter.h"
#include "agentd/services/trace_service.h"
#include "agentd/services/verify_service.h"
#include "agentd/state/audit_log.h"
#include "agentd/state/lease_client.h"
#include "agentd/state/member_writer.h"
#include "agentd/state/revocations.h"
#include "agentd/state/state_replicator.h"
#include "transport/trust.h"

namespace macrame::agentd {

// What the parts tell the agent.
struct AgentEvents {
  std::function<void(const discovery::MembershipEvent&)> on_member;
  std::function<void(const NodeId&)> on_probe;
  std::function<int(const NodeId&)> on_ask;
  std::function<void(const NodeId&)> on_gone;
  std::function<void(const transport::NodeCredentials&)> on_renewed;
  std::function<void(const std::set<NodeId>&)> on_revoked;
  std::function<void(const FencePair&)> on_became_coordinator;
  std::function<void()> on_lost_coordination;
  std::function<void()> on_obeys_changed;
  std::function<void()> on_state_changed;
  std::function<void(const NodeId&, bool)> on_heartbeat;
  std::function<void(const NodeId&, v1::HeartbeatResponse)> on_answer;
  std::function<bool(const NodeId&)> is_urgent;
  std::function<v1::HeartbeatRequest()> make_heartbeat;
  std::function<std::vector<v1::Reason>()> problems;
};

// What a node is and whom it knows.
struct NodeParts {
  NodeParts(Platform& platform_in, const Config& config_in, std::unique_ptr<StateStore> store_in,
            const std::string& machine, const AgentEvents& events);

  // Who may elect and acknowledge: live, able to write to its disk, and not `unasked`. Without this
  // node.
  std::set<NodeId> Able() const;

  Platform& platform;
  Changes changes;
  transport::Dispatcher& dispatcher;
  const Config config;
  std::unique_ptr<StateStore> store;
  const NodeId self;
  const std::unique_ptr<runtime::RankSupervisor> supervisor;
  const std::unique_ptr<discovery::InventoryProber> prober;
  OwnNode own;
  IdentityGuard guard;
  ReportTable reports;
  // Live members that this node can't call, and without whom it had no coordinator for so long that
  // it no longer counts them: nobody would ever win who needs the lease of a node that can't be
  // asked.
  std::set<NodeId> unasked;
  MemberMonitor members;
  Election election;
  // Before all that wait for its answers: it goes after them.
  PeerChannels channels;
  OwnSocket own_socket;
};

// What the cluster agrees on: its state, who writes it, and who belongs to it.
struct StateParts : NodeParts {
  // What parts that are made later do for these.
  struct Later {
    std::function<void(const v1::GangRecord&)> note_apart;
    std::function<void(const NodeId&, const v1::LeaseRequest&, LeaseClient::LeaseDone)> send_lease;
  };
  StateParts(Platform& platform_in, const Config& config_in, std::unique_ptr<StateStore> store_in,
             const std::string& machine, const AgentEvents& events, const Later& later);

  StateReplicator replicator;
  LeaseClient leases;
  MemberWriter member_writer;
  NodeTrust trust;
  const std::unique_ptr<GatewayCertificate>
      gateway_certificate;  // null: gateway_tls_authority is not set
  Revocations revocations;
};

// What models run on: links, models of this node, plans and gangs.
struct GangParts : StateParts {
  GangParts(Platform& platform_in, const Config& config_in, std::unique_ptr<StateStore> store_in,
            const std::string& machine, const AgentEvents& events, const Later& later);

  LinkTable links;
  const std::unique_ptr<ModelLibrary> library;
  const std::unique_ptr<SecondEngineProbe> second_engine;
  const std::unique_ptr<DeviceProbe> device;
  RankOrders orders;
  NodeCalls calls;
  NodeViews views;
  DeploymentPlanner planner;
  GangLauncher launcher;
  GangController gang_controller;
};

// With the services that people and other nodes ask.
struct AgentParts : GangParts {
  AgentParts(Platform& platform_in, const Config& config_in, std::unique_ptr<StateStore> store_in,
             const std::string& machine, const AgentEvents& events);

  GenerateRouter router;
  EnergyService energy;
  StatusReporter reporter;
  HeartbeatSender heartbeats;
  LinkService link_service;
  TraceService trace_service;
  VerifyService verify_service;
  PauseService pause_service;
  ProfileService profile_service;
  AlertService alerts;
  AgentService agent_service;
  std::shared_ptr<GatewayAccess> access;  // the gateway has it too
  CallerView caller_view;
  ClusterService cluster_service;
  EnrolmentService enrolment;
  ModelDemand demand;
  MetricsService metrics_service;
  EventService event_service;
  AuditLog audit;
  AccessService access_service;
  RetentionService retention_service;
  AccessFileService access_file_service;
  GatewayOrders gateway_orders;
  const std::unique_ptr<transport::RpcServer> local_server;
  std::unique_ptr<transport::RpcServer> peer_server;  // while there is a secret
  std::unique_ptr<discovery::BeaconService> beacons;
  std::unique_ptr<TraceExporter> traces;  // null: none are taken
  std::unique_ptr<Gateway> gateway;

 private:
  void Connect(const std::string& machine);
  void RegisterLocal();
};

}  // namespace macrame::agentd
