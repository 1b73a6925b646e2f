#include "agentd/services/profile_service.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/state_keys.h"
#include "proto/reasons.h"
#include "proto/suggestions.h"

namespace macrame::agentd {
namespace {

constexpr Duration kProfileTimeout = std::chrono::seconds(20);

}  // namespace

void ProfileService::Register(transport::RpcServer& server) {
  server.HandleUnary(kChangeProfile, [this](const transport::Caller& caller,
                                            v1::ChangeProfileRequest request, Reply reply) {
    way_.Unary(kChangeProfile, caller, request, kProfileTimeout, reply,
               [this, request, reply] { Change(request, reply); });
  });
  server.HandleUnary(kListProfiles,
                     [this](const transport::Caller&, const v1::ListProfilesRequest&,
                            transport::RpcServer::Reply<v1::ListProfilesResponse> reply) {
                       v1::ListProfilesResponse response;
                       for (const auto& [model, profile] : replicator_.desired().profiles()) {
                         *response.add_profiles() = profile;
                       }
                       reply(std::move(response));
                     });
}

std::vector<std::string> ProfileService::ModelNames() const {
  const DesiredState& desired = replicator_.desired();
  std::vector<std::string> names;
  for (const auto& [name, deployment] : desired.deployments()) names.push_back(name);
  for (const auto& [name, deployment] : desired.stopped()) names.push_back(name);
  const v1::ListModelsResponse models = reporter_.Models();
  for (const v1::ModelEntry& entry : models.models()) names.push_back(entry.name());
  return names;
}

absl::Status ProfileService::CheckNames(const v1::ModelProfile& set) const {
  const std::vector<std::string> names = ModelNames();
  const auto is_model = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& alias : set.aliases()) {
    if (alias == set.model() || !is_model(alias)) continue;
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("'", alias, "' is a model of this cluster itself"));
  }
  const std::string& model = set.model();
  if (is_model(model) || replicator_.desired().FindProfile(model) != nullptr) {
    return absl::OkStatus();
  }
  return ReasonStatus(
      absl::StatusCode::kNotFound, reasons::kModelNotFound,
      absl::StrCat("no model '", model.substr(0, 128),
                   "' is loaded, and no node has one of this name", DidYouMean(model, names)));
}

void ProfileService::Change(const v1::ChangeProfileRequest& request, Reply reply) {
  if (absl::Status fits = CheckNames(request.set()); !fits.ok()) return reply(fits);
  const absl::StatusOr<ProfileChange> change =
      DecideProfile(request, replicator_.desired().profiles());
  if (!change.ok()) return reply(change.status());
  if (!change->response.changed()) return reply(change->response);
  replicator_.Set(absl::StrCat(kProfilePrefix, request.set().model()), change->value,
                  AnswerWhenWritten(reply, change->response));
}

}  // namespace macrame::agentd
