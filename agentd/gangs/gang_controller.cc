#include "agentd/gangs/gang_controller.h"

#include <spdlog/spdlog.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/base/log_text.h"
#include "agentd/cores/broken_transport.h"
#include "agentd/cores/member_list.h"
#include "agentd/cores/state_keys.h"
#include "proto/backends.h"
#include "proto/model_fingerprint.h"
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

GangController::GangController(Parts parts, GangReconcilerOptions options, Changes& changes)
    : parts_(parts), reconciler_(options), changes_(changes) {}

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
  const DesiredState& desired = parts_.replicator.desired();
  return desired.deployments().empty() && desired.gangs().empty() && reconciler_.IsEmpty() &&
         !parts_.views.AnyRanks();
}

ClusterView GangController::MakeView() {
  ClusterView view;
  FillFromState(parts_.replicator.desired(), view);
  view.unix_ms = parts_.dispatcher.UnixMs();
  view.nodes = parts_.views.ForReconciler(leading_since_.value_or(parts_.dispatcher.Now()));
  view.ranks = parts_.views.AllRanks();
  for (const v1::GangRecord& gang : view.gangs) {
    if (auto why = WhyBrokenNow(gang.plan())) {
      view.broken_transports.emplace(gang.deployment(), *std::move(why));
    }
  }
  return view;
}

// Judged once for each plan until links are judged anew.
std::optional<v1::Reason> GangController::WhyBrokenNow(const v1::Plan& plan) {
  if (BackendNamed(plan.backend()) != Backend::kVerbs) return std::nullopt;  // links are not judged
  const uint64_t judgement = parts_.links.judgement();
  const std::string key = plan.SerializeAsString();
  if (judged_ != judgement) broken_.clear();
  judged_ = judgement;
  const auto known = broken_.find(key);
  if (known != broken_.end()) return known->second;
  return broken_[key] = WhyBroken(plan, parts_.links.links());
}

// A machine that dies under a gang often shows first in what the other ranks say.
void GangController::NoteDead(const NodeId& node) {
  if (!leading_since_.has_value()) return;
  for (const auto& [replica, record] : parts_.replicator.desired().gangs()) {
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
  parts_.replicator.Write(std::string(kSpeedsKey), due.SerializeAsString(),
                          [](const absl::Status& status) {
                            if (!status.ok())
                              spdlog::warn("measured speeds were not written: {}", LogText(status));
                          });
}

v1::SpeedCorrections GangController::Speeds() const { return parts_.replicator.desired().speeds(); }

void GangController::ForgetSpeeds(std::function<void(const absl::Status&)> done) {
  speeds_.Begin({});
  parts_.replicator.Remove(std::string(kSpeedsKey), "", std::move(done));
}

void GangController::Carry(const PlanDeployment& effect) {
  const v1::Deployment& deployment = effect.deployment;
  const v1::GangRecord* gang = parts_.replicator.desired().FindGang(deployment.name());
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
  order.may_reuse_answers = gang == nullptr;
  if (order.recovering) order.current = gang->plan();
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
          // As orders of older versions name it.
          models_[std::string(WeightsPartOf(outcome->model.fingerprint()))] = outcome->model;
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
  if (on_news_) on_news_(effect);
  if (effect.reason.code() == reasons::kGangLostNode) {
    const v1::GangRecord* gang = parts_.replicator.desired().FindGang(effect.deployment);
    parts_.links.NoteLostNode(NodeId(effect.reason.node_id()),
                              gang == nullptr ? "" : gang->plan().backend());
  }
  if (effect.reason.code().empty()) {
    spdlog::info("{} (epoch {}): {}", effect.deployment, effect.epoch, state);
  } else {
    spdlog::warn("{} (epoch {}): {}: {}", effect.deployment, effect.epoch, state,
                 effect.reason.message());
  }
  changes_.Note(Change::kDeployment);
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
