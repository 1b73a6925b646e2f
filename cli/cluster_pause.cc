// `cluster drain`, `stop` and `start`: the whole cluster takes no requests, holds no models, serves
// again. The agents go on all the time, so that any of them can be asked to start.

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/duration.h"
#include "cli/status_wait.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What ranks report of their requests is up to two seconds old, and one may be on its way to them.
constexpr std::chrono::milliseconds kQuiet{2500};
// For ranks to end once nobody wants them.
constexpr std::chrono::seconds kEndLimit{60};

struct PauseOptions {
  std::string deadline = "60s";
};

uint64_t RequestsOf(const v1::ClusterStatus& status) {
  uint64_t requests = 0;
  // By node: a gang that gave way to another goes on to answer, and is no deployment's any more.
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.state() != v1::NODE_STATE_ALIVE && node.state() != v1::NODE_STATE_SUSPECT) continue;
    requests += node.load().requests_running() + node.load().requests_queued();
  }
  return requests;
}

uint32_t RanksOf(const v1::ClusterStatus& status) {
  uint32_t ranks = 0;
  for (const v1::NodeStatus& node : status.nodes()) ranks += node.ranks_running();
  return ranks;
}

std::string Counted(uint64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// Waits, and says what for.
class PauseWait {
 public:
  PauseWait(const Invocation& run, AgentClient& client) : run_(run), client_(client) {}

  // No request for kQuiet. DEADLINE_EXCEEDED: some go on.
  StatusWait ForRequests(std::chrono::milliseconds limit) {
    Clock::time_point quiet_since = Clock::now();
    return WaitForStatus(client_, limit + kQuiet, [&](const v1::ClusterStatus& status) {
      left_ = RequestsOf(status);
      if (left_ > 0) quiet_since = Clock::now();
      Tell(absl::StrCat("Waiting for ", Counted(left_, "request"), " under way"));
      return Clock::now() - quiet_since >= kQuiet;
    });
  }
  StatusWait ForRanks() {
    return WaitForStatus(client_, kEndLimit, [&](const v1::ClusterStatus& status) {
      // What is still listed has its ranks to come, or to go.
      left_ = std::max<uint64_t>(RanksOf(status), status.deployments_size());
      Tell(absl::StrCat("Waiting for ", Counted(left_, "rank"), " to end"));
      return left_ == 0;
    });
  }
  uint64_t left() const { return left_; }

 private:
  void Tell(std::string line) {
    if (run_.options.quiet || left_ == 0 || line == said_) return;
    said_ = std::move(line);
    *run_.environment.err << said_ << "\n" << std::flush;
  }

  const Invocation& run_;
  AgentClient& client_;
  uint64_t left_ = 0;
  std::string said_;
};

absl::StatusOr<v1::PauseClusterResponse> Order(AgentClient& client, v1::PauseOrder order) {
  return GiveOrder([&] { return client.PauseCluster(order); });
}

absl::Status TookTooLong(uint64_t left, absl::string_view what) {
  v1::Reason reason = MakeReason(reasons::kClusterPaused,
                                 absl::StrCat(Counted(left, what), left == 1 ? " goes" : " go",
                                              " on; the cluster takes no new ones"));
  reason.set_remedy("wait and give the order again, or clusterctl cluster start");
  return ReasonStatus(absl::StatusCode::kDeadlineExceeded, reason);
}

// Of a wait that did not end well; `what` goes on. The order holds all the same, which is said
// where nothing but text is told.
int Fail(const Invocation& run, const StatusWait& wait, uint64_t left, absl::string_view what) {
  if (absl::IsDeadlineExceeded(wait.status)) return run.Fail(TookTooLong(left, what));
  if (run.wants_table()) {
    *run.environment.err << "The cluster takes no new requests until 'clusterctl cluster start'.\n";
  }
  return wait.interrupted.has_value() ? *wait.interrupted : run.Fail(wait.status);
}

int Done(const Invocation& run, std::string_view state, const v1::PauseClusterResponse& response) {
  if (!run.wants_table()) {
    Json document = Document("ClusterPause");
    document["state"] = state;
    document["changed"] = response.changed();
    document["models"] =
        std::vector<std::string>(response.models().begin(), response.models().end());
    run.PrintDocument(document);
    return kExitOk;
  }
  const std::string models = Printable(absl::StrJoin(response.models(), ", "));
  std::ostream& out = *run.environment.out;
  if (state == "drained") {
    out << "The cluster is drained: no request is under way, and none is taken until 'clusterctl "
           "cluster start'. Models stay loaded.\n";
  } else if (state == "stopped") {
    out << "The cluster is stopped: nothing is loaded, and no request is taken until 'clusterctl "
           "cluster start'"
        << (models.empty() ? "" : ", which loads again: " + models) << ". The agents go on.\n";
  } else if (!response.changed()) {
    out << "The cluster serves already.\n";
  } else {
    out << "The cluster serves again"
        << (models.empty() ? "" : "; it loads " + models + " ('clusterctl status' says how far)")
        << ".\n";
  }
  return kExitOk;
}

int RunDrain(const Invocation& run, const PauseOptions& options) {
  AgentClient client(run.options.agent);
  const auto response = Order(client, v1::PAUSE_ORDER_DRAIN);
  if (!response.ok()) return run.Fail(response.status());
  PauseWait wait(run, client);
  const StatusWait quiet = wait.ForRequests(*ParseDuration(options.deadline));
  if (!quiet.status.ok()) return Fail(run, quiet, wait.left(), "request");
  return Done(run, response->pause().stopped() ? "stopped" : "drained", *response);
}

int RunStop(const Invocation& run, const PauseOptions& options) {
  AgentClient client(run.options.agent);
  const auto drained = Order(client, v1::PAUSE_ORDER_DRAIN);
  if (!drained.ok()) return run.Fail(drained.status());
  PauseWait wait(run, client);
  // What goes on after the deadline ends with its ranks.
  const StatusWait quiet = wait.ForRequests(*ParseDuration(options.deadline));
  const bool is_over = quiet.status.ok() || absl::IsDeadlineExceeded(quiet.status);
  if (!is_over) return Fail(run, quiet, wait.left(), "request");
  const auto stopped = Order(client, v1::PAUSE_ORDER_STOP);
  if (!stopped.ok()) return Fail(run, {stopped.status(), {}}, 0, "rank");
  const StatusWait empty = wait.ForRanks();
  if (!empty.status.ok()) return Fail(run, empty, wait.left(), "rank");
  return Done(run, "stopped", *stopped);
}

int RunStart(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto response = Order(client, v1::PAUSE_ORDER_START);
  if (!response.ok()) return run.Fail(response.status());
  return Done(run, "serving", *response);
}

}  // namespace

void AddClusterPause(CommandTree& tree, CLI::App* cluster) {
  const auto add = [&](const char* word, const char* what, const char* deadline, auto run) {
    CLI::App* command = tree.Add(cluster, word, what);
    auto options = std::make_shared<PauseOptions>();
    command->add_option("--deadline", options->deadline, deadline)->check(IsDuration());
    tree.OnChosen(command, [options, run](const Invocation& invocation) {
      return run(invocation, *options);
    });
  };
  add("drain", "Refuse new requests on every node, and wait until none is running",
      "Time to wait for running requests: 90s, 10m (default: 60s)", RunDrain);
  add("stop", "Drain the cluster and unload all models, until 'cluster start'",
      "Time that running requests have to finish: 90s, 10m (default: 60s)", RunStop);
  CLI::App* start =
      tree.Add(cluster, "start", "Serve again after 'drain' or 'stop', with the same models");
  tree.OnChosen(start, RunStart);
}

}  // namespace macrame::cli
