// `nodes label` and `nodes dedicate`: what owners say of a node.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/format/cluster_view.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct LabelOptions {
  std::string node;
  std::vector<std::string> labels;
};

struct DedicateOptions {
  std::string node, tenant;
  bool none = false;
};

absl::Status BadLabel(const std::string& text) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                      absl::StrCat("'", text, "' is neither KEY=VALUE, which sets a label, nor ",
                                   "KEY-, which removes one"));
}

int Mark(const Invocation& run, const std::string& name, v1::MarkNodeRequest request) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  const auto node = ResolveNode(*status, name);
  if (!node.ok()) return run.Fail(node.status());
  request.set_node_id(*node);
  const auto response = GiveOrder([&] { return client.MarkNode(request); });
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("NodeMarks", *response));
    return kExitOk;
  }
  const std::string marks = MarksText(response->marks());
  *run.environment.out << NodeName(*status, *node) << (response->changed() ? ": " : " already: ")
                       << (marks.empty() ? "no labels, anybody's" : marks) << "\n";
  return kExitOk;
}

int RunLabel(const Invocation& run, const LabelOptions& options) {
  v1::MarkNodeRequest request;
  for (const std::string& text : options.labels) {
    const size_t sign = text.find('=');
    if (sign != std::string::npos && sign > 0) {
      v1::NodeLabel& label = *request.add_labels();
      label.set_key(text.substr(0, sign));
      label.set_value(text.substr(sign + 1));
    } else if (sign == std::string::npos && text.size() > 1 && text.back() == '-') {
      request.add_removed(text.substr(0, text.size() - 1));
    } else {
      return run.Fail(BadLabel(text));
    }
  }
  return Mark(run, options.node, std::move(request));
}

int RunDedicate(const Invocation& run, const DedicateOptions& options) {
  if (options.tenant.empty() != options.none) {
    return run.Fail(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                                 "name the tenant, or say --none, which makes it anybody's; "
                                 "not both"));
  }
  v1::MarkNodeRequest request;
  request.set_tenant(options.none ? "" : options.tenant);
  return Mark(run, options.node, std::move(request));
}

}  // namespace

void AddNodesMark(CommandTree& tree) {
  CLI::App* nodes = tree.root->get_subcommand("nodes");
  CLI::App* label =
      tree.Add(nodes, "label", "Set or remove labels of a node, for '--nodes KEY=VALUE'");
  auto labels = std::make_shared<LabelOptions>();
  label->add_option("node", labels->node, "Hostname, or first digits of the node's id")->required();
  label->add_option("labels", labels->labels, "KEY=VALUE sets a label, KEY- removes it")
      ->required()
      ->expected(1, -1);
  tree.OnChosen(label, [labels](const Invocation& run) { return RunLabel(run, *labels); });

  CLI::App* dedicate =
      tree.Add(nodes, "dedicate", "Reserve a node for one tenant's models; others move away");
  auto options = std::make_shared<DedicateOptions>();
  dedicate->add_option("node", options->node, "Hostname, or first digits of the node's id")
      ->required();
  dedicate->add_option("tenant", options->tenant,
                       "Tenant, as in 'model load --tenant' and 'key create --tenant'");
  dedicate->add_flag("--none", options->none, "Allow every tenant again");
  tree.OnChosen(dedicate, [options](const Invocation& run) { return RunDedicate(run, *options); });
}

}  // namespace macrame::cli
