#include "cli/command.h"
#include "cli/format/cluster_view.h"

namespace macrame::cli {
namespace {

int RunDevicesList(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    *run.environment.out << DevicesView(*status, OutputColumns(run.environment), run.style);
    return kExitOk;
  }
  Json document = Document("DeviceList");
  const Json whole = MessageToJson(*status);
  document["items"] = whole["nodes"];
  document["unknown_nodes"] = whole["unknown_nodes"];
  run.PrintDocument(document);
  return kExitOk;
}

}  // namespace

void AddDevicesList(CommandTree& tree) {
  CLI::App* devices = tree.Add(tree.root, "devices", "List the machines of the cluster");
  devices->require_subcommand(1);
  CLI::App* list = tree.Add(devices, "list", "List every node with its memory, GPU and state");
  tree.OnChosen(list, RunDevicesList);
}

void AddNodes(CommandTree& tree) {
  CLI::App* nodes =
      tree.Add(tree.root, "nodes", "List nodes (as 'devices list'); approve, label or remove them");
  tree.OnChosen(nodes, RunDevicesList);
}

}  // namespace macrame::cli
