#include <memory>

#include "cli/command.h"

namespace macrame::cli {
namespace {

int RunMetrics(const Invocation& run, std::string format) {
  if (format.empty()) format = run.options.output == OutputFormat::kJson ? "json" : "prometheus";
  AgentClient client(run.options.agent);
  const auto text = client.GetMetrics(format);
  if (!text.ok()) return run.Fail(text.status());
  *run.environment.out << *text;
  return kExitOk;
}

}  // namespace

void AddMetrics(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "metrics", "Print the agent's metrics: nodes, links, models, gateway");
  auto format = std::make_shared<std::string>();
  command->add_option("--format", *format, "Format: prometheus (default), openmetrics or json")
      ->check(CLI::IsMember({"prometheus", "openmetrics", "json"}));
  tree.OnChosen(command, [format](const Invocation& run) { return RunMetrics(run, *format); });
}

}  // namespace macrame::cli
