#include "agentd/gang_controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/cores/member_list.h"
#include "agentd/cores/state_keys.h"
#include "agentd/log_text.h"
#include "proto/reasons.h"
#include "runtime/diagnosis/rank_messages.h"
#include "transport/links/diagnosis.h"
#include "transport/links/refusals.h"

namespace macrame::agentd {
namespace {

constexpr size_t kModelsRememberedMax = 64;

v1::PlanResult Refusal(const absl::Status& status) {
  v1::PlanResult result;
  *result.mutable_failure() = ReasonOf(status);
  return result;
}

}  // namespace

GangController::GangController(Parts parts, GangReconcilerOptions options,
                               std::function<void()> on_changed)
    : parts_(parts), reconciler_(options), on_changed_(std::move(on_changed)) {}

void GangController::BeginLeading(const FencePair& fence) {
  ++leadership_;
  leading_since_ = parts_.dispatcher.Now();
  reconciler_.BeginLeading(fence, *leading_since_);
  speeds_.Begin(Speeds());
  Wake();
}

void GangController::StopLeading() {
  ++leadership_;
  leading_since_.reset();
  reconciler_.StopLeading();
}

bool GangController::Keeps(std::string_view key) const {
  const absl::string_view name(key.data(), key.size());
  if (name == absl::string_view(kMembersKey.data(), kMembersKey.size())) {
    return leading_since_.has_value();
  }
  return absl::StartsWith(name, kGangPrefix) &&
         reconciler_.Keeps(std::string(name.substr(kGangPrefix.size())));
}

void GangController::Wake() {
  if (awake_ || !leading_since_.has_value()) return;
  awake_ = true;
  parts_.dispatcher.Post([this] {
    awake_ = false;
    Pass();
  });
}

void GangController::Tick() {
  if (!IsIdle()) Pass();
}

bool GangController::IsIdle() const {
  for (const auto& [key, entry] : parts_.replicator.table().entries()) {
    const bool is_ours =
        absl::StartsWith(key, kDeploymentPrefix) || absl::StartsWith(key, kGangPrefix);
    if (!entry.removed() && is_ours) return false;
  }
  return !parts_.views.AnyRanks();
}

ClusterView GangController::MakeView() {
  ClusterView view;
  FillFromState(parts_.replicator.table().entries(), view);
  view.unix_ms = parts_.dispatcher.UnixMs();
  view.nodes = parts_.views.ForReconciler(leading_since_.value_or(parts_.dispatcher.Now()));
  view.ranks = parts_.views.AllRanks();
  for (const v1::GangRecord& gang : view.gangs) {
    if (gang.plan().backend() != "verbs") continue;
    if (auto why = WhyBroken(gang.plan())) {
      view.broken_transports.emplace(gang.deployment(), *std::move(why));
    }
  }
  return view;
}

namespace {

// Why no verbs link works between two nodes; nothing while one does, or while one may. A device
// without an address has nobody at its other end: it counts when nothing else is between the two.
std::optional<v1::Reason> WhyApart(const v1::ClusterLinks& links, const std::string& a,
                                   const std::string& b) {
  static constexpr std::string_view kCertain[] = {reasons::kNoVerbsDevice, reasons::kPortDown,
                                                  reasons::kNoIpv4Gid};
  std::optional<v1::Reason> between, alone;
  bool has_link = false;
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.kind() != v1::LINK_KIND_VERBS) continue;
    const std::string &from = link.a().node_id(), &to = link.b().node_id();
    const bool joins = (from == a && to == b) || (from == b && to == a);
    const bool is_open = to.empty() && (from == a || from == b);
    if (!joins && !is_open) continue;
    if (joins && link.rdma_usable() != v1::FACT_NO) return std::nullopt;
    has_link = has_link || joins;
    std::optional<v1::Reason>& why = joins ? between : alone;
    for (const v1::Reason& reason : link.reasons()) {
      const bool is_certain =
          std::find(std::begin(kCertain), std::end(kCertain), reason.code()) != std::end(kCertain);
      if (is_certain && !why.has_value()) why = reason;
    }
  }
  return has_link ? between : alone;
}

}  // namespace

