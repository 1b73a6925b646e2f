#include "runtime/model/cpu/recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/recurrence.h"
#include "runtime/model/cpu/feed.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// Added to the sum of a query's or key's squares before its root divides it.
constexpr float kKeyEps = 1e-6F;

std::vector<float> Numbers(WeightLoader& loader, const VectorNeed& need) {
  mx::array plain = mx::contiguous(mx::astype(*loader.LoadVector(need), mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

// Those of this rank's value heads, which have `each` numbers.
std::vector<float> OfHeads(const std::vector<float>& all, const RecurrentCut& cut,
                           size_t each = 1) {
  const size_t group = cut.key_heads == 0 ? 0 : cut.value_heads / cut.key_heads;
  const size_t begin = static_cast<size_t>(cut.heads.begin) * group * each;
  const auto first = all.begin() + static_cast<ptrdiff_t>(begin);
  return {first, first + static_cast<ptrdiff_t>(cut.value_heads * each)};
}

float Sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-double{x}))); }

float Softplus(float x) {
  return static_cast<float>(std::max(double{x}, 0.0) + std::log1p(std::exp(-std::fabs(double{x}))));
}

}  // namespace

CpuStates::CpuStates(size_t layers, size_t layer_floats, int sequences_max, int snapshots)
    : layer_floats_(layer_floats),
      floats_(layers * layer_floats),
      states_(static_cast<size_t>(sequences_max)),
      snapshots_(static_cast<size_t>(snapshots)) {}

void CpuStates::Open(std::span<const SlotStates::Opened> opened) {
  for (const SlotStates::Opened& one : opened) {
    if (floats_ == 0) return;
    float* to = states_[static_cast<size_t>(one.state)].Reserve(floats_);
    if (one.from == kNoSnapshot) {
      std::fill_n(to, floats_, 0.0F);
    } else {
      std::copy_n(snapshots_[static_cast<size_t>(one.from)].data(), floats_, to);
    }
  }
}

void CpuStates::Keep(std::span<const SlotStates::Kept> kept) {
  for (const SlotStates::Kept& one : kept) {
    if (floats_ == 0) return;
    float* to = snapshots_[static_cast<size_t>(one.to)].Reserve(floats_);
    std::copy_n(states_[static_cast<size_t>(one.state)].data(), floats_, to);
  }
}

uint64_t CpuStates::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto* buffers : {&states_, &snapshots_}) {
    for (const FloatBuffer& buffer : *buffers) bytes += buffer.bytes();
  }
  return bytes;
}

CpuRecurrent::CpuRecurrent(const ModelConfig& config, const ShardPlace& place,
                           const RecurrentNeeds& needs, WeightLoader& loader, size_t layer)
    : cut_(RecurrentCutOf(config, place.slices())),
      traits_(config.recurrent),
      layer_(layer),
      norm_eps_(config.rms_norm_eps) {
  for (const LinearNeed& need : needs.in) maps_.emplace_back(loader.LoadLinear(need));
  pieces_ = PiecesOf(ProjectedOrder(config, cut_), maps_);
  const std::vector<float> stored = Numbers(loader, needs.taps);  // [channels of all][taps]
  const std::vector<int> channels = ChannelsOf(config, cut_);
  taps_.resize(cut_.taps * channels.size());
  for (size_t tap = 0; tap < cut_.taps; ++tap) {
    for (size_t i = 0; i < channels.size(); ++i) {
      taps_[tap * channels.size() + i] = stored[static_cast<size_t>(channels[i]) * cut_.taps + tap];
    }
  }
  if (!needs.taps_bias.name.empty()) {
    const std::vector<float> all = Numbers(loader, needs.taps_bias);
    for (const int channel : channels) taps_bias_.push_back(all[static_cast<size_t>(channel)]);
  }
  rates_ = OfHeads(Numbers(loader, needs.decay), cut_);
  for (float& rate : rates_) rate = static_cast<float>(std::exp(double{rate}));
  step_bias_ = OfHeads(Numbers(loader, needs.step_bias), cut_);
  if (traits_.rule == RecurrenceRule::kStateSpace) {
    skip_ = OfHeads(Numbers(loader, needs.skip), cut_);
    norm_ = OfHeads(Numbers(loader, needs.norm), cut_, cut_.value_dim);
  } else {
    norm_ = Numbers(loader, needs.norm);
  }
  const float root = 1.0F / std::sqrt(static_cast<float>(cut_.key_dim));
  key_scale_.assign(cut_.key_dim, root);
  query_scale_.assign(cut_.key_dim, root * root);
}

