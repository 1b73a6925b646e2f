#pragma once

// The JSON files beside a model's weights, read as Python reads them.
//
// Python's `json` writes and reads more than the standard: NaN, Infinity and -Infinity, integers of
// any length, keys that come twice (the last one counts), halves of surrogate pairs; a byte order
// mark may stand in front. ReadPythonJson turns such a text into JSON that every reader takes:
// infinities and numbers out of range become the largest double, NaN becomes null, half a pair
// becomes U+FFFD. Any thread.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace macrame::runtime::text {

// Strict JSON, without white space; keys keep their order. DataLoss with MODEL_FILE_BROKEN for a
// text that Python refuses too; the message says what is wrong and at which line, so put the file's
// name in front of it.
absl::StatusOr<std::string> ReadPythonJson(std::string_view json);

}  // namespace macrame::runtime::text
