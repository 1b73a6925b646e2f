#include "agentd/services/remote_models.h"

#include <filesystem>

#include "proto/reasons.h"
#include "runtime/model_files/name_match.h"

namespace macrame::agentd {
namespace {

// "/models/a/../b/" is "/models/b": by the words alone.
std::string Plain(const std::string& path) {
  std::string plain = std::filesystem::path(path).lexically_normal().string();
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return plain;
}

absl::Status NamesNoModel() {
  v1::Reason reason = MakeReason(
      reasons::kModelNotFound,
      "the path names no model in a model folder of this cluster; from another machine a model is "
      "named, not pointed at");
  reason.set_remedy("give a name as 'clusterctl model list' shows it, or ask on that node itself");
  return ReasonStatus(absl::StatusCode::kNotFound, reason);
}

}  // namespace

absl::StatusOr<std::string> ModelNameFrom(const transport::Caller& caller,
                                          const std::string& name_or_path,
                                          const std::vector<NodeFacts>& nodes) {
  if (caller.key_id.empty() || !runtime::IsModelPath(name_or_path)) return name_or_path;
  const std::string wanted = Plain(name_or_path);
  for (const NodeFacts& facts : nodes) {
    if (facts.inventory == nullptr) continue;
    for (const v1::LocalModel& model : facts.inventory->models()) {
      if (!model.path().empty() && Plain(model.path()) == wanted) return model.name();
    }
  }
  return NamesNoModel();
}

}  // namespace macrame::agentd
