#include "tests/sim/reconciler_growth.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/preemption.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "proto/reasons.h"
#include "tests/sim/stopwatch.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::tests {
namespace {

using agentd::ClusterView;
using agentd::GangEffect;
using planner::kGiB;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kTick = milliseconds(250);

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class ReconcilerGrowth {
 public:
  explicit ReconcilerGrowth(const ReconcilerGrowthOptions& options)
      : options_(options), random_(options.seed) {
    for (uint32_t i = 0; i < options.nodes; ++i) AddNode(i);
    for (uint32_t desk = 0; desk + 3 < options.nodes; desk += 6) {
      std::vector<std::string> ids;
      for (uint32_t i = desk; i < desk + 4; ++i) ids.push_back(IdOf(i).value());
      planner::AddMesh(ids, &cluster_);
    }
  }

  ReconcilerGrowthReport Run() {
    reconciler_.BeginLeading({Term(1), IdOf(0)}, now_);
    for (uint32_t i = 0; i < options_.disturbances && report_.fault.empty(); ++i) {
      Disturb();
      const MonotonicTime disturbed = now_;
      last_settled_ = now_;
      while (now_ - disturbed < seconds(options_.quiet_seconds) && report_.fault.empty()) Tick();
      const std::chrono::duration<double> took = last_settled_ - disturbed;
      report_.slowest_convergence_s = std::max(report_.slowest_convergence_s, took.count());
      CheckSettled();
    }
    report_.median_plan_ms = Median(plan_ms_);
    report_.slowest_plan_ms =
        plan_ms_.empty() ? 0 : *std::max_element(plan_ms_.begin(), plan_ms_.end());
    report_.median_pass_ms = Median(pass_ms_);
    report_.plans = static_cast<uint32_t>(plan_ms_.size());
    return report_;
  }

 private:
  // What the reconciler's shell answers later.
  struct Later {
    MonotonicTime at;
    std::function<void()> what;
  };

  uint64_t Pick(uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random_);
  }
  static NodeId IdOf(uint32_t number) { return NodeId(absl::StrFormat("%032x", number + 1)); }
  void Fail(const std::string& fault) {
    if (report_.fault.empty()) report_.fault = fault;
  }
  void In(Duration delay, std::function<void()> what) {
    later_.push_back({now_ + delay, std::move(what)});
  }

  void AddNode(uint32_t number) {
    const std::vector<uint64_t> sizes = {18, 36, 48, 96, 192, 384};
    v1::PlannerNode node =
        planner::Node(IdOf(number).value(), sizes[Pick(0, sizes.size() - 1)] * kGiB);
    node.set_chip(Pick(0, 1) == 0 ? "Apple M4 Max" : "Apple M3 Ultra");
    node.set_gpu_cores(40);
    index_[node.node_id()] = cluster_.nodes_size();
    used_elsewhere_.push_back(Pick(0, 4) * kGiB);
    *cluster_.add_nodes() = std::move(node);
    view_.nodes.push_back(
        {IdOf(number), absl::StrCat("mac-", number), v1::NODE_STATE_ALIVE, 1, true, true});
  }

  bool IsAlive(const std::string& node_id) const {
    return view_.nodes[index_.at(node_id)].state == v1::NODE_STATE_ALIVE;
  }

  // --- what happens to the cluster ---------------------------------------------------------------

