// `cordon`, `drain` and `uncordon`: a node takes nothing new, gives away what it has, serves again.

#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/duration.h"
#include "cli/format/cluster_view.h"
#include "cli/format/drain_view.h"
#include "cli/status_wait.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

// What replaces a gang has to be loaded first.
constexpr std::chrono::minutes kLaunchSlack{2};

struct DrainOptions {
  std::string node;
  std::string deadline = "60s";
};

absl::StatusOr<v1::SetCordonResponse> Order(AgentClient& client, const std::string& name,
                                            v1::CordonOrder order, uint32_t deadline_ms,
                                            v1::ClusterStatus* status) {
  auto asked = client.GetStatus();
  if (!asked.ok()) return asked.status();
  *status = *std::move(asked);
  const auto node = ResolveNode(*status, name);
  if (!node.ok()) return node.status();
  v1::SetCordonRequest request;
  request.set_node_id(*node);
  request.set_order(order);
  request.set_deadline_ms(deadline_ms);
  auto response = GiveOrder([&] { return client.SetCordon(request); });
  // For callers: uncordoned nodes have no cordon that would say which it is.
  if (response.ok()) response->mutable_cordon()->set_node_id(*node);
  return response;
}

int RunCordon(const Invocation& run, const std::string& name, v1::CordonOrder order) {
  AgentClient client(run.options.agent);
  v1::ClusterStatus status;
  const auto response = Order(client, name, order, 0, &status);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("Cordon", *response));
    return kExitOk;
  }
  const bool is_lifted = order == v1::CORDON_ORDER_UNCORDON;
  *run.environment.out << NodeName(status, response->cordon().node_id())
                       << (response->changed() ? " is " : " was already ")
                       << (is_lifted ? "uncordoned" : "cordoned")
                       << (is_lifted ? "" : ": nothing new is placed on it") << "\n";
  return kExitOk;
}

// Waits until the node holds no rank any more.
class DrainWait {
 public:
  DrainWait(const Invocation& run, std::string node_id, std::chrono::milliseconds limit)
      : run_(run), node_id_(std::move(node_id)), limit_(limit) {}

  int Run(AgentClient& client) {
    const StatusWait wait = WaitForStatus(client, limit_, [&](const v1::ClusterStatus& status) {
      last_ = status;
      left_ = DrainOf(last_, node_id_);
      if (left_.is_empty() || !left_.has_other) return true;
      Tell();
      return false;
    });
    if (wait.status.ok()) return left_.is_empty() ? Done() : run_.Fail(NowhereToGo());
    if (absl::IsDeadlineExceeded(wait.status)) return run_.Fail(TookTooLong());
    if (!wait.interrupted.has_value()) return run_.Fail(wait.status);
    *run_.environment.err << "Not waiting any longer; the node stays cordoned and goes on to give "
                             "its ranks away. 'clusterctl uncordon' takes it back.\n";
    return *wait.interrupted;
  }

 private:
  std::string Name() const { return NodeName(last_, node_id_); }

  void Tell() {
    std::string line = DrainLine(left_, Name());
    if (run_.options.quiet || line == said_) return;
    said_ = std::move(line);
    *run_.environment.err << said_ << std::flush;
  }
  int Done() {
    if (run_.wants_table()) {
      *run_.environment.out << Name() << " is empty: no rank runs on it, and none comes until "
                            << "'clusterctl uncordon " << Name() << "'\n";
      return kExitOk;
    }
    Json document = Document("Drain");
    document["node_id"] = node_id_;
    document["empty"] = true;
    run_.PrintDocument(document);
    return kExitOk;
  }
  absl::Status NowhereToGo() const {
    v1::Reason reason = MakeReason(reasons::kNodeCordoned,
                                   absl::StrCat(Name(), " still serves ", left_.Models(),
                                                ": no other node is there that could take it"),
                                   node_id_);
    reason.set_remedy(
        "clusterctl model unload NAME ends it, clusterctl uncordon NODE gives a "
        "node back");
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
  }
  absl::Status TookTooLong() const {
    v1::Reason reason = MakeReason(
        reasons::kNodeCordoned, absl::StrCat(Name(), " is not empty yet: ", left_.Why()), node_id_);
    reason.set_remedy(
        "it stays cordoned; look again with clusterctl status, make room elsewhere, "
        "or end what is left with clusterctl model unload NAME");
    return ReasonStatus(absl::StatusCode::kDeadlineExceeded, reason);
  }

  const Invocation& run_;
  const std::string node_id_;
  const std::chrono::milliseconds limit_;
  v1::ClusterStatus last_;
  Draining left_;
  std::string said_;
};

int RunDrain(const Invocation& run, const DrainOptions& options) {
  AgentClient client(run.options.agent);
  v1::ClusterStatus status;
  const auto deadline = *ParseDuration(options.deadline);
  const auto response = Order(client, options.node, v1::CORDON_ORDER_DRAIN,
                              static_cast<uint32_t>(deadline.count()), &status);
  if (!response.ok()) return run.Fail(response.status());
  return DrainWait(run, response->cordon().node_id(), deadline + kLaunchSlack).Run(client);
}

}  // namespace

void AddCordon(CommandTree& tree) {
  const auto add = [&](const char* word, const char* what, v1::CordonOrder order) {
    CLI::App* command = tree.Add(tree.root, word, what);
    auto node = std::make_shared<std::string>();
    command->add_option("node", *node, "Hostname, or first digits of the node's id")->required();
    tree.OnChosen(command,
                  [node, order](const Invocation& run) { return RunCordon(run, *node, order); });
  };
  add("cordon", "Place nothing new on a node; running ranks stay", v1::CORDON_ORDER_CORDON);
  CLI::App* drain =
      tree.Add(tree.root, "drain", "Move everything off a node and wait until it is empty");
  auto options = std::make_shared<DrainOptions>();
  drain->add_option("node", options->node, "Hostname, or first digits of the node's id")
      ->required();
  drain
      ->add_option("--deadline", options->deadline,
                   "Time that running requests have to finish: 90s, 10m (default: 60s)")
      ->check(IsDuration());
  tree.OnChosen(drain, [options](const Invocation& run) { return RunDrain(run, *options); });
  add("uncordon", "Allow a node to take ranks again", v1::CORDON_ORDER_UNCORDON);
}

}  // namespace macrame::cli
