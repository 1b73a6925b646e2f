#include <chrono>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/duration.h"
#include "cli/format/load_changes.h"
#include "cli/format/model_view.h"
#include "cli/load_wait.h"
#include "cli/model_name.h"
#include "proto/replicas.h"

namespace macrame::cli {
namespace {

constexpr int32_t kPriorityMax = 1'000'000;

struct LoadOptions {
  std::string name_or_path;
  std::string deployment_name;
  std::string timeout = "10m";
  std::string draft_model;
  PlacementFlags placement;
  uint32_t replicas = 0;
  std::optional<int32_t> priority;
  bool may_evict = false;
  bool unload_unused = false;
};

// How it was served until now, of a new replica how another one was; null: not at all.
const v1::DeploymentStatus* Before(const v1::ClusterStatus& status, const std::string& name) {
  const v1::DeploymentStatus* other = nullptr;
  for (const v1::DeploymentStatus& one : status.deployments()) {
    if (one.state() == v1::DEPLOYMENT_STATE_REMOVING) continue;
    const std::string& own = one.deployment().name();
    if (own == name) return &one;
    if (DeploymentOfReplica(own) == DeploymentOfReplica(name)) other = &one;
  }
  return other;
}

int RunModelLoad(const Invocation& run, const LoadOptions& options) {
  AgentClient client(run.options.agent);
  const auto placement = ResolvePlacement(options.placement, client);
  if (!placement.ok()) return run.Fail(placement.status());
  v1::LoadModelRequest request;
  request.set_name_or_path(AbsoluteModelPath(ModelMeantBy(client, options.name_or_path)));
  request.set_deployment_name(options.deployment_name);
  *request.mutable_placement() = *placement;
  if (!options.draft_model.empty()) {
    request.mutable_placement()->set_draft_model(
        AbsoluteModelPath(ModelMeantBy(client, options.draft_model)));
  }
  request.set_replicas(options.replicas);
  if (options.priority.has_value()) request.set_priority(*options.priority);
  if (options.may_evict) request.set_may_evict(true);
  request.set_unload_unused(options.unload_unused);
  request.set_timeout_ms(static_cast<uint32_t>(ParseDuration(options.timeout)->count()));

  const v1::ClusterStatus status = client.GetStatus().value_or(v1::ClusterStatus());
  const auto begin = std::chrono::steady_clock::now();
  v1::DeploymentStatus loaded;
  if (const int code = LoadAndWait(run, client, request, &loaded); code != kExitOk) return code;
  if (run.wants_table()) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const v1::DeploymentStatus* before = Before(status, loaded.deployment().name());
    *run.environment.out << (before == nullptr ? "" : LoadChangesLine(*before, loaded))
                         << LoadedSummary(loaded, took.count());
  } else {
    run.PrintDocument(Document("DeploymentStatus", loaded));
  }
  return kExitOk;
}

}  // namespace

void AddModelLoad(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "load", "Serve a model, split over nodes if needed");
  auto options = std::make_shared<LoadOptions>();
  command->add_option("model", options->name_or_path, "Name of a model, or path of its folder")
      ->required();
  AddPlacementFlags(command, &options->placement);
  command->add_option("--name", options->deployment_name, "Name to serve the model under")
      ->type_name("NAME");
  command
      ->add_option("--draft-model", options->draft_model,
                   "Small model with the same vocabulary, for speculative decoding")
      ->type_name("MODEL");
  command->add_option("--replicas", options->replicas, "Number of replicas, on separate nodes")
      ->check(CLI::Range(1u, kReplicasMax));
  command
      ->add_option("--priority", options->priority,
                   "Priority; higher is placed first (default: 0; may be negative)")
      ->check(CLI::Range(-kPriorityMax, kPriorityMax));
  command->add_flag("--evict", options->may_evict,
                    "Preempt models of lower priority if memory is short; they come back later");
  command->add_flag("--unload-unused", options->unload_unused,
                    "Unload unused models if memory is short, least recently used first");
  command->add_option("--timeout", options->timeout, "Time limit: 90s, 10m, 1h (default: 10m)")
      ->check(IsDuration());
  tree.OnChosen(command, [options](const Invocation& run) { return RunModelLoad(run, *options); });
}

}  // namespace macrame::cli