  void Disturb() {
    for (size_t i = 0; i < view_.nodes.size(); ++i) {
      agentd::NodeView& node = view_.nodes[i];
      const bool dies = node.state == v1::NODE_STATE_ALIVE && Pick(0, 49) == 0;
      const bool returns = node.state != v1::NODE_STATE_ALIVE && Pick(0, 1) == 0;
      if (dies) Die(node);
      if (returns) {
        node.state = v1::NODE_STATE_ALIVE;
        node.orderable = true;
        ++node.inventory_revision;
      }
      used_elsewhere_[i] = Pick(0, 4) * kGiB;
    }
    for (v1::RankStatus& rank : view_.ranks) {
      if (Pick(0, 29) != 0) continue;
      rank.set_phase(v1::RANK_PHASE_FAILED);
      *rank.mutable_failure() = MakeReason("RANK_EXITED", "it crashed");
      needed_.insert(rank.deployment());
    }
    std::erase_if(view_.deployments, [&](const v1::Deployment& deployment) {
      if (Pick(0, 14) != 0) return false;
      needed_.insert(deployment.name());
      return true;
    });
    while (view_.deployments.size() < options_.deployments) Deploy();
  }

  void Die(agentd::NodeView& node) {
    node.state = v1::NODE_STATE_DEAD;
    node.orderable = false;
    for (const v1::RankStatus& rank : view_.ranks) {
      if (rank.node_id() == node.id.value()) needed_.insert(rank.deployment());
    }
    // A plan under way may have been made for it.
    for (const v1::GangRecord& gang : view_.gangs) {
      for (const v1::Assignment& part : gang.plan().assignments()) {
        if (part.node_id() == node.id.value()) needed_.insert(gang.deployment());
      }
    }
    std::erase_if(view_.ranks,
                  [&](const v1::RankStatus& rank) { return rank.node_id() == node.id.value(); });
    std::erase_if(reserved_,
                  [&](const auto& item) { return item.first.second == node.id.value(); });
  }

  void Deploy() {
    v1::Deployment deployment;
    deployment.set_name(absl::StrCat("model-", ++drawn_));
    deployment.set_priority(static_cast<int32_t>(Pick(0, 2)));
    deployment.set_may_evict(Pick(0, 2) == 0);
    deployment.set_created_unix_ms(drawn_);
    const uint64_t bytes = Pick(2, 300) * 1'000'000'000;
    models_[deployment.name()] = Pick(0, 1) == 0
                                     ? planner::LargeModel(deployment.name(), bytes, 48)
                                     : planner::MixtureModel(deployment.name(), bytes, 48);
    needed_.insert(deployment.name());
    view_.deployments.push_back(std::move(deployment));
  }

  // --- the shell ---------------------------------------------------------------------------------

  void Tick() {
    now_ += kTick;
    std::vector<Later> due;
    std::erase_if(later_, [&](Later& one) {
      if (one.at > now_) return false;
      due.push_back(std::move(one));
      return true;
    });
    for (const Later& one : due) one.what();
    agentd::GangEffects effects;
    pass_ms_.push_back(MillisecondsOf([&] { effects = reconciler_.Reconcile(view_, now_); }));
    for (const GangEffect& effect : effects) {
      std::visit([this](const auto& one) { Do(one); }, effect);
    }
    CheckBudgets();
  }

  v1::PlanRequest RequestFor(const std::string& name) {
    v1::PlanRequest request = cluster_;
    *request.mutable_model() = models_.at(name);
    request.set_brief(true);
    std::map<std::string, uint64_t> held;
    for (const auto& [key, bytes] : reserved_) held[key.second] += bytes;
    for (int i = 0; i < request.nodes_size(); ++i) {
      v1::PlannerNode& node = *request.mutable_nodes(i);
      node.set_schedulable(IsAlive(node.node_id()));
      const uint64_t taken = held[node.node_id()] + used_elsewhere_[i];
      node.set_memory_reserved_bytes(held[node.node_id()]);
      node.set_memory_available_bytes(std::max<uint64_t>(
          1, node.memory_usable_bytes() - std::min(taken, node.memory_usable_bytes())));
    }
    for (const v1::GangRecord& gang : view_.gangs) {
      if (gang.deployment() == name) *request.mutable_current() = gang.plan();
    }
    return request;
  }

