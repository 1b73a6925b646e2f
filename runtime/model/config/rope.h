#pragma once

// Rotary position forms: by which angle a position turns each pair of a head's dimensions. Pure.
// Both engines, on a CPU and on a GPU, take what they need from a RopeTable.
//
// Forms and their names are those of Hugging Face's "rope_scaling"; where it and mlx-lm differ, the
// comment says which is followed.

#include <optional>
#include <string>
#include <vector>

namespace macrame::runtime::engine {

enum class RopeScalingKind { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongrope, kProportional };

struct RopeTraits {
  double theta = 10000.0;
  // How many of a head's dimensions are turned, from its first on; even. The others stay.
  int dims = 0;
  // Whether dimension 2i turns together with 2i + 1, or i with i + dims / 2.
  bool interleaved = false;
  RopeScalingKind scaling = RopeScalingKind::kNone;
  double factor = 1.0;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // The context that the model was first trained with: llama3, yarn, longrope.
  int original_context = 8192;
  // "max_position_embeddings": dynamic, longrope.
  int context_length_max = 0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;  // the stretched range begins and ends at whole dimensions
  // yarn, longrope: what turned dimensions are multiplied by; unset: it follows from the factor.
  std::optional<double> attention_factor;
  // proportional: of `dims`, which are all of a head's, so many turn: pairs i and i + dims / 2 for
  // i below turned / 2, as fast as if all did.
  int turned = 0;
  // longrope: of each pair.
  std::vector<double> short_factors, long_factors;

  // Whether the context that is served decides the angles, and so what keys are cached.
  bool FollowsContext() const {
    return scaling == RopeScalingKind::kDynamic || scaling == RopeScalingKind::kLongrope;
  }
};

struct RopeTable {
  // Pair i of position p turns by p * position_scale * frequencies[i].
  std::vector<float> frequencies;
  // 1 / frequencies as MLX wants them; empty for the plain form, which MLX counts from theta.
  std::vector<float> divisors;
  float position_scale = 1.0F;
  float magnitude = 1.0F;  // of what is turned
};

// `context_length`: of the sequences that are served. It decides, once for all positions, whether
// longrope takes its short factors (up to the original context) or its long ones, and how far
// dynamic stretches; so a position's keys never depend on how long its sequence has become. mlx-lm
// always takes longrope's long factors.
RopeTable MakeRopeTable(const RopeTraits& rope, int context_length);

// What KV blocks on disk are named after besides: empty where the context decides nothing.
// `local`: of layers that look at a window, where theirs is another.
std::string RopeLayoutOf(const RopeTraits& rope, const std::optional<RopeTraits>& local,
                         int context_length);

// 0.1 * mscale * ln(factor) + 1, or 1 for factors up to 1. DeepSeek's attention is scaled by the
// square of it.
double YarnMagnitude(double factor, double mscale);

}  // namespace macrame::runtime::engine
