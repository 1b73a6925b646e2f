#pragma once

// JSON schemas by a seed, and whether a value is what one says: the part of JSON Schema that these
// schemas use, by its own definition.

#include <cstdint>
#include <nlohmann/json.hpp>

namespace macrame::runtime::engine {

// `depth`: of nesting that is left.
nlohmann::ordered_json RandomSchema(uint64_t seed, int depth);

bool Validates(const nlohmann::ordered_json& schema, const nlohmann::json& value);

}  // namespace macrame::runtime::engine
