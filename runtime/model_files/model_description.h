#pragma once

// What a model is, read from its own files: config.json and the headers of its safetensors files.
// The name is never taken for a fact.
//
// Reads a few megabytes at most, however large the model. Blocking: not for an owner thread that
// has deadlines, but fast enough (a millisecond or so for each shard) for one-off requests.
//
// Errors carry a Reason:
//   MODEL_FILE_MISSING           no weights at all, or a shard that the index names
//   MODEL_FILE_BROKEN            a header that is cut short or lies, an index that is not JSON
//   MODEL_CONFIG_INVALID         config.json missing, malformed, or contradicting the tensors
//   MODEL_ARCHITECTURE_UNKNOWN   says which are known, and what of the second engine
//   MODEL_FORMAT_UNSUPPORTED     says what was found instead: .gguf, .bin, GPTQ, AWQ, NVFP4, …

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"
#include "runtime/second_engine/mlx_lm.h"

namespace macrame::runtime {

// `folder` holds config.json and the weights. `name` of the result is the folder's name; whoever
// knows a better one (ModelFolders does) sets it. `path` is `folder`.
//
// The fingerprint is the same on two nodes whose files hold the same model, however config.json is
// laid out and the tensors are spread over files: SHA-256 over the config's values, the sorted
// table of tensors, and a few bytes of some of them, in hex, first 32 digits.
//
// A model of an architecture that rankd does not know is described for mlx-lm (`engine`, `splits`)
// where `second` has it.
absl::StatusOr<v1::ModelDescription> DescribeModel(const std::string& folder,
                                                   const SecondEngine& second = {});

}  // namespace macrame::runtime
