#pragma once

// What an imported model is called when nobody says: the file's name without its ending, which
// tells the size and the kind of blocks too ("Qwen3-4B-Q4_K_M"). Where that names nothing of the
// model
// ("model.gguf", a blob's digest), the metadata's: "general.basename" with finetune, version and
// size, or "general.name"; and the kind of most blocks behind it. Pure.
//
// BAD_REQUEST of a name that can't be one part of a path.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gguf/gguf_file.h"

namespace macrame::runtime::gguf {

// Before anything is read: of a given name, or of the file's where none is given.
absl::Status CheckModelName(const std::string& given, const std::string& file);
// `given`, where it is not empty.
absl::StatusOr<std::string> ModelName(const GgufModel& model, const std::string& given);

}  // namespace macrame::runtime::gguf
