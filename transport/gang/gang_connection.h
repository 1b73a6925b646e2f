#pragma once

// A connection between two ranks that have proven themselves to each other, and the calling side's
// way to one. The listening side is in gang_listener.h.

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "transport/gang/gang_handshake.h"
#include "transport/gang/record_cipher.h"
#include "transport/stream_socket.h"

namespace macrame::transport {

// Gives so many random bytes.
using RandomBytesSource = std::function<std::string(size_t)>;
// The system's.
std::string SystemRandomBytes(size_t count);

// For an answer. Who listens may be busy with its own calls; it is called again.
inline constexpr std::chrono::milliseconds kAnswerLimit{2000};

struct GangConnection {
  uint32_t rank = 0;  // the other side's
  StreamSocket socket;
  // Both unset on a link that both sides hold for private: bytes go as they are.
  std::optional<RecordCipher> seal, open;
};
GangConnection MakeConnection(StreamSocket socket, GangAgreement agreement);

struct GangCall {
  std::string address;      // "ip:port"
  uint32_t rank = 0;        // of who listens there
  bool is_private = false;  // this side holds the link for private
};
// Calls until `end`, again and again: the other side may not be up yet, or somebody else may be in
// the way. Errors say what was found there last; INVALID_ARGUMENT: the address is none.
absl::StatusOr<GangConnection> CallGang(const GangMember& own, const GangCall& call,
                                        std::chrono::steady_clock::time_point end,
                                        const RandomBytesSource& random_bytes = SystemRandomBytes);

}  // namespace macrame::transport