std::vector<CpuRecurrent::Piece> CpuRecurrent::PiecesOf(const std::vector<int>& order,
                                                        const std::vector<CpuLinear>& maps) {
  std::vector<Piece> pieces;
  for (size_t to = 0; to < order.size(); ++to) {
    size_t map = 0, from = static_cast<size_t>(order[to]);
    for (; from >= maps[map].rows(); ++map) from -= maps[map].rows();
    if (!pieces.empty()) {
      Piece& last = pieces.back();
      if (last.map == map && last.from + last.count == from) {
        ++last.count;
        continue;
      }
    }
    pieces.push_back({map, from, to, 1});
  }
  return pieces;
}

void CpuRecurrent::Project(const float* x, const Step& step) const {
  RecurrentWork& work = step.work;
  const size_t width = cut_.projected();
  float* given = work.given.Reserve(step.rows * width);
  float* projected = work.projected.Reserve(step.rows * width);
  work.products.SetInput(x, step.rows, maps_[0].columns());
  std::vector<const float*> parts;
  for (const CpuLinear& map : maps_) {
    work.products.Apply(map, given);
    parts.push_back(given);
    given += step.rows * map.rows();
  }
  ForRows(work.pool, step.rows, width, [&](size_t row) {
    for (const Piece& piece : pieces_) {
      std::copy_n(parts[piece.map] + row * maps_[piece.map].rows() + piece.from, piece.count,
                  projected + row * width + piece.to);
    }
  });
}

// Channels of a row through the convolution.
void CpuRecurrent::Convolve(const Step& step, size_t row) const {
  const RecurrentSegment& segment = step.segments[step.work.segment_of_row[row]];
  const size_t channels = cut_.channels(), width = cut_.projected();
  const float* kept = step.states.Layer(segment.state, layer_);
  const float* projected = step.work.projected.data();
  std::array<const float*, RecurrentTraits::kTapsMax> inputs;
  for (size_t tap = 0; tap < cut_.taps; ++tap) {
    // Counted from the first of the inputs that the state has kept.
    const size_t at = row - segment.row + tap;
    inputs[tap] = at + 1 < cut_.taps ? kept + at * channels
                                     : projected + (segment.row + at + 1 - cut_.taps) * width;
  }
  float* out = step.work.convolved.data() + row * channels;
  kernels::ConvolveSilu(inputs.data(), taps_.data(),
                        taps_bias_.empty() ? nullptr : taps_bias_.data(), cut_.taps, channels, out);
  if (traits_.rule == RecurrenceRule::kGatedDelta) MeasureKeys(out);
}

// Queries and keys, which come first, to their length.
void CpuRecurrent::MeasureKeys(float* out) const {
  const float eps = kKeyEps / static_cast<float>(cut_.key_dim);
  for (size_t head = 0; head < 2 * cut_.key_heads; ++head, out += cut_.key_dim) {
    const std::vector<float>& scale = head < cut_.key_heads ? query_scale_ : key_scale_;
    kernels::RmsNorm(out, scale.data(), eps, cut_.key_dim, out);
  }
}

// The last inputs of a segment, for its next tokens.
void CpuRecurrent::KeepInputs(const Step& step, const RecurrentSegment& segment) const {
  const size_t channels = cut_.channels(), keeps = cut_.taps - 1;
  float* kept = step.states.Layer(segment.state, layer_);
  const size_t fresh = std::min(segment.count, keeps);
  std::copy(kept + fresh * channels, kept + keeps * channels, kept);
  for (size_t i = 0; i < fresh; ++i) {
    const size_t row = segment.row + segment.count - fresh + i;
    std::copy_n(step.work.projected.data() + row * cut_.projected(), channels,
                kept + (keeps - fresh + i) * channels);
  }
}

void CpuRecurrent::Gate(const Step& step, size_t row) const {
  const size_t heads = cut_.value_heads;
  const float* b =
      step.work.projected.data() + row * cut_.projected() + cut_.channels() + cut_.value_width();
  const bool is_space = traits_.rule == RecurrenceRule::kStateSpace;
  const float* a = is_space ? b : b + heads;  // of a state space there is no b
  float* fades = step.work.gates.data() + row * 2 * heads;
  float* shares = fades + heads;
  for (size_t head = 0; head < heads; ++head) {
    float step_size = Softplus(a[head] + step_bias_[head]);
    if (is_space) step_size = std::clamp(step_size, traits_.step_min, traits_.step_max);
    fades[head] = static_cast<float>(std::exp(-double{rates_[head] * step_size}));
    shares[head] = is_space ? step_size : Sigmoid(b[head]);
  }
}

