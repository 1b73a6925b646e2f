#include <memory>

#include "cli/command.h"
#include "cli/format/model_view.h"

namespace macrame::cli {
namespace {

struct PlanOptions {
  std::string name_or_path;
  WishOptions wishes;
};

int RunPlan(const Invocation& run, const PlanOptions& options) {
  AgentClient client(run.options.socket_path);
  const auto wishes = ResolveWishes(options.wishes, client);
  if (!wishes.ok()) return run.Fail(wishes.status());
  v1::PlanModelRequest request;
  request.set_name_or_path(AbsoluteModelPath(options.name_or_path));
  *request.mutable_wishes() = *wishes;
  const auto result = client.PlanModel(request);
  if (!result.ok()) return run.Fail(result.status());
  if (run.wants_table()) {
    *run.environment.out << PlanView(*result, OutputColumns(run.environment), run.style);
  } else {
    run.PrintDocument(Document("PlanResult", *result));
  }
  return result->has_plan() ? kExitOk : kExitFailure;
}

}  // namespace

void AddPlan(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "plan", "What 'model load' would do, and why; exit code 1: does not fit");
  auto options = std::make_shared<PlanOptions>();
  command->add_option("model", options->name_or_path, "A model's name, or the path of its folder")
      ->required();
  AddWishFlags(command, &options->wishes);
  tree.OnChosen(command, [options](const Invocation& run) { return RunPlan(run, *options); });
}

}  // namespace macrame::cli
