#include <fstream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/format/reason_text.h"
#include "transport/links/mlx_settings.h"

namespace macrame::cli {
namespace {

constexpr size_t kHostfileBytesMax = 1 << 20;

struct ExportOptions {
  std::string backend;
  std::vector<std::string> nodes;
  bool environment = false;
};

int RunExport(const Invocation& run, const ExportOptions& options) {
  AgentClient client(run.options.socket_path);
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

int RunValidate(const Invocation& run, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    *run.environment.err << "error: can't read " << Printable(path) << "\n";
    return kExitNotFound;
  }
  std::string text(kHostfileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const std::vector<transport::HostfileFault> faults = transport::CheckHostfile(text);
  if (!run.wants_table()) {
    Json document = Document("HostfileFaults");
    document["items"] = Json::array();
    for (const transport::HostfileFault& fault : faults) {
      document["items"].push_back({{"line", fault.line}, {"message", fault.message}});
    }
    run.PrintDocument(document);
    return faults.empty() ? kExitOk : kExitFailure;
  }
  for (const transport::HostfileFault& fault : faults) {
    *run.environment.out << Printable(path) << ":" << fault.line << ": " << Printable(fault.message)
                         << "\n";
  }
  if (faults.empty() && !run.options.quiet) {
    *run.environment.out << Printable(path) << ": good for mlx.launch\n";
  }
  return faults.empty() ? kExitOk : kExitFailure;
}

}  // namespace

void AddExport(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "export", "What other tools need to know of this cluster");
  group->require_subcommand(1);
  CLI::App* command =
      tree.Add(group, "hostfile", "The host file that mlx.launch takes, from measured links");
  auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("--backend", options->backend, "ring, jaccl or jaccl-ring (default: the best)")
      ->check(CLI::IsMember({"ring", "jaccl", "jaccl-ring"}));
  command->add_option("--nodes", options->nodes, "Only these nodes, in this order");
  command->add_flag("--env", options->environment, "Instead the MLX_* settings of each rank");
  tree.OnChosen(command, [options](const Invocation& run) { return RunExport(run, *options); });
}

void AddValidate(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "validate", "Whether a file is what other tools take");
  group->require_subcommand(1);
  CLI::App* command =
      tree.Add(group, "hostfile", "Every fault with its line; exit code 1 when there is one");
  auto path = std::make_shared<std::string>();
  command->add_option("file", *path, "The host file")->required();
  tree.OnChosen(command, [path](const Invocation& run) { return RunValidate(run, *path); });
}

}  // namespace macrame::cli
