#include "runtime/model/mlx/streams.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

using Arrays = Fused::Arrays;

// What a map gives, scale and base of each number.
Arrays Scale(const Arrays& in) { return {mx::add(mx::multiply(in[0], in[1]), in[2])}; }
Arrays ReadWeights(const Arrays& in) { return {mx::add(mx::sigmoid(in[0]), in[1])}; }
Arrays AddWeights(const Arrays& in) { return {mx::multiply(mx::array(2.0F), mx::sigmoid(in[0]))}; }
// Vectors and then their weights, as many of each: the sum of the vectors by their weights. Not as
// a product of matrices, which some GPUs compute in fewer bits.
Arrays Sum(const Arrays& in) {
  const size_t count = in.size() / 2;
  mx::array sum = mx::multiply(in[0], in[count]);
  for (size_t i = 1; i < count; ++i) sum = mx::add(sum, mx::multiply(in[i], in[count + i]));
  return {sum};
}

// The same, behind what a half layer gave and its weight in each stream.
Arrays Mix(const Arrays& in) {
  const mx::array mixed = Sum({in.begin() + 2, in.end()})[0];
  return {mx::add(mixed, mx::multiply(in[1], mx::astype(in[0], mx::float32)))};
}

// Numbers, and what their sums are.
Arrays Divide(const Arrays& in) { return {mx::divide(in[0], mx::add(in[1], in[2]))}; }

// One thread a matrix, in the order of the graph.
constexpr const char* kBalanceSource = R"(
  const uint matrix = thread_position_in_grid.x;
  if (matrix >= uint(given_shape[0])) return;
  const uint first = matrix * SIZE * SIZE;
  float numbers[SIZE][SIZE];
  for (int row = 0; row < SIZE; ++row) {
    for (int column = 0; column < SIZE; ++column) {
      numbers[row][column] = given[first + row * SIZE + column];
    }
  }
  for (int turn = 0; turn < 2 * ROUNDS - 1; ++turn) {
    const bool by_column = turn % 2 == 0;
    for (int line = 0; line < SIZE; ++line) {
      float sum = 0.0f;
      for (int i = 0; i < SIZE; ++i) sum += by_column ? numbers[i][line] : numbers[line][i];
      sum += eps[0];
      for (int i = 0; i < SIZE; ++i) {
        if (by_column) {
          numbers[i][line] /= sum;
        } else {
          numbers[line][i] /= sum;
        }
      }
    }
  }
  for (int row = 0; row < SIZE; ++row) {
    for (int column = 0; column < SIZE; ++column) {
      balanced[first + row * SIZE + column] = numbers[row][column];
    }
  }
)";

using Balance = std::function<mx::array(const mx::array&)>;

Balance GraphOf(const StreamTraits& traits, EngineDevice device) {
  return [divide = Fused(Divide, device), eps = mx::array(traits.eps),
          rounds = traits.rounds](const mx::array& matrices) {
    mx::array balanced = matrices;
    for (int turn = 0; turn < 2 * rounds - 1; ++turn) {
      const int axis = turn % 2 == 0 ? -2 : -1;
      balanced = divide({balanced, mx::sum(balanced, axis, /*keepdims=*/true), eps})[0];
    }
    return balanced;
  };
}

Balance KernelOf(const StreamTraits& traits) {
  const auto kernel =
      mx::fast::metal_kernel("balance_streams", {"given", "eps"}, {"balanced"}, kBalanceSource);
  return [kernel, size = traits.count, rounds = traits.rounds,
          eps = mx::array({traits.eps})](const mx::array& matrices) {
    const int rows = matrices.shape(0);
    return kernel({matrices, eps}, {matrices.shape()}, {mx::float32}, {rows, 1, 1},
                  {std::min(rows, 256), 1, 1}, {{"SIZE", size}, {"ROUNDS", rounds}}, std::nullopt,
                  /*verbose=*/false, {})[0];
  };
}

// Whether both give the same for some matrices.
bool Agree(const StreamTraits& traits, const Balance& kernel, const Balance& graph) {
  constexpr int kRows = 5;
  std::vector<float> numbers;
  for (int i = 0; i < kRows * traits.count * traits.count; ++i) {
    numbers.push_back(0.01F + static_cast<float>(i * 37 % 101) / 101.0F);
  }
  const mx::array matrices(numbers.data(), {kRows, traits.count, traits.count});
  return mx::allclose(kernel(matrices), graph(matrices), 1e-4, 1e-6).item<bool>();
}

Balance FastestOf(const StreamTraits& traits, EngineDevice device) {
  Balance graph = GraphOf(traits, device);
  if (device != EngineDevice::kGpu || !mx::metal::is_available()) return graph;
  try {
    Balance kernel = KernelOf(traits);
    return Agree(traits, kernel, graph) ? kernel : graph;
  } catch (const std::exception&) {
    return graph;  // the kernel can't be had
  }
}

