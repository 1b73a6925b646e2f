#pragma once

// The line that `clusterctl cluster token` prints and `clusterctl cluster join` takes: where a
// keeper listens, whose certificate it must show, and a secret that proves the right to join.
//
//   macrame1.TOKEN_ID.SECRET.FINGERPRINT@PORT,IP,IP
//
// No character of it means anything to a shell. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ids.h"

namespace macrame::transport {

inline constexpr size_t kJoinTokenIdBytes = 8;
inline constexpr size_t kJoinTokenSecretBytes = 32;
inline constexpr size_t kJoinAddressesMax = 8;
inline constexpr size_t kJoinTokenTextMax = 1024;

struct JoinToken {
  std::string id;                // 16 hex digits
  std::string secret;            // kJoinTokenSecretBytes raw bytes
  std::string authority_digest;  // CertificateDigest, 32 raw bytes
  int port = 0;
  std::vector<std::string> ips;  // 1 to kJoinAddressesMax
};

std::string FormatJoinToken(const JoinToken& token);
// INVALID_ARGUMENT with TOKEN_MALFORMED when it is none, or cut short.
absl::StatusOr<JoinToken> ParseJoinToken(std::string_view text);

// What shows that the caller has the secret: HMAC-SHA-256 over the TLS connection's exported key
// (so that it is worth nothing on another connection) and what is asked for. Compare with
// CRYPTO_memcmp only.
std::string JoinProof(const std::string& secret, const std::string& exported,
                      const std::string& token_id, const NodeId& node_id,
                      const std::string& request_der);

}  // namespace macrame::transport
