#pragma once

// How two ranks of a gang convince each other over a new connection, and agree on its keys. Pure:
// bytes in, bytes out. gang_connection.h and gang_listener.h carry them.
//
//   caller   → listener   hello:  who it is, what for, a nonce, a proof
//   listener → caller     answer: who it is, a nonce, a proof over hello and answer
//   caller   → listener   finish: a proof over both
//
// A proof is HMAC-SHA-256 under a key that the gang's secret gives, with a label of its own for
// each of the three: nobody's proof can be sent back to who made it, and whoever lacks the secret
// is known by the first bytes. The listener's nonce keeps an old hello from being played again.
// Keys of the two directions come from the secret, both nonces and all that was said.
//
// The secret is new with each epoch and known to its ranks and the agents that start them. Whoever
// gets hold of it can read what was recorded of that epoch, and of no other.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::transport {

// What a connection is for: one that was made for one use is not taken for another.
enum class GangChannel : uint8_t { kSteps = 1, kWatch = 2, kGroup = 3, kRendezvous = 4, kSide = 5 };

// Who this process is. `secret` has 32 bytes and is new for each epoch.
struct GangMember {
  GangChannel channel = GangChannel::kSteps;
  uint32_t rank = 0;
  uint32_t size = 1;
  uint64_t epoch = 0;
  SecretBytes secret;
};

inline constexpr size_t kHandshakeNonceBytes = 32;
inline constexpr size_t kHandshakeProofBytes = 32;
inline constexpr size_t kHelloBytes = 32 + kHandshakeNonceBytes + kHandshakeProofBytes;
inline constexpr size_t kAnswerBytes = 16 + kHandshakeNonceBytes + kHandshakeProofBytes;
inline constexpr size_t kFinishBytes = kHandshakeProofBytes;

// What the two agreed on. `is_private`: both hold that nobody else can listen on the way between
// them, and nothing is sealed. Traffic secrets are empty then.
struct GangAgreement {
  uint32_t rank = 0;  // the other side's
  bool is_private = false;
  SecretBytes send_secret, receive_secret;
};

// PERMISSION_DENIED says what is wrong with the other side.
class CallerHandshake {
 public:
  // Calls rank `callee`; `is_private`: this side holds the link for private. `nonce` has
  // kHandshakeNonceBytes random bytes.
  CallerHandshake(const GangMember& own, uint32_t callee, bool is_private,
                  const std::string& nonce);
  const std::string& hello() const { return hello_; }
  // Gives the finish.
  absl::StatusOr<std::string> OnAnswer(std::string_view answer);
  GangAgreement Agreement() const;  // after OnAnswer

 private:
  const GangMember own_;
  const uint32_t callee_;
  const bool wants_private_;
  std::string hello_, said_;
  bool is_private_ = false;
};

class ListenerHandshake {
 public:
  // `is_private`, which may be unset, says of a caller's rank whether this side holds the link to
  // it for private.
  ListenerHandshake(const GangMember& own, std::function<bool(uint32_t)> is_private,
                    std::string nonce);
  // Gives the answer.
  absl::StatusOr<std::string> OnHello(std::string_view hello);
  absl::Status OnFinish(std::string_view finish);
  GangAgreement Agreement() const;  // after OnFinish

 private:
  const GangMember own_;
  const std::function<bool(uint32_t)> private_of_;
  const std::string nonce_;
  std::string said_;
  uint32_t caller_ = 0;
  bool is_private_ = false;
};

}  // namespace macrame::transport
