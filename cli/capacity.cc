#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/capacity_view.h"
#include "cli/planner_program.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct CapacityOptions {
  std::string buy, tier, cluster_path, catalogue_path, currency, for_model;
  std::vector<std::string> models;
  uint32_t users = 0, months = 0, context = 0;
  std::optional<double> tariff, duty;
  double price = 0, peak_watts = 0, idle_watts = 0, cloud = 0, speed = 0;
};

absl::StatusOr<v1::PlannerQuestion> QuestionOf(const CapacityOptions& options,
                                               const Environment& environment) {
  v1::PlannerQuestion question;
  v1::CapacityQuestion& capacity = *question.mutable_capacity();
  capacity.set_buy(options.buy);
  capacity.set_tier(options.tier);
  if (!options.cluster_path.empty()) {
    const auto cluster = ReadDescription(options.cluster_path);
    if (!cluster.ok()) return cluster.status();
    capacity.set_cluster_yaml(*cluster);
  }
  if (!options.catalogue_path.empty()) {
    const auto entry = ReadDescription(options.catalogue_path);
    if (!entry.ok()) return entry.status();
    capacity.set_catalogue_yaml(*entry);
  }
  std::vector<std::string> models = NamesIn(options.models);
  if (!options.for_model.empty()) models = {options.for_model};
  for (const std::string& name : models) {
    if (!NamesModelFolder(name)) {
      capacity.add_models(name);
      continue;
    }
    auto model = DescribeModelFolder(name, environment);
    if (!model.ok()) return model.status();
    *capacity.add_described() = *std::move(model);
  }
  capacity.set_recommend(!options.for_model.empty());
  capacity.set_users(options.users);
  capacity.set_months(options.months);
  capacity.set_context_length(options.context);
  capacity.set_currency(options.currency);
  capacity.set_price(options.price);
  if (options.tariff.has_value()) capacity.set_tariff(*options.tariff);
  if (options.duty.has_value()) capacity.set_duty(*options.duty);
  capacity.set_peak_watts(options.peak_watts);
  capacity.set_idle_watts(options.idle_watts);
  capacity.set_cloud_price(options.cloud);
  capacity.set_tokens_per_second(options.speed);
  return question;
}

absl::Status Contradiction(const std::string& what, const std::string& remedy) {
  v1::Reason reason = MakeReason(reasons::kBadRequest, what);
  reason.set_remedy(remedy);
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

// Flags that would be ignored beside each other.
absl::Status CheckFlags(const CLI::App& command) {
  const auto given = [&](const char* flag) { return command.get_option(flag)->count() > 0; };
  if (!given("--for")) {
    if (!given("--speed")) return absl::OkStatus();
    return Contradiction("--speed is what machines are sought for: it needs --for",
                         "name the model with --for, or leave --speed out");
  }
  for (const char* flag : {"--buy", "--tier", "--cluster"}) {
    if (!given(flag)) continue;
    return Contradiction(absl::StrCat("--for seeks machines and ", flag, " names them"),
                         absl::StrCat("leave one out; what those of ", flag,
                                      " would do for a model, --models says"));
  }
  if (given("--models")) {
    return Contradiction("--for seeks machines for one model and --models names others",
                         "leave one out");
  }
  for (const char* flag : {"--price", "--months", "--peak-watts", "--idle-watts", "--cloud"}) {
    if (!given(flag)) continue;
    return Contradiction(absl::StrCat(flag, " is of certain machines, and --for seeks some"),
                         absl::StrCat("leave ", flag, " out, or name machines with --buy"));
  }
  return absl::OkStatus();
}

int RunCapacity(const Invocation& run, const CLI::App& command, const CapacityOptions& options) {
  if (auto bad = CheckFlags(command); !bad.ok()) return run.Fail(bad);
  const auto question = QuestionOf(options, run.environment);
  if (!question.ok()) return run.Fail(question.status());
  const auto answer = AskPlanner(*question, run.environment);
  if (!answer.ok()) return run.Fail(answer.status());
  if (run.wants_table()) {
    const int columns = OutputColumns(run.environment);
    *run.environment.out << CapacityView(answer->capacity(), columns, run.style);
  } else {
    run.PrintDocument(Document("CapacityReport", answer->capacity()));
  }
  return kExitOk;
}

}  // namespace

void AddCapacity(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "capacity",
                               "What machines would hold, how fast, and what they cost; needs no "
                               "cluster");
  auto options = std::make_shared<CapacityOptions>();
  CLI::Option* buy =
      command->add_option("--buy", options->buy, "Machines: \"4x mac-studio-m3-ultra-512gb, ...\"")
          ->check(NamesSomething);
  CLI::Option* tier =
      command->add_option("--tier", options->tier, "starter, professional or enterprise")
          ->check(NamesSomething)
          ->excludes(buy);
  command->add_option("--cluster", options->cluster_path, "Machines described in this YAML file")
      ->excludes(buy)
      ->excludes(tier);
  command
      ->add_option("--for", options->for_model,
                   "What to buy for this model (or model's folder); 1: nothing will do")
      ->check(NamesSomething);
  command
      ->add_option("--models", options->models,
                   "Of the catalogue, or folders of models: a,b-4bit,./c")
      ->check(NamesSomething)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--catalogue", options->catalogue_path,
                      "YAML entries of models beside the catalogue's");
  command->add_option("--users", options->users, "Default 50")->check(CLI::Range(1u, 100000u));
  command->add_option("--speed", options->speed, "With --for: tokens/s that each user at work gets")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--context", options->context, "Default 4096")
      ->check(CLI::Range(1u, 1u << 24));
  command->add_option("--price", options->price, "Of all machines; default as published of them")
      ->check(CLI::Range(0.0, 1e12));
  command->add_option("--currency", options->currency,
                      "A sign; default as published of the machines, else £");
  command->add_option("--months", options->months, "Of amortisation; default 36")
      ->check(CLI::Range(1u, 1200u));
  command->add_option("--tariff", options->tariff, "A kilowatt hour; default 0.25")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--duty", options->duty, "Part of the time at peak; default 0.20")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--peak-watts", options->peak_watts,
                   "Of all machines; default as published of them, else as Apple states for each")
      ->check(CLI::Range(0.0, 1e9));
  command->add_option("--idle-watts", options->idle_watts, "The same, idle")
      ->check(CLI::Range(0.0, 1e9));
  command->add_option("--cloud", options->cloud, "A month in the cloud, to compare with")
      ->check(CLI::Range(0.0, 1e12));
  tree.OnChosen(command, [command, options](const Invocation& run) {
    return RunCapacity(run, *command, *options);
  });
}

}  // namespace macrame::cli