mx::array Columns(const mx::array& x, int begin, int end) {
  return mx::slice(x, {0, begin}, {x.shape(0), end});
}

// Of a mix's three kinds of numbers each kind's scale, for every number.
mx::array ScaleOfEach(const mx::array& scales, const StreamTraits& traits) {
  std::vector<int32_t> kinds;
  for (int i = 0; i < traits.mixes(); ++i) kinds.push_back(std::min(i / traits.count, 2));
  mx::array each = mx::take(scales, mx::array(kinds.data(), {traits.mixes()}, mx::int32));
  each.eval();
  return each;
}

}  // namespace

MlxBalance::MlxBalance(const StreamTraits& traits, EngineDevice device)
    : balance_(FastestOf(traits, device)) {}

MlxStreamWork::MlxStreamWork(const ModelConfig& config, EngineDevice device)
    : traits(config.streams),
      hidden(config.hidden_size),
      norm_eps(config.rms_norm_eps),
      balance(config.streams, device),
      scale(Scale, device),
      read_weights(ReadWeights, device),
      add_weights(AddWeights, device),
      read(Sum, device),
      mix(Mix, device),
      eps(config.streams.eps) {}

MlxStreamMix::MlxStreamMix(const StreamNeeds& needs, const StreamTraits& traits,
                           WeightLoader& loader)
    : map_(loader.LoadLinear(needs.map)),
      base_(*loader.LoadVector(needs.base)),
      scale_(ScaleOfEach(*loader.LoadVector(needs.scale), traits)) {}

MlxStreams::MlxStreams(const MlxStreamWork& work, const mx::array& carried)
    : work_(work),
      streams_(
          mx::reshape(Columns(mx::astype(carried, mx::float32), 0, work.traits.count * work.hidden),
                      {carried.shape(0), work.traits.count, work.hidden})),
      weights_(Columns(mx::astype(carried, mx::float32), work.traits.count * work.hidden,
                       work.traits.count * (work.hidden + 1))) {}

mx::array MlxStreams::Begin(const MlxStreamMix& mix) {
  const int rows = streams_.shape(0), count = work_.traits.count;
  const mx::array normed = mx::fast::rms_norm(mx::reshape(streams_, {rows, count * work_.hidden}),
                                              std::nullopt, work_.norm_eps);
  const mx::array all = work_.scale({mix.map_.Apply(normed), mix.scale_, mix.base_})[0];
  const mx::array matrix =
      mx::softmax(mx::reshape(Columns(all, 2 * count, work_.traits.mixes()), {rows, count, count}),
                  -1, /*precise=*/true);
  mixes_.emplace(Mixes{work_.read_weights({Columns(all, 0, count), work_.eps})[0],
                       work_.add_weights({Columns(all, count, 2 * count)})[0],
                       work_.balance(mx::add(matrix, work_.eps))});
  return Collapsed();
}

void MlxStreams::End(const mx::array& given) {
  MACRAME_CHECK(mixes_.has_value()) << "a half layer ends that did not begin";
  std::vector<mx::array> parts{mx::expand_dims(given, 1), mx::expand_dims(mixes_->add, 2)};
  for (const mx::array& stream : mx::split(streams_, work_.traits.count, 1)) {
    parts.push_back(stream);
  }
  for (const mx::array& row : mx::split(mixes_->matrix, work_.traits.count, 1)) {
    parts.push_back(mx::swapaxes(row, 1, 2));  // [rows, count, 1]: its weight in each stream
  }
  streams_ = work_.mix(parts)[0];
  weights_ = mixes_->read;
  mixes_.reset();
}

mx::array MlxStreams::Carried() const {
  const int rows = streams_.shape(0), width = work_.traits.count * work_.hidden;
  return mx::concatenate({mx::reshape(streams_, {rows, width}), weights_}, -1);
}

mx::array MlxStreams::Collapsed() const {
  std::vector<mx::array> parts = mx::split(streams_, work_.traits.count, 1);
  for (const mx::array& weight : mx::split(weights_, work_.traits.count, 1)) {
    parts.push_back(mx::expand_dims(weight, 2));
  }
  return mx::squeeze(work_.read(parts)[0], 1);
}

mx::array MlxStreams::Embedded(const StreamTraits& traits, const mx::array& hidden) {
  const int rows = hidden.shape(0);
  std::vector<mx::array> parts(static_cast<size_t>(traits.count), mx::astype(hidden, mx::float32));
  std::vector<float> first(static_cast<size_t>(traits.count), 0.0F);
  first[0] = 1.0F;
  parts.push_back(
      mx::broadcast_to(mx::array(first.data(), {1, traits.count}), {rows, traits.count}));
  return mx::concatenate(parts, -1);
}

}  // namespace macrame::runtime::engine
