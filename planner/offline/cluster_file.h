#pragma once

// A cluster that is described in YAML, as the planner sees it. Text in, messages out.
//
//   nodes:
//   - {name: studio-1, machine: mac-studio-m3-ultra-512gb}
//   - {name: box, chip: "", gpu_cores: 0, cpu_cores: 16, memory_gib: 64, bandwidth_gb_s: 60}
//     further keys: usable_gib (what models may take; default three quarters of memory on a Mac,
//     all of it elsewhere), free_gib (now), reserved_gib (promised), tenant, schedulable, engine
//     ("mlx"), disk_gb_s, peak_watts, idle_watts;
//     has_model (when any node says it, the others have the model's files only if none has them by
//     its own word), portable (a laptop, of which some memory is left to its user; "macbook-…"
//     machines are), rdma: false (it is off there);
//     what its engine can: uneven_tensor, tensor_in_pipeline, narrow_kv, whole_experts, no_tensor
//     (it never divides a layer), no_pipeline, backends (of ring, jaccl, verbs; default all)
//   links: mesh        # Thunderbolt cables between all; ring, chain, star (around the first), none
//   links:             # or one by one
//   - {between: [studio-1, studio-2], medium: thunderbolt, rdma: true, rdma_round_trip_us: 14,
//      rdma_gbit_s: 64}
//     also round_trip_us and gbit_s: of TCP over the same link; what is not said is typical
//     medium: thunderbolt, ethernet, wifi, vpn, loopback, none (they can't reach each other)
//     one_way: true: the first reaches the second alone, so no ranks are on both
//   lan: {medium: ethernet, round_trip_us: 300, gbit_s: 10}   # between all that no link names, of
//                      # any number of nodes; without it such pairs have a gigabit LAN
//   mesh_ranks_max: 4
//   loaded:            # models that hold memory there now
//   - {name: chat, gib: {studio-1: 60, studio-2: 60}}
//   title: four Mac Studios
//   published:         # what others state of these machines; capacity shows it beside our figures
//     {source: who, currency: £, price: 50000, users: [100, 200], peak_watts: 600,
//      idle_watts: 66, models: 1T, notes: [free text],
//      speeds: [{model: DeepSeek-V3.1-4bit, tokens_per_second: 32.5}]}
//
// RDMA is taken to work over a Thunderbolt cable when both chips have Thunderbolt 5 and `rdma` does
// not say otherwise.

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/plan.pb.h"
#include "planner/offline/machine_table.h"
#include "proto/backends.h"

namespace macrame::planner {

// What others state of a cluster's machines, all of them together; 0 and "": nothing.
struct PublishedFigures {
  struct Speed {
    std::string model;
    double tokens_per_second = 0;
  };
  std::string source, currency, models;
  double price = 0, peak_watts = 0, idle_watts = 0;
  uint32_t users_low = 0, users_high = 0;
  std::vector<Speed> speeds;
  std::vector<std::string> notes;
};

struct LoadedModel {
  std::string name;
  std::map<std::string, uint64_t> bytes;  // by node; in its reserved memory as well
};

struct DescribedCluster {
  v1::PlanRequest request;  // nodes, links and mesh_ranks_max
  std::string title;
  std::vector<LoadedModel> loaded;
  PublishedFigures published;
  std::vector<MachineConfiguration> unsold;  // of its machines, those that nobody sells so
};

// INVALID_ARGUMENT names the entry and what is wrong.
absl::StatusOr<DescribedCluster> ReadClusterFile(const std::string& yaml);

// Machines as bought: those with Thunderbolt 5 are cabled to each other, in a mesh up to four and
// beyond that as one ring or as desks (meshes of up to four). The others meet them on a gigabit
// LAN: nobody said that they have a cable.
enum class BeyondFour { kRing, kDesks };
v1::PlanRequest ClusterOf(const std::vector<MachineConfiguration>& machines,
                          BeyondFour beyond = BeyondFour::kRing);

// Adds a cable between each two nodes that the graph joins, RDMA where both chips can; among all of
// them, or among `nodes` (indices, in order). `graph`: a mesh, a ring, a chain, a star or none.
void AddCables(CableGraph graph, v1::PlanRequest* request);
void AddCables(CableGraph graph, const std::vector<int>& nodes, v1::PlanRequest* request);

// It has Thunderbolt 5, and nothing is said that keeps RDMA off.
bool CanHaveRdma(const v1::PlannerNode& node);
// Thunderbolt generation of the node's chip is 5.
bool HasThunderbolt5(const v1::PlannerNode& node);

}  // namespace macrame::planner
