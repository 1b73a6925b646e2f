#pragma once

// The access file: what a person keeps on a machine without an agent (a laptop) so that clusterctl
// there can ask the cluster's agents. It has a certificate of the cluster's authority, which names
// a key of the API: what that key may do, and until when, the agents look up at each call, so a
// revoked one ends at once, wherever the file is. Kept with mode 0600. Any thread.

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/access.pb.h"
#include "proto/ids.h"

namespace macrame::transport {

inline constexpr int kAccessNodesMax = 64;
inline constexpr int kAccessAddressesMax = 16;  // of one node

// A JSON object, with a note for whoever opens it.
std::string FormatAccessFile(const v1::AccessFile& file);

// The errors of ReadPrivateFile; CONFIG_INVALID when it is malformed or another version's, when its
// parts don't belong together, or when it ended before `unix_s`.
absl::StatusOr<v1::AccessFile> ReadAccessFile(const std::string& path, int64_t unix_s);

// "~/.macrame/cluster.access": what clusterctl takes where no agent runs and nothing else is said.
std::string DefaultAccessFilePath();

// An agent of the cluster that answers.
struct FoundAgent {
  std::string address;  // "ip:port", "[ip]:port"
  NodeId node_id;       // by its certificate
};

// Blocks, at most kFindLimit. `host` is the name, the id (four digits or more) or an address of a
// node in the file, or "NAME[:PORT]" of another that this machine can resolve; empty: whichever
// answers first. AGENT_UNREACHABLE when nobody does, WRONG_CLUSTER when who answers is of another
// cluster, CLOCK_WRONG by the dates of its certificate, CERT_EXPIRED when it does not take ours.
inline constexpr std::chrono::seconds kFindLimit{10};
absl::StatusOr<FoundAgent> FindAgent(const v1::AccessFile& file, const std::string& host);

}  // namespace macrame::transport
