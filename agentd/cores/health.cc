#include "agentd/cores/health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr std::string_view kNotices[] = {
    // How it is configured.
    reasons::kNodeCordoned, reasons::kClusterPaused, reasons::kGatewayOpen,
    reasons::kGatewayWithoutKeys, reasons::kNoSecret, reasons::kHostnameClash,
    reasons::kVersionSkew, reasons::kSeedUnresolved,
    // Folders that hold no model that can be served; those that are wanted are deployments.
    reasons::kModelArchitectureUnknown, reasons::kModelFormatUnsupported,
    reasons::kModelFileMissing, reasons::kModelFileBroken, reasons::kModelConfigInvalid,
    reasons::kTokenizerInvalid, reasons::kNotReady,
    // Nodes are looked for in vain; those that were found are nodes.
    reasons::kHeardNobody, reasons::kBeaconsMissing, reasons::kNotAnswered, reasons::kNoInterface,
    reasons::kSendRefused,
    // It serves, and may not go on to do so as well.
    reasons::kSlowerThanPredicted, reasons::kThermal, reasons::kGpuWedged, reasons::kCertExpiring,
    reasons::kWriteLost, reasons::kJoinLimited, reasons::kAlertUndelivered};

bool SaysTheSame(const v1::Reason& a, const v1::Reason& b) {
  return a.code() == b.code() && a.node_id() == b.node_id() && a.message() == b.message();
}

void AddOnce(v1::Reason reason, v1::ClusterStatus* status) {
  const auto& known = status->problems();
  const bool is_known = std::any_of(known.begin(), known.end(), [&](const v1::Reason& other) {
    return SaysTheSame(reason, other);
  });
  if (!is_known) *status->add_problems() = std::move(reason);
}

v1::Reason OfNode(const v1::NodeStatus& node) {
  const std::string& id = node.identity().node_id();
  const std::string name =
      node.identity().hostname().empty() ? id.substr(0, 8) : node.identity().hostname();
  if (node.state() == v1::NODE_STATE_LEFT) {
    v1::Reason reason =
        MakeReason(reasons::kNodeLeft, absl::StrCat(name, " was stopped in order"), id);
    reason.set_remedy(absl::StrCat("start agentd on it again, or 'clusterctl nodes forget ", name,
                                   "' when it is not to come back"));
    return reason;
  }
  if (node.state() == v1::NODE_STATE_ALIVE) {
    return MakeReason(reasons::kNodeLeft,
                      absl::StrCat(name, " is about to stop: it takes nothing new and waits for ",
                                   "the answers under way"),
                      id);
  }
  if (!node.state_reason().code().empty()) return node.state_reason();
  const bool is_dead = node.state() == v1::NODE_STATE_DEAD;
  return MakeReason(is_dead ? reasons::kNodeDead : reasons::kNodeSuspect,
                    absl::StrCat(name, is_dead ? " is dead" : " may be dead"), id);
}

v1::Reason OfCordon(const v1::NodeStatus& node) {
  const std::string& id = node.identity().node_id();
  const std::string name =
      node.identity().hostname().empty() ? id.substr(0, 8) : node.identity().hostname();
  std::string what = absl::StrCat(name, " is cordoned: nothing new is placed on it");
  if (node.cordon().drain()) {
    const uint32_t ranks = node.ranks_running();
    what = ranks == 0 ? absl::StrCat(name, " is drained: it holds no ranks and takes none")
                      : absl::StrCat(name, " is being drained: ", ranks,
                                     ranks == 1 ? " rank" : " ranks", " still to leave it");
  }
  v1::Reason reason = MakeReason(reasons::kNodeCordoned, std::move(what), id);
  reason.set_remedy(absl::StrCat("clusterctl uncordon ", name, " when it is to serve again"));
  return reason;
}

// Why it is not served as it was asked for; code empty: nothing is said of it.
v1::Reason OfDeployment(const v1::DeploymentStatus& deployment) {
  if (deployment.state() == v1::DEPLOYMENT_STATE_READY) return deployment.degraded();
  v1::Reason reason = deployment.failure();
  const std::string quoted = absl::StrCat("'", deployment.deployment().name(), "'");
  if (!reason.code().empty() && !absl::StrContains(reason.message(), quoted)) {
    reason.set_message(absl::StrCat(quoted, " is not served: ", reason.message()));
  }
  return reason;
}

v1::Finding FindingOf(const v1::Reason& problem) {
  v1::Finding finding;
  finding.set_severity(IsNotice(problem.code()) ? v1::SEVERITY_WARNING : v1::SEVERITY_ERROR);
  *finding.mutable_reason() = problem;
  finding.set_symptom(problem.message());
  const ReasonCode* code = FindReasonCode(problem.code());
  if (code != nullptr) finding.set_cause(std::string(code->meaning));
  if (!problem.remedy().empty()) finding.add_steps(problem.remedy());
  return finding;
}

}  // namespace

bool IsNotice(std::string_view code) {
  return std::find(std::begin(kNotices), std::end(kNotices), code) != std::end(kNotices);
}

void JudgeHealth(std::vector<v1::Reason> found, v1::ClusterStatus* status) {
  bool healthy = status->coordinator().term() > 0;
  for (v1::Reason& reason : found) AddOnce(std::move(reason), status);
  for (const v1::NodeStatus& node : status->nodes()) {
    if (node.state() != v1::NODE_STATE_ALIVE || node.draining()) AddOnce(OfNode(node), status);
    if (node.has_cordon()) AddOnce(OfCordon(node), status);
    healthy = healthy && node.state() == v1::NODE_STATE_ALIVE;
  }
  for (const v1::DeploymentStatus& deployment : status->deployments()) {
    v1::Reason reason = OfDeployment(deployment);
    if (!reason.code().empty()) {
      // The same code says less where it is told of a folder that nobody asked for.
      healthy = false;
      AddOnce(std::move(reason), status);
    }
    healthy = healthy && deployment.state() == v1::DEPLOYMENT_STATE_READY;
  }
  for (const v1::Reason& reason : status->problems()) {
    healthy = healthy && IsNotice(reason.code());
  }
  status->set_healthy(healthy);
}

void AddProblems(const std::vector<v1::Reason>& problems, const std::set<std::string>& asked,
                 v1::Diagnosis* diagnosis) {
  int added = 0;
  for (const v1::Reason& problem : problems) {
    if (!asked.empty() && !problem.node_id().empty() && !asked.contains(problem.node_id())) {
      continue;
    }
    const auto& known = diagnosis->findings();
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const v1::Finding& finding) {
      const v1::Reason& reason = finding.reason();
      const bool same = reason.code() == problem.code() && reason.node_id() == problem.node_id();
      return same && (!problem.node_id().empty() || reason.message() == problem.message());
    });
    if (is_known) continue;
    *diagnosis->add_findings() = FindingOf(problem);
    ++added;
  }
  if (added == 0) return;
  std::stable_sort(
      diagnosis->mutable_findings()->begin(), diagnosis->mutable_findings()->end(),
      [](const v1::Finding& a, const v1::Finding& b) { return a.severity() > b.severity(); });
  // The links' own conclusion knows of nothing else.
  const std::string links =
      absl::StrReplaceAll(diagnosis->conclusion(), {{"nothing is wrong", "no link is at fault"}});
  diagnosis->set_conclusion(
      absl::StrCat(added == 1 ? "A problem" : absl::StrCat(added, " problems"),
                   " of nodes or models: see below.", links.empty() ? "" : " The links: ", links));
}

}  // namespace macrame::agentd
