#pragma once

// Who belongs to a cluster: the secret file, and what a node makes from it.
//
// The secret file is the whole trust of a cluster: whoever holds it can join. It carries the
// cluster's certificate authority (P-256) and the key that beacons are authenticated with. Each
// agent makes itself a key and a certificate from it at start; they live in memory only. All
// functions may be called from any thread; creating keys takes some milliseconds.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ids.h"

namespace macrame::transport {

inline constexpr size_t kBeaconKeyBytes = 32;
inline constexpr size_t kClusterFingerprintBytes = 8;
inline constexpr size_t kClusterNameBytesMax = 63;
inline constexpr size_t kSecretFileBytesMax = 64 * 1024;

struct ClusterSecret {
  std::string cluster_id;    // 32 lower-case hex digits
  std::string cluster_name;  // for people: letters, digits, '-', '_', '.'
  std::string authority_certificate_pem;
  std::string authority_key_pem;
  std::string beacon_key;  // kBeaconKeyBytes raw bytes
};

// What one node shows to others. `key_pem` never leaves the process.
struct NodeCredentials {
  NodeId node_id;
  std::string certificate_pem;
  std::string key_pem;
  std::string authority_certificate_pem;
};

// A new cluster: fresh authority, id and beacon key. INVALID_ARGUMENT for a name that is empty, too
// long or holds other characters.
absl::StatusOr<ClusterSecret> CreateClusterSecret(const std::string& cluster_name);

// Writes the file with mode 0600. ALREADY_EXISTS when there is one; its folder is made (0700).
absl::Status WriteClusterSecret(const ClusterSecret& secret, const std::string& path);

// NOT_FOUND when there is no file; PERMISSION_DENIED when others may read it (the message names the
// command that mends it); INVALID_ARGUMENT when it is malformed, cut short, or its parts disagree.
absl::StatusOr<ClusterSecret> ReadClusterSecret(const std::string& path);

// First kClusterFingerprintBytes of SHA-256 over the authority's certificate (DER), raw bytes: what
// a beacon shows of its cluster.
absl::StatusOr<std::string> ClusterFingerprint(const ClusterSecret& secret);

// A key pair and a certificate for `node_id`, signed by the cluster's authority.
absl::StatusOr<NodeCredentials> MakeNodeCredentials(const ClusterSecret& secret,
                                                    const NodeId& node_id);

// The name in a node's certificate: "<node_id>.macrame".
std::string NodeTlsName(const NodeId& node_id);
// The reverse; empty when `name` is not of that form.
NodeId NodeIdFromTlsName(std::string_view name);

// Where the secret file is looked for when the config names none: "~/.macrame/cluster.secret".
std::string DefaultClusterSecretPath();

// `count` random bytes from the system's generator. Aborts when there is none.
std::string RandomBytes(size_t count);
// Lower-case hex.
std::string HexEncode(std::string_view bytes);

}  // namespace macrame::transport
