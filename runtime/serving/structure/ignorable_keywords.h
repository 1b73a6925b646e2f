#pragma once

// Keywords of JSON schemas that say nothing, which the grammar library refuses all the same. Called
// by the gateway for an answer's schema, and here for tools' parameters, whose prompt has them as
// the client wrote them. Pure.

#include <nlohmann/json.hpp>

namespace macrame::runtime::engine {

// Removes from a schema and from all schemas within it:
// - a `format` that the library does not know: an annotation (draft 2020-12, 7.2.1);
// - `propertyNames` that any name fits;
// - `uniqueItems` that is false.
// What stands in values and not in schemas stays.
void DropIgnorableKeywords(nlohmann::ordered_json* schema);

}  // namespace macrame::runtime::engine
