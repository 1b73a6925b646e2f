#pragma once

// A model of an architecture that rankd does not know, as far as planning needs it: from the fields
// that nearly every config.json has, and from the names of its tensors. An engine that does know it
// serves it.

#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"
#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime {

// Sizes only: no bytes, no name, no fingerprint. MODEL_CONFIG_INVALID names the field that is
// missing.
absl::StatusOr<v1::ModelDescription> ReadForeignConfig(const std::string& config_json,
                                                       const std::string& folder);

// Bytes by layer, of the embedding, of the head and of the rest, how they are stored, how many
// weights. Of the layers' bytes all matrices count as divisible where the engine `can_divide` them.
void AddForeignBytes(const std::string& config_json, const engine::WeightFiles& files,
                     bool can_divide, v1::ModelDescription* out);

}  // namespace macrame::runtime
