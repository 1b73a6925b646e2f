#include "planner/advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/saturating.h"
#include "planner/shape_fitter.h"
#include "proto/bytes.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kContextStepTokens = 256;
// Shapes tried for each change: advice has to come quickly, and the first ones are the likeliest.
constexpr size_t kShapesTriedMax = 12;
constexpr size_t kNodesListedMax = 8;

bool AnyFits(const v1::ModelDescription& model, const ServingLoad& load,
             const std::vector<Candidate>& candidates, const std::vector<Shape>& shapes) {
  ShapeFitter fitter(model, load, candidates);
  // The shapes with most ranks come last and hold most; they decide in nearly all cases.
  size_t tried = 0;
  for (auto shape = shapes.rbegin(); shape != shapes.rend() && tried < kShapesTriedMax;
       ++shape, ++tried) {
    if (std::holds_alternative<ShapeFitter::Assignments>(fitter.Fit(*shape))) return true;
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
std::optional<uint32_t> ShorterContext(const v1::ModelDescription& model, const ServingLoad& load,
                                       const std::vector<Candidate>& candidates,
                                       const std::vector<Shape>& shapes) {
  const uint32_t steps = (load.context_tokens - 1) / kContextStepTokens;
  const auto without = [&](uint64_t removed) {
    ServingLoad shorter = load;
    shorter.context_tokens = static_cast<uint32_t>(steps + 1 - removed) * kContextStepTokens;
    return AnyFits(model, shorter, candidates, shapes);
  };
  const auto removed = SmallestThatFits(steps, without);
  if (!removed.has_value()) return {};
  return static_cast<uint32_t>(steps + 1 - *removed) * kContextStepTokens;
}

// How much more the largest node would have to give; in whole 64ths of a GiB.
std::optional<uint64_t> MoreMemory(const v1::ModelDescription& model, const ServingLoad& load,
                                   const std::vector<Candidate>& candidates,
                                   const std::vector<Shape>& shapes) {
  constexpr uint64_t kStep = 1ULL << 24;
  constexpr uint64_t kStepsMax = (16ULL << 40) / kStep;
  const auto with = [&](uint64_t steps) {
    std::vector<Candidate> larger = candidates;
    auto largest = std::max_element(
        larger.begin(), larger.end(),
        [](const Candidate& a, const Candidate& b) { return a.budget_bytes < b.budget_bytes; });
    largest->budget_bytes = SaturatingAdd(largest->budget_bytes, steps * kStep);
    return AnyFits(model, load, larger, shapes);
  };
  const auto steps = SmallestThatFits(kStepsMax, with);
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

std::optional<uint32_t> FewerBits(const v1::ModelDescription& model, const ServingLoad& load,
                                  const std::vector<Candidate>& candidates,
                                  const std::vector<Shape>& shapes) {
  for (const uint32_t bits : std::array<uint32_t, 3>{8, 6, 4}) {
    if (bits >= BitsPerWeight(model)) continue;
    if (AnyFits(WithBits(model, bits), load, candidates, shapes)) return bits;
  }
  return {};
}

}  // namespace

std::string AdviseOnMemory(const v1::ModelDescription& model, const ServingLoad& load,
                           const std::vector<Candidate>& candidates,
                           const std::vector<Shape>& shapes) {
  if (candidates.empty() || shapes.empty()) return "";
  std::vector<std::string> ways;
  if (const auto context = ShorterContext(model, load, candidates, shapes); context.has_value()) {
    ways.push_back(absl::StrCat("a context of ", *context, " instead of ", load.context_tokens));
  }
  if (const auto bits = FewerBits(model, load, candidates, shapes); bits.has_value()) {
    ways.push_back(absl::StrCat("a ", *bits, "-bit copy of the model"));
  }
  if (const auto bytes = MoreMemory(model, load, candidates, shapes); bytes.has_value()) {
    const auto largest = std::max_element(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.budget_bytes < b.budget_bytes; });
    ways.push_back(absl::StrCat(FormatBytes(Bytes(*bytes)), " more free memory on ",
                                NodeName(*largest->node)));
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
