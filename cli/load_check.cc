#include "cli/load_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format/text.h"
#include "proto/backends.h"
#include "proto/reason_codes.h"

namespace macrame::cli {
namespace {

constexpr char kSpeed[] = "speed";
constexpr char kFirstText[] = "first text";

LoadVerdict PassedIf(bool passed) { return passed ? LoadVerdict::kPassed : LoadVerdict::kFailed; }

const v1::NodeStatus* FindNode(const v1::ClusterStatus& cluster, const std::string& node_id) {
  for (const v1::NodeStatus& node : cluster.nodes()) {
    if (node.identity().node_id() == node_id) return &node;
  }
  return nullptr;
}

std::string EngineText(const std::string& engine) {
  return engine.empty() ? "Macrame's own" : engine;
}

// By which engine the ranks run it, and in which ways that could share it out.
LoadCheck CheckEngine(const v1::DeploymentStatus& deployment) {
  const v1::Plan& plan = deployment.plan();
  LoadCheck check{"engine", LoadVerdict::kUnknown, "-", EngineText(plan.engine())};
  for (const v1::Reason& reason : plan.reasons()) {
    if (reason.code() == reasons::kEngine) check.expected = reason.message();
  }
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (rank.phase() != v1::RANK_PHASE_READY) continue;
    const bool is_planned = rank.engine() == plan.engine();
    if (check.verdict == LoadVerdict::kFailed) continue;
    check.verdict = PassedIf(is_planned);
    check.measured = EngineText(rank.engine());
  }
  return check;
}

LoadCheck CheckMemory(const v1::Assignment& part, const v1::DeploymentStatus& deployment) {
  const v1::MemoryNeed& need = part.need();
  const uint64_t planned = need.weights_bytes() + need.embedding_bytes() + need.head_bytes();
  LoadCheck check{absl::StrCat("memory of ", part.hostname()), LoadVerdict::kUnknown, "-",
                  absl::StrCat(GiB(planned), " of weights to ", GiB(need.total_bytes()),
                               " in all, as planned")};
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (rank.rank() != part.rank() || rank.memory_bytes() == 0) continue;
    const auto held = static_cast<double>(rank.memory_bytes());
    const auto slack = static_cast<double>(kMemorySlackBytes);
    const bool enough = held + slack >= (1 - kMemoryTolerance) * static_cast<double>(planned);
    const bool not_more = held <= static_cast<double>(need.total_bytes()) + slack;
    check.measured = GiB(rank.memory_bytes());
    check.verdict = PassedIf(enough && not_more);
  }
  return check;
}

// What the machine did before the trial. Beside other work no speed is the model's own.
LoadCheck CheckMachine(const v1::Assignment& part, const v1::ClusterStatus& cluster) {
  LoadCheck check{absl::StrCat("load of ", part.hostname()), LoadVerdict::kUnknown, "-",
                  "that node does not tell its load"};
  const v1::NodeStatus* node = FindNode(cluster, part.node_id());
  if (node == nullptr || !node->has_load()) return check;
  const v1::NodeLoad& load = node->load();
  check.measured = absl::StrCat("processor ", Percent(load.cpu_busy_ratio()), " busy");
  std::vector<std::string> others;
  if (load.cpu_busy_ratio() > kCpuBusyMax) others.push_back("the processor");
  if (load.requests_running() > 0) {
    absl::StrAppend(&check.measured, ", ", Plural(load.requests_running(), "request"),
                    " under way");
    others.push_back("requests");
  }
  if (load.memory_pressure() == v1::MEMORY_PRESSURE_WARNING ||
      load.memory_pressure() == v1::MEMORY_PRESSURE_CRITICAL) {
    absl::StrAppend(&check.measured, ", short of memory");
    others.push_back("memory");
  }
  if (load.thermal_state() == v1::THERMAL_STATE_THROTTLED) {
    absl::StrAppend(&check.measured, ", too hot");
    others.push_back("heat");
  }
  check.verdict = others.empty() ? LoadVerdict::kPassed : LoadVerdict::kNoted;
  check.expected = absl::StrCat("before it was asked; up to ", Percent(kCpuBusyMax), " is idle");
  if (others.empty()) return check;
  check.expected = absl::StrCat("before it was asked; slowed down by ", absl::StrJoin(others, ", "),
                                ": end that work, and check again");
  return check;
}

// ", while ada was busy": what is said of a figure that was missed then.
std::string WhileBusy(const v1::Plan& plan, const v1::ClusterStatus& cluster) {
  std::vector<std::string> busy;
  for (const v1::Assignment& part : plan.assignments()) {
    if (CheckMachine(part, cluster).verdict == LoadVerdict::kNoted) busy.push_back(part.hostname());
  }
  if (busy.empty()) return "";
  return absl::StrCat(", while ", absl::StrJoin(busy, " and "), busy.size() == 1 ? " was" : " were",
                      " busy with something else");
}

LoadCheck CheckGpu(const v1::Assignment& part, const v1::ClusterStatus& cluster,
                   const LoadTrial& trial) {
  LoadCheck check{absl::StrCat("GPU of ", part.hostname()), LoadVerdict::kUnknown, "-",
                  absl::StrCat("at least ", Percent(kGpuBusyMin), " busy while it answers")};
  const v1::NodeStatus* node = FindNode(cluster, part.node_id());
  if (node != nullptr && node->inventory().gpu_cores() == 0) {
    check.expected = "no GPU there: the processor does the work";
    return check;
  }
  const auto busy = trial.gpu_busy.find(part.node_id());
  if (busy == trial.gpu_busy.end()) {
    check.expected = "that node does not tell how busy its GPU is";
    return check;
  }
  check.measured = absl::StrCat(Percent(busy->second), " busy");
  check.verdict = PassedIf(busy->second >= kGpuBusyMin);
  return check;
}

