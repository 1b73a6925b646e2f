#pragma once

// The header of a safetensors file, checked against the file before anybody believes it.
//
// Reads the header alone, never the tensors; any thread. Bounds: a header of 32 MiB, 200,000
// tensors, 16 dimensions. Tensors must lie back to back from the end of the header to the end of
// the file.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macrame::runtime::text {

struct TensorEntry {
  std::string name;
  std::string dtype;  // as the file spells it: "BF16", "F16", "F32", "U32", "U8", …
  std::vector<int64_t> shape;
  // Byte range [begin, end) counted from the start of the file; end - begin is what shape and dtype
  // take.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in the order of their bytes
  std::map<std::string, std::string> metadata;  // what the writer left, such as "format": "mlx"
  uint64_t file_bytes = 0;
};

// NotFound with MODEL_FILE_MISSING when there is no such file; DataLoss with MODEL_FILE_BROKEN when
// it is cut short, or its header lies or goes beyond a bound. The message names the file and, where
// it is one tensor's fault, the tensor.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path);

}  // namespace macrame::runtime::text
