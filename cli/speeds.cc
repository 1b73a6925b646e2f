#include "cli/command.h"
#include "cli/format/model_view.h"

namespace macrame::cli {
namespace {

int RunSpeeds(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    *run.environment.out << SpeedsView(status->speeds(), run.environment.terminal_size().columns,
                                       run.style);
  } else {
    run.PrintDocument(Document("MeasuredSpeeds", status->speeds()));
  }
  return kExitOk;
}

int RunSpeedsReset(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto response = client.ForgetSpeeds();
  if (!response.ok()) return run.Fail(response.status());
  if (run.wants_table()) {
    *run.environment.out << "Forgotten: what " << response->forgotten().corrections_size()
                         << " backends were measured at. Plans predict without it.\n";
  } else {
    run.PrintDocument(Document("ForgottenSpeeds", response->forgotten()));
  }
  return kExitOk;
}

}  // namespace

void AddSpeeds(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "speeds", "Show how measured speed corrects predictions");
  command->require_subcommand(0, 1);
  tree.OnChosen(command, [](const Invocation& run) { return RunSpeeds(run); });
  CLI::App* reset = tree.Add(command, "reset", "Forget measured speeds");
  tree.OnChosen(reset, [](const Invocation& run) { return RunSpeedsReset(run); });
}

}  // namespace macrame::cli
