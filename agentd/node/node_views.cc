#include "agentd/node/node_views.h"

#include <algorithm>
#include <map>

#include "agentd/cores/machine_share.h"

namespace macrame::agentd {
namespace {

// It is there, as far as is known, and nothing keeps ranks from it.
bool MayTakeRanks(const NodeFacts& facts) {
  const bool is_there =
      facts.state == v1::NODE_STATE_ALIVE || facts.state == v1::NODE_STATE_SUSPECT;
  return is_there && facts.state_failure == nullptr && !facts.draining && facts.cordon == nullptr;
}

}  // namespace

uint32_t RunningRanks(const std::vector<v1::RankStatus>& ranks) {
  return static_cast<uint32_t>(
      std::count_if(ranks.begin(), ranks.end(), [](const v1::RankStatus& rank) {
        return rank.phase() != v1::RANK_PHASE_FAILED && rank.phase() != v1::RANK_PHASE_STOPPED;
      }));
}

NodeViews::NodeViews(transport::Dispatcher& dispatcher, OwnNode& own, const MemberMonitor& members,
                     const ReportTable& reports, const Election& election, const StateStore& store,
                     const DesiredState& desired)
    : dispatcher_(dispatcher),
      own_(own),
      members_(members),
      reports_(reports),
      election_(election),
      store_(store),
      desired_(desired) {}

std::vector<NodeFacts> NodeViews::All() const {
  const MonotonicTime now = dispatcher_.Now();
  std::vector<NodeFacts> all;
  NodeFacts self;
  self.id = own_.id();
  self.identity = own_.identity();
  self.display_name = DisplayName(self.id);
  self.state = v1::NODE_STATE_ALIVE;
  self.is_self = true;
  self.reported_at = now;
  self.inventory = &own_.inventory();
  self.load = &own_.load();
  self.ranks = &own_.ranks();
  self.draining = own_.draining();
  if (store_.failure().has_value()) self.state_failure = &*store_.failure();
  all.push_back(std::move(self));
  for (const discovery::Member* member : members_.table().Members()) {
    NodeFacts facts;
    facts.id = NodeId(member->identity.node_id());
    facts.identity = member->identity;
    facts.display_name = DisplayName(facts.id);
    facts.state = member->state;
    facts.state_reason = member->state_reason;
    const Duration silence = members_.failures().SilenceOf(facts.id, now);
    facts.age_ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
    if (const NodeReport* report = reports_.Find(facts.id)) {
      facts.reported_at = report->at;
      if (report->inventory.revision() > 0) facts.inventory = &report->inventory;
      facts.load = &report->load;
      facts.ranks = &report->ranks;
      facts.draining = report->draining;
      if (!report->state_failure.code().empty()) facts.state_failure = &report->state_failure;
    }
    all.push_back(std::move(facts));
  }
  for (NodeFacts& facts : all) {
    facts.cordon = desired_.FindCordon(facts.id.value());
    facts.marks = desired_.FindMarks(facts.id.value());
  }
  std::sort(all.begin(), all.end(),
            [](const NodeFacts& a, const NodeFacts& b) { return a.id < b.id; });
  return all;
}

std::vector<NodeView> NodeViews::ForReconciler(MonotonicTime leading_since) const {
  std::vector<NodeView> views;
  for (const NodeFacts& facts : All()) {
    NodeView view;
    view.id = facts.id;
    view.hostname = facts.display_name;
    view.state = facts.state;
    view.inventory_revision = facts.inventory == nullptr ? 0 : facts.inventory->revision();
    view.orderable = IsOrderable(facts);
    view.heard = facts.is_self || facts.reported_at >= leading_since;
    view.draining = facts.draining;
    view.cordoned = facts.cordon != nullptr;
    if (facts.marks != nullptr) view.tenant = facts.marks->tenant();
    if (facts.cordon != nullptr && facts.cordon->drain()) {
      view.answers_have = std::chrono::milliseconds(facts.cordon->deadline_ms());
      view.draining = true;
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<v1::RankStatus> NodeViews::AllRanks() const {
  std::vector<v1::RankStatus> ranks;
  for (const NodeFacts& facts : All()) {
    if (facts.ranks != nullptr) ranks.insert(ranks.end(), facts.ranks->begin(), facts.ranks->end());
  }
  return ranks;
}

bool NodeViews::AnyRanks() const {
  if (!own_.ranks().empty()) return true;
  for (const auto& [node, report] : reports_.reports()) {
    if (!report.ranks.empty()) return true;
  }
  return false;
}

bool NodeViews::HasOther() const {
  const std::vector<NodeFacts> all = All();
  return std::any_of(all.begin(), all.end(), [](const NodeFacts& facts) {
    const bool is_live =
        facts.state == v1::NODE_STATE_ALIVE || facts.state == v1::NODE_STATE_SUSPECT;
    return !facts.is_self && is_live && !facts.draining;
  });
}

bool NodeViews::AnyDraining() const {
  if (own_.draining() || IsDrained(own_.id(), own_.ranks())) return true;
  const auto& reports = reports_.reports();
  return std::any_of(reports.begin(), reports.end(), [this](const auto& entry) {
    const NodeReport& report = entry.second;
    return (report.draining || IsDrained(entry.first, report.ranks)) &&
           members_.IsAlive(entry.first);
  });
}

bool NodeViews::IsDrained(const NodeId& node, const std::vector<v1::RankStatus>& ranks) const {
  if (ranks.empty()) return false;
  const v1::Cordon* cordon = desired_.FindCordon(node.value());
  return cordon != nullptr && cordon->drain() && RunningRanks(ranks) > 0;
}

bool NodeViews::IsOrderable(const NodeFacts& facts) const {
  return facts.is_self || election_.HoldsLeaseOf(facts.id, dispatcher_.Now());
}

bool NodeViews::IsReady(const NodeFacts& facts) const {
  return facts.state == v1::NODE_STATE_ALIVE && facts.inventory != nullptr && IsOrderable(facts);
}

bool NodeViews::AwaitsNode() const {
  const std::vector<NodeFacts> all = All();
  return std::any_of(all.begin(), all.end(), [this](const NodeFacts& facts) {
    return MayTakeRanks(facts) && !IsReady(facts);
  });
}

std::vector<v1::PlannerNode> NodeViews::ForPlanner(const std::set<NodeId>& has_files) const {
  std::vector<v1::PlannerNode> nodes;
  std::map<std::string, std::string> machines;
  for (const NodeFacts& facts : All()) {
    if (facts.state == v1::NODE_STATE_LEFT) continue;
    v1::PlannerNode node;
    node.set_node_id(facts.id.value());
    node.set_hostname(facts.display_name);
    if (facts.marks != nullptr) node.set_tenant(facts.marks->tenant());
    node.set_schedulable(MayTakeRanks(facts) && IsReady(facts));
    if (facts.state != v1::NODE_STATE_ALIVE) {
      node.set_unschedulable_reason(
          facts.state_reason.message().empty() ? "it is not alive" : facts.state_reason.message());
    } else if (facts.state_failure != nullptr) {
      node.set_unschedulable_reason("it can't write to its disk");
    } else if (facts.draining) {
      node.set_unschedulable_reason("it is about to stop");
    } else if (facts.cordon != nullptr) {
      node.set_unschedulable_reason("it is cordoned (clusterctl uncordon)");
    } else if (facts.inventory == nullptr) {
      node.set_unschedulable_reason("it has just joined and has not told what it has yet");
    } else if (!node.schedulable()) {
      node.set_unschedulable_reason("it has not confirmed this coordinator in time");
    }
    if (facts.inventory != nullptr) {
      const v1::Inventory& inventory = *facts.inventory;
      const discovery::ModelsMemory usable = discovery::ModelsMemoryOf(inventory);
      node.set_memory_usable_bytes(usable.bytes);
      node.set_memory_limit_is_configured(usable.is_configured);
      node.set_memory_total_bytes(inventory.memory_total_bytes());
      node.set_gpu_cores(inventory.gpu_cores());
      node.set_cpu_cores(inventory.cpu_cores());
      node.set_chip(inventory.chip());
      for (const v1::Engine& engine : inventory.engines()) node.add_engine_names(engine.name());
      // What rankd can; mlx_lm could neither. An older agent's rankd may cut in fewer places, and
      // may not make stages of tensor groups.
      const bool same = facts.identity.agent_version() == own_.identity().agent_version();
      node.mutable_traits()->set_uneven_tensor(same);
      node.mutable_traits()->set_tensor_in_pipeline(same);
      node.mutable_traits()->set_whole_experts(same);
      node.mutable_traits()->set_narrow_kv(same);
    }
    if (facts.load != nullptr) {
      // What ranks that are loading still take is free only to look at. 0 would mean not known.
      const Bytes free =
          Bytes(facts.load->memory_available_bytes()) - Bytes(facts.load->awaited_bytes());
      const bool known = facts.load->memory_available_bytes() > 0;
      node.set_memory_available_bytes(known ? std::max<uint64_t>(1, free.count()) : 0);
      node.set_memory_reserved_bytes(facts.load->reserved_bytes());
      node.set_memory_pressure(facts.load->memory_pressure());
    }
    node.set_has_model_files(has_files.contains(facts.id));
    if (facts.inventory != nullptr) machines[facts.id.value()] = facts.inventory->boot_digest();
    nodes.push_back(std::move(node));
  }
  ShareMachines(machines, &nodes);
  return nodes;
}

std::string NodeViews::DisplayName(const NodeId& node) const {
  return members_.table().DisplayName(node);
}

}  // namespace macrame::agentd
