#include "planner/offline/planner_answer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/offline/capacity.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/cluster_file.h"
#include "planner/offline/topology_advice.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "planner/served_by.h"
#include "proto/model_aliases.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"

namespace macrame::planner {
namespace {

v1::PlannerAnswer Failure(const absl::Status& status) {
  v1::PlannerAnswer answer;
  v1::Reason& reason = *answer.mutable_failure();
  const std::string message(status.message());
  if (absl::IsNotFound(status)) {  // in the catalogue, not in the cluster
    reason = MakeReason(reasons::kModelNotFound, message);
    reason.set_remedy(
        "deploy/catalogue/models.yaml lists the catalogue; --catalogue takes an entry of your own");
  } else if (absl::IsResourceExhausted(status)) {
    reason = MakeReason(reasons::kNoOffer, message);
  } else {
    reason = MakeReason(reasons::kBadRequest, message);
  }
  return answer;
}

struct Described {
  v1::ModelDescription model;
  uint32_t bits = 0;   // of the entry's copy; 0: the model's own files say
  std::string origin;  // of the bits, when nobody asked for them; empty: somebody did
};

// As its own files say, else by its entry.
template <typename Question>
absl::StatusOr<Described> ModelOf(const Question& question) {
  if (question.has_described()) return Described{question.described(), 0, ""};
  const uint32_t asked = question.bits();
  if (asked == 1 || asked > 32) {
    return absl::InvalidArgumentError("bits of a weight are between 2 and 32");
  }
  // An alias is the copy that it is on a live cluster; bits that are asked for, and entries of the
  // question's own, go before it.
  const std::string_view hub_id =
      question.catalogue_yaml().empty() ? HubIdOfAlias(question.model()) : std::string_view();
  const std::string meant = hub_id.empty() ? question.model() : std::string(hub_id);
  const auto named = BitsInName(asked == 0 ? meant : question.model());
  if (asked > 0 && named.has_value() && *named != asked) {
    return absl::InvalidArgumentError(absl::StrCat("'", question.model(), "' says ", *named,
                                                   " bits, and ", asked, " are asked for"));
  }
  const auto entries = CatalogueWith(question.catalogue_yaml());
  if (!entries.ok()) return entries.status();
  const auto entry = FindEntry(*entries, meant);
  if (!entry.ok()) return entry.status();
  Described described;
  described.bits = BitsOf(**entry, meant, asked);
  described.model = DescribeForPlan(**entry, described.bits);
  if (asked == 0 && !named.has_value()) {
    constexpr uint32_t kFp8Bits = 8;
    described.origin = (*entry)->bits == kFp8Bits
                           ? "as MLX stores it (the makers' own FP8 files take 16)"
                       : (*entry)->bits > 0 ? "as its makers publish it"
                                            : "for its name says no other number";
  }
  if (asked == 0 && !hub_id.empty() && named.has_value()) {
    described.origin = absl::StrCat("for '", question.model(), "' means ", std::string(hub_id));
  }
  return described;
}

// "gpt-oss-120b-4bit": nobody should take a plan for that of another copy.
void NameTheBits(Described* described) {
  if (described->bits == 0) return;
  described->model.set_name(absl::StrCat(described->model.name(), "-", described->bits, "bit"));
}

void AddOriginOfBits(const Described& described, v1::PlanResult* result) {
  if (described.origin.empty() || !result->has_plan()) return;
  v1::Reason& reason = *result->mutable_plan()->add_reasons();
  reason =
      MakeReason(reasons::kChosen, absl::StrCat("planned with ", described.bits, " bits a weight, ",
                                                described.origin, "; --bits plans another copy"));
}

// Which engine serves it, or that none does.
void AddEngine(const v1::ModelDescription& model, v1::PlanResult* result) {
  if (const std::string why = WhyNotServed(model); !why.empty()) {
    *result->mutable_not_served() = MakeReason(reasons::kModelArchitectureUnknown, why);
    result->mutable_not_served()->set_remedy(
        "README.md lists the models that are served; mlx-lm, where a node has it, serves its own");
  } else if (result->has_plan()) {
    *result->mutable_plan()->add_reasons() = ServedBy(model);
  }
}

// Of the models that are loaded, those without which the request's would fit.
std::vector<std::string> WhatStandsInTheWay(const DescribedCluster& cluster) {
  std::vector<WantedDeployment> running;
  for (const LoadedModel& loaded : cluster.loaded) {
    WantedDeployment one;
    one.name = loaded.name;
    for (const auto& [node, bytes] : loaded.bytes) {
      v1::Assignment& part = *one.in_force.add_assignments();
      part.set_node_id(node);
      part.mutable_need()->set_total_bytes(bytes);
    }
    running.push_back(std::move(one));
  }
  if (running.empty()) return {};
  WantedDeployment wanted;
  wanted.name = cluster.request.model().name();
  wanted.model = cluster.request.model();
  wanted.placement = cluster.request.placement();
  wanted.priority = 1;  // over all that are loaded
  return PlaceByEvicting(cluster.request, std::move(running), std::move(wanted)).evicted;
}

v1::PlannerAnswer AnswerPlan(const v1::DescribedPlanQuestion& question) {
  auto cluster = ReadClusterFile(question.cluster_yaml());
  if (!cluster.ok()) return Failure(cluster.status());
  auto described = ModelOf(question);
  if (!described.ok()) return Failure(described.status());
  NameTheBits(&*described);
  v1::PlanRequest& request = cluster->request;
  *request.mutable_model() = described->model;
  *request.mutable_placement() = question.placement();
  // As a cluster plans it: users beyond those whom a gang answers at once need no caches.
  if (request.placement().concurrent_sequences() == 0) {
    request.mutable_placement()->set_concurrent_sequences(
        std::clamp(request.placement().users(), 1U, kAnsweredAtOnceMax));
  }
  v1::PlannerAnswer answer;
  *answer.mutable_plan() = PlanModel(request);
  AddOriginOfBits(*described, answer.mutable_plan());
  AddEngine(request.model(), answer.mutable_plan());
  if (answer.plan().failure().code() == reasons::kMemoryShort) {
    const std::vector<std::string> in_the_way = WhatStandsInTheWay(*cluster);
    if (!in_the_way.empty()) {
      AddUnloadRemedy(in_the_way, answer.mutable_plan()->mutable_failure());
    }
  }
  return answer;
}

v1::PlannerAnswer AnswerCapacity(const v1::CapacityQuestion& question) {
  const auto entries = CatalogueWith(question.catalogue_yaml());
  if (!entries.ok()) return Failure(entries.status());
  auto report = MakeCapacityReport(question, *entries);
  if (!report.ok()) return Failure(report.status());
  v1::PlannerAnswer answer;
  *answer.mutable_capacity() = *std::move(report);
  return answer;
}

v1::PlannerAnswer AnswerTopology(const v1::TopologyQuestion& question) {
  std::vector<CabledMachine> machines;
  std::vector<std::string> unsold;
  const bool is_there = question.buy().empty() && question.machines_size() > 0;
  if (is_there) {
    for (const v1::PresentMachine& machine : question.machines()) {
      machines.push_back(MachineAsReported(machine));
    }
  } else {
    const auto bought = ParsePurchase(question.buy());
    if (!bought.ok()) return Failure(bought.status());
    machines = MachinesAsBought(*bought);
    for (const MachineConfiguration& machine : *bought) {
      if (!machine.is_sold) unsold.push_back(absl::StrCat(machine.Name(), " is not sold"));
    }
  }
  const bool costed = !question.model().empty() || question.has_described();
  absl::StatusOr<Described> described = Described();
  if (costed) described = ModelOf(question);
  if (!described.ok()) return Failure(described.status());
  NameTheBits(&*described);
  const v1::ModelDescription& model = described->model;
  v1::PlannerAnswer answer;
  *answer.mutable_topology() =
      AdviseOnTopology(machines, {question.cables().begin(), question.cables().end()}, is_there,
                       costed ? &model : nullptr);
  if (!unsold.empty()) answer.mutable_topology()->add_notes(unsold.front());
  if (costed && !WhyNotServed(model).empty()) {
    answer.mutable_topology()->add_notes(WhyNotServed(model));
  }
  return answer;
}

}  // namespace

v1::PlannerAnswer AnswerOf(const v1::PlannerQuestion& question) {
  switch (question.about_case()) {
    case v1::PlannerQuestion::kPlan:
      return AnswerPlan(question.plan());
    case v1::PlannerQuestion::kCapacity:
      return AnswerCapacity(question.capacity());
    case v1::PlannerQuestion::kTopology:
      return AnswerTopology(question.topology());
    default:
      return Failure(absl::InvalidArgumentError("nothing was asked"));
  }
}

}  // namespace macrame::planner
