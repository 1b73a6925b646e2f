#include "planner/served_by.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"

namespace macrame::planner {

v1::ServedSplits SplitsOf(const v1::ModelDescription& model) {
  if (model.has_splits()) return model.splits();
  v1::ServedSplits all;
  all.set_tensor(true);
  all.set_uneven_tensor(true);
  all.set_pipeline(true);
  all.set_tensor_in_pipeline(true);
  return all;
}

std::string SplitsText(const v1::ServedSplits& splits) {
  std::vector<std::string> ways = {"one node alone"};
  if (splits.tensor()) {
    ways.push_back(splits.uneven_tensor() ? "tensor splits, uneven ones too"
                                          : "tensor splits of equal slices");
  }
  if (splits.pipeline()) ways.push_back("pipelines");
  if (splits.tensor_in_pipeline()) ways.push_back("pipelines of tensor splits");
  return absl::StrJoin(ways, "; ");
}

v1::Reason ServedBy(const v1::ModelDescription& model) {
  const std::string architecture =
      model.architecture().empty() ? "" : absl::StrCat(" (", model.architecture(), ")");
  const std::string engine = model.engine().empty() ? "Macrame's own engine" : model.engine();
  return MakeReason(reasons::kEngine, absl::StrCat("served by ", engine, architecture, ": ",
                                                   SplitsText(SplitsOf(model))));
}

}  // namespace macrame::planner
