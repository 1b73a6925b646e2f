#pragma once

// The frame of a UDP beacon: how a node says "I am here" so that only holders of the cluster's
// secret are believed. Pure; belongs to one owner thread.
//
//   offset 0   "MCRM"
//          4   version, 1
//          5   flags, 0
//          6   length of the payload, 2 bytes, big-endian
//          8   payload: v1::Beacon
//          8+n HMAC-SHA-256 over everything before it, 32 bytes
//
// The key is the cluster's beacon key. A node without a cluster tags with 32 zero bytes: that
// proves nothing, but damage on the way is seen. A frame has at most 512 bytes, so that it never
// fragments.
//
// A recorded beacon that is played again is refused by a window over the sequence numbers of each
// (node, machine, incarnation); an older incarnation than the highest seen of that machine is
// refused too, and one above kIncarnationMax always, so that no member can have another's beacons
// taken for replays. A receiver that
// has just started has no window yet: what it then believes is an address to try, and the TLS
// handshake that follows is not fooled.

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "discovery/beacons/beacon_signer.h"
#include "macrame/v1/beacon.pb.h"
#include "proto/ids.h"

namespace macrame::discovery {

inline constexpr size_t kBeaconBytesMax = 512;
inline constexpr size_t kBeaconKeyBytes = 32;
inline constexpr size_t kBeaconFingerprintBytes = 8;
inline constexpr size_t kBeaconMachineBytes = 8;
inline constexpr size_t kBeaconClusterNameBytesMax = 64;
inline constexpr size_t kBeaconHostnameBytesMax = 64;
inline constexpr size_t kBeaconVersionBytesMax = 32;
inline constexpr uint64_t kReplayWindow = 256;  // sequence numbers
inline constexpr size_t kReplayNodesMax = 256;

// What the cluster's secret gives to beacons.
struct BeaconTrust {
  std::string cluster_name;
  std::string fingerprint;  // first 8 bytes of SHA-256 over the cluster's certificate
  std::string key;          // 32 bytes
};

enum class BeaconVerdict {
  kMember,        // signed with our key: an address of a candidate member
  kOtherCluster,  // names another cluster, or names one while we have none
  kNoSecret,      // its node has no cluster yet
  kBadSignature,  // claims our cluster, signed with something else
  kOwn,           // ours, heard by ourselves
  kIdClash,       // signed with our key and carrying our node id, but not sent by us
  kReplayed,      // signed by a member, seen before or of an older incarnation
  kOtherVersion,  // a frame of a version that we don't know
  kMalformed,     // anything else
};
inline constexpr size_t kBeaconVerdictCount = 9;

struct DecodedBeacon {
  BeaconVerdict verdict = BeaconVerdict::kMalformed;
  v1::Beacon beacon;  // empty for kMalformed and kOtherVersion; believed only for kMember and kOwn
};

class BeaconCodec {
 public:
  // `control_port` tells two processes with one copied state folder apart where `machine` does not.
  struct Self {
    NodeId node_id;
    Incarnation incarnation;
    uint32_t control_port = 0;
    std::string machine = {};  // NodeIdentity.machine
  };

  BeaconCodec(Self self, std::optional<BeaconTrust> trust);

  // When the secret file appears or is replaced. InvalidArgument for a key or fingerprint of the
  // wrong length; the old trust stays in force.
  absl::Status SetTrust(std::optional<BeaconTrust> trust);
  bool has_trust() const { return trust_.has_value(); }

  // Fills in cluster, node id, incarnation, port and the next sequence number: each datagram needs
  // an Encode of its own. Names that are too long are cut; heard_node_ids are dropped from the end
  // until the frame fits.
  std::string Encode(v1::Beacon beacon);
  // How many heard_node_ids found room in the last Encode, so that a caller with more can rotate
  // them.
  size_t last_heard_count() const { return last_heard_count_; }

  // Any bytes at all. Counts the verdict.
  DecodedBeacon Decode(std::string_view datagram);

  uint64_t Count(BeaconVerdict verdict) const { return counts_[static_cast<size_t>(verdict)]; }

 private:
  struct Window {
    uint64_t incarnation = 0;
    uint64_t highest = 0;
    std::bitset<kReplayWindow> seen;  // bit i: highest - i
    uint64_t used = 0;                // for forgetting the least lately heard
  };

  DecodedBeacon Judge(std::string_view datagram);
  BeaconVerdict JudgeSigned(const v1::Beacon& beacon);
  bool IsReplay(const v1::Beacon& beacon);
  Window& WindowOf(const v1::Beacon& beacon);

  Self self_;
  std::optional<BeaconTrust> trust_;
  std::optional<BeaconSigner> signer_;  // while there is trust
  BeaconSigner keyless_{std::string(kBeaconKeyBytes, '\0')};
  uint64_t sequence_ = 0;
  uint64_t decoded_ = 0;
  size_t last_heard_count_ = 0;
  std::map<std::pair<std::string, std::string>, Window> windows_;  // by node id and machine
  std::array<uint64_t, kBeaconVerdictCount> counts_{};
};

}  // namespace macrame::discovery
