#pragma once

// How MLX is told about a group: host files for mlx.launch, device matrices and the MLX_* settings
// of each rank. The same code serves our own rank processes and those who run mlx.launch. Formats
// after MLX 0.32's launch.py, ring.cpp and jaccl. Pure. Any thread.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/link.pb.h"

namespace macrame::transport {

inline constexpr int kJacclPort = 32323;  // MLX's own default

// `backend`: one of MlxBackendNames. `ssh_names` by rank: what mlx.launch's ssh calls each node.
// Refuses a backend that the verdict does not allow, with the verdict's reasons, and jaccl for
// nodes that call rank 0 at different addresses: mlx.launch gives all of them the first.
// `fast_synch`: over jaccl, MLX_METAL_FAST_SYNCH=1 is among the settings (agentd's
// metal_fast_synch).
absl::StatusOr<std::string> MlxHostfile(const v1::GroupVerdict& group, const std::string& backend,
                                        const std::vector<std::string>& ssh_names,
                                        bool fast_synch = true);

// Where `rank` meets rank 0, for rank 0 itself where it listens: MLX binds the very address that
// MLX_JACCL_COORDINATOR gives rank 0, and each other rank calls its own. Empty: nowhere.
std::string RendezvousIpOf(const v1::GroupVerdict& group, int rank);

// The content of the file that MLX_IBV_DEVICES names: null, a name, or a list for each cell.
std::string DeviceMatrixJson(const v1::GroupVerdict& group);

struct MlxEnvironment {
  std::vector<std::pair<std::string, std::string>> settings;  // MLX_RANK, MLX_JACCL_COORDINATOR, …
  // Files that settings name by these placeholders: {"MLX_IBV_DEVICES", content}.
  std::vector<std::pair<std::string, std::string>> files;
};
absl::StatusOr<MlxEnvironment> MlxEnvironmentOf(const v1::GroupVerdict& group,
                                                const std::string& backend, int rank, int port,
                                                bool fast_synch = true);

struct HostfileFault {
  int line = 0;  // 1 is the first
  std::string message;
};
// What is known of a machine that a host file may name.
struct HostSystem {
  std::vector<std::string> names;  // node id, hostname
  std::vector<std::string> ips;
  std::string macos_version;  // empty: not known, or no Mac
};
// Every fault that mlx.launch or MLX would refuse or misread; empty: it is good. What MLX takes as
// a matrix is told at GroupMatrix. A host file does not say which macOS its hosts run: `systems`
// does, where a host's ssh name or one of its addresses is that of exactly one of them.
// `unchecked`, when given, gets the ssh names of those hosts of a file for jaccl whose macOS stays
// unknown.
std::vector<HostfileFault> CheckHostfile(const std::string& text,
                                         std::span<const HostSystem> systems = {},
                                         std::vector<std::string>* unchecked = nullptr);

}  // namespace macrame::transport
