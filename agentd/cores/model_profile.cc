#include "agentd/cores/model_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using Json = nlohmann::json;
using google::protobuf::FieldDescriptor;

// The ranges that requests have (agentd/gateway/fields/sampling_fields.cc).
struct NumberRange {
  const char* field;
  double least, most;
};
constexpr std::array kNumbers = {
    NumberRange{"temperature", 0, 2},
    NumberRange{"top_p", 0, 1},
    NumberRange{"min_p", 0, 1},
    NumberRange{"typical_p", 0, 1},
    NumberRange{"repetition_penalty", 0.01, 100},
    NumberRange{"presence_penalty", -2, 2},
    NumberRange{"frequency_penalty", -2, 2},
};

// Variables by which templates are told whether to reason (runtime/serving/chat_voice.cc).
constexpr std::array kThinkingArguments = {"enable_thinking", "thinking", "thinking_mode"};

// By the switch, by a variable of the template, or by how hard to think. `own`: its variables.
bool SaysWhetherToThink(const v1::GenerateRequest& request, const Json& own) {
  return request.reasoning().has_enabled() || own.contains("reasoning_effort") ||
         std::any_of(kThinkingArguments.begin(), kThinkingArguments.end(),
                     [&](const char* name) { return own.contains(name); });
}

absl::Status Bad(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest, std::move(message));
}

const FieldDescriptor* SamplingField(absl::string_view name) {
  return v1::Sampling::descriptor()->FindFieldByName(std::string(name));
}

absl::Status CheckSampling(const v1::Sampling& sampling) {
  if (sampling.has_seed() || sampling.logit_bias_size() > 0) {
    return Bad("seed and logit_bias are a request's own");
  }
  for (const NumberRange& range : kNumbers) {
    const FieldDescriptor* field = SamplingField(range.field);
    if (!sampling.GetReflection()->HasField(sampling, field)) continue;
    const double value = sampling.GetReflection()->GetDouble(sampling, field);
    if (value >= range.least && value <= range.most) continue;
    return Bad(
        absl::StrCat(range.field, " is ", value, "; it is from ", range.least, " to ", range.most));
  }
  return absl::OkStatus();
}

// Unset: it is no JSON object.
std::optional<Json> ObjectOf(const std::string& text) {
  if (text.empty()) return Json::object();
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return std::nullopt;
  return parsed;
}