// Of a node that computes on its GPU: whether its layers were what the processor's kernels say.
std::optional<LoadCheck> CheckDevice(const v1::Assignment& part,
                                     const v1::DeploymentStatus& deployment,
                                     const v1::ClusterStatus& cluster) {
  const v1::NodeStatus* node = FindNode(cluster, part.node_id());
  const bool has_gpu = node != nullptr && node->inventory().gpu_cores() > 0;
  LoadCheck check{absl::StrCat("layers of ", part.hostname()), LoadVerdict::kUnknown, "-",
                  "that node does not tell how its GPU's layers compare to its processor's"};
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (rank.rank() != part.rank() || !rank.has_device_proof()) continue;
    const v1::DeviceProof& proof = rank.device_proof();
    if (proof.layers() == 0) {
      check.expected = "too large to be held against the processor's kernels beside what is loaded";
      return check;
    }
    check.verdict = LoadVerdict::kPassed;
    check.measured = absl::StrCat(proof.rows_agreeing(), " of ", proof.rows(), " rows agree");
    check.expected = absl::StrCat("of ", Plural(proof.layers(), "layer"),
                                  ", one of each kind, with the processor's kernels; else the "
                                  "load would have ended");
    return check;
  }
  if (!has_gpu) return std::nullopt;
  return check;
}

LoadCheck CheckSpeed(const v1::Plan& plan, const LoadTrial& trial) {
  const double predicted = plan.prediction().tokens_per_second();
  LoadCheck check{kSpeed, LoadVerdict::kUnknown, "-", "no speed was predicted"};
  if (trial.tokens_per_second <= 0) return check;
  check.measured = absl::StrCat(Rate(trial.tokens_per_second), " tokens/s");
  if (predicted <= 0) return check;
  check.expected = absl::StrCat(EstimatedRate(predicted), " tokens/s predicted; at least ",
                                Percent(kSpeedOfPredictedMin), " of it");
  check.verdict = PassedIf(trial.tokens_per_second >= kSpeedOfPredictedMin * predicted);
  return check;
}

LoadCheck CheckLinks(const v1::Plan& plan, const LoadTrial& trial) {
  LoadCheck check{"links", LoadVerdict::kUnknown, "-", "one rank needs none"};
  if (plan.assignments_size() < 2) return check;
  check.expected = absl::StrCat(plan.assignments_size(), " ranks over ", plan.backend());
  if (!trial.group.has_value()) return check;
  const v1::VerifyGroupResponse& group = trial.group->group();
  const bool as_planned = group.backend() == plan.backend() && group.sum_correct() &&
                          static_cast<int>(group.group_size()) == plan.assignments_size();
  check.measured = absl::StrCat(group.group_size(), " ranks over ", group.backend());
  if (!group.sum_correct()) absl::StrAppend(&check.measured, ", sums are wrong");
  bool quick = true;
  if (group.timings_size() > 0) {
    const double us = group.timings(0).us_p50();
    absl::StrAppend(&check.measured, absl::StrFormat(", %.0f us an all-reduce", us));
    if (IsRdma(BackendNamed(plan.backend()))) {
      absl::StrAppend(&check.expected, absl::StrFormat(", under %.0f us", kRdmaCollectiveUsMax));
      quick = us < kRdmaCollectiveUsMax;
    }
  }
  check.verdict = PassedIf(as_planned && quick);
  return check;
}

LoadCheck CheckFirstText(const v1::Plan& plan, const LoadTrial& trial) {
  // A model that takes long for a token takes long for the first one too.
  const double rate = plan.prediction().tokens_per_second();
  const double limit = std::max(kFirstTextMsMax, rate > 0 ? 3 * 1000 / rate : 0);
  LoadCheck check{kFirstText, LoadVerdict::kUnknown, "-",
                  absl::StrCat("within ", Milliseconds(limit), " of a short prompt")};
  if (trial.first_text_ms < 0) return check;
  check.measured = Milliseconds(trial.first_text_ms);
  check.verdict = PassedIf(trial.first_text_ms <= limit);
  return check;
}

}  // namespace

std::vector<LoadCheck> CheckLoad(const v1::DeploymentStatus& deployment,
                                 const v1::ClusterStatus& cluster, const LoadTrial& trial) {
  std::vector<LoadCheck> checks;
  const v1::Plan& plan = deployment.plan();
  checks.push_back(CheckEngine(deployment));
  for (const v1::Assignment& part : plan.assignments()) {
    checks.push_back(CheckMemory(part, deployment));
  }
  for (const v1::Assignment& part : plan.assignments()) {
    checks.push_back(CheckGpu(part, cluster, trial));
  }
  for (const v1::Assignment& part : plan.assignments()) {
    if (auto check = CheckDevice(part, deployment, cluster)) checks.push_back(*std::move(check));
  }
  for (const v1::Assignment& part : plan.assignments()) {
    checks.push_back(CheckMachine(part, cluster));
  }
  checks.push_back(CheckSpeed(plan, trial));
  checks.push_back(CheckLinks(plan, trial));
  checks.push_back(CheckFirstText(plan, trial));
  for (LoadCheck& check : checks) {
    const bool is_time = check.what == kSpeed || check.what == kFirstText;
    if (!is_time || check.verdict != LoadVerdict::kFailed) continue;
    absl::StrAppend(&check.measured, WhileBusy(plan, cluster));
  }
  return checks;
}

}  // namespace macrame::cli
