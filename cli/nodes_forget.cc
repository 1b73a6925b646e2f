#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "proto/ids.h"

namespace macrame::cli {
namespace {

struct ForgetOptions {
  std::string node;
  bool alone = false;
};

// A member that this agent never heard is known by its id alone.
absl::StatusOr<std::string> ResolveMember(const v1::ClusterStatus& status,
                                          const std::string& name) {
  absl::StatusOr<std::string> node = ResolveNode(status, name);
  if (node.ok()) return node;
  std::string found;
  for (const std::string& id : status.member_ids()) {
    if (!IsBeginningOfId(name, id)) continue;
    if (!found.empty()) return node;
    found = id;
  }
  if (found.empty()) return node;
  return found;
}

int RunForget(const Invocation& run, const ForgetOptions& options) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  const auto node = ResolveMember(*status, options.node);
  if (!node.ok()) return run.Fail(node.status());
  v1::ForgetNodeRequest request;
  request.set_node_id(*node);
  request.set_alone(options.alone);
  const auto response = client.ForgetNode(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("ForgottenNode", *response));
    return kExitOk;
  }
  *run.environment.out << "Forgotten: " << Printable(options.node) << ". A majority is counted of "
                       << response->member_ids_size()
                       << (response->member_ids_size() == 1 ? " node" : " nodes") << " now.\n";
  return kExitOk;
}

void AddForget(CommandTree& tree, const char* word, const char* what) {
  CLI::App* forget = tree.Add(tree.root->get_subcommand("nodes"), word, what);
  auto options = std::make_shared<ForgetOptions>();
  forget->add_option("node", options->node, "Hostname, or first digits of the node's id")
      ->required();
  forget->add_flag("--alone", options->alone,
                   "Allow without a majority; changes made on the other side may be lost");
  tree.OnChosen(forget, [options](const Invocation& run) { return RunForget(run, *options); });
}

}  // namespace

void AddNodesForget(CommandTree& tree) {
  AddForget(tree, "forget", "Remove a machine that is gone for good from the list");
  AddForget(tree, "remove", "Same as 'forget'");
}

}  // namespace macrame::cli
