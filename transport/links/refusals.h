#pragma once

// Backends that are not tried again on some nodes until something changes: a final verdict is
// remembered, not found out anew at each launch. Pure. Any thread.

#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// What a machine is now, as far as a refusal hangs on it.
v1::NodeKey KeyOf(const v1::LinkFacts& facts);

// The refusals that follow from the facts alone (a Thunderbolt 4 controller …) and are not held
// yet.
std::vector<v1::TransportRefusal> NewRefusals(const v1::LinkSnapshot& snapshot);

// A refusal of `backend` by the very group that failed on it.
v1::TransportRefusal MakeRefusal(const v1::LinkSnapshot& snapshot,
                                 const std::vector<std::string>& node_ids,
                                 const std::string& backend, const v1::Reason& cause,
                                 const v1::Reason& symptom);

// Why a refusal is to be looked at again, in words for people: another OS build, an RDMA device
// appeared, the kernel's refusal is gone, the machine was replaced, another MLX, or a newer
// support list that says the machine is supported. Unset: it still holds. A node that is not in
// the snapshot changes nothing; a fact that is unknown now neither.
std::optional<std::string> TriggerToRetry(const v1::TransportRefusal& refusal,
                                          const v1::LinkSnapshot& snapshot);

// "refusal/jaccl/ID,ID"
std::string RefusalKey(const v1::TransportRefusal& refusal);

}  // namespace macrame::transport
