#pragma once

// How two ranks of a gang convince each other over a new connection: each sends its rank, the size
// and a nonce; each answers with an HMAC-SHA256 over both nonces, under the gang's secret and its
// own role, so that an answer can't be sent back to whoever made it.

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "transport/stream_socket.h"

namespace macrame::transport {

inline constexpr std::chrono::milliseconds kHandshakeLimit{2000};

struct HandshakePlace {
  int rank = 0;
  int size = 0;
  std::string secret;
};

// Gives the other side's rank. PERMISSION_DENIED: it does not know the secret, or is of another
// gang.
absl::StatusOr<int> ShakeHands(const StreamSocket& socket, const HandshakePlace& place,
                               bool is_listener);

}  // namespace macrame::transport
