#include "runtime/model/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "proto/check.h"

namespace macrame::runtime::engine {

void ChooseExperts(std::span<const float> scores, const ExpertTraits& traits,
                   std::span<ExpertChoice> out) {
  MACRAME_CHECK(scores.size() == static_cast<size_t>(traits.count) &&
                out.size() == static_cast<size_t>(traits.active));
  const auto score = [&](int expert) {
    const float value = scores[static_cast<size_t>(expert)];
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  };
  // Kept sorted, the best first: few are chosen of many.
  size_t held = 0;
  for (int expert = 0; expert < traits.count; ++expert) {
    if (held == out.size() && score(expert) <= score(out[held - 1].expert)) continue;
    size_t at = held < out.size() ? held++ : held - 1;
    for (; at > 0 && score(out[at - 1].expert) < score(expert); --at) out[at] = out[at - 1];
    out[at].expert = expert;
  }
  const double most = score(out[0].expert);
  if (!std::isfinite(most)) {  // nothing can be told apart
    for (ExpertChoice& choice : out) choice.weight = 1.0F / static_cast<float>(out.size());
  } else {
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
  std::sort(out.begin(), out.end(),
            [](const ExpertChoice& a, const ExpertChoice& b) { return a.expert < b.expert; });
}

}  // namespace macrame::runtime::engine