  void Do(const agentd::PlanDeployment& effect) {
    const std::string name = effect.deployment.name();
    const v1::PlanRequest request = RequestFor(name);
    v1::PlanResult result;
    plan_ms_.push_back(MillisecondsOf([&] { result = planner::PlanModel(request); }));
    if (result.failure().code() == "MEMORY_SHORT" && effect.may_evict) {
      result = agentd::Preempt(request, {name, effect.deployment.priority(), true, effect.in_force},
                               view_, std::move(result));
      if (result.evicted_size() > 0) evicted_at_[name] = now_;
      for (const std::string& other : result.evicted()) {
        needed_.insert(other);
        ++report_.evictions;
      }
    }
    In(milliseconds(Pick(0, 1000)),
       [this, name, result] { reconciler_.OnPlanned(name, result, now_); });
  }

  void Do(const agentd::WriteGang& effect) {
    std::erase_if(view_.gangs, [&](const v1::GangRecord& gang) {
      return gang.deployment() == effect.record.deployment();
    });
    view_.gangs.push_back(effect.record);
    In(milliseconds(Pick(0, 500)),
       [this, name = effect.record.deployment(), epoch = effect.record.epoch()] {
         reconciler_.OnGangWritten(name, epoch, absl::OkStatus(), now_);
       });
  }

  void Do(const agentd::ReserveAndLaunch& effect) {
    const std::string& name = effect.deployment.name();
    ++report_.launches;
    if (!needed_.erase(name)) ++report_.launches_without_need;
    CheckPlan(name, effect.plan);
    absl::Status status;
    for (const v1::Assignment& part : effect.plan.assignments()) {
      if (!IsAlive(part.node_id())) status = absl::UnavailableError("the node is gone");
      uint64_t held = part.need().total_bytes();
      for (const auto& [key, bytes] : reserved_) held += key.second == part.node_id() ? bytes : 0;
      if (held > cluster_.nodes(index_.at(part.node_id())).memory_usable_bytes()) {
        ++report_.admissions_refused;
        status = ReasonStatus(absl::StatusCode::kResourceExhausted, "MEMORY_SHORT", "no room");
      }
    }
    if (!status.ok()) needed_.insert(name);
    if (status.ok()) StartRanks(effect);
    In(milliseconds(Pick(0, 500)), [this, name, epoch = effect.epoch, status] {
      reconciler_.OnLaunched(name, epoch, status, now_);
    });
  }

  void StartRanks(const agentd::ReserveAndLaunch& effect) {
    const std::string name = effect.deployment.name();
    for (const v1::Assignment& part : effect.plan.assignments()) {
      reserved_[{name, part.node_id()}] += part.need().total_bytes();
      v1::RankStatus rank;
      rank.set_deployment(name);
      rank.set_epoch(effect.epoch);
      rank.set_rank(part.rank());
      rank.set_node_id(part.node_id());
      rank.set_phase(v1::RANK_PHASE_LOADING);
      view_.ranks.push_back(rank);
    }
    In(seconds(Pick(1, 20)), [this, name, epoch = effect.epoch] {
      for (v1::RankStatus& rank : view_.ranks) {
        const bool loads = rank.deployment() == name && rank.epoch() == epoch &&
                           rank.phase() == v1::RANK_PHASE_LOADING;
        if (loads) rank.set_phase(v1::RANK_PHASE_READY);
      }
      last_settled_ = now_;
    });
  }

  void Do(const agentd::StopRanks& effect) {
    In(milliseconds(Pick(0, 3000)), [this, effect] {
      std::erase_if(view_.ranks, [&](const v1::RankStatus& rank) {
        return rank.node_id() == effect.node.value() && rank.deployment() == effect.deployment &&
               rank.epoch() >= effect.from_epoch && rank.epoch() <= effect.up_to_epoch;
      });
      reserved_.erase({effect.deployment, effect.node.value()});
      reconciler_.OnEnded(effect, absl::OkStatus());
    });
  }

  void Do(const agentd::RemoveGang& effect) {
    std::erase_if(view_.gangs, [&](const v1::GangRecord& gang) {
      return gang.deployment() == effect.deployment;
    });
    view_.removed_epochs[effect.deployment] = effect.last_epoch;
  }

