#include "cli/format/load_changes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/format/model_view.h"
#include "cli/format/text.h"

namespace macrame::cli {
namespace {

std::string NodesOf(const v1::Plan& plan) {
  std::vector<std::string> names;
  for (const v1::Assignment& part : plan.assignments()) names.push_back(Printable(part.hostname()));
  return absl::StrJoin(names, ", ");
}

std::string ShapeAndNodes(const v1::Plan& plan) {
  return absl::StrCat(ShapeText(plan), " (", NodesOf(plan), ")");
}

class Comparison {
 public:
  void Compare(const std::string& what, const std::string& before, const std::string& after) {
    if (before == after) return;
    changed_.push_back(absl::StrCat(what, what.empty() ? "" : " ", before, " -> ", after));
  }
  void Compare(const std::string& what, uint64_t before, uint64_t after) {
    Compare(what, absl::StrCat(before), absl::StrCat(after));
  }
  const std::vector<std::string>& changed() const { return changed_; }

 private:
  std::vector<std::string> changed_;
};

std::string OrNone(const std::string& text) { return text.empty() ? "none" : Printable(text); }

uint32_t KvBits(const v1::Plan& plan) { return plan.kv_bits() == 0 ? 16 : plan.kv_bits(); }

const char* Word(v1::Optimize optimize) {
  switch (optimize) {
    case v1::OPTIMIZE_THROUGHPUT:
      return "throughput";
    case v1::OPTIMIZE_MEMORY:
      return "memory";
    default:
      return "latency";
  }
}

const char* Word(v1::Strictness strictness) {
  switch (strictness) {
    case v1::STRICTNESS_SAFE:
      return "safe";
    case v1::STRICTNESS_TIGHT:
      return "tight";
    default:
      return "normal";
  }
}

}  // namespace

std::string LoadChangesLine(const v1::DeploymentStatus& before, const v1::DeploymentStatus& after) {
  const v1::Plan& was = before.plan();
  const v1::Plan& is = after.plan();
  const v1::Deployment& wanted_before = before.deployment();
  const v1::Deployment& wanted = after.deployment();
  Comparison all;
  // A model that waited for memory had no plan, and a new replica has one of its own.
  const bool had_plan = was.world_size() > 0 && wanted_before.name() == wanted.name();
  if (had_plan) {
    all.Compare("context", was.context_length(), is.context_length());
    all.Compare("", ShapeAndNodes(was), ShapeAndNodes(is));
    all.Compare("sequences at once", was.concurrent_sequences(), is.concurrent_sequences());
    all.Compare("bits of the KV cache", KvBits(was), KvBits(is));
  }
  all.Compare("optimize", Word(wanted_before.placement().optimize()),
              Word(wanted.placement().optimize()));
  all.Compare("strictness", Word(wanted_before.placement().strictness()),
              Word(wanted.placement().strictness()));
  all.Compare("tenant", OrNone(wanted_before.placement().tenant()),
              OrNone(wanted.placement().tenant()));
  all.Compare("replicas", std::max(1u, wanted_before.replicas()), std::max(1u, wanted.replicas()));
  all.Compare("priority", absl::StrCat(wanted_before.priority()), absl::StrCat(wanted.priority()));
  if (wanted_before.model_fingerprint() != wanted.model_fingerprint()) {
    all.Compare("files", wanted_before.model_fingerprint().substr(0, 8),
                wanted.model_fingerprint().substr(0, 8));
  }
  if (all.changed().empty()) {
    return before.epoch() == after.epoch() ? "Nothing changes: it was served so already\n"
                                           : "Launched again, with the options that it had\n";
  }
  const bool is_same_shape = had_plan && ShapeAndNodes(was) == ShapeAndNodes(is);
  return absl::StrCat("Changed: ", absl::StrJoin(all.changed(), "; "),
                      is_same_shape ? absl::StrCat("; as before: ", ShapeAndNodes(is)) : "", "\n");
}

}  // namespace macrame::cli
