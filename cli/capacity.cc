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
  CLI::App* command =
      tree.Add(tree.root, "capacity",
               "Show what machines can hold, at what speed and cost; needs no cluster");
  auto options = std::make_shared<CapacityOptions>();
  CLI::Option* buy =
      command
          ->add_option("--buy", options->buy,
                       "Machines to price, as in \"4x mac-studio-m3-ultra-512gb, ...\"")
          ->type_name("MACHINES")
          ->check(NamesSomething);
  CLI::Option* tier = command
                          ->add_option("--tier", options->tier,
                                       "Set of machines: starter, professional or enterprise")
                          ->type_name("NAME")
                          ->check(NamesSomething)
                          ->excludes(buy);
  command->add_option("--cluster", options->cluster_path, "YAML file that describes the machines")
      ->type_name("FILE")
      ->excludes(buy)
      ->excludes(tier);
  command
      ->add_option("--for", options->for_model,
                   "Find machines for this model (exit code 1: no machine can hold it)")
      ->type_name("MODEL")
      ->check(NamesSomething);
  command
      ->add_option("--models", options->models,
                   "Models to check, from the catalogue or folders: a,b-4bit,./c")
      ->type_name("MODELS")
      ->check(NamesSomething)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--catalogue", options->catalogue_path, "YAML file with more models")
      ->type_name("FILE");
  command->add_option("--users", options->users, "Number of concurrent users (default: 50)")
      ->check(CLI::Range(1u, 100000u));
  command->add_option("--speed", options->speed, "Minimum tokens/s of each active user, with --for")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--context", options->context, "Tokens of context (default: 4096)")
      ->check(CLI::Range(1u, 1u << 24));
  command->add_option("--price", options->price, "Price of all machines (default: as published)")
      ->check(CLI::Range(0.0, 1e12));
  command->add_option("--currency", options->currency, "Currency sign (default: as published)")
      ->type_name("SIGN");
  command->add_option("--months", options->months, "Months of amortisation (default: 36)")
      ->check(CLI::Range(1u, 1200u));
  command->add_option("--tariff", options->tariff, "Price of a kilowatt hour (default: 0.25)")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--duty", options->duty, "Share of time at peak load, 0 to 1 (default: 0.20)")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--peak-watts", options->peak_watts,
                   "Power of all machines under load (default: as published)")
      ->check(CLI::Range(0.0, 1e9));
  command
      ->add_option("--idle-watts", options->idle_watts,
                   "Power of all machines when idle (default: as published)")
      ->check(CLI::Range(0.0, 1e9));
  command->add_option("--cloud", options->cloud, "Monthly price of a cloud service to compare with")
      ->check(CLI::Range(0.0, 1e12));
  tree.OnChosen(command, [command, options](const Invocation& run) {
    return RunCapacity(run, *command, *options);
  });
}

}  // namespace macrame::cli
