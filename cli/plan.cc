#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/model_view.h"
#include "cli/model_name.h"
#include "cli/planner_program.h"
#include "cli/present_cluster.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct PlanOptions {
  std::string name_or_path;
  PlacementFlags placement;
  std::string cluster_path;
  std::string catalogue_path;
  uint32_t bits = 0;
};

// On a cluster that is described in a file, without asking any agent.
absl::StatusOr<v1::PlanResult> PlanDescribed(const Invocation& run, const PlanOptions& options) {
  v1::PlannerQuestion question;
  v1::DescribedPlanQuestion& plan = *question.mutable_plan();
  const auto cluster = ReadDescription(options.cluster_path);
  if (!cluster.ok()) return cluster.status();
  plan.set_cluster_yaml(*cluster);
  if (!options.catalogue_path.empty()) {
    const auto entry = ReadDescription(options.catalogue_path);
    if (!entry.ok()) return entry.status();
    plan.set_catalogue_yaml(*entry);
  }
  if (NamesModelFolder(options.name_or_path)) {
    if (options.bits > 0) return BitsAreTheFiles(options.name_or_path);
    auto model = DescribeModelFolder(options.name_or_path, run.environment);
    if (!model.ok()) return model.status();
    *plan.mutable_described() = *std::move(model);
  } else {
    plan.set_model(options.name_or_path);
    plan.set_bits(options.bits);
  }
  *plan.mutable_placement() = PlacementWithoutNodes(options.placement);
  for (const std::string& name : NamesIn(options.placement.nodes)) {
    plan.mutable_placement()->add_node_ids(name);
  }
  for (const std::string& name : NamesIn(options.placement.excluded)) {
    plan.mutable_placement()->add_excluded_node_ids(name);
  }
  auto answer = AskPlanner(question, run.environment);
  if (!answer.ok()) return answer.status();
  return std::move(*answer->mutable_plan());
}

// Of a model whose files no node has, by the catalogue's figures. `absent`: the live plan's error,
// which it stays when the catalogue does not have the model either.
absl::StatusOr<v1::PlanResult> PlanFromCatalogue(const Invocation& run, AgentClient& client,
                                                 const v1::PlanModelRequest& live,
                                                 const absl::Status& absent) {
  const auto status = client.GetStatus();
  const auto links = client.GetLinks();
  if (!status.ok() || !links.ok()) return absent;
  const std::map<std::string, std::string> names = PresentNames(*status);
  v1::PlannerQuestion question;
  v1::DescribedPlanQuestion& plan = *question.mutable_plan();
  plan.set_cluster_yaml(PresentClusterFile(*status, *links));
  plan.set_model(live.name_or_path());
  *plan.mutable_placement() = live.placement();
  // The file knows nodes by their names.
  for (auto* nodes : {plan.mutable_placement()->mutable_node_ids(),
                      plan.mutable_placement()->mutable_excluded_node_ids()}) {
    for (std::string& node : *nodes) {
      if (const auto name = names.find(node); name != names.end()) node = name->second;
    }
  }
  auto answer = AskPlanner(question, run.environment);
  if (absl::IsNotFound(answer.status())) {
    v1::Reason reason = ReasonOf(absent);
    reason.set_message(absl::StrCat(reason.message(), "; and ", answer.status().message()));
    reason.set_remedy(
        "'clusterctl model list' shows the models that are there; a folder's path works too, and "
        "a name of the catalogue (deploy/catalogue/models.yaml) is planned without files");
    return ReasonStatus(absl::StatusCode::kNotFound, reason);
  }
  if (!answer.ok()) return answer.status();
  v1::PlanResult result = std::move(*answer->mutable_plan());
  std::string why = absl::StrCat("no node has the files of '", live.name_or_path(),
                                 "'; this is what the catalogue's figures say of this cluster");
  if (result.has_not_served()) {
    absl::StrAppend(result.mutable_not_served()->mutable_message(), "; ", why);
    return result;
  }
  v1::Reason& not_served = *result.mutable_not_served();
  not_served = MakeReason(reasons::kModelNotFound, std::move(why));
  not_served.set_remedy("put its folder into a node's model_folders to load it");
  return result;
}

absl::StatusOr<v1::PlanResult> PlanLive(const Invocation& run, const PlanOptions& options) {
  AgentClient client(run.options.agent);
  const auto placement = ResolvePlacement(options.placement, client);
  if (!placement.ok()) return placement.status();
  v1::PlanModelRequest request;
  request.set_name_or_path(AbsoluteModelPath(ModelMeantBy(client, options.name_or_path)));
  *request.mutable_placement() = *placement;
  auto result = client.PlanModel(request);
  const bool is_absent = ReasonOf(result.status()).code() == reasons::kModelNotFound;
  if (!is_absent || NamesModelFolder(options.name_or_path)) return result;
  return PlanFromCatalogue(run, client, request, result.status());
}

int RunPlan(const Invocation& run, const PlanOptions& options) {
  const auto result =
      options.cluster_path.empty() ? PlanLive(run, options) : PlanDescribed(run, options);
  if (!result.ok()) return run.Fail(result.status());
  // An option that makes no sense is no answer about the model.
  if (result->failure().code() == reasons::kNodeNotFound) {
    return run.Fail(ReasonStatus(absl::StatusCode::kNotFound, result->failure()));
  }
  if (result->failure().code() == reasons::kBadRequest) {
    return run.Fail(ReasonStatus(absl::StatusCode::kInvalidArgument, result->failure()));
  }
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
      tree.Add(tree.root, "plan", "Show what 'model load' would do, and why (exit code 1: no fit)");
  auto options = std::make_shared<PlanOptions>();
  command
      ->add_option("model", options->name_or_path,
                   "Name of a model, path of its folder, or name in the catalogue")
      ->required();
  AddPlacementFlags(command, &options->placement);
  CLI::Option* cluster = command
                             ->add_option("--cluster", options->cluster_path,
                                          "YAML file of a cluster to plan for, instead of this one")
                             ->type_name("FILE");
  command->add_option("--catalogue", options->catalogue_path, "YAML file with more models")
      ->type_name("FILE")
      ->needs(cluster);
  command
      ->add_option("--bits", options->bits,
                   "Bits per weight (default: by the name, else as published, else 16)")
      ->check(CLI::Range(2u, 32u))
      ->needs(cluster);
  tree.OnChosen(command, [options](const Invocation& run) { return RunPlan(run, *options); });
}

}  // namespace macrame::cli