// Only what a probe saw for certain, of the pairs that the gang uses, counts: a gang that works is
// not ended on a guess. On Macs it is not ended at all while it works: what their commands say of a
// port in use is not proven.
std::optional<v1::Reason> GangController::WhyBroken(const v1::Plan& plan) {
  const uint64_t judgement = parts_.links.judgement();
  const std::string key = plan.SerializeAsString();
  if (judged_ != judgement) broken_.clear();
  judged_ = judgement;
  const auto known = broken_.find(key);
  if (known != broken_.end()) return known->second;
  std::optional<v1::Reason>& why = broken_[key];
  const int count = plan.assignments_size();
  for (int one = 0; one < count && !why.has_value(); ++one) {
    for (int other = one + 1; other < count && !why.has_value(); ++other) {
      const bool is_next = other == one + 1 || (one == 0 && other == count - 1);
      if (plan.backend_topology() == "ring" && !is_next) continue;
      why = WhyApart(parts_.links.links(), plan.assignments(one).node_id(),
                     plan.assignments(other).node_id());
    }
  }
  return why;
}

// A machine that dies under a gang often shows first in what the other ranks say.
void GangController::NoteDead(const NodeId& node) {
  if (!leading_since_.has_value()) return;
  for (const auto& [key, entry] : parts_.replicator.table().entries()) {
    v1::GangRecord record;
    if (entry.removed() || !absl::StartsWith(key, kGangPrefix) ||
        !record.ParseFromString(entry.value())) {
      continue;
    }
    for (const v1::Assignment& assignment : record.plan().assignments()) {
      if (assignment.node_id() != node.value()) continue;
      parts_.links.NoteLostNode(node, record.plan().backend());
    }
  }
}

void GangController::Pass() {
  if (!leading_since_.has_value()) return;
  const MonotonicTime now = parts_.dispatcher.Now();
  if (!parts_.election.Leading(now).has_value()) return;
  const uint64_t leadership = leadership_;
  const ClusterView view = MakeView();
  LearnSpeeds(view, now);
  for (const GangEffect& effect : reconciler_.Reconcile(view, now)) {
    // An effect may end this leadership.
    if (leadership != leadership_) return;
    std::visit([this](const auto& one) { Carry(one); }, effect);
  }
}

void GangController::LearnSpeeds(const ClusterView& view, MonotonicTime now) {
  speeds_.Observe(view.gangs, view.ranks);
  v1::SpeedCorrections due;
  if (!speeds_.TakeDue(now, &due)) return;
  parts_.replicator.Write(kSpeedsKey, due.SerializeAsString(), [](const absl::Status& status) {
    if (!status.ok()) spdlog::warn("measured speeds were not written: {}", LogText(status));
  });
}

v1::SpeedCorrections GangController::Speeds() const {
  v1::SpeedCorrections speeds;
  const v1::StateEntry* entry = parts_.replicator.table().Find(kSpeedsKey);
  if (entry != nullptr) speeds.ParseFromString(entry->value());
  return speeds;
}

void GangController::ForgetSpeeds(std::function<void(const absl::Status&)> done) {
  speeds_.Begin({});
  parts_.replicator.Remove(kSpeedsKey, "", std::move(done));
}