void CpuRecurrent::RunHead(const Step& step, const RecurrentSegment& segment, size_t head,
                           float* out) const {
  const size_t channels = cut_.channels(), heads = cut_.value_heads;
  const size_t key_head = head / (heads / cut_.key_heads);
  const float* convolved = step.work.convolved.data() + segment.row * channels;
  const float* fades = step.work.gates.data() + segment.row * 2 * heads + head;
  kernels::HeadRun run;
  run.tokens = segment.count;
  run.key_dim = cut_.key_dim;
  run.value_dim = cut_.value_dim;
  run.queries = convolved + key_head * cut_.key_dim;
  run.keys = run.queries + cut_.key_width();
  run.values = convolved + 2 * cut_.key_width() + head * cut_.value_dim;
  run.key_stride = run.value_stride = channels;
  run.fades = fades;
  run.shares = fades + heads;
  run.gate_stride = 2 * heads;
  run.out = out + segment.row * cut_.value_width() + head * cut_.value_dim;
  run.out_stride = cut_.value_width();
  run.matrix = step.states.Layer(segment.state, layer_) + cut_.kept_inputs() +
               head * cut_.value_dim * cut_.key_dim;
  if (traits_.rule == RecurrenceRule::kGatedDelta) return kernels::GatedDelta(run);
  kernels::StateSpace(run);
  for (size_t token = 0; token < run.tokens; ++token) {
    const float* value = run.values + token * run.value_stride;
    float* given = run.out + token * run.out_stride;
    for (size_t i = 0; i < run.value_dim; ++i) given[i] += skip_[head] * value[i];
  }
}

// Each head's output normed, then gated by silu(z); or gated first, and the heads of a key head
// normed as one.
void CpuRecurrent::NormOut(const Step& step, size_t row, float* out) const {
  const float* z = step.work.projected.data() + row * cut_.projected() + cut_.channels();
  float* own = out + row * cut_.value_width();
  if (traits_.rule == RecurrenceRule::kStateSpace) {
    kernels::SiluMultiply(z, own, cut_.value_width(), own);
    const size_t width = cut_.value_width() / cut_.key_heads;
    for (size_t at = 0; at < cut_.value_width(); at += width) {
      kernels::RmsNorm(own + at, norm_.data() + at, norm_eps_, width, own + at);
    }
    return;
  }
  for (size_t head = 0; head < cut_.value_heads; ++head) {
    float* part = own + head * cut_.value_dim;
    kernels::RmsNorm(part, norm_.data(), norm_eps_, cut_.value_dim, part);
  }
  kernels::SiluMultiply(z, own, cut_.value_width(), own);
}

void CpuRecurrent::Apply(const float* x, size_t rows, std::span<const RecurrentSegment> segments,
                         CpuStates& states, RecurrentWork& work, float* out) const {
  if (cut_.key_heads == 0) return;
  const Step step{rows, segments, states, work};
  const size_t heads = cut_.value_heads;
  work.convolved.Reserve(rows * cut_.channels());
  work.gates.Reserve(rows * 2 * heads);
  work.segment_of_row.resize(rows);
  for (size_t i = 0; i < segments.size(); ++i) {
    std::fill_n(work.segment_of_row.begin() + static_cast<ptrdiff_t>(segments[i].row),
                segments[i].count, i);
  }
  Project(x, step);
  ForRows(work.pool, rows, cut_.taps * cut_.channels(), [&](size_t row) {
    Convolve(step, row);
    Gate(step, row);
  });
  for (const RecurrentSegment& segment : segments) KeepInputs(step, segment);
  const size_t per_head = (rows / segments.size() + 1) * cut_.value_dim * cut_.key_dim;
  ForRows(work.pool, segments.size() * heads, per_head,
          [&](size_t job) { RunHead(step, segments[job / heads], job % heads, out); });
  ForRows(work.pool, rows, 2 * cut_.value_width(), [&](size_t row) { NormOut(step, row, out); });
}

}  // namespace macrame::runtime::engine
