#include "runtime/model/weights/linear.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"
#include "proto/check.h"
#include "runtime/kernels/matmul.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// y = x · Wᵀ over a view, as a node of MLX's graph.
class KernelMultiply : public mx::UnaryPrimitive {
 public:
  KernelMultiply(mx::Stream stream, kernels::MatrixView view, std::shared_ptr<const void> owner)
      : UnaryPrimitive(stream), view_(view), owner_(std::move(owner)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    const mx::array& x = inputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(x);
    encoder.set_output_array(out);
    encoder.dispatch([view = view_, owner = owner_, from = x.data<float>(), to = out.data<float>(),
                      count = x.size() / view_.columns] {
      // One thread, that of the stream, and what it needs from one product to the next.
      thread_local kernels::ThreadPool pool(1);
      thread_local kernels::Activations activations;
      thread_local kernels::Scratch scratch;
      activations.Set(from, count, view.columns);
      kernels::MultiplyTransposed(pool, view, activations, to, scratch);
    });
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    MACRAME_CHECK(false) << "a CPU kernel was placed on a GPU stream";
  }
  const char* name() const override { return "KernelMultiply"; }

 private:
  const kernels::MatrixView view_;
  const std::shared_ptr<const void> owner_;
};

// Rows of arrays [rows, ...], or [rows], as one array: row i is row order[i] of all.
mx::array PickRows(std::vector<mx::array> parts, std::span<const int> order) {
  std::vector<const std::byte*> rows;
  mx::Shape shape = parts[0].shape();
  shape[0] = static_cast<int>(order.size());
  size_t bytes = mx::size_of(parts[0].dtype());
  for (size_t axis = 1; axis < shape.size(); ++axis) bytes *= static_cast<size_t>(shape[axis]);
  for (mx::array& part : parts) {
    part = mx::contiguous(part);
    part.eval();
    for (int row = 0; row < part.shape(0); ++row) {
      rows.push_back(part.data<std::byte>() + static_cast<size_t>(row) * bytes);
    }
  }
  mx::array out(mx::allocator::malloc(bytes * order.size()), std::move(shape), parts[0].dtype());
  std::byte* to = out.data<std::byte>();
  for (const int row : order) {
    std::memcpy(to, rows[static_cast<size_t>(row)], bytes);
    to += bytes;
  }
  return out;
}

}  // namespace

mx::Dtype ActivationType(mx::Dtype model_type, EngineDevice device) {
  return UsesMlxGraph(device) ? model_type : mx::float32;
}

Linear::Linear(kernels::MatrixView view, std::shared_ptr<const void> owner,
               std::optional<mx::array> bias)
    : view_(view), owner_(std::move(owner)), bias_(std::move(bias)) {}

kernels::MatrixView RowsOf(const kernels::MatrixView& matrix, size_t begin, size_t count) {
  const auto past = [&](const void* data, size_t row_bytes) {
    return static_cast<const std::byte*>(data) + begin * row_bytes;
  };
  kernels::MatrixView part = matrix;
  part.rows = count;
  part.weights = past(matrix.weights, kernels::WeightRowBytes(matrix));
  if (matrix.bits == 0) return part;
  part.scales = past(matrix.scales, kernels::ScaleRowBytes(matrix));
  if (matrix.biases != nullptr) {
    part.biases = past(matrix.biases, kernels::ScaleRowBytes(matrix));
  }
  return part;
}

const char* MlxModeOf(const QuantizationTraits& traits) {
  switch (traits.mode) {
    case QuantizationMode::kAffine:
      return "affine";
    case QuantizationMode::kMxfp4:
      return "mxfp4";
    case QuantizationMode::kMxfp8:
      return "mxfp8";
    case QuantizationMode::kNvfp4:
      return "nvfp4";
  }
  return "affine";
}

Linear::Linear(mx::array weight, std::optional<mx::array> scales, std::optional<mx::array> biases,
               const QuantizationTraits& traits, std::optional<mx::array> bias)
    : weight_(std::move(weight)),
      scales_(std::move(scales)),
      biases_(std::move(biases)),
      mode_(MlxModeOf(traits)),
      bias_(std::move(bias)) {
  view_.rows = weight_->shape(0);
  view_.bits = traits.bits;
  view_.group_size = traits.group_size;
}