std::string TextOf(const Json& object) {
  return object.empty() ? ""
                        : object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status Clear(absl::string_view name, v1::ModelProfile* profile) {
  if (absl::ConsumePrefix(&name, "template.")) {
    Json arguments = ObjectOf(profile->template_arguments_json()).value_or(Json::object());
    arguments.erase(std::string(name));
    profile->set_template_arguments_json(TextOf(arguments));
  } else if (absl::ConsumePrefix(&name, "alias.")) {
    auto& aliases = *profile->mutable_aliases();
    aliases.erase(std::remove(aliases.begin(), aliases.end(), name), aliases.end());
  } else if (name == "thinking") {
    profile->mutable_reasoning()->clear_enabled();
  } else if (name == "thinking_tokens") {
    profile->mutable_reasoning()->clear_tokens_max();
  } else if (name == "max_tokens") {
    profile->clear_max_tokens();
  } else if (name == "idle_unload") {
    profile->clear_idle_unload_s();
  } else if (name == "pinned") {
    profile->clear_pinned();
  } else if (name == "aliases") {
    profile->clear_aliases();
  } else if (const FieldDescriptor* field = SamplingField(name);
             field != nullptr && name != "seed" && name != "logit_bias") {
    profile->mutable_sampling()->GetReflection()->ClearField(profile->mutable_sampling(), field);
  } else {
    return Bad(absl::StrCat("a profile has no '", name.substr(0, 64), "'; it has ",
                            absl::StrJoin(kProfileFields, ", "), ", template.NAME and alias.NAME"));
  }
  return absl::OkStatus();
}

bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kAliasBytesMax &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

absl::Status CheckAliases(const v1::ModelProfile& profile,
                          const std::map<std::string, v1::ModelProfile>& profiles) {
  if (profile.aliases_size() > kAliasesMax) {
    return Bad(absl::StrCat("a model has at most ", kAliasesMax, " aliases"));
  }
  const std::map<std::string, std::string> taken = AliasesOf(profiles);
  for (const std::string& alias : profile.aliases()) {
    // "NAME#2" is a replica, and a beginning is a gateway's own setting.
    const bool is_special = alias.find_first_of("#*") != std::string::npos;
    if (!IsName(alias) || is_special || alias == profile.model()) {
      return Bad(absl::StrCat("'", alias.substr(0, 64), "' is no alias: it is a line of at most ",
                              kAliasBytesMax,
                              " bytes without '#' and '*', and not the model's own name; names "
                              "that begin alike are gateway_aliases'"));
    }
    const auto owner = taken.find(alias);
    if (owner != taken.end() && owner->second != profile.model()) {
      return Bad(absl::StrCat("'", alias, "' is an alias of '", owner->second,
                              "' already; take it from there first: clusterctl model profile ",
                              owner->second, " --unset alias.", alias));
    }
  }
  return absl::OkStatus();
}

void AddAliases(const v1::ModelProfile& from, v1::ModelProfile* to) {
  std::vector<std::string> all(to->aliases().begin(), to->aliases().end());
  all.insert(all.end(), from.aliases().begin(), from.aliases().end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  to->mutable_aliases()->Assign(all.begin(), all.end());
}

// Parts without anything in them are as if they were not there.
void DropEmpty(v1::ModelProfile* profile) {
  if (profile->sampling().ByteSizeLong() == 0) profile->clear_sampling();
  if (profile->reasoning().ByteSizeLong() == 0) profile->clear_reasoning();
}

}  // namespace

absl::StatusOr<ProfileChange> DecideProfile(
    const v1::ChangeProfileRequest& request,
    const std::map<std::string, v1::ModelProfile>& profiles) {
  const v1::ModelProfile& set = request.set();
  if (!IsName(set.model())) return Bad("the model's name is empty or no line of text");
  const auto present = profiles.find(set.model());
  const v1::ModelProfile before = present == profiles.end() ? v1::ModelProfile() : present->second;
  v1::ModelProfile profile = request.clear_all() ? v1::ModelProfile() : before;
  profile.set_model(set.model());
  for (const std::string& name : request.cleared()) {
    if (absl::Status status = Clear(name, &profile); !status.ok()) return status;
  }
  if (absl::Status status = CheckSampling(set.sampling()); !status.ok()) return status;
  profile.mutable_sampling()->MergeFrom(set.sampling());
  profile.mutable_reasoning()->MergeFrom(set.reasoning());
  std::optional<Json> arguments = ObjectOf(profile.template_arguments_json());
  const std::optional<Json> added = ObjectOf(set.template_arguments_json());
  if (!added.has_value()) return Bad("template arguments are no JSON object");
  if (!arguments.has_value()) arguments = Json::object();
  arguments->update(*added);
  profile.set_template_arguments_json(TextOf(*arguments));
  if (profile.template_arguments_json().size() > kTemplateArgumentsBytesMax) {
    return Bad(
        absl::StrCat("template arguments have at most ", kTemplateArgumentsBytesMax, " bytes"));
  }
  if (set.max_tokens() > 0) profile.set_max_tokens(set.max_tokens());
  if (set.pinned()) profile.set_pinned(true);
  if (set.has_idle_unload_s()) {
    if (set.idle_unload_s() > kIdleUnloadMax_s) return Bad("a model is unloaded within 30 days");
    profile.set_idle_unload_s(set.idle_unload_s());
  }
  AddAliases(set, &profile);
  if (absl::Status status = CheckAliases(profile, profiles); !status.ok()) return status;
  DropEmpty(&profile);

  ProfileChange change;
  v1::ModelProfile nothing;
  nothing.set_model(set.model());
  const bool has_some = profile.ByteSizeLong() != nothing.ByteSizeLong();
  if (has_some) change.value = profile.SerializeAsString();
  const std::string now = present == profiles.end() ? "" : before.SerializeAsString();
  change.response.set_changed(change.value != now);
  *change.response.mutable_profile() = std::move(profile);
  return change;
}

void ApplyProfile(const v1::ModelProfile& profile, v1::GenerateRequest* request) {
  if (request->has_embedding()) return;
  // What is no object, or large, is judged where the prompt is made.
  std::optional<Json> own = Json::object();
  if (request->template_arguments_json().size() > kOwnArgumentsBytesMax) {
    own.reset();
  } else if (!profile.template_arguments_json().empty() || profile.reasoning().has_enabled()) {
    own = ObjectOf(request->template_arguments_json());
  }
  if (!profile.template_arguments_json().empty() && request->messages_size() > 0) {
    std::optional<Json> arguments = ObjectOf(profile.template_arguments_json());
    if (arguments.has_value() && own.has_value()) {
      // Whichever of them the request turns, the others would turn it back.
      if (SaysWhetherToThink(*request, *own)) {
        for (const char* name : kThinkingArguments) arguments->erase(name);
      }
      arguments->update(*own);
      request->set_template_arguments_json(TextOf(*arguments));
    }
  }
  if (profile.has_reasoning()) {
    v1::ReasoningOptions reasoning = profile.reasoning();
    if (!own.has_value() || SaysWhetherToThink(*request, *own)) reasoning.clear_enabled();
    reasoning.MergeFrom(request->reasoning());
    *request->mutable_reasoning() = std::move(reasoning);
  }
  if (request->has_tokenize()) return;
  if (profile.has_sampling()) {
    v1::Sampling sampling = profile.sampling();
    sampling.MergeFrom(request->sampling());
    *request->mutable_sampling() = std::move(sampling);
  }
  if (request->max_tokens() == 0 && profile.max_tokens() > 0) {
    request->set_max_tokens(std::max(profile.max_tokens(), request->min_tokens()));
  }
}

std::map<std::string, std::string> AliasesOf(
    const std::map<std::string, v1::ModelProfile>& profiles) {
  std::map<std::string, std::string> aliases;
  for (const auto& [model, profile] : profiles) {
    for (const std::string& alias : profile.aliases()) aliases.try_emplace(alias, model);
  }
  return aliases;
}

}  // namespace macrame::agentd
