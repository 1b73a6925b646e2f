#include "runtime/model/mlx/compressed_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array Infinity() { return mx::array(std::numeric_limits<float>::infinity()); }
mx::array Lowest() { return mx::array(-std::numeric_limits<float>::infinity()); }

// Rows [begin, end) of x [1, heads, rows, width].
mx::array RowsOf(const mx::array& x, int begin, int end) {
  return mx::slice(x, {0, 0, begin, 0}, {1, x.shape(1), end, x.shape(3)});
}

// The first `columns` of what stands for blocks of `size` columns each.
mx::array ByColumn(const mx::array& blocks, int size, int columns) {
  return mx::slice(mx::repeat(blocks, size, -1), {0, 0}, {blocks.shape(0), columns});
}

std::optional<mx::array> Together(const std::vector<mx::array>& parts) {
  if (parts.empty()) return std::nullopt;
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

}  // namespace

int CompressedRowsAtOnce(size_t bytes_of_row) {
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr size_t kRows = 64;
  return static_cast<int>(std::clamp(kBytes / std::max<size_t>(1, bytes_of_row), size_t{2}, kRows));
}

MlxCompressedIndex::MlxCompressedIndex(const ModelConfig& config, int layer,
                                       const CompressedNeeds& needs, WeightLoader& loader)
    : traits_(config.compress),
      ratio_(traits_.ratios[static_cast<size_t>(layer)]),
      makes_candidates_(layer == traits_.candidate_layer),
      takes_candidates_(traits_.candidate_layer >= 0 && layer > traits_.candidate_layer),
      query_(loader.LoadLinear(needs.index_q)),
      weights_(loader.LoadLinear(needs.index_weights)) {}

// Candidates are no fewer than what is chosen of them: the config sees to it.
bool MlxCompressedIndex::SeesAll(int entries) const { return entries <= traits_.index_top; }

mx::array MlxCompressedIndex::Scores(const mx::array& queries, const mx::array& weights,
                                     const mx::array& keys, int begin) const {
  const mx::array products = mx::matmul(queries, mx::swapaxes(keys, -1, -2));
  const mx::array each = mx::multiply(mx::maximum(products, mx::array(0.0F)), weights);
  const mx::array scores = mx::squeeze(mx::sum(each, 1), 0);
  const int rows = queries.shape(2), entries = keys.shape(2);
  if (rows == 1) return scores;  // a part of one row is the last one, which sees all
  const mx::array seen = EntryStep::SeenBy(begin, begin + rows, ratio_);
  return mx::where(mx::less(mx::expand_dims(mx::arange(0, entries), 0), seen), scores, Lowest());
}

// By their best entry; the newest one always, since it may be partly full.
std::optional<mx::array> MlxCompressedIndex::BlocksOf(const mx::array& scores, int begin) const {
  const int rows = scores.shape(0), entries = scores.shape(1), size = traits_.candidate_block;
  const int blocks = (entries + size - 1) / size;
  if (blocks <= traits_.candidate_blocks) return std::nullopt;
  const mx::array padded = mx::pad(scores, std::vector<int>{1}, mx::Shape{0},
                                   mx::Shape{blocks * size - entries}, Lowest());
  const mx::array best = mx::max(mx::reshape(padded, {rows, blocks, size}), -1);
  const mx::array seen = EntryStep::SeenBy(begin, begin + rows, ratio_);
  const mx::array newest =
      mx::where(mx::greater(seen, mx::array(0)),
                mx::floor_divide(mx::subtract(seen, mx::array(1)), mx::array(size)), mx::array(-1));
  const mx::array by =
      mx::where(mx::equal(mx::expand_dims(mx::arange(0, blocks), 0), newest), Infinity(), best);
  const mx::array order = mx::argpartition(by, blocks - traits_.candidate_blocks, -1);
  const mx::array picked = mx::slice(order, {0, blocks - traits_.candidate_blocks}, {rows, blocks});
  // Where a row sees fewer blocks, others are picked besides.
  const mx::array is_seen = mx::greater(mx::take_along_axis(by, picked, -1), Lowest());
  return mx::put_along_axis(mx::zeros({rows, blocks}, mx::bool_), picked, is_seen, -1);
}

mx::array MlxCompressedIndex::Highest(const mx::array& scores) const {
  const int rows = scores.shape(0), entries = scores.shape(1), top = traits_.index_top;
  const mx::array order = mx::argpartition(scores, entries - top, -1);
  const mx::array picked =
      mx::astype(mx::slice(order, {0, entries - top}, {rows, entries}), mx::int32);
  if (rows == 1) return mx::sort(picked, -1);
  return EntryStep::Ascending(picked,
                              mx::greater(mx::take_along_axis(scores, picked, -1), Lowest()));
}

void MlxCompressedIndex::Choose(const mx::array& x, const mx::array& latent, const MlxRope& rope,
                                const MlxFloatRounding& rounding, EntryStep& step) const {
  const StepRows& rows = step.rows();
  const bool sees_all = std::all_of(
      rows.sequences().begin(), rows.sequences().end(),
      [&](const StepRows::Sequence& sequence) { return SeesAll(sequence.end() / ratio_); });
  for (const StepRows::Sequence& sequence : rows.sequences()) {
    step.chosen[sequence.number].reset();
    if (makes_candidates_) step.candidates[sequence.number].reset();
  }
  if (sees_all) return;
  const int heads = traits_.index_heads, dim = traits_.index_dim;
  const mx::array turned =
      rope.TailTurned(rows.Laid(query_.Apply(latent), heads, dim), rows.offsets());
  const mx::array rounded = rounding.ToFp4(turned, 32, kernels::Fp4Scale::kPowerOfTwo);
  const float scale = 1.0F / std::sqrt(static_cast<float>(heads * dim));
  const auto queries = rows.Each(mx::astype(rounded, mx::float32));
  const auto weights = rows.Each(rows.Laid(
      mx::multiply(mx::astype(weights_.Apply(x), mx::float32), mx::array(scale)), heads, 1));
  for (const StepRows::Sequence& sequence : rows.sequences()) {
    const int entries = sequence.end() / ratio_;
    if (SeesAll(entries)) continue;
    const mx::array keys = mx::astype(step.Keys(sequence), mx::float32);
    std::vector<mx::array> chosen, blocks;
    const int at_once = CompressedRowsAtOnce(3 * sizeof(float) * static_cast<size_t>(heads) *
                                             static_cast<size_t>(entries));
    for (int begin = 0; begin < sequence.count; begin += at_once) {
      const int end = std::min(sequence.count, begin + at_once);
      const size_t number = sequence.number;
      // Not all rows' scores are in memory at once.
      mx::array part = RowsOf(queries[number], begin, end);
      if (!chosen.empty()) part = mx::depends({part}, {chosen.back()})[0];
      mx::array scores =
          Scores(part, RowsOf(weights[number], begin, end), keys, sequence.begin + begin);
      if (makes_candidates_) {
        const auto own = BlocksOf(scores, sequence.begin + begin);
        if (own.has_value()) blocks.push_back(*own);
      }
      if (takes_candidates_ && step.candidates[number].has_value()) {
        const mx::array& all = *step.candidates[number];
        const mx::array own = mx::slice(all, {begin, 0}, {end, all.shape(1)});
        scores = mx::where(ByColumn(own, traits_.candidate_block, entries), scores, Lowest());
      }
      if (entries > traits_.index_top) chosen.push_back(Highest(scores));
    }
    step.chosen[sequence.number] = Together(chosen);
    if (makes_candidates_) step.candidates[sequence.number] = Together(blocks);
  }
}

}  // namespace macrame::runtime::engine
