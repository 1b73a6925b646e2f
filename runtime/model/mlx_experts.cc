#include "runtime/model/mlx_experts.h"

#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

mx::array SiluProduct(const mx::array& gate, const mx::array& up) {
  return mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), up);
}

std::vector<const MatrixNeed*> All(const std::vector<FeedNeeds>& experts,
                                   MatrixNeed FeedNeeds::*map) {
  std::vector<const MatrixNeed*> needs;
  for (const FeedNeeds& expert : experts) needs.push_back(&(expert.*map));
  return needs;
}

// x [rows, 1 or active, 1, columns of the map] -> [rows, active, 1, rows of the map].
mx::array Gathered(const StackedMatrix& map, const mx::array& x, const mx::array& experts) {
  if (!map.scales.has_value()) {
    return mx::gather_mm(x, mx::swapaxes(map.weight, -1, -2), std::nullopt, experts);
  }
  return mx::gather_qmm(x, map.weight, *map.scales, map.biases, std::nullopt, experts,
                        /*transpose=*/true, map.group_size, map.bits);
}

}  // namespace

mx::array MlxFeed(const Matrix& gate, const Matrix& up, const Matrix& down, const mx::array& x) {
  if (gate.rows() == 0) return down.Apply(mx::zeros({x.shape(0), 0}, x.dtype()));
  return down.Apply(SiluProduct(gate.Apply(x), up.Apply(x)));
}

MlxExperts::MlxExperts(const LayerNeeds& needs, const ExpertTraits& traits, WeightLoader& loader)
    : traits_(traits),
      router_(loader.LoadMatrix(*needs.router)),
      gate_(loader.LoadStacked(All(needs.experts, &FeedNeeds::gate))),
      up_(loader.LoadStacked(All(needs.experts, &FeedNeeds::up))),
      down_(loader.LoadStacked(All(needs.experts, &FeedNeeds::down))) {
  if (!needs.shared.has_value()) return;
  shared_.emplace(Shared{loader.LoadMatrix(needs.shared->gate), loader.LoadMatrix(needs.shared->up),
                         loader.LoadMatrix(needs.shared->down),
                         loader.LoadMatrix(*needs.shared_router)});
}

mx::array MlxExperts::Apply(const mx::array& x) const {
  const int rows = x.shape(0), active = traits_.active;
  mx::array scores = mx::astype(router_.Apply(x), mx::float32);
  if (!traits_.normalized) scores = mx::softmax(scores, -1, /*precise=*/true);
  const mx::array chosen = mx::astype(
      mx::slice(mx::argpartition(mx::negative(scores), active - 1, -1), {0, 0}, {rows, active}),
      mx::uint32);
  mx::array weights = mx::take_along_axis(scores, chosen, -1);
  if (traits_.normalized) weights = mx::softmax(weights, -1, /*precise=*/true);

  mx::array out = mx::zeros_like(x);
  if (gate_.weight.shape(1) > 0) {
    const mx::array each = mx::expand_dims(x, {-2, -3});  // [rows, 1, 1, hidden]
    const mx::array inner = SiluProduct(Gathered(gate_, each, chosen), Gathered(up_, each, chosen));
    const mx::array given = mx::squeeze(Gathered(down_, inner, chosen), -2);
    const mx::array weighed = mx::multiply(given, mx::expand_dims(weights, -1));
    out = mx::astype(mx::sum(weighed, -2), x.dtype());
  }
  if (!shared_.has_value()) return out;
  const mx::array share = mx::sigmoid(shared_->router.Apply(x));
  return mx::add(out, mx::multiply(share, MlxFeed(shared_->gate, shared_->up, shared_->down, x)));
}

}  // namespace macrame::runtime::engine
