#pragma once

// JSON as Python's json module reads it: a model's files are written and read by Python, and what
// it accepts is more than JSON. All files of a model folder that C++ reads go through here. Any
// thread.
//
// What differs from JSON: the numbers NaN, Infinity and -Infinity; numbers too large for a double
// (they are infinite); halves of surrogate pairs in texts (they become U+FFFD). Whole numbers of
// more than 64 bits become doubles. Of a key that an object has twice, the last value counts. A
// byte order mark of UTF-8 is skipped.

#include <nlohmann/json.hpp>
#include <string_view>

namespace macrame::runtime::engine {

// Discarded (is_discarded) when Python could not read it either, or when it is nested deeper than
// `depth_max`; 0: any depth. Numbers that are not finite are doubles: check before using one.
nlohmann::json ParsePythonJson(std::string_view text, int depth_max = 0,
                               bool* is_too_deep = nullptr);

// The same judgement without building the value, for files of many megabytes.
bool IsPythonJson(std::string_view text);

}  // namespace macrame::runtime::engine
