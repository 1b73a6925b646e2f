#pragma once

// What the parts of GangReconciler share: one Reconcile's view by the keys that it is looked up by,
// and the few words that they have for nodes and ranks. For its own .cc files only.

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "proto/rank_words.h"
#include "proto/reasons.h"

namespace macrame::agentd {

inline bool IsReachable(const NodeView& node) {
  return node.state == v1::NODE_STATE_ALIVE || node.state == v1::NODE_STATE_SUSPECT;
}

// A plan may use it.
inline bool TakesRanks(const NodeView& node) {
  return node.state == v1::NODE_STATE_ALIVE && node.orderable && !node.draining && !node.cordoned;
}

// It is nobody's in particular, or the tenant's whose model that is.
inline bool IsFor(const NodeView& node, const v1::Deployment& wanted) {
  return node.tenant.empty() || node.tenant == wanted.placement().tenant();
}

// Without the tenant's name: the model that leaves the node is another's, or everybody's.
inline constexpr char kDedicatedWords[] = "is dedicated to another tenant";

// What a node that gives its ranks away does.
inline std::string LeavingWords(const NodeView& node) {
  if (node.answers_have) return "is being drained";
  return node.draining ? "is about to stop" : kDedicatedWords;
}

inline bool IsOver(v1::RankPhase phase) {
  return phase == v1::RANK_PHASE_FAILED || phase == v1::RANK_PHASE_STOPPED;
}

// Words about another rank, which is gone or can't be reached: they don't say why.
inline bool TellsOfAnother(const v1::Reason& reason) {
  return reason.code() == reasons::kPeerLost || reason.code() == reasons::kConnectFailed ||
         (reason.code() == reasons::kRankExited && TellsOfLink(reason));
}

// FNV-1a, 64 bits: the same on every node, and no secret hangs on it.
inline uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : text) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return hash;
}

// Whether the gang of this record was launched for what is wanted now.
inline bool IsFor(const v1::GangRecord& record, const std::string& wanted) {
  return record.wanted_hash() == 0 || record.wanted_hash() == HashOf(wanted);
}

inline double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

inline std::string Place(const v1::Assignment& assignment) {
  const std::string host =
      assignment.hostname().empty() ? ShortId(NodeId(assignment.node_id())) : assignment.hostname();
  return absl::StrCat("rank ", assignment.rank(), " on ", host);
}

// What one Reconcile looks at, by the keys that it is looked up by.
struct GangReconciler::Round {
  const ClusterView& view;
  MonotonicTime now;
  std::map<NodeId, const NodeView*> nodes;
  std::map<std::string, std::vector<const v1::RankStatus*>> ranks;  // of reachable nodes
  std::map<std::string, const v1::GangRecord*> records;
  std::map<std::string, const v1::Deployment*> deployments;
  std::string placement;  // the nodes that a plan could use, with their revisions
  bool busy = false;      // one deployment is between planning and launched
  GangEffects effects;

  const NodeView* Node(const NodeId& id) const {
    const auto it = nodes.find(id);
    return it == nodes.end() ? nullptr : it->second;
  }
  const std::vector<const v1::RankStatus*>& RanksOf(const std::string& name) const {
    static const std::vector<const v1::RankStatus*> kNone;
    const auto it = ranks.find(name);
    return it == ranks.end() ? kNone : it->second;
  }
  const v1::RankStatus* RankOf(const std::string& name, uint64_t epoch,
                               const v1::Assignment& assignment) const {
    for (const v1::RankStatus* rank : RanksOf(name)) {
      if (rank->epoch() == epoch && rank->rank() == assignment.rank() &&
          rank->node_id() == assignment.node_id()) {
        return rank;
      }
    }
    return nullptr;
  }
};

}  // namespace macrame::agentd
