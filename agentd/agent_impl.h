#pragma once

// What an agent is made of inside: agent.h's other half, for the files that carry it out (agent.cc,
// agent_identity.cc, agent_shutdown.cc). Owner thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agentd/agent.h"
#include "agentd/agent_parts.h"
#include "agentd/config/membership_record.h"
#include "agentd/cores/departure.h"

namespace macrame::agentd {

class Agent::Impl {
 public:
  Impl(Platform& platform, const Config& config, std::unique_ptr<StateStore> store,
       const std::string& machine)
      : dispatcher_(platform.dispatcher()),
        config_(config),
        parts_(platform, config, std::move(store), machine, MakeEvents()) {}

  absl::Status Start();
  void Shutdown(std::function<void()> done);
  AgentParts& parts() { return parts_; }
  ~Impl();

 private:
  AgentEvents MakeEvents();
  // Who looks again at what.
  void ReadChanges();
  void StartOwnParts();
  void Took(runtime::SecondEngine second);
  void TellEngines();
  absl::Status StartTrust();
  absl::Status Join(const ClusterTrust& trust);
  absl::Status JoinInsecure();
  absl::Status ServePeers(std::shared_ptr<grpc::ServerCredentials> credentials, bool plain);
  void StartBeacons(std::optional<discovery::BeaconTrust> trust);
  absl::Status StartTraces();
  void StartGateway();
  void PollSecret();
  std::vector<std::string> BeaconInterfaces() const;
  bool IsBoundToOneAddress() const;
  void TakeInterfaces(const std::vector<discovery::Interface>& interfaces);
  void TellSelf();
  void StartIdentity();
  void WatchIdentity();
  void OnOwnIdBeacon(const v1::NodeIdentity& other, bool is_sign_of_life);
  void OnRefused(const v1::HeartbeatResponse& answer);
  void WatchDials();
  void AddOneWay(std::vector<v1::Reason>& problems) const;
  void Tick();
  void ArmTick();
  // Something happened: ticks are frequent for a while.
  void Hurry();
  bool IsQuiet() const;
  bool NeedsFreshReports() const;
  void TellOfDisk();
  void OnBeacon(const discovery::HeardBeacon& beacon);
  bool IsUrgent(const NodeId& node) const;
  // What a beacon's digest is of: everything that others act on.
  v1::HeartbeatRequest MakeNews();
  void TellOfState();
  void OnStateChanged();
  void OnMember(const discovery::MembershipEvent& event);
  void OnRenewed(const transport::NodeCredentials& credentials);
  void OnRevoked(const std::set<NodeId>& nodes);
  void NotePeerClock(const NodeId& node, uint64_t sent_unix_ms);
  bool HeardRevoked(const v1::NodeIdentity& identity);
  void OnHeartbeat(const NodeId& from, bool changed);
  void OnAnswer(const NodeId& from, v1::HeartbeatResponse answer);
  void MembersChanged();
  v1::HeartbeatRequest MakeHeartbeat();
  std::optional<v1::Reason> KeysReason() const;
  std::vector<v1::Reason> Problems() const;
  v1::Reason LostMembership() const;
  void AddTrustProblems(std::vector<v1::Reason>& problems) const;
  void SendGoodbyes();
  DepartureView SeeDeparture();
  void StepDeparture();
  void Stop();
  void StopWhenTold(MonotonicTime latest);
  void FinishShutdown();

  transport::Dispatcher& dispatcher_;
  const Config config_;
  AgentParts parts_;
  bool joined_ = false;
  // The cluster that this node is a member of, where its secret file and membership are gone. It
  // leads no cluster of its own then.
  std::optional<MembershipRecord> lost_;
  uint64_t renewal_ = 0;  // counts OnRenewed
  uint64_t heartbeat_sequence_ = 0;
  std::set<NodeId> able_;               // as the election knows it
  std::optional<Departure> departure_;  // told to stop
  bool stopping_ = false;
  bool told_failing_ = false;  // the others know that the disk can't be written
  MonotonicTime busy_until_;
  MonotonicTime tick_at_;
  transport::Dispatcher::TimerId tick_timer_ = 0;
  std::optional<MonotonicTime> leaderless_since_;
  MonotonicTime own_id_asked_;  // whoever sends beacons under this node's id
  std::string secret_trouble_;  // the last that was logged
  MonotonicTime secret_polled_;
  MonotonicTime persons_checked_;  // whether access files under whose keys calls go on have expired
  struct PeerClock {
    uint64_t sent_unix_ms = 0;
    MonotonicTime heard;
  };
  std::map<NodeId, PeerClock> peer_clocks_;  // from beacons with a good tag
  std::set<NodeId> revoked_;
  v1::Reason gateway_trouble_;
  v1::Reason engine_trouble_;
  std::vector<v1::Engine> engines_;
  std::optional<uint64_t> working_set_bytes_;  // of this machine's GPU, as MLX reports it
  std::function<void()> on_shutdown_;
};

}  // namespace macrame::agentd
