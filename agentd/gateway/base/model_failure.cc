#include "agentd/gateway/base/model_failure.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kModelsNamedMax = 8;
constexpr size_t kNameToldBytesMax = 256;
constexpr int kLookingRetrySeconds = 2;

}  // namespace

ApiError UnknownModel(const std::string& model, InferenceBackend& backend) {
  // Clients try a 503 again, and a 404 never.
  if (backend.IsLooking()) {
    ApiError error =
        HttpError(503,
                  absl::StrCat("This node is still looking through its model folders, so it does "
                               "not know yet whether there is a model '",
                               model.substr(0, kNameToldBytesMax), "'. Try again in a moment."),
                  "model_not_ready");
    error.param = "model";
    error.retry_after_seconds = kLookingRetrySeconds;
    return error;
  }
  std::string loaded;
  size_t named = 0;
  for (const ServedModel& served : backend.ListModels()) {
    if (named++ == kModelsNamedMax) {
      absl::StrAppend(&loaded, ", …");
      break;
    }
    absl::StrAppend(&loaded, loaded.empty() ? "" : ", ", served.id);
  }
  ApiError error = HttpError(
      404,
      absl::StrCat("The model '", model.substr(0, kNameToldBytesMax),
                   "' does not exist or is not loaded. ",
                   loaded.empty() ? "Nothing is loaded" : absl::StrCat("Loaded: ", loaded),
                   ". Load one with 'clusterctl model load NAME'."),
      "model_not_found");
  error.param = "model";
  return error;
}

ApiError DescribeFailure(const absl::Status& status, const std::string& model,
                         InferenceBackend& backend) {
  ApiError error = ApiErrorFromStatus(status);
  if (error.http_status != 404) return error;
  // Clients try a 503 again, and a 404 never.
  if (FindModel(backend.ListModels(), DeploymentOfReplica(model)) == nullptr) {
    return UnknownModel(model, backend);
  }
  return ApiErrorFromStatus(ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kNotReady,
      absl::StrCat("The model '", model, "' is being brought up; try again in a moment")));
}

}  // namespace macrame::agentd
