#pragma once

namespace macrame::transport {

// From here on the system keeps no image of this process's memory when it crashes: keys and
// conversations are in it, and files outlive them. Nor may other processes of the same user look
// into it (on Linux).
void TurnOffCoreDumps();

}  // namespace macrame::transport
