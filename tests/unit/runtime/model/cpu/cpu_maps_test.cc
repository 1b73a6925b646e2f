// Linear maps and residual streams on a CPU against plain loops in double precision.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/model/cpu/linear.h"
#include "runtime/model/cpu/streams.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using Floats = std::vector<float>;

Floats RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> between(-1.0F, 1.0F);
  Floats floats(count);
  for (float& number : floats) number = between(random);
  return floats;
}

Floats FloatsOf(const mx::array& given) {
  mx::array plain = mx::contiguous(mx::astype(given, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

struct Matrix {
  Matrix(size_t rows_given, size_t columns_given, uint32_t seed)
      : rows(rows_given),
        columns(columns_given),
        numbers(std::make_shared<Floats>(RandomFloats(rows * columns + 1, seed))),  // never null
        bias(RandomFloats(rows, seed + 1)) {}

  // Read in place, or as MLX's arrays.
  Linear ForKernels() const {
    kernels::MatrixView view;
    view.rows = rows;
    view.columns = columns;
    view.weights = numbers->data();
    return Linear(view, numbers, Bias());
  }
  Linear ForMlx() const {
    return Linear(mx::array(numbers->data(), {static_cast<int>(rows), static_cast<int>(columns)}),
                  std::nullopt, std::nullopt, {}, Bias());
  }
  mx::array Bias() const { return mx::array(bias.data(), {static_cast<int>(rows)}); }
  double At(const float* x, size_t row) const {
    double sum = bias[row];
    for (size_t i = 0; i < columns; ++i) sum += double{x[i]} * (*numbers)[row * columns + i];
    return sum;
  }

  size_t rows, columns;
  std::shared_ptr<Floats> numbers;
  Floats bias;
};

void ExpectProducts(const Matrix& matrix, const Floats& x, const Floats& y) {
  const size_t count = matrix.columns == 0 ? 0 : x.size() / matrix.columns;
  ASSERT_EQ(y.size(), count * matrix.rows);
  for (size_t i = 0; i < y.size(); ++i) {
    const float* own = x.data() + i / matrix.rows * matrix.columns;
    ASSERT_NEAR(y[i], matrix.At(own, i % matrix.rows), 1e-5) << i;
  }
}

class CpuMapsTest : public ::testing::Test {
 protected:
  CpuMapsTest() { mx::set_default_device(mx::Device::cpu); }
  kernels::ThreadPool pool_{2};
  CpuProducts products_{pool_};
};

TEST_F(CpuMapsTest, BothKindsOfWeightsGiveTheProductsAndTheBias) {
  const std::pair<size_t, size_t> sizes[] = {{1, 1}, {3, 7}, {64, 33}, {5, 160}};
  for (const auto& [rows, columns] : sizes) {
    const Matrix matrix(rows, columns, static_cast<uint32_t>(rows));
    const Linear kernels = matrix.ForKernels(), graph = matrix.ForMlx();
    EXPECT_EQ(kernels.rows(), static_cast<int>(rows));
    EXPECT_EQ(graph.rows(), static_cast<int>(rows));
    for (const int count : {1, 2, 17}) {
      const Floats x = RandomFloats(static_cast<size_t>(count) * columns, 9);
      const mx::array input(x.data(), {1, count, static_cast<int>(columns)});
      for (const Linear* linear : {&kernels, &graph}) {
        const mx::array y = linear->Apply(input);
        EXPECT_EQ(y.shape(), (mx::Shape{1, count, static_cast<int>(rows)}));
        ExpectProducts(matrix, x, FloatsOf(y));
      }
      Floats y(static_cast<size_t>(count) * rows);
      products_.SetInput(x.data(), static_cast<size_t>(count), columns);
      products_.Apply(CpuLinear(matrix.ForKernels()), y.data());
      ExpectProducts(matrix, x, y);
    }
  }
}

// One input, several maps, and the first of them again.
TEST_F(CpuMapsTest, MapsShareAnInput) {
  const Matrix first(6, 40, 1), second(90, 40, 2);
  const CpuLinear one(first.ForKernels()), other(second.ForKernels());
  const Floats x = RandomFloats(3 * 40, 5);
  products_.SetInput(x.data(), 3, 40);
  Floats y(3 * 6), z(3 * 90), again(3 * 6);
  products_.Apply(one, y.data());
  products_.Apply(other, z.data());
  products_.Apply(one, again.data());
  ExpectProducts(first, x, y);
  ExpectProducts(second, x, z);
  EXPECT_EQ(again, y);
  EXPECT_GT(products_.memory_bytes(), 0u);
}

// The part of a rank that has no unit of work: zeros, plus a bias where it is this rank's.
TEST_F(CpuMapsTest, AMapWithoutColumnsGivesItsBias) {
  const Matrix none(5, 0, 3);
  Floats y(2 * 5, 7.0F);
  products_.SetInput(nullptr, 2, 0);
  products_.Apply(CpuLinear(none.ForKernels()), y.data());
  const Floats applied = FloatsOf(none.ForKernels().Apply(mx::zeros({1, 2, 0}, mx::float32)));
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], none.bias[i % 5]);
    EXPECT_EQ(applied[i], none.bias[i % 5]);
  }
}