void GangController::Carry(const PlanDeployment& effect) {
  const v1::Deployment& deployment = effect.deployment;
  const v1::StateEntry* gang = parts_.replicator.table().Find(GangKey(deployment.name()));
  PlanOrder order;
  order.name_or_path =
      deployment.model_path().empty() ? deployment.model_name() : deployment.model_path();
  order.fingerprint = deployment.model_fingerprint();
  order.placement = deployment.placement();
  order.recovering = gang != nullptr && !effect.restores;
  order.deployment = deployment.name();
  order.priority = deployment.priority();
  order.may_evict = effect.may_evict;
  order.replicas = deployment.replicas();
  order.in_force = effect.in_force;
  order.refuses_uneven_slices = effect.refuses_uneven_slices;
  v1::GangRecord record;
  if (order.recovering && record.ParseFromString(gang->value())) order.current = record.plan();
  for (const auto* nodes : {&effect.left_out, &effect.unusable}) {
    for (const NodeId& node : *nodes) order.placement.add_excluded_node_ids(node.value());
  }
  PlanDeployment with_all = effect;
  with_all.left_out.clear();
  parts_.planner.Plan(
      order, [this, name = deployment.name(), with_all, is_without = !effect.left_out.empty(),
              leadership = leadership_](absl::StatusOr<PlanOutcome> outcome) {
        if (leadership != leadership_) return;
        // Better with a node that failed twice than not at all.
        if (is_without && (!outcome.ok() || !outcome->result.has_plan())) return Carry(with_all);
        if (outcome.ok()) {
          if (models_.size() >= kModelsRememberedMax) models_.clear();
          models_[outcome->model.fingerprint()] = outcome->model;
        }
        reconciler_.OnPlanned(name, outcome.ok() ? outcome->result : Refusal(outcome.status()),
                              parts_.dispatcher.Now());
        Wake();
      });
}

void GangController::Carry(const WriteGang& effect) {
  const std::string& name = effect.record.deployment();
  parts_.replicator.Write(GangKey(name), effect.record.SerializeAsString(),
                          [this, name, epoch = effect.record.epoch(),
                           leadership = leadership_](const absl::Status& status) {
                            if (leadership != leadership_) return;
                            reconciler_.OnGangWritten(name, epoch, status, parts_.dispatcher.Now());
                            Wake();
                          });
}

void GangController::Carry(const ReserveAndLaunch& effect) {
  spdlog::info("launching {} (epoch {}) over {} ranks", effect.deployment.name(), effect.epoch,
               effect.plan.world_size());
  const auto known = models_.find(effect.deployment.model_fingerprint());
  if (known != models_.end()) return Launch(effect, known->second);
  // Planned by an earlier coordinator: ask what the model is first.
  PlanOrder order;
  order.name_or_path = effect.deployment.model_path().empty() ? effect.deployment.model_name()
                                                              : effect.deployment.model_path();
  order.fingerprint = effect.deployment.model_fingerprint();
  order.placement = effect.deployment.placement();
  // The plan that is carried out says which draft model it has, if any.
  order.placement.clear_draft_model();
  parts_.planner.Plan(
      order, [this, effect, leadership = leadership_](absl::StatusOr<PlanOutcome> outcome) {
        if (leadership != leadership_) return;
        if (outcome.ok()) return Launch(effect, outcome->model);
        reconciler_.OnLaunched(effect.deployment.name(), effect.epoch, outcome.status(),
                               parts_.dispatcher.Now());
        Wake();
      });
}

void GangController::Launch(const ReserveAndLaunch& effect, const v1::ModelDescription& model) {
  const std::string& name = effect.deployment.name();
  const std::optional<FencePair> fence = parts_.election.Leading(parts_.dispatcher.Now());
  if (!fence.has_value()) return;
  GangOrder order;
  order.fence = parts_.election.FenceOf(*fence);
  order.deployment = name;
  order.epoch = effect.epoch;
  order.plan = effect.plan;
  order.fast_synch_suspended = effect.fast_synch_suspended;
  order.model = model;
  parts_.launcher.Launch(std::move(order), [this, name, epoch = effect.epoch,
                                            leadership = leadership_](const absl::Status& status) {
    if (leadership != leadership_) return;
    if (!status.ok()) spdlog::warn("launch of {} (epoch {}): {}", name, epoch, LogText(status));
    reconciler_.OnLaunched(name, epoch, status, parts_.dispatcher.Now());
    Wake();
  });
}

