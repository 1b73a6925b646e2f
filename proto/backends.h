#pragma once

// Backends, topologies, verdicts and cable graphs: types in code, and the one place in which their
// public names are written out. Messages, files and command lines hold the names; whoever decides
// by one turns it into its type first, so that a mistyped one does not compile. "ring" is the name
// of three of them, which the types keep apart: a backend (TCP, as MLX calls it), a topology (each
// rank exchanges with its two neighbours) and a graph (a cycle of cables).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace macrame {

// What the ranks of a gang exchange tensors over. The names are MLX's where MLX has the backend.
enum class Backend {
  kNone,    // not named, or by a name of another version
  kSingle,  // one rank: nothing to exchange
  kRing,    // TCP, whatever carries it
  kVerbs,   // RDMA through verbs, between Linux machines
  kJaccl,   // RDMA over Thunderbolt, between Macs
};
const char* NameOf(Backend backend);  // "" for kNone
Backend BackendNamed(std::string_view name);
inline constexpr bool IsRdma(Backend backend) {
  return backend == Backend::kVerbs || backend == Backend::kJaccl;
}
// Those that engines, links and descriptions of clusters may list: "ring", "jaccl", "verbs".
std::vector<std::string> BackendNames();

// Which ranks exchange directly: each with each, or with the next and the previous one.
enum class Topology { kNone, kMesh, kRing };
const char* NameOf(Topology topology);  // "" for kNone
Topology TopologyNamed(std::string_view name);

// What may be asked for as --transport or in the configuration: a backend, any, or either of those
// over RDMA.
inline constexpr char kAnyTransport[] = "auto";
inline constexpr char kRdmaTransport[] = "rdma";
// The transport of that name in upper or lower case; what people call it elsewhere ("mlx-ring",
// "mdma", "tcp", "mlx-jaccl", "mlx-rdma") becomes ours. Other words are given back in lower case.
std::string TransportNamed(std::string_view name);
// All that TransportNamed knows, ours first.
std::vector<std::string> TransportNames();
// Is nothing in particular asked for?
bool IsAnyTransport(std::string_view transport);
// Does the transport ask for RDMA, over whichever backend?
bool AsksForRdma(std::string_view transport);

// What mlx.launch takes as its backend.
enum class MlxBackend { kRing, kJaccl, kJacclRing, kMpi, kNccl };
const char* NameOf(MlxBackend backend);
std::optional<MlxBackend> MlxBackendNamed(std::string_view name);
std::vector<std::string> MlxBackendNames();  // those whose host files are written here
inline constexpr bool IsJaccl(MlxBackend backend) {
  return backend == MlxBackend::kJaccl || backend == MlxBackend::kJacclRing;
}

// What a group of nodes can do together: the best backend that all links between them allow.
enum class Verdict { kNone, kSingle, kRingOnly, kVerbs, kJacclRing, kJacclMesh };
const char* NameOf(Verdict verdict);
Verdict VerdictNamed(std::string_view name);  // kNone for a name of another version

// How cables join machines.
enum class CableGraph {
  kNone,          // no cables
  kSingle,        // one machine
  kPair,          // two machines and a cable
  kMesh,          // each joined to each
  kRing,          // one cycle through all
  kChain,         // one path through all
  kStar,          // all joined to one
  kDesks,         // several meshes, nothing between them
  kDisconnected,  // no path between some
  kOther,
};
const char* NameOf(CableGraph graph);

}  // namespace macrame