TEST_F(CpuMapsTest, RowsAreEmbeddings) {
  const Matrix matrix(50, 24, 4);
  const std::vector<int32_t> ids = {49, 0, 7, 7};
  for (const Linear& linear : {matrix.ForKernels(), matrix.ForMlx()}) {
    const mx::array rows = linear.Rows(ids, mx::float32);
    EXPECT_EQ(rows.shape(), (mx::Shape{1, 4, 24}));
    const Floats numbers = FloatsOf(rows);
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(numbers[i], (*matrix.numbers)[static_cast<size_t>(ids[i / 24]) * 24 + i % 24]);
    }
  }
}

TEST_F(CpuMapsTest, PartsOfAMatrixAreItsRows) {
  for (const int bits : {0, 3, 4, 8}) {
    const Model model(FamilyModel({"olmo2", bits}));
    WeightLoader loader(model.files, model.config, {0, 2}, EngineDevice::kCpu, [](uint64_t) {});
    const Linear linear = loader.LoadLinear(NeedsOfLayer(model.config, {0, 2}, 0).o);
    const kernels::MatrixView& whole = linear.view();
    const auto rows_of = [](const kernels::MatrixView& view) {
      std::vector<int32_t> ids;
      for (size_t i = 0; i < view.rows; ++i) ids.push_back(static_cast<int32_t>(i));
      Floats rows(view.rows * view.columns);
      kernels::GatherRows(view, ids.data(), ids.size(), rows.data());
      return rows;
    };
    const Floats all = rows_of(whole);
    const auto width = static_cast<ptrdiff_t>(whole.columns);
    EXPECT_EQ(rows_of(RowsOf(whole, 5, 17)),
              Floats(all.begin() + 5 * width, all.begin() + 22 * width))
        << bits;
  }
}

TEST(FloatBufferTest, GrowsAndNeverShrinks) {
  FloatBuffer buffer;
  EXPECT_EQ(buffer.bytes(), 0u);
  float* first = buffer.Reserve(3);
  first[2] = 5.0F;
  EXPECT_EQ(buffer.Reserve(2), first);
  EXPECT_EQ(buffer.data()[2], 5.0F) << "what fits stays";
  EXPECT_EQ(buffer.bytes(), 12u);
  for (const size_t count : {17u, 1000u, 4097u}) {
    const auto address = reinterpret_cast<uintptr_t>(buffer.Reserve(count));
    EXPECT_EQ(address % 64, 0u);
    EXPECT_EQ(buffer.bytes(), count * sizeof(float));
  }
  EXPECT_EQ(buffer.Reserve(0), buffer.data());
}

// Streams of a step as their definition has them, in double precision.
class PlainStreams {
 public:
  PlainStreams(const Model& model, const std::string& prefix)
      : count_(static_cast<size_t>(model.config.streams.count)),
        hidden_(static_cast<size_t>(model.config.hidden_size)),
        rounds_(model.config.streams.rounds),
        eps_(model.config.streams.eps),
        norm_eps_(model.config.rms_norm_eps),
        map_(Read(model, prefix + "fn.weight")),
        base_(Read(model, prefix + "base")),
        scale_(Read(model, prefix + "scale")) {}

  // `row`: the streams, then the weights to read by; becomes what is behind the half layer, which
  // gave `given`. Returns what the half layer read.
  std::vector<double> Step(std::vector<double>& row, const Floats& given) const {
    std::vector<double> read(hidden_, 0.0);
    double squares = 0;
    for (size_t k = 0; k < count_; ++k) {
      for (size_t i = 0; i < hidden_; ++i) {
        const double number = row[k * hidden_ + i];
        read[i] += row[count_ * hidden_ + k] * number;
        squares += number * number;
      }
    }
    const double width = static_cast<double>(count_ * hidden_);
    const double norm = 1.0 / std::sqrt(squares / width + norm_eps_);
    std::vector<double> mixes(base_.size(), 0.0);
    for (size_t m = 0; m < mixes.size(); ++m) {
      for (size_t i = 0; i < count_ * hidden_; ++i) {
        mixes[m] += norm * row[i] * map_[m * count_ * hidden_ + i];
      }
      mixes[m] = mixes[m] * scale_[std::min<size_t>(m / count_, 2)] + base_[m];
    }
    const std::vector<double> matrix = Balanced(mixes);
    std::vector<double> next(count_ * hidden_ + count_, 0.0);
    for (size_t to = 0; to < count_; ++to) {
      const double add = 2.0 / (1.0 + std::exp(-mixes[count_ + to]));
      for (size_t i = 0; i < hidden_; ++i) {
        double sum = add * given[i];
        for (size_t from = 0; from < count_; ++from) {
          sum += matrix[from * count_ + to] * row[from * hidden_ + i];
        }
        next[to * hidden_ + i] = sum;
      }
      next[count_ * hidden_ + to] = 1.0 / (1.0 + std::exp(-mixes[to])) + eps_;
    }
    row = next;
    return read;
  }

