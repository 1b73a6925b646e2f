#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "proto/ids.h"

namespace macrame::cli {
namespace {

int RunRevoke(const Invocation& run, const std::string& name) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  v1::RevokeNodeRequest request;
  if (IsValidNodeId(name)) {
    // One that nobody lists any more can be revoked too.
    request.set_node_id(name);
  } else {
    const auto node = ResolveNode(*status, name);
    if (!node.ok()) return run.Fail(node.status());
    request.set_node_id(*node);
  }
  for (const v1::NodeStatus& node : status->nodes()) {
    if (node.identity().node_id() == request.node_id()) {
      request.set_hostname(node.identity().hostname());
    }
  }
  const auto response = client.RevokeNode(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("RevokedNode", *response));
    return kExitOk;
  }
  *run.environment.out
      << "Revoked: " << Printable(name) << " (" << request.node_id().substr(0, 8)
      << "). No node talks to it any more, and its certificate is not renewed.\n"
      << "If the secret file was on that machine, this does not keep it out: make a new cluster\n"
      << "with 'clusterctl cluster init' and let the other machines join that.\n";
  return kExitOk;
}

}  // namespace

void AddNodesRevoke(CommandTree& tree) {
  CLI::App* revoke = tree.Add(tree.root->get_subcommand("nodes"), "revoke",
                              "Remove a lost or stolen machine for good (needs the secret file)");
  auto node = std::make_shared<std::string>();
  revoke->add_option("node", *node, "Hostname, or first digits of the node's id")->required();
  tree.OnChosen(revoke, [node](const Invocation& run) { return RunRevoke(run, *node); });
}

}  // namespace macrame::cli
