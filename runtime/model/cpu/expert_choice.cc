#include "runtime/model/cpu/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

float Sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-double{x}))); }

float RootSoftplus(float x) {
  return static_cast<float>(
      std::sqrt(std::max(double{x}, 0.0) + std::log1p(std::exp(-std::fabs(double{x})))));
}

// A score that is each expert's own.
float OwnScore(float x, RouterScores scores) {
  return scores == RouterScores::kSigmoid ? Sigmoid(x) : RootSoftplus(x);
}

float Comparable(float value) {
  return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
}

// The experts with the highest values, the best first: few are chosen of many.
void TakeHighest(std::span<const float> values, std::span<ExpertChoice> out) {
  const auto value = [&](int expert) { return Comparable(values[static_cast<size_t>(expert)]); };
  size_t held = 0;
  for (int expert = 0; expert < static_cast<int>(values.size()); ++expert) {
    if (held == out.size() && value(expert) <= value(out[held - 1].expert)) continue;
    size_t at = held < out.size() ? held++ : held - 1;
    for (; at > 0 && value(out[at - 1].expert) < value(expert); --at) out[at] = out[at - 1];
    out[at].expert = expert;
  }
}

// The highest values of a group, added.
float GroupValue(std::span<const float> group, size_t best) {
  std::vector<ExpertChoice> highest(std::min(group.size(), best));
  TakeHighest(group, highest);
  float sum = 0.0F;
  for (const ExpertChoice& choice : highest) {
    sum += Comparable(group[static_cast<size_t>(choice.expert)]);
  }
  return sum;
}

// Only those of the best groups keep their values.
void DropGroups(const ExpertTraits& traits, std::span<float> values) {
  const size_t groups = static_cast<size_t>(traits.groups), size = values.size() / groups;
  std::vector<float> of_group(groups);
  for (size_t i = 0; i < groups; ++i) {
    of_group[i] =
        GroupValue(values.subspan(i * size, size), static_cast<size_t>(traits.group_best));
  }
  std::vector<size_t> order(groups);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return of_group[a] > of_group[b]; });
  for (size_t i = static_cast<size_t>(traits.groups_active); i < groups; ++i) {
    std::fill_n(values.begin() + static_cast<ptrdiff_t>(order[i] * size), size, 0.0F);
  }
}

// Softmax, but for a factor, of the best groups' scores; zero for the others.
std::vector<float> InBestGroups(std::span<const float> scores, const ExpertTraits& traits) {
  float most = -std::numeric_limits<float>::infinity();
  for (const float score : scores) most = std::max(most, Comparable(score));
  std::vector<float> values(scores.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::exp(scores[i] - most);
  DropGroups(traits, values);
  return values;
}

void WeighSoftmax(std::span<const float> scores, const ExpertTraits& traits,
                  std::span<ExpertChoice> out) {
  const auto score = [&](int expert) { return Comparable(scores[static_cast<size_t>(expert)]); };
  const double most = score(out[0].expert);
  if (!std::isfinite(most)) {  // nothing can be told apart
    for (ExpertChoice& choice : out) choice.weight = 1.0F / static_cast<float>(out.size());
    return;
  }
  double sum = 0;
  for (ExpertChoice& choice : out) {
    choice.weight = static_cast<float>(std::exp(score(choice.expert) - most));
    sum += choice.weight;
  }
  if (!traits.normalized) {
    sum = 0;
    for (int expert = 0; expert < traits.count; ++expert) sum += std::exp(score(expert) - most);
  }
  for (ExpertChoice& choice : out) choice.weight = static_cast<float>(choice.weight / sum);
}

void WeighOwn(std::span<const float> scores, const ExpertTraits& traits,
              std::span<ExpertChoice> out) {
  double sum = 0;
  for (ExpertChoice& choice : out) {
    choice.weight = OwnScore(Comparable(scores[static_cast<size_t>(choice.expert)]), traits.scores);
    sum += choice.weight;
  }
  if (!traits.normalized) return;
  for (ExpertChoice& choice : out)
    choice.weight = static_cast<float>(choice.weight / (sum + 1e-20));
}

}  // namespace

void ChooseExperts(std::span<const float> scores, std::span<const float> bias,
                   const ExpertTraits& traits, std::span<ExpertChoice> out) {
  MACRAME_CHECK(scores.size() == static_cast<size_t>(traits.count) &&
                out.size() == static_cast<size_t>(traits.active));
  if (traits.scores == RouterScores::kSoftmax) {
    if (traits.groups > 1) {
      TakeHighest(InBestGroups(scores, traits), out);
    } else {
      TakeHighest(scores, out);
    }
    WeighSoftmax(scores, traits, out);
  } else {
    std::vector<float> values(scores.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = OwnScore(scores[i], traits.scores) + (bias.empty() ? 0.0F : bias[i]);
    }
    if (traits.groups > 1) DropGroups(traits, values);
    TakeHighest(values, out);
    WeighOwn(scores, traits, out);
  }
  if (traits.weight_scale != 1.0) {
    for (ExpertChoice& choice : out) {
      choice.weight = static_cast<float>(choice.weight * traits.weight_scale);
    }
  }
  std::sort(out.begin(), out.end(),
            [](const ExpertChoice& a, const ExpertChoice& b) { return a.expert < b.expert; });
}

}  // namespace macrame::runtime::engine