bool Linear::CanJoin(const Linear& other) const {
  const auto agree = [](const std::optional<mx::array>& one, const std::optional<mx::array>& two) {
    if (!one.has_value() || !two.has_value()) return one.has_value() == two.has_value();
    return one->dtype() == two->dtype() && std::equal(one->shape().begin() + 1, one->shape().end(),
                                                      two->shape().begin() + 1, two->shape().end());
  };
  return weight_.has_value() && agree(weight_, other.weight_) && agree(scales_, other.scales_) &&
         agree(biases_, other.biases_) && agree(bias_, other.bias_) &&
         view_.bits == other.view_.bits && view_.group_size == other.view_.group_size &&
         std::string_view(mode_) == other.mode_;
}

std::optional<Linear> Linear::Join(std::span<const Linear> maps, std::span<const int> order) {
  for (const Linear& map : maps) {
    if (!map.CanJoin(maps[0])) return std::nullopt;
  }
  Linear joined = maps[0];
  const auto pick = [&](std::optional<mx::array> Linear::*which) {
    if (!(maps[0].*which).has_value()) return;
    std::vector<mx::array> parts;
    for (const Linear& map : maps) parts.push_back(*(map.*which));
    joined.*which = PickRows(std::move(parts), order);
  };
  for (const auto which : {&Linear::weight_, &Linear::scales_, &Linear::biases_, &Linear::bias_}) {
    pick(which);
  }
  joined.view_.rows = order.size();
  return joined;
}

mx::array ZerosBehind(const mx::array& x, int columns) {
  mx::Shape shape = x.shape();
  shape.back() = columns;
  return mx::depends({mx::zeros(shape, x.dtype())}, {x})[0];
}

int Linear::rows() const { return static_cast<int>(view_.rows); }

mx::array Linear::Apply(const mx::array& x) const {
  if (weight_.has_value() && !scales_.has_value() && bias_.has_value() && x.shape(-1) > 0 &&
      rows() > 0) {
    return mx::addmm(*bias_, x, mx::transpose(*weight_));
  }
  mx::array y = [&] {
    if (x.shape(-1) == 0 || rows() == 0) return ZerosBehind(x, rows());
    if (owner_ != nullptr) {
      mx::Shape shape = x.shape();
      shape.back() = rows();
      const mx::Stream stream = mx::default_stream(mx::Device::cpu);
      return mx::array(std::move(shape), mx::float32,
                       std::make_shared<KernelMultiply>(stream, view_, owner_),
                       {mx::contiguous(mx::astype(x, mx::float32))});
    }
    if (scales_.has_value()) {
      return mx::quantized_matmul(x, *weight_, *scales_, biases_, /*transpose=*/true,
                                  view_.group_size, view_.bits, mode_);
    }
    return mx::matmul(x, mx::transpose(*weight_));
  }();
  return bias_.has_value() ? mx::add(y, *bias_) : y;
}

mx::array Linear::Floats() const {
  MACRAME_CHECK(weight_.has_value()) << "weights that kernels read in place";
  if (!scales_.has_value()) return *weight_;
  return mx::dequantize(*weight_, *scales_, biases_, view_.group_size, view_.bits, mode_);
}

mx::array Linear::Rows(std::span<const int32_t> ids, mx::Dtype type) const {
  const int count = static_cast<int>(ids.size());
  if (owner_ != nullptr) {
    std::vector<float> rows(ids.size() * view_.columns);
    kernels::GatherRows(view_, ids.data(), ids.size(), rows.data());
    return mx::astype(mx::array(rows.data(), {1, count, static_cast<int>(view_.columns)}), type);
  }
  return Rows(mx::array(ids.data(), {1, count}, mx::int32), type);
}

mx::array Linear::Rows(const mx::array& index, mx::Dtype type) const {
  MACRAME_CHECK(weight_.has_value()) << "weights that kernels read in place";
  const mx::array picked = mx::take(*weight_, index, 0);
  if (!scales_.has_value()) return mx::astype(picked, type);
  const auto biases =
      biases_.has_value() ? std::optional(mx::take(*biases_, index, 0)) : std::nullopt;
  return mx::astype(mx::dequantize(picked, mx::take(*scales_, index, 0), biases, view_.group_size,
                                   view_.bits, mode_),
                    type);
}

}  // namespace macrame::runtime::engine