  // Rows as shares of one; then columns, and rows and columns in turn, are divided by their sums.
  std::vector<double> Balanced(const std::vector<double>& mixes) const {
    std::vector<double> matrix(mixes.begin() + static_cast<ptrdiff_t>(2 * count_), mixes.end());
    for (size_t from = 0; from < count_; ++from) {
      double sum = 0;
      for (size_t to = 0; to < count_; ++to) sum += std::exp(matrix[from * count_ + to]);
      for (size_t to = 0; to < count_; ++to) {
        double& number = matrix[from * count_ + to];
        number = std::exp(number) / sum + eps_;
      }
    }
    for (int round = 0; round < 2 * rounds_ - 1; ++round) {
      for (size_t line = 0; line < count_; ++line) {
        const auto at = [&](size_t i) -> double& {
          return round % 2 == 0 ? matrix[i * count_ + line] : matrix[line * count_ + i];
        };
        double sum = 0;
        for (size_t i = 0; i < count_; ++i) sum += at(i);
        for (size_t i = 0; i < count_; ++i) at(i) /= sum + eps_;
      }
    }
    return matrix;
  }

 private:
  static std::vector<double> Read(const Model& model, const std::string& name) {
    const StoredTensor& stored = *model.files->Find(name);
    Floats floats(stored.bytes / 4);
    std::memcpy(floats.data(), stored.data, stored.bytes);
    return {floats.begin(), floats.end()};
  }

  const size_t count_, hidden_;
  const int rounds_;
  const double eps_, norm_eps_;
  const std::vector<double> map_, base_, scale_;
};

TEST_F(CpuMapsTest, StreamsAreReadMixedAndAddedTo) {
  for (const int streams : {2, 3, 5}) {
    const Model model(ModelOfConfig(CompressedConfig({{"hc_mult", streams}})));
    const ModelConfig& config = model.config;
    const ShardPlace place{0, config.layer_count};
    WeightLoader loader(model.files, config, place, EngineDevice::kCpu, [](uint64_t) {});
    const LayerNeeds needs = NeedsOfLayer(config, place, 0);
    const CpuStreamMix first(*needs.attention_streams, loader), second(*needs.feed_streams, loader);
    const PlainStreams plain_first(model, "model.layers.0.attn_hc.");
    const PlainStreams plain_second(model, "model.layers.0.ffn_hc.");
    const CarriedRow layout = CarriedInto(config, 0);
    const size_t rows = 3, hidden = static_cast<size_t>(config.hidden_size);
    const size_t own = static_cast<size_t>(streams) * (hidden + 1);
    const auto width = static_cast<size_t>(layout.width);
    ASSERT_GE(width, own);
    Floats carried = RandomFloats(rows * width, 3);
    std::vector<std::vector<double>> expected;
    for (size_t row = 0; row < rows; ++row) {
      const float* from = carried.data() + row * width;
      expected.emplace_back(from, from + own);
    }
    CpuStreams held(config, pool_, products_);
    held.Take(carried.data(), layout, rows);
    const std::pair<const CpuStreamMix*, const PlainStreams*> halves[] = {{&first, &plain_first},
                                                                          {&second, &plain_second}};
    for (const auto& [mix, plain] : halves) {
      Floats read(rows * hidden);
      const Floats given = RandomFloats(rows * hidden, 8);
      held.Begin(*mix, read.data());
      held.End(given.data());
      for (size_t row = 0; row < rows; ++row) {
        const auto begin = given.begin() + static_cast<ptrdiff_t>(row * hidden);
        const Floats of_row(begin, begin + static_cast<ptrdiff_t>(hidden));
        const std::vector<double> wanted = plain->Step(expected[row], of_row);
        for (size_t i = 0; i < hidden; ++i) ASSERT_NEAR(read[row * hidden + i], wanted[i], 1e-5);
      }
    }
    held.Put(carried.data(), layout);
    for (size_t row = 0; row < rows; ++row) {
      const float* put = carried.data() + row * width;
      for (size_t i = 0; i < own; ++i) ASSERT_NEAR(put[i], expected[row][i], 1e-5) << i;
      Floats whole(hidden);
      held.Collapse(put, whole.data());
      for (size_t i = 0; i < hidden; ++i) {
        double sum = 0;
        for (size_t k = 0; k < static_cast<size_t>(streams); ++k) {
          sum += expected[row][static_cast<size_t>(streams) * hidden + k] *
                 expected[row][k * hidden + i];
        }
        ASSERT_NEAR(whole[i], sum, 1e-5) << i;
      }
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
