#include "planner/advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/cable_advice.h"
#include "planner/chip_table.h"
#include "planner/layer_balance.h"
#include "planner/saturating.h"
#include "proto/backends.h"
#include "proto/bytes.h"
#include "proto/serving_limits.h"

namespace macrame::planner {
namespace {

// That a Mac keeps for itself when its GPU's limit is raised.
constexpr uint64_t kSystemBytes = 8ULL << 30;
constexpr uint32_t kTypicalGroupSize = 64;  // of weights that are quantised for MLX
constexpr uint32_t kContextStepTokens = 256;
constexpr size_t kNodesListedMax = 8;
constexpr size_t kGroupsTriedMax = 4;  // sets of nodes that reach each other, largest nodes first

// Joining two nodes is tried for each pair of so many of the largest; so many may then go together.
constexpr size_t kJoinedNodesMax = 6;

// What is changed in trying.
struct Trial {
  const v1::ModelDescription* model;
  ServingLoad load;
  const std::vector<Candidate>* candidates;
  const LinkCosts* links;
  const ShapeOptions* placement;
  std::string transport;  // as requested
};

// What joins nodes: TCP, unless the options say RDMA.
Fabric FabricOf(const Trial& trial) {
  if (TransportAllows(trial.transport, {})) return {};
  const bool is_verbs = BackendNamed(trial.transport) == Backend::kVerbs;
  return {is_verbs ? Backend::kVerbs : Backend::kJaccl, Topology::kMesh};
}

bool Joined(const LinkCosts& links, const Fabric& fabric, size_t a, size_t b) {
  return links.Allows(fabric, std::vector<size_t>{a, b});
}

// The first nodes, and those after them that go together with all of them.
std::vector<size_t> GroupAround(std::vector<size_t> group, const Trial& trial,
                                const LinkCosts& links) {
  const Fabric fabric = FabricOf(trial);
  const size_t most = fabric.is_rdma() ? links.mesh_ranks_max() : kJoinedNodesMax;
  const size_t count = std::min(trial.candidates->size(), kJoinedNodesMax);
  for (size_t next = 0; next < count && group.size() < most; ++next) {
    const bool joins = std::all_of(group.begin(), group.end(), [&](size_t member) {
      return member != next && Joined(links, fabric, member, next);
    });
    if (joins) group.push_back(next);
  }
  std::sort(group.begin(), group.end());
  return group;
}

std::vector<std::vector<size_t>> GroupsOf(const Trial& trial) {
  if (!FabricOf(trial).is_rdma()) {
    const auto& groups = trial.links->TcpGroups();
    return {groups.begin(),
            groups.begin() + static_cast<ptrdiff_t>(std::min(groups.size(), kGroupsTriedMax))};
  }
  std::vector<std::vector<size_t>> groups;
  for (size_t first = 0; first < std::min(trial.candidates->size(), kJoinedNodesMax); ++first) {
    groups.push_back(GroupAround({first}, trial, *trial.links));
  }
  return groups;
}

bool AnyLevelAllows(const ShapeOptions& placement, const Shape& shape) {
  for (uint32_t level = 0; level < placement.levels(); ++level) {
    if (placement.Allows(shape, level)) return true;
  }
  return false;
}

// Does any shape that may be taken fit on the first of these nodes, which all reach each other, in
// their order? What is said to fit does; another order may fit where this one does not.
bool FitsIn(const Trial& trial, GangJudge& judge, std::vector<size_t> group) {
  // The first is the entry.
  const auto entry = std::find_if(group.begin(), group.end(),
                                  [&](size_t node) { return judge.candidates()[node].may_enter; });
  if (entry != group.end()) std::rotate(group.begin(), entry, entry + 1);
  const uint32_t layers = trial.model->layer_count();
  const auto fill = [&](uint32_t stage, uint32_t begin, uint32_t end) {
    return judge.Fill(group[stage], {}, begin, end, end == layers, stage == 0);
  };
  const uint32_t most =
      std::min(static_cast<uint32_t>(group.size()), std::max(layers, kSliceCountMax));
  // The shapes with most ranks hold most and decide in nearly all cases.
  for (uint32_t ranks = most; ranks > 0; --ranks) {
    const std::vector<size_t> largest(group.begin(), group.begin() + ranks);
    if (AnyLevelAllows(*trial.placement, {1, ranks}) && ServesShape(*trial.model, {1, ranks}) &&
        MayShare(judge.candidates(), largest, {1, ranks}) &&
        BalanceLayers(ranks, layers, fill, 1).has_value()) {
      return true;
    }
    const uint32_t slices = SlicesOver(*trial.model, judge.candidates(), largest);
    if (ranks == 1 || slices == 0 || !AnyLevelAllows(*trial.placement, {ranks, 1}) ||
        !MayShare(judge.candidates(), largest, {ranks, 1}) ||
        !ServesShape(*trial.model, {ranks, 1})) {
      continue;
    }
    if (judge.Widths(largest, slices, 0, layers, 1, true).has_value()) return true;
    const bool deals = std::all_of(largest.begin(), largest.end(), [&](size_t node) {
      return DealsOutExperts(*trial.model, judge.candidates()[node]);
    });
    if (deals && judge.Widths(largest, slices, 0, layers, 1, true, true).has_value()) return true;
  }
  return false;
}

bool AnyFits(const Trial& trial) {
  GangJudge judge(*trial.model, *trial.candidates, *trial.links, trial.load, CostParameters());
  for (const std::vector<size_t>& group : GroupsOf(trial)) {
    if (FitsIn(trial, judge, group)) return true;
  }
  return false;
}

// The smallest step count in [1, most] for which `fits`, which holds from some count on.
template <typename Fits>
std::optional<uint64_t> SmallestThatFits(uint64_t most, const Fits& fits) {
  if (most == 0 || !fits(most)) return {};
  uint64_t low = 1;
  while (low < most) {
    const uint64_t middle = low + (most - low) / 2;
    if (fits(middle)) {
      most = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The longest shorter context that fits, in whole steps.
std::optional<uint32_t> ShorterContext(const Trial& trial) {
  const uint32_t steps = (trial.load.context_tokens - 1) / kContextStepTokens;
  const auto tokens = [&](uint64_t removed) {
    return static_cast<uint32_t>(steps + 1 - removed) * kContextStepTokens;
  };
  const auto removed = SmallestThatFits(steps, [&](uint64_t count) {
    Trial shorter = trial;
    shorter.load.context_tokens = tokens(count);
    return AnyFits(shorter);
  });
  if (!removed.has_value()) return {};
  return tokens(*removed);
}

std::optional<uint32_t> FewerSequences(const Trial& trial) {
  const auto removed = SmallestThatFits(trial.load.sequences - 1, [&](uint64_t count) {
    Trial fewer = trial;
    fewer.load.sequences = trial.load.sequences - static_cast<uint32_t>(count);
    return AnyFits(fewer);
  });
  if (!removed.has_value()) return {};
  return trial.load.sequences - static_cast<uint32_t>(*removed);
}

// How much more the largest node would have to give; in whole 64ths of a GiB.
std::optional<uint64_t> MoreMemory(const Trial& trial) {
  constexpr uint64_t kStep = 1ULL << 24;
  constexpr uint64_t kStepsMax = (16ULL << 40) / kStep;
  const auto steps = SmallestThatFits(kStepsMax, [&](uint64_t count) {
    std::vector<Candidate> larger = *trial.candidates;
    larger.front().budget_bytes = SaturatingAdd(larger.front().budget_bytes, count * kStep);
    Trial with = trial;
    with.candidates = &larger;
    return AnyFits(with);
  });
  if (!steps.has_value()) return {};
  return *steps * kStep;
}

// Another maker's; nullptr: a Mac's, or one that no table has.
const Gpu* OtherGpu(const v1::PlannerNode& node) {
  return FindChip(node.chip()) == nullptr ? FindGpu(node.chip()) : nullptr;
}

uint64_t MemoryThatGives(uint64_t usable, const Candidate& candidate) {
  if (candidate.kind != ComputeKind::kGpu) return usable;
  const Gpu* gpu = OtherGpu(*candidate.node);
  if (gpu == nullptr) return MemoryForGpu(usable);
  if (!gpu->is_discrete) return usable;
  const uint64_t reserve = usable / (kGpuReserveDivisor - 1) + 1;  // of all an eighth
  return SaturatingAdd(usable, std::min(kGpuReserveBytesMax, reserve));
}

std::string LargerMachineText(const Candidate& candidate, uint64_t bytes) {
  const uint64_t usable = SaturatingAdd(candidate.budget_bytes, bytes);
  const uint64_t gib = (MemoryThatGives(usable, candidate) >> 30) + 1;
  return absl::StrCat("a machine of at least ", gib, " GiB in place of ",
                      NodeName(*candidate.node));
}

// In the words that fit the machine: what others could free, what it has and may not take yet, or
// what no such machine has.
std::string MoreMemoryText(const Candidate& candidate, uint64_t bytes) {
  const v1::PlannerNode& node = *candidate.node;
  const std::string name = NodeName(node);
  const uint64_t usable = node.memory_usable_bytes(), total = node.memory_total_bytes();
  const uint64_t unpromised = SaturatingSubtract(
      usable, SaturatingAdd(node.memory_reserved_bytes(), GpuReserveBytes(node)));
  if (SaturatingAdd(candidate.budget_bytes, bytes) <= unpromised || total == 0) {
    return absl::StrCat(FormatBytes(Bytes(bytes)), " more free memory on ", name);
  }
  const uint64_t available = node.memory_available_bytes();  // 0: not known
  const bool of_mac = candidate.kind == ComputeKind::kGpu && OtherGpu(node) == nullptr;
  const bool is_limit = usable < total && (available == 0 || available >= unpromised) &&
                        (of_mac || node.memory_limit_is_configured());
  const uint64_t wanted = SaturatingAdd(usable, bytes);
  if (!is_limit || wanted > total - std::min(total, kSystemBytes)) {
    return LargerMachineText(candidate, bytes);
  }
  const uint64_t mib = (wanted + (1 << 20) - 1) >> 20;
  const bool configured = node.memory_limit_is_configured();
  const bool of_gpu = of_mac && (!configured || MemoryThatGives(wanted, candidate) > total);
  std::vector<std::string> how;
  if (configured)
    how.push_back(absl::StrCat("models_memory_max_mib: ", mib, " in its agentd.yaml"));
  if (of_gpu) {
    how.push_back(absl::StrCat("'sudo sysctl iogpu.wired_limit_mb=", mib,
                               "' there, lost when it restarts; docs/macs.md keeps it"));
  }
  return absl::StrCat("letting models take ", FormatBytes(Bytes(wanted)), " of the ",
                      FormatBytes(Bytes(total)), " of ", name, " (", absl::StrJoin(how, "; "), ")");
}

// The first two nodes that nothing joins, and that would hold the model if something did.
std::optional<std::pair<size_t, size_t>> MissingPath(const Trial& trial) {
  const Fabric fabric = FabricOf(trial);
  const size_t count = std::min(trial.candidates->size(), kJoinedNodesMax);
  const auto can = [&](size_t node) {
    const Candidate& candidate = (*trial.candidates)[node];
    if (!fabric.is_rdma()) return HasBackend(candidate.traits, NameOf(fabric.backend));
    return fabric.backend == Backend::kJaccl && CouldTakeCable(candidate, node, *trial.links);
  };
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      if (!can(a) || !can(b) || Joined(*trial.links, fabric, a, b)) continue;
      const LinkCosts links = trial.links->Joined(fabric, a, b);
      GangJudge judge(*trial.model, *trial.candidates, links, trial.load, CostParameters());
      if (FitsIn(trial, judge, GroupAround({a, b}, trial, links))) return std::pair(a, b);
    }
  }
  return {};
}

// Of the weights of a copy, in groups like the model's own.
uint32_t GroupOfCopy(const v1::ModelDescription& model) {
  const bool known = model.quantization().bits() > 0 && model.quantization().group_size() > 0;
  return known ? model.quantization().group_size() : kTypicalGroupSize;
}

// The model as it would be with fewer bits a weight.
v1::ModelDescription WithBits(const v1::ModelDescription& model, uint32_t bits) {
  const uint32_t group = GroupOfCopy(model);
  const double factor = BytesPerWeight(bits, group) / BytesPerWeightOf(model);
  const auto scale = [factor](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) * factor);
  };
  v1::ModelDescription smaller = model;
  smaller.set_embedding_bytes(scale(model.embedding_bytes()));
  smaller.set_head_bytes(scale(model.head_bytes()));
  for (auto* sizes : {smaller.mutable_layer_bytes(), smaller.mutable_layer_divisible_bytes(),
                      smaller.mutable_layer_expert_bytes()}) {
    for (uint64_t& size : *sizes) size = scale(size);
  }
  smaller.mutable_quantization()->set_bits(bits);
  smaller.mutable_quantization()->set_group_size(group);
  return smaller;
}

// "an 8-bit copy of the model (74.4 GiB)" for the most bits that fit.
std::string FewerBits(const Trial& trial) {
  for (const uint32_t bits : std::array<uint32_t, 3>{8, 6, 4}) {
    const double bytes = BytesPerWeight(bits, GroupOfCopy(*trial.model));
    if (bytes >= BytesPerWeightOf(*trial.model)) continue;
    const v1::ModelDescription smaller = WithBits(*trial.model, bits);
    Trial with = trial;
    with.model = &smaller;
    if (!AnyFits(with)) continue;
    return absl::StrCat(bits == 8 ? "an " : "a ", bits, "-bit copy of the model (",
                        FormatBytes(Bytes(ModelBytes(smaller))), " of weights)");
  }
  return "";
}

bool NarrowKvFits(const Trial& trial) {
  const bool all_can = std::all_of(trial.candidates->begin(), trial.candidates->end(),
                                   [](const Candidate& each) { return each.traits.narrow_kv(); });
  if (!all_can || trial.load.kv_bits != 0 || !trial.model->engine().empty()) return false;
  Trial narrow = trial;
  narrow.load.kv_bits = kKvBitsNarrow;
  return AnyFits(narrow);
}

}  // namespace

