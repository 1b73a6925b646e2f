#pragma once

// `rankd --import`: a GGUF file becomes a model's folder. clusterctl runs it and shows its updates.

#include "runtime/gguf/model_import.h"

namespace macrame::runtime::engine {

// Writes macrame.v1.ModelImportUpdate messages to standard output, each after its size as a varint;
// the last one is the result or the failure. SIGTERM, and a reader that is gone, end the import and
// remove what it wrote. Returns the process's exit code, which is kExitOrderly whenever the last
// message was written.
int RunImportCommand(const gguf::ImportOptions& options);

}  // namespace macrame::runtime::engine
