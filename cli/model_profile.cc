// `model profile`: how requests for a model are answered that say nothing themselves.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/duration.h"
#include "cli/format/profile_view.h"
#include "cli/model_name.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct ProfileOptions {
  std::string model;
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint32_t> top_k, max_tokens, thinking_tokens;
  std::string thinking, idle_unload;
  std::vector<std::string> template_arguments, aliases, unset;
  bool pin = false, unpin = false, clear = false;
};

absl::Status Bad(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest, std::move(message));
}

// NAME=VALUE each; a value that is no JSON is text.
absl::StatusOr<std::string> TemplateArguments(const std::vector<std::string>& texts) {
  if (texts.empty()) return std::string();
  Json arguments = Json::object();
  for (const std::string& text : texts) {
    const size_t sign = text.find('=');
    if (sign == std::string::npos || sign == 0) {
      return Bad(absl::StrCat("'", text, "' is not NAME=VALUE"));
    }
    const std::string value = text.substr(sign + 1);
    const Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    arguments[text.substr(0, sign)] = parsed.is_discarded() ? Json(value) : parsed;
  }
  return arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void SetSampling(const ProfileOptions& options, v1::ModelProfile* set) {
  v1::Sampling& sampling = *set->mutable_sampling();
  if (options.temperature) sampling.set_temperature(*options.temperature);
  if (options.top_p) sampling.set_top_p(*options.top_p);
  if (options.top_k) sampling.set_top_k(*options.top_k);
  if (options.min_p) sampling.set_min_p(*options.min_p);
  if (options.typical_p) sampling.set_typical_p(*options.typical_p);
  if (options.repetition_penalty) sampling.set_repetition_penalty(*options.repetition_penalty);
  if (options.presence_penalty) sampling.set_presence_penalty(*options.presence_penalty);
  if (options.frequency_penalty) sampling.set_frequency_penalty(*options.frequency_penalty);
  if (sampling.ByteSizeLong() == 0) set->clear_sampling();
}

absl::StatusOr<v1::ChangeProfileRequest> RequestOf(const ProfileOptions& options) {
  v1::ChangeProfileRequest request;
  v1::ModelProfile& set = *request.mutable_set();
  set.set_model(options.model);
  SetSampling(options, &set);
  if (!options.thinking.empty()) set.mutable_reasoning()->set_enabled(options.thinking == "on");
  if (options.thinking_tokens) set.mutable_reasoning()->set_tokens_max(*options.thinking_tokens);
  if (options.max_tokens) set.set_max_tokens(*options.max_tokens);
  if (options.idle_unload == "never") {
    set.set_idle_unload_s(0);
  } else if (!options.idle_unload.empty()) {
    const auto limit = ParseDuration(options.idle_unload, kLongDurationMax);
    if (!limit.has_value() || *limit < std::chrono::seconds(1)) {
      return Bad(absl::StrCat("--idle-unload takes a length of time (30m, 2h) or never, not '",
                              options.idle_unload, "'"));
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*limit).count();
    set.set_idle_unload_s(static_cast<uint32_t>(std::min<int64_t>(seconds, UINT32_MAX)));
  }
  const auto arguments = TemplateArguments(options.template_arguments);
  if (!arguments.ok()) return arguments.status();
  set.set_template_arguments_json(*arguments);
  for (const std::string& alias : options.aliases) set.add_aliases(alias);
  if (options.pin && options.unpin) return Bad("--pin or --unpin, not both");
  if (options.pin) set.set_pinned(true);
  for (const std::string& field : options.unset) request.add_cleared(field);
  if (options.unpin) request.add_cleared("pinned");
  request.set_clear_all(options.clear);
  return request;
}

bool ChangesSomething(const v1::ChangeProfileRequest& request) {
  v1::ModelProfile name_alone;
  name_alone.set_model(request.set().model());
  return request.clear_all() || request.cleared_size() > 0 ||
         request.set().ByteSizeLong() != name_alone.ByteSizeLong();
}

int Show(const Invocation& run, AgentClient& client, const std::string& model) {
  const auto all = client.ListProfiles();
  if (!all.ok()) return run.Fail(all.status());
  v1::ListProfilesResponse shown;
  for (const v1::ModelProfile& profile : all->profiles()) {
    if (model.empty() || profile.model() == model) *shown.add_profiles() = profile;
  }
  if (!run.wants_table()) {
    run.PrintDocument(Document("ModelProfileList", shown));
  } else if (!model.empty()) {
    *run.environment.out << ProfileLine(model,
                                        shown.profiles_size() > 0 ? &shown.profiles(0) : nullptr);
  } else {
    *run.environment.out << ProfilesView(shown, OutputColumns(run.environment), run.style);
  }
  return kExitOk;
}

int RunModelProfile(const Invocation& run, ProfileOptions options) {
  AgentClient client(run.options.agent);
  options.model = ModelMeantBy(client, options.model);
  const auto request = RequestOf(options);
  if (!request.ok()) return run.Fail(request.status());
  if (!ChangesSomething(*request)) return Show(run, client, options.model);
  if (options.model.empty()) return run.Fail(Bad("name the model whose profile is to change"));
  const auto response = GiveOrder([&] { return client.ChangeProfile(*request); });
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("ModelProfile", *response));
  } else {
    *run.environment.out << ProfileLine(options.model, &response->profile());
  }
  return kExitOk;
}

}  // namespace

