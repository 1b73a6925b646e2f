#pragma once

// Under which names a node's gateway is met by HTTPS with a certificate of the cluster's authority,
// and which a keeper signs. Pure.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "macrame/v1/node.pb.h"

namespace macrame::agentd {

// "localhost" and the loopback addresses, the host's name, also below ".local", its private
// addresses, and what of `more` is a name of a private network (transport/private_names.h). Sorted,
// each once, at most transport::kHttpsNamesMax.
std::vector<std::string> WantedHttpsNames(const v1::NodeIdentity& self,
                                          const std::vector<std::string>& more);

// What a keeper asks before it signs: no name or address of another member among them, so that a
// node that was stolen can't answer in another's place. PERMISSION_DENIED names it. Loopback's are
// everybody's.
absl::Status CheckHttpsNames(const std::vector<std::string>& names, const std::string& caller_id,
                             const std::vector<v1::NodeIdentity>& members);

}  // namespace macrame::agentd
