#pragma once

// Who may know of which models: the one check that every answer passes on its way out, over HTTP
// and to access files. Pure; one thread at a time.
//
// Whoever operates the cluster for no tenant and for no list of models, or has the scope admin,
// knows all. Everybody else knows what was loaded for all and for the own tenant, of these what the
// key names, and is answered about the rest as about what does not exist. Asking a model for text
// is narrower: no scope opens another tenant's model (MayUse).

#include <google/protobuf/message.h>

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/base/inference_backend.h"
#include "macrame/v1/common.pb.h"

namespace macrame::agentd {

// Deployments that are gone and whose tenants are remembered, for events and profiles of them.
inline constexpr size_t kPastModelsMax = 1024;

// Whose each deployment is, and whose those were that are gone since the agent started.
class ModelOwners {
 public:
  // What there is now: names, each with its tenant (empty: everybody's).
  void Take(std::map<std::string, std::string> tenants);
  const std::map<std::string, std::string>& present() const { return present_; }
  // Every tenant that had a deployment of this name.
  const std::map<std::string, std::set<std::string>>& past() const { return past_; }

 private:
  std::map<std::string, std::string> present_;
  std::map<std::string, std::set<std::string>> past_;
};

class KnownModels {
 public:
  // `on_disk`: models in the members' model folders, which are everybody's.
  KnownModels(Principal principal, std::shared_ptr<const ModelOwners> owners,
              std::set<std::string> on_disk = {});
  // To whom everything may be told: this machine's own user, other agents.
  static KnownModels All();

  bool knows_all() const { return knows_all_; }
  // Those with the same one know the same.
  std::string audience() const;

  // Whether it may be asked for text: a deployment, or one of its replicas. What nobody has loaded
  // may be asked for.
  bool MayUse(absl::string_view name) const;
  // Whether it may be told of: a deployment or replica that there is.
  bool Knows(absl::string_view name) const;
  // Also of one that is gone, or was never loaded (events, profiles).
  bool KnowsOf(absl::string_view name) const;
  // Names of deployments that it may ask, in order.
  std::vector<std::string> Usable() const;

  // What may be told of a message: deployments, ranks, events and profiles of others are left out,
  // and so are reasons that name them. In other texts others' models have no name, and no node is
  // said to be for another tenant by name. Answers of models and logs are left as they are.
  void Filter(google::protobuf::Message* message) const;
  // Texts of models or of logs.
  static bool IsLeftAlone(const google::protobuf::Message& message);
  // `asked`: the text of what is answered so, whose names may be said again.
  absl::Status Filter(const absl::Status& status, const std::string& asked = "") const;
  // A page of metrics, in any of its formats: without series of others' models.
  std::string FilterMetrics(const std::string& page) const;
  // JSON: without objects whose "model" is another's.
  std::string FilterJson(const std::string& text) const;

 private:
  KnownModels() = default;
  // Names that no text may have, the longest first.
  const std::vector<std::string>& Hidden() const;
  bool IsKnownSeries(const std::string& model) const;
  bool Mentions(const std::string& text) const;
  std::string Unnamed(const std::string& text) const;
  bool MentionsIn(const v1::Reason& reason) const;
  void Unname(v1::Reason* reason) const;
  bool IsHidden(const google::protobuf::Message& message) const;
  void FilterText(google::protobuf::Message* message) const;
  bool KnowsSeries(absl::string_view labels) const;
  bool KnowsSample(const nlohmann::ordered_json& sample) const;
  bool KeepKnown(nlohmann::ordered_json& samples) const;

  Principal principal_;
  bool knows_all_ = true;
  std::shared_ptr<const ModelOwners> owners_;
  std::set<std::string> on_disk_;
  mutable std::optional<std::vector<std::string>> hidden_;  // made when it is asked for
};

// What a request is sent on as that asks for what its sender may not use: no deployment is ever
// called so, so it ends as one for a model that does not exist.
inline constexpr char kNoModel[] = "#";

}  // namespace macrame::agentd
