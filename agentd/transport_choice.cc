#include "agentd/transport_choice.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

bool IsWished(const v1::BackendChoice& choice, const std::string& wished) {
  if (wished.empty() || wished == "auto") return true;
  if (wished == "rdma") return choice.backend() != "ring";
  return choice.backend() == wished;
}

// A ring of devices needs neighbours in rank order; a mesh takes any order.
bool FitsOrder(const v1::GroupVerdict& group, const v1::BackendChoice& choice,
               const v1::Plan& plan) {
  if (choice.backend() == "ring" || choice.topology() == "mesh") return true;
  const int count = group.node_ids_size();
  if (count != plan.assignments_size()) return false;
  for (int rank = 0; rank < count; ++rank) {
    if (group.node_ids(rank) != plan.assignments(rank).node_id()) return false;
  }
  return true;
}

// Why a choice is not for this plan; empty code: it is.
v1::Reason WhyNot(const v1::GroupVerdict& group, const v1::BackendChoice& choice,
                  const v1::Plan& plan) {
  if (!choice.usable()) {
    return choice.reasons().empty() ? MakeReason("NOT_CHOSEN", "it does not work here")
                                    : choice.reasons(0);
  }
  if (!FitsOrder(group, choice, plan)) {
    return MakeReason("NOT_CHOSEN", "the plan's order of ranks does not follow the ring of cables");
  }
  return {};
}

}  // namespace

std::string BackendOfName(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (lower == "mlx-ring" || lower == "mdma" || lower == "tcp") return "ring";
  if (lower == "mlx-jaccl") return "jaccl";
  if (lower == "mlx-rdma") return "rdma";
  return lower;
}

void ChooseTransport(const v1::GroupVerdict& group, const std::string& wished,
                     v1::PlanResult* result) {
  if (!result->has_plan()) return;
  v1::Plan& plan = *result->mutable_plan();
  if (plan.world_size() <= 1) {
    plan.set_backend("single");
    return;
  }
  std::vector<std::string> refused;
  for (const v1::BackendChoice& choice : group.choices()) {
    const v1::Reason why_not = WhyNot(group, choice, plan);
    if (why_not.code().empty() && IsWished(choice, wished)) {
      plan.set_backend(choice.backend());
      plan.set_backend_topology(choice.topology());
      return;
    }
    if (why_not.code().empty() || why_not.message() == "two nodes need no ring") continue;
    v1::Rejection& rejection = *plan.add_rejections();
    rejection.set_subject(absl::StrCat(choice.backend(), " ", choice.topology()));
    *rejection.mutable_reason() = why_not;
    refused.push_back(absl::StrCat(choice.backend(), " ", choice.topology(), ": ", why_not.code(),
                                   " (", why_not.message(), ")"));
  }
  // Nothing is known of links yet: the ring is what always is there.
  if (group.choices().empty() && (wished.empty() || wished == "auto" || wished == "ring")) {
    plan.set_backend("ring");
    plan.set_backend_topology("mesh");
    return;
  }
  const v1::Reason failure = MakeReason(
      "TRANSPORT_UNAVAILABLE",
      absl::StrCat(wished.empty() || wished == "auto" ? "no transport" : wished,
                   " can't be used between the planned nodes",
                   refused.empty() ? "" : absl::StrCat("; ", absl::StrJoin(refused, "; "))));
  for (const v1::Rejection& rejection : plan.rejections()) {
    *result->add_rejections() = rejection;
  }
  result->clear_plan();
  *result->mutable_failure() = failure;
}

}  // namespace macrame::agentd
