#pragma once

// What both the target and its corpus know: one gang, with nonces that are always the same.

#include <string>
#include <vector>

#include "transport/gang/gang_connection.h"
#include "transport/gang/gang_handshake.h"

namespace macrame::tests {

// The first byte of an input: what reads the rest.
enum class Reading : unsigned char {
  kStep,
  kReport,
  kHello,
  kAnswer,
  kFinish,
  kFrames,
  kMessages,
};
inline constexpr unsigned char kReadings = 7;

inline transport::GangMember Member(uint32_t rank) {
  return {transport::GangChannel::kSteps, rank, 3, 7, std::string(32, 's')};
}
inline transport::CallerHandshake Caller() {
  return {Member(2), 0, false, std::string(transport::kHandshakeNonceBytes, 'c')};
}
inline transport::ListenerHandshake Listener() {
  return {Member(0), {}, std::string(transport::kHandshakeNonceBytes, 'l')};
}

// A sealed end of a connection. `is_sender`: its traffic is the other one's to receive.
inline transport::GangConnection End(int fd, bool is_sender) {
  using transport::SecretBytes;
  const SecretBytes there(std::string(32, 'a')), back(std::string(32, 'b'));
  return transport::MakeConnection(transport::StreamSocket(fd),
                                   {1, false, is_sender ? there : back, is_sender ? back : there});
}

// What was sent over it.
inline std::vector<std::string> Sent() { return {"first frame", "", std::string(200, 't'), "end"}; }

}  // namespace macrame::tests
