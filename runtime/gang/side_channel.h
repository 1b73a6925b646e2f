#pragma once

// Over which the ranks of a gang tell each other what a library needs to connect them: jaccl's
// queue pairs. An all-gather of small pieces over sealed lines to rank 0, in the place of a port of
// the library's own, which would take whoever calls it first and wait for them without a limit.

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/gang/sealed_socket.h"

namespace macrame::runtime::engine {

class SideChannel {
 public:
  // `lines`: rank 0's by rank, [0] closed; another rank's one, to rank 0. `limit`: until a piece
  // comes.
  SideChannel(uint32_t rank, std::vector<transport::SealedSocket> lines,
              std::chrono::milliseconds limit);

  // all = each rank's piece, in the order of ranks; all.size() is own.size() for each rank. Blocks;
  // one thread. CONNECT_FAILED names the rank that is gone, late, or told a piece of another size.
  absl::Status AllGather(std::string_view own, std::span<char> all);

 private:
  absl::Status Gather(std::string_view own, std::span<char> all);

  const uint32_t rank_;
  std::vector<transport::SealedSocket> lines_;
};

}  // namespace macrame::runtime::engine
