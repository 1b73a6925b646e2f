#pragma once

// Which Host headers a request may carry. A web page can have its own name resolve to 127.0.0.1 and
// then talk to a loopback port as "the same site"; the name in Host gives it away. Pure.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

// `host` as HostOf has it (base/web_url.h). A name passes when it is localhost or one of
// `allowed_hosts`; an address when it is a loopback one or, on a connection to an address beyond
// loopback, any: an address can't be rebound.
bool IsHostAllowed(absl::string_view host, bool over_loopback,
                   const std::vector<std::string>& allowed_hosts);

}  // namespace macrame::agentd
