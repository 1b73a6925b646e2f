#pragma once

// Before a library of somebody else's forms a group: every rank really connects to the address at
// which that library will meet, so that a wrong route or firewall is named within the limit instead
// of hanging in there.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::runtime::engine {

struct RendezvousPlace {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string address;  // "ip:port" of rank 0
  transport::SecretBytes secret;
  uint64_t epoch = 0;
  std::vector<std::string> member_ips{};  // see GangPlace
  // Rank 0: a socket that is bound to `address`, taken over and closed again. -1: there is none.
  int listen_fd = -1;
};

// Blocks until all have met, at most `limit`. The address is free again afterwards.
// RENDEZVOUS_UNREACHABLE: on rank 0 with the ranks that never came, on another with what kept it
// from getting there.
absl::Status MeetAtRendezvous(const RendezvousPlace& place, std::chrono::milliseconds limit);

}  // namespace macrame::runtime::engine