void GangController::Carry(const StopRanks& effect) {
  const std::optional<FencePair> fence = parts_.election.Leading(parts_.dispatcher.Now());
  if (!fence.has_value()) return;
  v1::StopRanksRequest request;
  *request.mutable_fence() = parts_.election.FenceOf(*fence);
  request.set_deployment(effect.deployment);
  request.set_up_to_epoch(effect.up_to_epoch);
  request.set_from_epoch(effect.from_epoch);
  request.set_why(effect.why.message());
  // Who stalled does not hear a request to stop.
  request.set_at_once(effect.why.code() == reasons::kRankStalled &&
                      effect.why.node_id() == effect.node.value());
  parts_.calls.StopRanks(
      effect.node, request,
      [this, effect, leadership = leadership_](absl::StatusOr<v1::StopRanksResponse> response) {
        if (leadership != leadership_) return;
        reconciler_.OnEnded(effect, response.status());
        Wake();
      });
}

void GangController::Carry(const RemoveGang& effect) {
  v1::GangRecord residue;
  residue.set_deployment(effect.deployment);
  residue.set_epoch(effect.last_epoch);
  parts_.replicator.Remove(GangKey(effect.deployment), residue.SerializeAsString(),
                           [this](const absl::Status&) { Wake(); });
}

void GangController::Carry(const Notify& effect) {
  const std::string& state = v1::DeploymentState_Name(effect.state);
  if (effect.reason.code() == reasons::kGangLostNode) {
    const v1::StateEntry* gang = parts_.replicator.table().Find(GangKey(effect.deployment));
    v1::GangRecord record;
    if (gang != nullptr) record.ParseFromString(gang->value());
    parts_.links.NoteLostNode(NodeId(effect.reason.node_id()), record.plan().backend());
  }
  if (effect.reason.code().empty()) {
    spdlog::info("{} (epoch {}): {}", effect.deployment, effect.epoch, state);
  } else {
    spdlog::warn("{} (epoch {}): {}: {}", effect.deployment, effect.epoch, state,
                 effect.reason.message());
  }
  on_changed_();
}

// The root of it where the probes know one; else what the ranks' last lines say first.
void GangController::Carry(const RefuseTransport& effect) {
  std::vector<std::string> nodes;
  for (const v1::Assignment& assignment : effect.plan.assignments()) {
    nodes.push_back(assignment.node_id());
  }
  std::vector<runtime::RankWords> words;
  for (const v1::RankStatus& rank : parts_.views.AllRanks()) {
    if (rank.deployment() != effect.deployment || !rank.has_failure()) continue;
    words.push_back({static_cast<int>(rank.rank()),
                     absl::StrCat(rank.failure().message(), "\n", rank.failure().evidence())});
  }
  v1::Reason symptom = effect.why;
  if (const auto recognised = runtime::RecogniseGang(words)) {
    symptom = recognised->second.reason;
    symptom.set_node_id(effect.why.node_id());
  }
  const v1::LinkSnapshot snapshot = parts_.links.Snapshot();
  const v1::Reason cause = transport::RootCause(snapshot, parts_.links.links(), nodes, symptom);
  parts_.links.Remember(
      transport::MakeRefusal(snapshot, nodes, effect.plan.backend(), cause, symptom));
}

std::vector<v1::DeploymentStatus> GangController::Statuses() {
  const ClusterView view = MakeView();
  const MonotonicTime now = parts_.dispatcher.Now();
  if (leading_since_.has_value()) return reconciler_.Statuses(view, now);
  std::vector<v1::DeploymentStatus> statuses;
  for (const v1::Deployment& deployment : view.deployments) {
    const v1::GangRecord* record = nullptr;
    for (const v1::GangRecord& gang : view.gangs) {
      if (gang.deployment() == deployment.name()) record = &gang;
    }
    statuses.push_back(DeriveStatus(deployment, record, view.ranks));
  }
  return statuses;
}

std::optional<v1::DeploymentStatus> GangController::Status(const std::string& deployment) {
  for (v1::DeploymentStatus& status : Statuses()) {
    if (status.deployment().name() == deployment) return std::move(status);
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
