#include "planner/described/planner_answer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/described/capacity.h"
#include "planner/described/catalogue.h"
#include "planner/described/cluster_file.h"
#include "planner/described/topology_advice.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kUnquantisedBits = 16;

v1::PlannerAnswer Failure(const absl::Status& status) {
  v1::PlannerAnswer answer;
  const bool absent = absl::IsNotFound(status);
  v1::Reason& reason = *answer.mutable_failure();
  reason = MakeReason(absent ? "MODEL_NOT_FOUND" : "BAD_REQUEST", std::string(status.message()));
  if (absent) {  // in the catalogue, not in the cluster
    reason.set_remedy(
        "deploy/catalogue/models.yaml lists the catalogue; --card takes a card of your own");
  }
  return answer;
}

// A model id that says no bits is not taken to be quantised.
uint32_t BitsOf(uint32_t asked, const std::string& name) {
  return asked > 0 ? asked : BitsInName(name).value_or(kUnquantisedBits);
}

absl::StatusOr<v1::ModelDescription> DescriptionOf(const std::string& name, uint32_t bits,
                                                   const std::string& cards_yaml) {
  if (bits > 32) return absl::InvalidArgumentError("bits of a weight are between 2 and 32");
  const auto cards = CatalogueWith(cards_yaml);
  if (!cards.ok()) return cards.status();
  const auto card = FindModelCard(*cards, name);
  if (!card.ok()) return card.status();
  return DescribeCard(**card, BitsOf(bits, name));
}

// As its own files say, else by its card.
template <typename Question>
absl::StatusOr<v1::ModelDescription> ModelOf(const Question& question) {
  if (question.has_described()) return question.described();
  return DescriptionOf(question.model(), question.bits(), question.cards_yaml());
}

// "gpt-oss-120b-16bit": nobody should take a plan for that of another copy.
void NameTheBits(const v1::DescribedPlanQuestion& question, v1::ModelDescription* model) {
  if (question.has_described()) return;
  const uint32_t bits = BitsOf(question.bits(), question.model());
  model->set_name(absl::StrCat(model->name(), "-", bits, "bit"));
}

// Of the models that are loaded, those without which the request's would fit.
std::vector<std::string> WhatStandsInTheWay(const DescribedCluster& cluster) {
  std::vector<DeploymentWish> running;
  for (const LoadedModel& loaded : cluster.loaded) {
    DeploymentWish one;
    one.name = loaded.name;
    for (const auto& [node, bytes] : loaded.bytes) {
      v1::Assignment& part = *one.in_force.add_assignments();
      part.set_node_id(node);
      part.mutable_need()->set_total_bytes(bytes);
    }
    running.push_back(std::move(one));
  }
  if (running.empty()) return {};
  DeploymentWish wish;
  wish.name = cluster.request.model().name();
  wish.model = cluster.request.model();
  wish.wishes = cluster.request.wishes();
  wish.priority = 1;  // over all that are loaded
  return PlaceByEvicting(cluster.request, std::move(running), std::move(wish)).evicted;
}

v1::PlannerAnswer AnswerPlan(const v1::DescribedPlanQuestion& question) {
  auto cluster = ReadClusterFile(question.cluster_yaml());
  if (!cluster.ok()) return Failure(cluster.status());
  auto model = ModelOf(question);
  if (!model.ok()) return Failure(model.status());
  v1::PlanRequest& request = cluster->request;
  *request.mutable_model() = *std::move(model);
  NameTheBits(question, request.mutable_model());
  *request.mutable_wishes() = question.wishes();
  v1::PlannerAnswer answer;
  *answer.mutable_plan() = PlanModel(request);
  if (const std::string why = WhyNotServed(request.model());
      !why.empty() && answer.plan().has_plan()) {
    v1::Reason& reason = *answer.mutable_plan()->mutable_plan()->add_reasons();
    reason = MakeReason("MODEL_ARCHITECTURE_UNKNOWN", why);
    reason.clear_remedy();  // it names the architectures itself
  }
  if (answer.plan().failure().code() == "MEMORY_SHORT") {
    const std::vector<std::string> in_the_way = WhatStandsInTheWay(*cluster);
    if (!in_the_way.empty()) {
      AddUnloadRemedy(in_the_way, answer.mutable_plan()->mutable_failure());
    }
  }
  return answer;
}

v1::PlannerAnswer AnswerCapacity(const v1::CapacityQuestion& question) {
  const auto cards = CatalogueWith(question.cards_yaml());
  if (!cards.ok()) return Failure(cards.status());
  auto report = MakeCapacityReport(question, *cards);
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
  absl::StatusOr<v1::ModelDescription> model = v1::ModelDescription();
  if (costed) model = ModelOf(question);
  if (!model.ok()) return Failure(model.status());
  v1::PlannerAnswer answer;
  *answer.mutable_topology() =
      AdviseOnTopology(machines, {question.cables().begin(), question.cables().end()}, is_there,
                       costed ? &*model : nullptr);
  if (!unsold.empty()) answer.mutable_topology()->add_notes(unsold.front());
  if (costed && !WhyNotServed(*model).empty()) {
    answer.mutable_topology()->add_notes(WhyNotServed(*model));
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
