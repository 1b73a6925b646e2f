#pragma once

// Who belongs to a cluster: the secret file, a node's membership, and what is made from them.
//
// The secret file is the whole trust of a cluster: its certificate authority (P-256) and the key
// that beacons are authenticated with. A node that has it is a *keeper*: it makes its own
// certificate and signs those of others. Other nodes have a membership only: the authority's
// certificate, the beacon key, and a key and certificate of their own that a keeper signed after
// they had shown a token (transport/join_token.h), and renews. A certificate is valid for
// kNodeCertificateS.
//
// All functions may be called from any thread; creating keys takes some milliseconds. Private keys
// are wiped from what these types held when they go; copies that gRPC makes are beyond us.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ids.h"
#include "transport/wipe.h"

namespace macrame::transport {

inline constexpr size_t kBeaconKeyBytes = 32;
inline constexpr size_t kClusterFingerprintBytes = 8;
inline constexpr size_t kClusterNameBytesMax = 63;
inline constexpr size_t kCertificateRequestBytesMax = 4096;
inline constexpr int64_t kSecondsPerDay = 24 * 60 * 60;
inline constexpr int64_t kNodeCertificateS = 7 * kSecondsPerDay;

int64_t SystemUnixSeconds();

struct ClusterSecret {
  ~ClusterSecret();
  std::string cluster_id;    // 32 lower-case hex digits
  std::string cluster_name;  // for people: letters, digits, '-', '_', '.'
  std::string authority_certificate_pem;
  std::string authority_key_pem;
  std::string beacon_key;  // kBeaconKeyBytes raw bytes
};

// What one node shows to others. `key_pem` never leaves the process.
struct NodeCredentials {
  ~NodeCredentials();
  NodeId node_id;
  std::string certificate_pem;
  std::string key_pem;
  std::string authority_certificate_pem;
};

// What a node has that joined with a token.
struct NodeMembership {
  ~NodeMembership();
  std::string cluster_id;
  std::string cluster_name;
  std::string beacon_key;
  NodeCredentials node;
};

// A fresh key, and the request (PKCS#10) that a keeper makes a certificate of.
struct CertificateRequest {
  ~CertificateRequest();
  std::string key_pem;
  std::string request_der;
};

// Unix seconds, the first and the last at which it is valid.
struct CertificateDates {
  int64_t not_before_s = 0;
  int64_t not_after_s = 0;
};

// A new cluster: fresh authority, id and beacon key. INVALID_ARGUMENT for a name that is empty, too
// long or holds other characters.
absl::StatusOr<ClusterSecret> CreateClusterSecret(const std::string& cluster_name,
                                                  int64_t unix_s = SystemUnixSeconds());

// Writes the file with mode 0600. ALREADY_EXISTS when there is one; its folder is made (0700).
absl::Status WriteClusterSecret(const ClusterSecret& secret, const std::string& path);

// NOT_FOUND when there is no file; PERMISSION_DENIED when others may read it (the message names the
// command that fixes it); INVALID_ARGUMENT when it is malformed, cut short, or its parts disagree.
absl::StatusOr<ClusterSecret> ReadClusterSecret(const std::string& path);

// First kClusterFingerprintBytes of SHA-256 over the authority's certificate (DER), raw bytes: what
// a beacon shows of its cluster.
absl::StatusOr<std::string> ClusterFingerprint(const ClusterSecret& secret);
absl::StatusOr<std::string> ClusterFingerprint(const std::string& authority_certificate_pem);
// All 32 bytes of it: what a token pins.
absl::StatusOr<std::string> CertificateDigest(const std::string& certificate_pem);
absl::StatusOr<CertificateDates> DatesOf(const std::string& certificate_pem);

// Written anew in one step, mode 0600: a reader finds the old file or the new one.
absl::Status WriteNodeMembership(const NodeMembership& membership, const std::string& path);
// The errors of ReadClusterSecret.
absl::StatusOr<NodeMembership> ReadNodeMembership(const std::string& path);
// "node.membership" beside the secret file's place.
std::string NodeMembershipPath(const std::string& secret_path);

// A key pair and a certificate for `node_id`, signed by the cluster's authority.
absl::StatusOr<NodeCredentials> MakeNodeCredentials(const ClusterSecret& secret,
                                                    const NodeId& node_id,
                                                    int64_t unix_s = SystemUnixSeconds());

CertificateRequest MakeCertificateRequest();
// A certificate (PEM) for `node_id`, whatever name the request carries. INVALID_ARGUMENT for a
// request that is malformed, of another kind of key, or not signed by it.
absl::StatusOr<std::string> SignCertificateRequest(const ClusterSecret& secret,
                                                   const NodeId& node_id,
                                                   const std::string& request_der,
                                                   int64_t unix_s = SystemUnixSeconds());
// A certificate and its key.
struct KeyPair {
  ~KeyPair();
  std::string certificate_pem;
  std::string key_pem;
};

// What a person shows from a machine without an agent: it names a key of the API (agentd's
// KeyTable) and no node, and can't be served with. Valid until `until_unix_s`.
absl::StatusOr<KeyPair> MakePersonCredentials(const ClusterSecret& secret,
                                              const std::string& key_id, int64_t unix_s,
                                              int64_t until_unix_s);
inline constexpr size_t kKeyIdDigits = 12;
// The key id in such a certificate's name, "<key id>.key.macrame"; empty: it is not of that form.
std::string KeyIdFromTlsName(std::string_view name);

// A certificate that a node's gateway shows to programs, for kNodeCertificateS: these names and
// addresses, no node id, and nothing to call other nodes with. Only names that nobody owns on the
// Internet are signed, so that whoever trusts this authority trusts it with no site there:
// INVALID_ARGUMENT otherwise (private_names.h), or when there are none or more than
// kHttpsNamesMax.
inline constexpr size_t kHttpsNamesMax = 32;
absl::StatusOr<std::string> SignHttpsRequest(const ClusterSecret& secret,
                                             const std::vector<std::string>& names,
                                             const std::string& request_der,
                                             int64_t unix_s = SystemUnixSeconds());
// That certificate, key, node id and authority belong together; dates are not looked at.
absl::Status CheckNodeCredentials(const NodeCredentials& node);

// "This node is a member no more", signed by the authority: so only keepers can say it.
absl::StatusOr<std::string> SignRevocation(const ClusterSecret& secret, const NodeId& node_id,
                                           uint64_t unix_ms);
bool IsRevocationSigned(const std::string& authority_certificate_pem, const std::string& cluster_id,
                        const NodeId& node_id, uint64_t unix_ms, const std::string& signature);

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