uint64_t ModelBytes(const v1::ModelDescription& model) {
  uint64_t bytes = SaturatingAdd(EmbeddingBytes(model), HeadBytes(model, true));
  for (const uint64_t layer : model.layer_bytes()) bytes = SaturatingAdd(bytes, layer);
  return bytes;
}

std::string AdviseOnMemory(GangJudge& judge, const ShapeOptions& placement,
                           const std::string& transport) {
  const std::vector<Candidate>& candidates = judge.candidates();
  if (candidates.empty()) return "";
  const Trial trial{&judge.model(), judge.serving(), &candidates,
                    &judge.links(), &placement,      transport};
  std::vector<std::string> ways;
  if (const std::string copy = FewerBits(trial); !copy.empty()) ways.push_back(copy);
  if (const auto context = ShorterContext(trial); context.has_value()) {
    ways.push_back(
        absl::StrCat("a context of ", *context, " instead of ", trial.load.context_tokens));
  }
  if (NarrowKvFits(trial)) ways.push_back("a KV cache of 8 bits (--kv-bits 8)");
  if (const auto sequences = FewerSequences(trial); sequences.has_value()) {
    ways.push_back(
        absl::StrCat(*sequences, " sequences at once instead of ", trial.load.sequences));
  }
  if (const auto bytes = MoreMemory(trial); bytes.has_value()) {
    ways.push_back(MoreMemoryText(candidates.front(), *bytes));
  }
  if (const std::string path = AdviseOnPaths(judge, placement, transport); !path.empty())
    ways.push_back(path);
  if (ways.empty()) return "";
  return absl::StrCat("any one of these would make it fit: ", absl::StrJoin(ways, "; "));
}

std::string AdviseOnPaths(GangJudge& judge, const ShapeOptions& placement,
                          const std::string& transport) {
  const std::vector<Candidate>& candidates = judge.candidates();
  const Trial trial{&judge.model(), judge.serving(), &candidates,
                    &judge.links(), &placement,      transport};
  const auto pair = MissingPath(trial);
  if (!pair.has_value()) return "";
  return absl::StrCat(
      FabricOf(trial).is_rdma() ? "a Thunderbolt 5 cable" : "a cable or network path", " between ",
      NodeName(*candidates[pair->first].node), " and ", NodeName(*candidates[pair->second].node));
}

std::string BudgetList(const std::vector<Candidate>& candidates) {
  std::vector<std::string> parts;
  for (const Candidate& candidate : candidates) {
    if (parts.size() == kNodesListedMax) {
      parts.push_back(absl::StrCat("and ", candidates.size() - kNodesListedMax, " more"));
      break;
    }
    parts.push_back(
        absl::StrCat(NodeName(*candidate.node), " ", FormatBytes(Bytes(candidate.budget_bytes))));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace macrame::planner
