#include "proto/backends.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "proto/check.h"

namespace macrame {
namespace {

template <class Type>
using Names = std::span<const std::pair<Type, const char*>>;

constexpr std::pair<Backend, const char*> kBackends[] = {
    {Backend::kNone, ""},       {Backend::kSingle, "single"}, {Backend::kRing, "ring"},
    {Backend::kVerbs, "verbs"}, {Backend::kJaccl, "jaccl"},
};
constexpr std::pair<Topology, const char*> kTopologies[] = {
    {Topology::kNone, ""},
    {Topology::kMesh, "mesh"},
    {Topology::kRing, "ring"},
};
constexpr std::pair<MlxBackend, const char*> kMlxBackends[] = {
    {MlxBackend::kRing, "ring"},
    {MlxBackend::kJaccl, "jaccl"},
    {MlxBackend::kJacclRing, "jaccl-ring"},
    {MlxBackend::kMpi, "mpi"},
    {MlxBackend::kNccl, "nccl"},
};
constexpr std::pair<Verdict, const char*> kVerdicts[] = {
    {Verdict::kNone, "none"},
    {Verdict::kSingle, "single"},
    {Verdict::kRingOnly, "ring-only"},
    {Verdict::kVerbs, "verbs"},
    {Verdict::kJacclRing, "jaccl-ring"},
    {Verdict::kJacclMesh, "jaccl-mesh"},
};
constexpr std::pair<CableGraph, const char*> kGraphs[] = {
    {CableGraph::kNone, "none"},
    {CableGraph::kSingle, "single"},
    {CableGraph::kPair, "pair"},
    {CableGraph::kMesh, "mesh"},
    {CableGraph::kRing, "ring"},
    {CableGraph::kChain, "chain"},
    {CableGraph::kStar, "star"},
    {CableGraph::kDesks, "desks"},
    {CableGraph::kDisconnected, "disconnected"},
    {CableGraph::kOther, "other"},
};
// What a transport is called elsewhere, and here.
constexpr std::pair<const char*, const char*> kTransportAliases[] = {
    {"mlx-rdma", kRdmaTransport},
    {"mlx-jaccl", "jaccl"},
    {"mlx-ring", "ring"},
    {"mdma", "ring"},
    {"tcp", "ring"},
};

template <class Type>
const char* NameIn(Names<Type> names, Type value) {
  for (const auto& [type, name] : names) {
    if (type == value) return name;
  }
  MACRAME_CHECK(false);
  return "";
}

template <class Type>
std::optional<Type> NamedIn(Names<Type> names, std::string_view word) {
  for (const auto& [type, name] : names) {
    if (word == name) return type;
  }
  return std::nullopt;
}

}  // namespace

const char* NameOf(Backend backend) { return NameIn<Backend>(kBackends, backend); }

Backend BackendNamed(std::string_view name) {
  return NamedIn<Backend>(kBackends, name).value_or(Backend::kNone);
}

std::vector<std::string> BackendNames() {
  return {NameOf(Backend::kRing), NameOf(Backend::kJaccl), NameOf(Backend::kVerbs)};
}

const char* NameOf(Topology topology) { return NameIn<Topology>(kTopologies, topology); }

Topology TopologyNamed(std::string_view name) {
  return NamedIn<Topology>(kTopologies, name).value_or(Topology::kNone);
}

std::string TransportNamed(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(std::string(name));
  for (const auto& [alias, transport] : kTransportAliases) {
    if (lower == alias) return transport;
  }
  return lower;
}

std::vector<std::string> TransportNames() {
  std::vector<std::string> names = {kAnyTransport, NameOf(Backend::kJaccl), NameOf(Backend::kVerbs),
                                    NameOf(Backend::kRing), kRdmaTransport};
  for (const auto& [alias, transport] : kTransportAliases) names.emplace_back(alias);
  return names;
}

bool IsAnyTransport(std::string_view transport) {
  return transport.empty() || transport == kAnyTransport;
}

bool AsksForRdma(std::string_view transport) {
  return transport == kRdmaTransport || IsRdma(BackendNamed(transport));
}

const char* NameOf(MlxBackend backend) { return NameIn<MlxBackend>(kMlxBackends, backend); }

std::optional<MlxBackend> MlxBackendNamed(std::string_view name) {
  return NamedIn<MlxBackend>(kMlxBackends, name);
}

std::vector<std::string> MlxBackendNames() {
  return {NameOf(MlxBackend::kRing), NameOf(MlxBackend::kJaccl), NameOf(MlxBackend::kJacclRing)};
}

const char* NameOf(Verdict verdict) { return NameIn<Verdict>(kVerdicts, verdict); }

Verdict VerdictNamed(std::string_view name) {
  return NamedIn<Verdict>(kVerdicts, name).value_or(Verdict::kNone);
}

const char* NameOf(CableGraph graph) { return NameIn<CableGraph>(kGraphs, graph); }

}  // namespace macrame