void AddModelProfile(CommandTree& tree, CLI::App* model) {
  CLI::App* command =
      tree.Add(model, "profile", "Set a model's default parameters, aliases and idle time");
  auto options = std::make_shared<ProfileOptions>();
  command->add_option("model", options->model, "Name of a model (default: show all profiles)");
  command->add_option("--temperature", options->temperature,
                      "Sampling temperature, 0 to 2; 0: greedy");
  command->add_option("--top-p", options->top_p,
                      "Total probability of the tokens to sample from, 0 to 1");
  command->add_option("--top-k", options->top_k, "Number of tokens to sample from; 0: all");
  command->add_option("--min-p", options->min_p, "Minimum relative probability of a token, 0 to 1");
  command->add_option("--typical-p", options->typical_p, "Locally typical sampling, 0 to 1");
  command->add_option("--repetition-penalty", options->repetition_penalty,
                      "Penalty for tokens of prompt and answer; 1: none");
  command->add_option("--presence-penalty", options->presence_penalty,
                      "Penalty for tokens of the answer, -2 to 2");
  command->add_option("--frequency-penalty", options->frequency_penalty,
                      "Penalty for each use of a token in the answer, -2 to 2");
  command->add_option("--max-tokens", options->max_tokens, "Maximum number of tokens of an answer")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--thinking", options->thinking,
                   "Reasoning by the chat template's own switch: on or off")
      ->check(CLI::IsMember({"on", "off"}));
  command->add_option("--thinking-tokens", options->thinking_tokens,
                      "Maximum number of tokens of reasoning");
  command
      ->add_option("--template-arg", options->template_arguments,
                   "Variable of the chat template; repeatable")
      ->type_name("NAME=VALUE");
  command
      ->add_option("--alias", options->aliases,
                   "Another name of the model, on every node; repeatable")
      ->type_name("NAME");
  command->add_flag("--pin", options->pin,
                    "Keep it loaded, even if it is unused or others need the memory");
  command->add_flag("--unpin", options->unpin, "Unload it like other models again");
  command
      ->add_option("--idle-unload", options->idle_unload,
                   "Unload after this time without a request (30m, 2h), or never")
      ->type_name("DURATION");
  command
      ->add_option("--unset", options->unset,
                   "Field to remove (temperature, aliases, alias.NAME, …); repeatable")
      ->type_name("FIELD");
  command->add_flag("--clear", options->clear, "Remove all fields first");
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunModelProfile(run, *options); });
}

}  // namespace macrame::cli
