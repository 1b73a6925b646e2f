#pragma once

// GET /openapi.json: what is served, as OpenAPI 3.1. Made of the table of endpoints; a path that
// the description lacks fails its test. Pure.

#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/http/endpoint_table.h"

namespace macrame::agentd {

// `version`: the product's.
std::string OpenApiText(const EndpointTable& table, absl::string_view version);

// What is said of an endpoint, by its path; null: nothing.
struct PathDescription {
  absl::string_view path;  // as in the table of endpoints
  absl::string_view name;  // of the part in braces, where the path ends in a slash
  absl::string_view summary;
  absl::string_view request;  // the body's schema, a name in kSchemasJson; empty: no body
  absl::string_view answer;   // that of 200's body; empty: none, not served if there is a request
  // Another content type of 200: of a stream, or of what is no JSON; empty: none.
  absl::string_view other_type;
};
const PathDescription* DescriptionOf(absl::string_view path);
extern const char* const kSchemasJson;

}  // namespace macrame::agentd
