#include "planner/advice.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/layer_balance.h"
#include "planner/saturating.h"
#include "proto/bytes.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kContextStepTokens = 256;
constexpr size_t kNodesListedMax = 8;

// What is changed in trying.
struct Trial {
  const v1::ModelDescription* model;
  ServingLoad load;
  const std::vector<Candidate>* candidates;
  const LinkCosts* links;
  const ShapeWishes* wishes;
};

// Does any shape that may be taken fit on the largest nodes, in their order? What is said to fit
// does; another order may fit where this one does not.
bool AnyFits(const Trial& trial) {
  GangJudge judge(*trial.model, *trial.candidates, *trial.links, trial.load, CostParameters());
  const uint32_t layers = trial.model->layer_count();
  const auto fill = [&](uint32_t stage, uint32_t begin, uint32_t end) {
    return judge.Fill(stage, {}, begin, end, end == layers);
  };
  const uint32_t slices = SliceCount(*trial.model);
  // The shapes with most ranks hold most and decide in nearly all cases.
  for (uint32_t ranks = static_cast<uint32_t>(trial.candidates->size()); ranks > 0; --ranks) {
    bool pipeline = false, tensor = false;
    for (uint32_t level = 0; level < trial.wishes->levels(); ++level) {
      pipeline = pipeline || trial.wishes->Allows({1, ranks}, level);
      tensor = tensor || (ranks > 1 && trial.wishes->Allows({ranks, 1}, level));
    }
    std::vector<size_t> group(ranks);  // the largest
    std::iota(group.begin(), group.end(), size_t{0});
    if (ranks > 1 && !trial.links->Allows({}, group)) continue;
    if (pipeline && BalanceLayers(ranks, layers, fill, 1).has_value()) return true;
    if (tensor && judge.Widths(group, slices, 0, layers, 1, true).has_value()) return true;
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

uint32_t BitsPerWeight(const v1::ModelDescription& model) {
  if (model.quantization().bits() > 0) return model.quantization().bits();
  return model.dtype() == "float32" ? 32 : 16;
}

// The model as it would be with fewer bits a weight. A group of 64 weights carries a scale and a
// bias of 16 bits each: half a bit more a weight.
v1::ModelDescription WithBits(const v1::ModelDescription& model, uint32_t bits) {
  const double now = BitsPerWeight(model) + (model.quantization().bits() > 0 ? 0.5 : 0.0);
  const double factor = (bits + 0.5) / now;
  const auto scale = [factor](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) * factor);
  };
  v1::ModelDescription smaller = model;
  smaller.set_embedding_bytes(scale(model.embedding_bytes()));
  smaller.set_head_bytes(scale(model.head_bytes()));
  for (int i = 0; i < model.layer_bytes_size(); ++i) {
    smaller.set_layer_bytes(i, scale(model.layer_bytes(i)));
    smaller.set_layer_divisible_bytes(i, scale(model.layer_divisible_bytes(i)));
  }
  smaller.mutable_quantization()->set_bits(bits);
  smaller.mutable_quantization()->set_group_size(64);
  return smaller;
}

// "an 8-bit copy of the model (74.4 GiB)" for the most bits that fit.
std::string FewerBits(const Trial& trial) {
  for (const uint32_t bits : std::array<uint32_t, 3>{8, 6, 4}) {
    if (bits >= BitsPerWeight(*trial.model)) continue;
    const v1::ModelDescription smaller = WithBits(*trial.model, bits);
    Trial with = trial;
    with.model = &smaller;
    if (!AnyFits(with)) continue;
    return absl::StrCat(bits == 8 ? "an " : "a ", bits, "-bit copy of the model (",
                        FormatBytes(Bytes(ModelBytes(smaller))), " of weights)");
  }
  return "";
}

}  // namespace

uint64_t ModelBytes(const v1::ModelDescription& model) {
  uint64_t bytes = SaturatingAdd(EmbeddingBytes(model), HeadBytes(model, true));
  for (const uint64_t layer : model.layer_bytes()) bytes = SaturatingAdd(bytes, layer);
  return bytes;
}

std::string AdviseOnMemory(GangJudge& judge, const ShapeWishes& wishes) {
  const std::vector<Candidate>& candidates = judge.candidates();
  if (candidates.empty()) return "";
  const Trial trial{&judge.model(), judge.serving(), &candidates, &judge.links(), &wishes};
  std::vector<std::string> ways;
  if (const std::string copy = FewerBits(trial); !copy.empty()) ways.push_back(copy);
  if (const auto context = ShorterContext(trial); context.has_value()) {
    ways.push_back(
        absl::StrCat("a context of ", *context, " instead of ", trial.load.context_tokens));
  }
  if (const auto sequences = FewerSequences(trial); sequences.has_value()) {
    ways.push_back(
        absl::StrCat(*sequences, " sequences at once instead of ", trial.load.sequences));
  }
  if (const auto bytes = MoreMemory(trial); bytes.has_value()) {
    ways.push_back(absl::StrCat(FormatBytes(Bytes(*bytes)), " more free memory on ",
                                NodeName(*candidates.front().node)));
  }
  if (ways.empty()) return "";
  return absl::StrCat("any one of these would make it fit: ", absl::StrJoin(ways, "; "));
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
