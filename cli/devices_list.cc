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
  CLI::App* devices = tree.Add(tree.root, "devices", "The machines of the cluster");
  devices->require_subcommand(1);
  CLI::App* list = tree.Add(devices, "list", "Every node with its memory, GPU and state");
  tree.OnChosen(list, RunDevicesList);
}

void AddNodes(CommandTree& tree) {
  CLI::App* nodes =
      tree.Add(tree.root, "nodes", "Every node, as 'devices list'; who belongs to the cluster");
  tree.OnChosen(nodes, RunDevicesList);
}

}  // namespace macrame::cli
