#pragma once

// Why a model can't be asked, as clients are told. Pure.

#include <string>

#include "absl/status/status.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/inference_backend.h"

namespace macrame::agentd {

// A failed generation; an unknown model is told with those there are.
ApiError DescribeFailure(const absl::Status& status, const std::string& model,
                         InferenceBackend& backend);

// 404, with the names of those that are loaded.
ApiError UnknownModel(const std::string& model, InferenceBackend& backend);

}  // namespace macrame::agentd
