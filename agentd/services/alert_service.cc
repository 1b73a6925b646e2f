#include "agentd/services/alert_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agentd/base/web_url.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// Of a URL, whose path or query is often the secret: scheme, host and port.
std::string Told(const std::string& url) {
  const std::optional<WebUrl> parts = ParseWebUrl(url);
  if (!parts.has_value()) return "the webhook";
  return url.substr(0, url.find_first_of("/?#", url.find("//") + 2));
}

std::string TimeText(uint64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(static_cast<int64_t>(unix_ms)),
                          absl::UTCTimeZone());
}

// Models that are not served as they were asked for, and all else.
std::vector<Problem> ProblemsOf(const v1::ClusterStatus& status) {
  std::vector<Problem> problems;
  std::set<std::string> quoted;
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    const bool is_ready = deployment.state() == v1::DEPLOYMENT_STATE_READY;
    const v1::Reason& reason = is_ready ? deployment.degraded() : deployment.failure();
    if (reason.code().empty()) continue;
    problems.push_back({reason, deployment.deployment().name()});
    quoted.insert(absl::StrCat("'", deployment.deployment().name(), "'"));
  }
  for (const v1::Reason& reason : status.problems()) {
    const bool is_told = std::any_of(quoted.begin(), quoted.end(), [&](const std::string& name) {
      return absl::StrContains(reason.message(), name);
    });
    if (!is_told) problems.push_back({reason, ""});
  }
  return problems;
}

}  // namespace

std::string AlertJson(const Alert& alert, const std::string& cluster, const std::string& node_name,
                      uint64_t now_unix_ms) {
  const v1::Reason& reason = alert.reason;
  std::string text =
      absl::StrCat(cluster.empty() ? "" : absl::StrCat("[", cluster, "] "),
                   alert.is_over ? "Over: " : "", reason.message(), " (", reason.code(), ")");
  if (!alert.is_over && !reason.remedy().empty()) {
    absl::StrAppend(&text, ". Next: ", reason.remedy());
  }
  const nlohmann::ordered_json json = {
      {"text", text},
      {"content", text},
      {"state", alert.is_over ? "over" : "raised"},
      {"cluster", cluster},
      {"code", reason.code()},
      {"message", reason.message()},
      {"remedy", reason.remedy()},
      {"node", node_name},
      {"node_id", reason.node_id()},
      {"since", TimeText(alert.since_unix_ms)},
      {"at", TimeText(now_unix_ms)},
  };
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

AlertService::AlertService(Parts parts, std::string url, Post post)
    : parts_(std::move(parts)), url_(std::move(url)), post_(std::move(post)) {}

void AlertService::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (post_ == nullptr || now - looked_at_ < kAlertLook) return;
  looked_at_ = now;
  const v1::ClusterStatus status = parts_.reporter.Status();
  const bool leads = parts_.election.Leading(now).has_value();
  const bool nobody_leads = !parts_.election.Coordinator(now).has_value();
  std::vector<Alert> alerts;
  // Who led before may have gone with what it had to tell.
  if (!std::exchange(led_, leads) && leads) alerts = tracker_.Raised();
  for (Alert& alert : tracker_.Update(ProblemsOf(status), now, parts_.dispatcher.UnixMs())) {
    if (leads || nobody_leads || IsOwn(alert.reason)) alerts.push_back(std::move(alert));
  }
  for (const Alert& alert : alerts) Tell(alert, status);
}

bool AlertService::IsOwn(const v1::Reason& reason) const {
  if (reason.node_id() != parts_.self.value()) return false;
  const std::vector<v1::Reason> own = parts_.own_problems();
  return std::any_of(own.begin(), own.end(), [&](const v1::Reason& other) {
    return other.code() == reason.code() && other.node_id() == reason.node_id();
  });
}

void AlertService::Tell(const Alert& alert, const v1::ClusterStatus& status) {
  std::string name;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.identity().node_id() == alert.reason.node_id()) name = node.identity().hostname();
  }
  post_(AlertJson(alert, status.cluster_name(), name, parts_.dispatcher.UnixMs()),
        [this, code = alert.reason.code()](const absl::Status& status) {
          trouble_.Clear();
          if (status.ok()) return;
          trouble_ = MakeReason(reasons::kAlertUndelivered,
                                absl::StrCat("an alert (", code, ") could not be delivered to ",
                                             Told(url_), ": ", status.message()));
          trouble_.set_remedy(
              "look at alert_webhook in agentd.yaml, and whether that server answers");
          spdlog::warn("{}", trouble_.message());
        });
}

}  // namespace macrame::agentd
