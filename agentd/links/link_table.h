#pragma once

// What this node knows of all links: its own facts and measurements, those of the others as their
// heartbeats bring them, what follows from all of it, and which backends are not tried again. The
// coordinator writes verdicts and refusals into the desired state, so that they outlive it. Owner
// thread.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cores/changes.h"
#include "agentd/cores/crash_log.h"
#include "agentd/cores/election.h"
#include "agentd/cores/gpu_watch.h"
#include "agentd/cores/link_schedule.h"
#include "agentd/links/link_measurer.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/own_node.h"
#include "agentd/node/peer_channels.h"
#include "agentd/state/state_replicator.h"
#include "discovery/probe/link_prober.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/link.pb.h"
#include "transport/links/judge.h"

namespace macrame::agentd {

inline constexpr size_t kRefusalsMax = 256;
// Changes come in bursts: judged at most this often.
inline constexpr Duration kJudgeInterval = std::chrono::milliseconds(250);
// A peer's news makes this node look at its own ports again, at most this often.
inline constexpr Duration kPeerProbeInterval = std::chrono::seconds(10);
inline constexpr Duration kSupportListInterval = std::chrono::seconds(30);
inline constexpr Duration kGpuWatchInterval = std::chrono::seconds(2);

class LinkTable {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    OwnNode& own;
    const MemberMonitor& members;
    const Election& election;
    StateReplicator& replicator;
    PeerChannels& channels;
    // A rank of ours is busy with a request: nothing is measured then.
    std::function<bool()> is_busy;
    Changes& changes;
    std::unique_ptr<discovery::LinkProber> prober;
    std::unique_ptr<LinkMeasurer> measurer;
  };
  struct Options {
    bool allow_vpn = false;
    uint32_t rdma_nodes_max = 4;
    std::vector<std::string> support_lists;  // the newest date counts
    uint64_t first_revision = 1;
  };

  LinkTable(Parts parts, Options options);
  ~LinkTable();

  void Start();
  // Each 100 ms or so; costs nothing while nothing is due.
  void Tick();

  const v1::NodeLinks& own() const { return own_links_; }
  // From another's heartbeat.
  void Take(const NodeId& from, v1::NodeLinks links);
  uint64_t KnownRevision(const NodeId& node) const;
  void Forget(const NodeId& node);
  // A member's state changed: what is judged depends on who is there. `is_back`: it can be reached
  // from here on, and what could not be measured while it could not be is measured now.
  void NoteMember(const NodeId& node, bool is_back);

  // This node and the live others.
  v1::LinkSnapshot Snapshot() const;
  // What members that are not alive told last.
  v1::LinkSnapshot Absent() const;
  // As this node judges it now.
  const v1::ClusterLinks& links();
  // Counts how often it was judged anew: what follows from links() holds until it changes.
  uint64_t judgement() {
    links();
    return judgement_;
  }
  v1::GroupVerdict Group(const std::vector<std::string>& node_ids);
  // Most nodes of one RDMA mesh, as configured.
  uint32_t rdma_nodes_max() const { return options_.rdma_nodes_max; }
  std::vector<v1::TransportRefusal> Refusals() const;
  v1::LinksView View();

  // Coordinator: not to be tried again, or again from now on. `node_ids` empty: all refusals.
  void Remember(const v1::TransportRefusal& refusal);
  std::vector<v1::TransportRefusal> ForgetRefusals(const std::vector<std::string>& node_ids);

  // Coordinator: a gang over `backend` lost this node. Should it turn out that its machine
  // restarted, that is remembered; twice within an hour keep it off RDMA, or cordon it. So do
  // panics that a Mac itself reports, this one's included.
  void NoteLostNode(const NodeId& node, const std::string& backend);
  // Machines that restarted while they held a rank, for the doctor.
  std::vector<v1::Reason> CrashReasons() const;

  // This node's ranks, at each change. What RDMA they hold is nobody's leak, and the GPU may be
  // busy while one runs. One that failed to reach another puts all measured ways in doubt: this
  // node looks and measures again, once for each launch.
  void NoteRanks(const std::vector<v1::RankStatus>& ranks);

  LinkMeasurer& measurer() { return *parts_.measurer; }
  // Probes at once; `done` when the answer is taken in.
  void ProbeNow(std::function<void()> done);
  // Measures this node's pairs with `peer` (all when empty) again; `done` when they are through or
  // `limit` is over.
  void MeasureNow(const std::string& peer, Duration limit, std::function<void()> done);

 private:
  void OnFacts(const v1::LinkFacts& facts);
  void RefreshPairs();
  void ProbeBecauseOfPeer();
  void StartMeasurement();
  void RunMeasurement(const LinkPair& pair, const v1::OpenMeterResponse& offer);
  void TakeMeasurement(const LinkPair& pair, v1::LinkMeasurement measured);
  void NoteCrash(const NodeId& node, const std::string& backend);
  void NotePanics(const v1::LinkFacts& facts);
  void WriteCrashes(const v1::NodeCrashes& crashes, bool has_new);
  v1::NodeCrashes CrashesOf(const NodeId& node) const;
  void CordonCrashed(const NodeId& node);
  std::string HostnameOf(const NodeId& node) const;
  void OwnChanged();
  void NoteDomainHolders(uint32_t holders);
  bool LeaveOutHeldDomains();
  void WatchGpu();
  void JudgeAsCoordinator();
  void WriteVerdicts();
  void ReadSupportLists();

  Parts parts_;
  const Options options_;
  LinkSchedule schedule_;
  bool measuring_ = false;
  uint32_t domain_holders_ = 0;  // ranks of ours that hold RDMA domains, or did at the last probe
  bool counts_again_ = false;
  GpuWatch gpu_watch_;
  std::optional<MonotonicTime> gpu_watched_at_;
  std::optional<NodeId> asked_;  // for a meter, and has not answered
  v1::NodeLinks own_links_;
  std::map<NodeId, v1::NodeLinks> others_;
  v1::SupportList support_list_;
  std::string support_list_trouble_;
  MonotonicTime support_list_read_{};
  bool has_read_support_list_ = false;
  v1::ClusterLinks judged_;
  bool peer_changed_ = false;  // and this node has not looked since
  std::optional<MonotonicTime> probed_for_peer_;
  uint64_t judgement_ = 0;
  CrashLog crash_log_;
  std::map<std::string, uint64_t> doubted_;  // epoch of the last launch that failed, by deployment
  bool stale_ = true;                        // judged_ does not hold any more
  bool wants_write_ = true;                  // the coordinator has not looked since
  bool led_ = false;                         // at the last look
  MonotonicTime judged_at_{};
  std::string written_;  // substance of what was written last
  struct Waiting {
    MonotonicTime until;
    std::function<void()> done;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace macrame::agentd
