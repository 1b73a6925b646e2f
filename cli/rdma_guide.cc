#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/interrupt.h"
#include "proto/reasons.h"
#include "transport/links/link_ends.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kLookInterval{5};

struct GuideOptions {
  std::string node;
  std::string timeout = "30m";
  bool no_wait = false;
};

const v1::LinkFacts* FactsOf(const v1::LinksView& view, const std::string& node_id) {
  for (const v1::NodeLinks& node : view.nodes()) {
    if (node.node_id() == node_id) return &node.facts();
  }
  return nullptr;
}

bool IsThunderbolt4(const v1::LinkFacts& facts) {
  if (facts.kernel_refuses_rdma() == v1::FACT_YES && facts.rdma_devices().empty()) return true;
  for (const v1::ThunderboltPort& port : facts.ports()) {
    if (port.is_thunderbolt5() != v1::FACT_NO) return false;
  }
  return !facts.ports().empty();
}

// Why the walk to that machine would be for nothing; empty: it may help.
std::string WhyNot(const v1::LinkFacts& facts) {
  if (facts.is_mac() != v1::FACT_YES) return "it is not a Mac: RDMA over Thunderbolt is macOS's";
  if (facts.is_virtual_machine() == v1::FACT_YES) return "it is a virtual machine";
  if (IsThunderbolt4(facts)) {
    return "its Thunderbolt controller is older than Thunderbolt 5: macOS refuses RDMA on it, "
           "whatever is enabled. The ring is its backend";
  }
  const bool is_old =
      !facts.os_version().empty() &&
      transport::CompareVersions(facts.os_version(), transport::kRdmaOsVersionMin) < 0;
  if (is_old || facts.rdma_ctl_missing()) {
    return absl::StrCat("its macOS ", facts.os_version(),
                        is_old ? " is older than RDMA" : " has no rdma_ctl",
                        ": update to 26.2 or later first (26.3 advised), in System Settings, "
                        "General, Software Update; Recovery changes nothing before that");
  }
  if (facts.rdma_enabled() == v1::FACT_YES) return "RDMA is on already";
  return "";
}

void PrintSteps(const Invocation& run, const std::string& host) {
  *run.environment.out
      << "At " << Printable(host) << " itself (not by ssh, not with sudo):\n"
      << "  1. shut it down fully\n"
      << "  2. hold its power button until 'Options' shows; choose Options, Continue\n"
      << "  3. menu Utilities, Terminal\n"
      << "  4. type: rdma_ctl enable\n"
      << "  5. restart from the Apple menu\n"
      << run.style.Warn("Mind:") << " RDMA lets a program at the other end of the cable write into "
      << "this Mac's memory. Enable it only on machines that you control, cabled to nothing else; "
      << "not on one that another organisation manages.\n";
}

void PrintRemaining(const Invocation& run, const v1::LinksView& view) {
  bool heading = false;
  for (const v1::NodeLinks& node : view.nodes()) {
    if (!WhyNot(node.facts()).empty()) continue;
    if (!heading) *run.environment.out << "Macs that still need it:\n";
    heading = true;
    *run.environment.out << "  " << Printable(node.facts().hostname()) << "\n";
  }
}

absl::Status RdmaTrouble(absl::StatusCode status_code, std::string message,
                         const std::string& node_id, const std::string& remedy) {
  v1::Reason reason = MakeReason(reasons::kInternal, std::move(message), node_id);
  reason.set_remedy(remedy);
  return ReasonStatus(status_code, reason);
}

int WaitForIt(const Invocation& run, AgentClient& client, const std::string& node_id,
              std::chrono::milliseconds limit, const InterruptWatch& interrupt) {
  *run.environment.err
      << "waiting for it to come back with RDMA on; Ctrl-C ends the waiting only\n";
  const auto end = std::chrono::steady_clock::now() + limit;
  const auto goes_on = [&] {
    return std::chrono::steady_clock::now() < end && !interrupt.interrupted();
  };
  while (goes_on()) {
    const auto view = client.GetLinks();
    if (absl::IsUnauthenticated(view.status()) || absl::IsPermissionDenied(view.status())) {
      return run.Fail(view.status());  // a key that was revoked does not come back
    }
    const v1::LinkFacts* facts = view.ok() ? FactsOf(*view, node_id) : nullptr;
    if (facts != nullptr && facts->rdma_enabled() == v1::FACT_YES) {
      *run.environment.out << "RDMA is on; " << facts->rdma_devices_size()
                           << " RDMA devices are listed\n";
      PrintRemaining(run, *view);
      return facts->rdma_devices().empty() ? kExitFailure : kExitOk;
    }
    for (int i = 0; i < 50 && goes_on(); ++i) {
      std::this_thread::sleep_for(kLookInterval / 50);
    }
  }
  if (interrupt.interrupted()) return interrupt.exit_code();
  return run.Fail(RdmaTrouble(
      absl::StatusCode::kDeadlineExceeded, "RDMA was not seen on within the time", node_id,
      absl::StrCat("'clusterctl doctor ", node_id,
                   "' says what it sees; ask again with a longer --timeout")));
}

int RunGuide(const Invocation& run, const GuideOptions& options) {
  AgentClient client(run.options.agent);
  const auto ids = ResolveNodes(client, {options.node});
  if (!ids.ok()) return run.Fail(ids.status());
  const auto view = client.GetLinks();
  if (!view.ok()) return run.Fail(view.status());
  const v1::LinkFacts* facts = FactsOf(*view, ids->front());
  if (facts == nullptr) {
    return run.Fail(RdmaTrouble(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("nothing is known of the ports of ", options.node, " yet"), ids->front(),
        "see with 'clusterctl nodes' whether it is there, and ask again"));
  }
  const std::string why_not = WhyNot(*facts);
  if (!run.wants_table()) {
    Json document = Document("RdmaGuide");
    document["node"] = facts->hostname();
    document["worth_it"] = why_not.empty();
    document["why_not"] = why_not;
    run.PrintDocument(document);
    return kExitOk;
  }
  if (!why_not.empty()) {
    *run.environment.out << Printable(facts->hostname())
                         << ": not worth the walk: " << Printable(why_not) << "\n";
    PrintRemaining(run, *view);
    return kExitOk;
  }
  PrintSteps(run, facts->hostname());
  PrintRemaining(run, *view);
  if (options.no_wait) return kExitOk;
  InterruptWatch interrupt([&client] { client.Cancel(); });
  return WaitForIt(run, client, ids->front(), *ParseDuration(options.timeout), interrupt);
}

}  // namespace

void AddRdma(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "rdma", "Set up RDMA over Thunderbolt on a Mac");
  group->require_subcommand(1);
  CLI::App* command =
      tree.Add(group, "guide", "Show whether and how to enable RDMA, then wait and verify");
  auto options = std::make_shared<GuideOptions>();
  command->add_option("node", options->node, "Hostname or id")->required();
  command->add_option("--timeout", options->timeout, "Time limit (default: 30m)")
      ->check(IsDuration());
  command->add_flag("--no-wait", options->no_wait, "Print the steps only");
  tree.OnChosen(command, [options](const Invocation& run) { return RunGuide(run, *options); });
}

}  // namespace macrame::cli
