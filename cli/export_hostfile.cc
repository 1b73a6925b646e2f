#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/format/reason_text.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "transport/links/mlx_settings.h"
#include "transport/regular_file.h"

namespace macrame::cli {
namespace {

constexpr size_t kHostfileBytesMax = 1 << 20;

struct ExportOptions {
  std::string backend;
  std::vector<std::string> nodes;
  bool environment = false;
};

int RunExport(const Invocation& run, const ExportOptions& options) {
  AgentClient client(run.options.agent);
  const auto ids = ResolveNodes(client, options.nodes);
  if (!ids.ok()) return run.Fail(ids.status());
  v1::ExportHostfileRequest request;
  request.set_backend(options.backend);
  request.set_environment(options.environment);
  for (const std::string& id : *ids) request.add_node_ids(id);
  const auto response = client.ExportHostfile(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("Hostfile", *response));
    return kExitOk;
  }
  for (const v1::Reason& warning : response->warnings()) {
    *run.environment.err << "warning: " << ReasonSentence(warning) << "\n";
  }
  if (!options.environment) {
    *run.environment.out << response->hostfile();
    return kExitOk;
  }
  for (const v1::RankEnvironment& rank : response->environments()) {
    *run.environment.out << "# rank " << rank.rank() << "\n";
    for (const std::string& setting : rank.settings()) {
      *run.environment.out << Printable(setting) << "\n";
    }
  }
  return kExitOk;
}

// What the agents know of the machines that a host file may name.
std::vector<transport::HostSystem> SystemsOf(const v1::LinksView& view) {
  std::vector<transport::HostSystem> systems;
  for (const v1::NodeLinks& node : view.nodes()) {
    const v1::LinkFacts& facts = node.facts();
    transport::HostSystem& system = systems.emplace_back();
    system.names = {node.node_id(), facts.hostname()};
    if (facts.is_mac() == v1::FACT_YES) system.macos_version = facts.os_version();
    for (const v1::LinkInterface& interface : facts.interfaces()) {
      for (const v1::NodeAddress& address : interface.addresses()) {
        system.ips.push_back(address.ip());
      }
    }
  }
  return systems;
}

struct Validated {
  std::vector<transport::HostfileFault> faults;
  std::vector<std::string> unchecked;  // hosts whose macOS is not known
  std::string why;                     // nothing is known of them; empty: it was not needed
};

// The file by itself; where the macOS of its hosts matters, also what the agent knows of them.
Validated Validate(const Invocation& run, const std::string& text) {
  Validated out;
  out.faults = transport::CheckHostfile(text, {}, &out.unchecked);
  if (out.unchecked.empty()) return out;
  AgentClient client(run.options.agent);
  const auto view = client.GetLinks();
  if (!view.ok()) {
    out.why = absl::StrCat("no agent told it (", ReasonOf(view.status()).code(), ")");
    return out;
  }
  out.faults = transport::CheckHostfile(text, SystemsOf(*view), &out.unchecked);
  if (!out.unchecked.empty()) out.why = "no live node of this cluster is known to be them";
  return out;
}

int RunValidate(const Invocation& run, const std::string& path) {
  const auto text = transport::ReadFileOrPipe(path, kHostfileBytesMax);
  if (!text.ok()) {
    v1::Reason reason = MakeReason(
        reasons::kInternal, absl::StrCat("can't read ", path, ": ", text.status().message()));
    reason.set_remedy("name the host file; 'clusterctl export hostfile' prints one");
    return run.Fail(ReasonStatus(absl::StatusCode::kNotFound, reason));
  }
  const Validated found = Validate(run, *text);
  const int exit_code = found.faults.empty() ? kExitOk : kExitFailure;
  if (!run.wants_table()) {
    Json document = Document("HostfileFaults");
    document["items"] = Json::array();
    for (const transport::HostfileFault& fault : found.faults) {
      document["items"].push_back({{"line", fault.line}, {"message", fault.message}});
    }
    document["macos_not_checked"] = found.unchecked;
    document["macos_not_checked_why"] = found.why;
    run.PrintDocument(document);
    return exit_code;
  }
  for (const transport::HostfileFault& fault : found.faults) {
    *run.environment.out << Printable(path) << ":" << fault.line << ": " << Printable(fault.message)
                         << "\n";
  }
  if (!found.unchecked.empty() && !run.options.quiet) {
    *run.environment.err << "note: the macOS of " << Printable(absl::StrJoin(found.unchecked, ", "))
                         << " is not known, because " << found.why
                         << ": it was not checked that all hosts run macOS 26.2, or all 26.3 or "
                            "later\n";
  }
  if (found.faults.empty() && !run.options.quiet) {
    *run.environment.out << Printable(path) << ": good for mlx.launch\n";
  }
  return exit_code;
}

}  // namespace

void AddExport(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "export", "Write files for other tools");
  group->require_subcommand(1);
  CLI::App* command =
      tree.Add(group, "hostfile", "Write a hostfile for mlx.launch, from measured links");
  auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("--backend", options->backend,
                   "Backend: ring, jaccl or jaccl-ring (default: the best)")
      ->type_name("NAME")
      ->check(CLI::IsMember(MlxBackendNames()));
  command->add_option("--nodes", options->nodes, "Use only these nodes, in this order")
      ->type_name("NODES");
  command->add_flag("--env", options->environment, "Print each rank's MLX_* variables instead");
  tree.OnChosen(command, [options](const Invocation& run) { return RunExport(run, *options); });
}

void AddValidate(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "validate", "Check files for other tools");
  group->require_subcommand(1);
  CLI::App* command =
      tree.Add(group, "hostfile", "Check a hostfile for mlx.launch (exit code 1: it has errors)");
  auto path = std::make_shared<std::string>();
  command->add_option("file", *path, "Hostfile to check")->required();
  tree.OnChosen(command, [path](const Invocation& run) { return RunValidate(run, *path); });
}

}  // namespace macrame::cli
