#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/verify_view.h"
#include "cli/interrupt.h"
#include "cli/model_name.h"
#include "cli/repaint.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct VerifyOptions {
  std::string model;
  std::vector<std::string> nodes;
};

bool IsFailure(const v1::NodeModelFiles& node) {
  return node.has_failure() && !HasNoSuchModel(node);
}

int ExitCodeFor(const v1::ModelVerification& verification) {
  if (verification.passed()) return kExitOk;
  const auto& nodes = verification.nodes();
  // What a file has is worse than what could not be looked at.
  const bool is_bad = std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return node.has_broken() || std::any_of(node.files().begin(), node.files().end(), IsBad);
  });
  return !is_bad && std::any_of(nodes.begin(), nodes.end(), IsFailure) ? kExitPartial
                                                                       : kExitFailure;
}

// Nobody has it: as one of them said it.
absl::Status NotFound(const v1::ModelVerification& verification) {
  const auto& nodes = verification.nodes();
  const bool nobody = std::all_of(nodes.begin(), nodes.end(),
                                  [](const auto& node) { return HasNoSuchModel(node); });
  if (!nobody) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kNotFound,
                      nodes.empty() ? v1::Reason() : nodes[0].failure());
}

int RunModelVerify(const Invocation& run, const VerifyOptions& options) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  v1::VerifyModelRequest request;
  request.set_name_or_path(AbsoluteModelPath(ModelMeantBy(client, options.model)));
  for (const std::string& name : NamesIn(options.nodes)) {
    const auto nodes = ResolveEach(*status, name);
    if (!nodes.ok()) return run.Fail(nodes.status());
    for (const std::string& node : *nodes) request.add_node_ids(node);
  }
  InterruptWatch interrupt([&] { client.Cancel(); });
  v1::ModelVerification last;
  const bool shows = run.environment.err_is_terminal && !run.options.quiet;
  std::optional<Repainter> line;
  if (shows) line.emplace(run.environment, /*to_err=*/true);
  const absl::Status asked =
      client.VerifyModel(request, [&](const v1::ModelVerification& progress) {
        last = progress;
        if (shows) line->Show(absl::StrCat(VerifyProgressLine(progress), "\n"));
      });
  if (shows) line->Clear();
  line.reset();
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (!asked.ok()) return run.Fail(asked);
  if (const absl::Status none = NotFound(last); !none.ok()) return run.Fail(none);
  if (run.wants_table()) {
    *run.environment.out << VerifyView(last, *status, OutputColumns(run.environment), run.style);
  } else {
    run.PrintDocument(Document("ModelVerification", last));
  }
  return ExitCodeFor(last);
}

}  // namespace

void AddModelVerify(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(
      model, "verify", "Check a model's files on every node (exit code 1: some are damaged)");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("model", options->model, "Name of a model, or path of its folder")
      ->required();
  command->add_option("--node", options->nodes, "Nodes to check, comma-separated (default: all)")
      ->type_name("NODES")
      ->check(NamesSomething);
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunModelVerify(run, *options); });
}

}  // namespace macrame::cli
