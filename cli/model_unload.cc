#include <memory>

#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/model_name.h"

namespace macrame::cli {
namespace {

int RunModelUnload(const Invocation& run, const std::string& typed) {
  AgentClient client(run.options.agent);
  const std::string name = ModelMeantBy(client, typed);
  int given = 0;
  const absl::Status done = GiveOrder([&] {
    ++given;
    return client.UnloadModel(name);
  });
  // An earlier order was carried out then.
  const bool is_gone = given > 1 && absl::IsNotFound(done);
  if (!done.ok() && !is_gone) return run.Fail(done);
  if (run.wants_table()) {
    *run.environment.out << Printable(name) << " is unloaded\n";
    return kExitOk;
  }
  Json document = Document("ModelUnloaded");
  document["name"] = name;
  run.PrintDocument(document);
  return kExitOk;
}

}  // namespace

void AddModelUnload(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "unload", "Stop serving a model and free its memory");
  auto name = std::make_shared<std::string>();
  command->add_option("model", *name, "Name of a loaded model")->required();
  tree.OnChosen(command, [name](const Invocation& run) { return RunModelUnload(run, *name); });
}

}  // namespace macrame::cli
