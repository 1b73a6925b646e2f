#include "agentd/cores/node_refusals.h"

#include "absl/strings/str_cat.h"
#include "proto/ids.h"
#include "proto/reason_codes.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// These say no more than the plan does.
bool IsAbsence(const v1::Reason& reason) {
  // Files that are there and are other ones have a remedy of their own.
  const bool is_missing = reason.code() == reasons::kModelNotOnNode &&
                          reason.remedy() == MakeReason(reason.code(), "").remedy();
  return reason.code().empty() || reason.code() == reasons::kModelNotFound || is_missing;
}

void TellMore(const std::map<std::string, v1::Reason>& refusals, const std::string& subject,
              v1::Reason* reason) {
  const auto found = refusals.find(reason->node_id());
  if (reason->code() != reasons::kModelNotOnNode || found == refusals.end()) return;
  if (IsAbsence(found->second)) return;
  const std::string node = reason->node_id();
  *reason = found->second;
  reason->set_node_id(node);
  reason->set_message(absl::StrCat(subject.empty() ? ShortId(NodeId(node)) : subject, ": ",
                                   found->second.message()));
}

}  // namespace

void NameNodeRefusals(const std::map<std::string, v1::Reason>& refusals, v1::PlanResult* result) {
  for (auto* rejections : {result->mutable_rejections(),
                           result->has_plan() ? result->mutable_plan()->mutable_rejections()
                                              : result->mutable_rejections()}) {
    for (v1::Rejection& rejection : *rejections) {
      TellMore(refusals, rejection.subject(), rejection.mutable_reason());
    }
  }
  if (result->has_failure()) TellMore(refusals, "", result->mutable_failure());
}

}  // namespace macrame::agentd