  void Do(const agentd::Notify&) {}
  void Do(const agentd::RefuseTransport&) {}

  // --- the rules ---------------------------------------------------------------------------------

  void CheckPlan(const std::string& name, const v1::Plan& plan) {
    std::map<std::pair<uint32_t, uint32_t>, int> held;
    std::set<std::string> nodes;
    for (const v1::Assignment& part : plan.assignments()) {
      if (!nodes.insert(part.node_id()).second) Fail(name + ": two ranks on one node");
      for (uint32_t layer = part.layer_begin(); layer < part.layer_end(); ++layer) {
        if (++held[{layer, part.tp_rank()}] > 1) Fail(name + ": a layer is held twice");
      }
    }
    const size_t wanted = size_t{models_.at(name).layer_count()} * plan.tp();
    if (held.size() != wanted) Fail(name + ": a layer is missing");
  }

  void CheckBudgets() {
    std::map<std::string, uint64_t> held;
    for (const auto& [key, bytes] : reserved_) held[key.second] += bytes;
    for (const auto& [node_id, bytes] : held) {
      if (bytes > cluster_.nodes(index_.at(node_id)).memory_usable_bytes()) {
        Fail(node_id + " is over its budget");
      }
    }
  }

  // After the quiet time everything is served or refused with a reason, and nothing is under way.
  void CheckSettled() {
    report_.served = report_.refused = 0;
    for (const v1::DeploymentStatus& status : reconciler_.Statuses(view_, now_)) {
      const std::string& name = status.deployment().name();
      if (status.state() == v1::DEPLOYMENT_STATE_READY) {
        ++report_.served;
      } else if (status.state() == v1::DEPLOYMENT_STATE_PENDING &&
                 !status.failure().code().empty()) {
        ++report_.refused;
        CheckPriority(status.deployment());
      } else {
        Fail(absl::StrCat(name, " is ", v1::DeploymentState_Name(status.state()), " after ",
                          options_.quiet_seconds, " s: ", status.failure().message()));
      }
    }
  }

  // Nobody waits who may evict while what has a lower priority holds the room.
  void CheckPriority(const v1::Deployment& refused) {
    const auto evicted = evicted_at_.find(refused.name());
    const bool may =
        evicted == evicted_at_.end() || now_ - evicted->second > std::chrono::minutes(11);
    if (!refused.may_evict() || !may) return;
    const v1::PlanRequest request = RequestFor(refused.name());
    const v1::PlanResult result =
        agentd::Preempt(request, {refused.name(), refused.priority(), true, reconciler_.InForce()},
                        view_, planner::PlanModel(request));
    if (result.has_plan()) Fail(refused.name() + " is refused although it may preempt others");
  }

  const ReconcilerGrowthOptions options_;
  std::mt19937_64 random_;
  MonotonicTime now_{seconds(1000)};
  MonotonicTime last_settled_;
  agentd::GangReconciler reconciler_;
  ClusterView view_;
  v1::PlanRequest cluster_;  // nodes and links
  std::map<std::string, int> index_;
  std::vector<uint64_t> used_elsewhere_;  // by other programs, by node
  std::map<std::string, v1::ModelDescription> models_;
  std::map<std::pair<std::string, std::string>, uint64_t> reserved_;  // by deployment and node
  std::set<std::string> needed_;  // deployments that have reason to be launched (again)
  std::map<std::string, MonotonicTime> evicted_at_;  // by who evicted
  std::vector<Later> later_;
  std::vector<double> plan_ms_, pass_ms_;
  uint64_t drawn_ = 0;
  ReconcilerGrowthReport report_;
};

}  // namespace

ReconcilerGrowthReport GrowReconciled(const ReconcilerGrowthOptions& options) {
  return ReconcilerGrowth(options).Run();
}

}  // namespace macrame::tests
