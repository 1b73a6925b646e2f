#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"

namespace macrame::cli {
namespace {

int RunApprove(const Invocation& run, const std::string& node) {
  AgentClient client(run.options.agent);
  v1::ApproveNodeRequest request;
  request.set_node(node);
  const auto response = client.ApproveNode(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("ApprovedNode", *response));
    return kExitOk;
  }
  *run.environment.out << "Approved: " << Printable(response->hostname()) << " ("
                       << Printable(response->node_id().substr(0, 8))
                       << "). It joins within seconds.\n";
  return kExitOk;
}

}  // namespace

void AddNodesApprove(CommandTree& tree) {
  CLI::App* approve =
      tree.Add(tree.root->get_subcommand("nodes"), "approve",
               "Admit a machine that waits with a token of 'cluster token --approve'");
  auto node = std::make_shared<std::string>();
  approve->add_option("node", *node, "Hostname, or first digits of the node's id")->required();
  tree.OnChosen(approve, [node](const Invocation& run) { return RunApprove(run, *node); });
}

}  // namespace macrame::cli
