#include <memory>

#include "cli/command.h"
#include "cli/format/capacity_view.h"
#include "cli/planner_program.h"
#include "cli/present_cluster.h"

namespace macrame::cli {
namespace {

struct TopologyOptions {
  std::string buy, model, catalogue_path;
  uint32_t bits = 0;
};

int RunAdvise(const Invocation& run, const TopologyOptions& options) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  topology.set_buy(options.buy);
  if (options.buy.empty()) {
    AgentClient client(run.options.agent);
    const auto status = client.GetStatus();
    if (!status.ok()) return run.Fail(status.status());
    const auto links = client.GetLinks();
    if (!links.ok()) return run.Fail(links.status());
    AddPresentCluster(*status, *links, &topology);
  }
  if (!options.model.empty() && NamesModelFolder(options.model)) {
    if (options.bits > 0) return run.Fail(BitsAreTheFiles(options.model));
    auto model = DescribeModelFolder(options.model, run.environment);
    if (!model.ok()) return run.Fail(model.status());
    *topology.mutable_described() = *std::move(model);
  } else {
    topology.set_model(options.model);
    topology.set_bits(options.bits);
  }
  if (!options.catalogue_path.empty()) {
    const auto entry = ReadDescription(options.catalogue_path);
    if (!entry.ok()) return run.Fail(entry.status());
    topology.set_catalogue_yaml(*entry);
  }
  const auto answer = AskPlanner(question, run.environment);
  if (!answer.ok()) return run.Fail(answer.status());
  if (run.wants_table()) {
    const int columns = OutputColumns(run.environment);
    *run.environment.out << TopologyView(answer->topology(), columns, run.style);
  } else {
    run.PrintDocument(Document("TopologyAdvice", answer->topology()));
  }
  return kExitOk;
}

}  // namespace

void AddTopology(CommandTree& tree) {
  CLI::App* topology = tree.Add(tree.root, "topology", "Advise how to cable machines");
  topology->require_subcommand(1);
  CLI::App* command = tree.Add(topology, "advise", "Show which cable goes where and what it gains");
  auto options = std::make_shared<TopologyOptions>();
  command
      ->add_option("--buy", options->buy,
                   "Machines, as in \"4x mac-studio-m3-ultra-512gb\" (default: this cluster)")
      ->type_name("MACHINES")
      ->check(NamesSomething);
  CLI::Option* model =
      command
          ->add_option("--model", options->model,
                       "Model to rate cables with: name in the catalogue, or folder")
          ->type_name("MODEL")
          ->check(NamesSomething);
  command
      ->add_option("--bits", options->bits,
                   "Bits per weight (default: by the name, else as published, else 16)")
      ->check(CLI::Range(2u, 32u))
      ->needs(model);
  command->add_option("--catalogue", options->catalogue_path, "YAML file with more models")
      ->type_name("FILE")
      ->needs(model);
  tree.OnChosen(command, [options](const Invocation& run) { return RunAdvise(run, *options); });
}

}  // namespace macrame::cli
