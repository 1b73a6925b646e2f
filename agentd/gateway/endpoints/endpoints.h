#pragma once

// The table of all that is served (endpoint_table.h). A new path is a row here, a description in
// openapi_paths.cc and a line in SECURITY.md, which tests compare.

#include "agentd/gateway/http/endpoint_table.h"

namespace macrame::agentd {

const EndpointTable& Endpoints();

}  // namespace macrame::agentd
