#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/model_view.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

// Nodes that do not know yet which models they have.
std::string LookingText(AgentClient& client) {
  const auto status = client.GetStatus();
  if (!status.ok()) return "";  // the list alone says what it can
  size_t nodes = 0;
  for (const v1::Reason& problem : status->problems()) {
    if (problem.code() == reasons::kNotReady && absl::StrContains(problem.message(), "looking")) {
      ++nodes;
    }
  }
  if (nodes == 0) return "";
  return absl::StrCat("Still looking through the model folders on ", nodes,
                      nodes == 1 ? " node" : " nodes", ". Ask again in a moment.\n");
}

int RunModelList(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto models = client.ListModels();
  if (!models.ok()) return run.Fail(models.status());
  if (run.wants_table()) {
    const std::string looking = LookingText(client);
    // An empty list is no news while nodes are looking.
    if (looking.empty() || !models->models().empty()) {
      *run.environment.out << ModelsView(*models, OutputColumns(run.environment), run.style);
    }
    *run.environment.out << looking;
    return kExitOk;
  }
  Json document = Document("ModelList");
  document["items"] = MessageToJson(*models)["models"];
  run.PrintDocument(document);
  return kExitOk;
}

}  // namespace

void AddModelList(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "list", "List models on the nodes' disks and loaded models");
  tree.OnChosen(command, RunModelList);
}

void AddLs(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "ls", "List models on the nodes' disks (as 'model list')");
  tree.OnChosen(command, RunModelList);
}

}  // namespace macrame::cli
