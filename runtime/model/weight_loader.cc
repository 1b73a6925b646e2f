#include "runtime/model/weight_loader.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

mx::Dtype TypeOf(const StoredTensor& tensor) {
  if (tensor.dtype == "F32") return mx::float32;
  if (tensor.dtype == "BF16") return mx::bfloat16;
  if (tensor.dtype == "F16") return mx::float16;
  MACRAME_CHECK(tensor.dtype == "U32") << tensor.name << " of " << tensor.dtype;
  return mx::uint32;
}

kernels::Scalar ScalarOf(const StoredTensor& tensor) {
  if (tensor.dtype == "BF16") return kernels::Scalar::kBfloat16;
  return tensor.dtype == "F16" ? kernels::Scalar::kFloat16 : kernels::Scalar::kFloat32;
}

// A copy of stored bytes as an array. Stored data need not be aligned, hence memcpy.
mx::array CopyArray(const std::byte* data, size_t bytes, mx::Shape shape, mx::Dtype type) {
  mx::array out(mx::allocator::malloc(bytes), std::move(shape), type);
  std::memcpy(out.data<std::byte>(), data, bytes);
  return out;
}

// Touches every page, so that the first request does not wait for the disk.
void ReadPages(const std::byte* data, size_t bytes) {
  constexpr size_t kPageBytes = 4096;
  volatile unsigned char sink = 0;
  for (size_t i = 0; i < bytes; i += kPageBytes) sink = static_cast<unsigned char>(data[i]);
  if (bytes > 0) sink = static_cast<unsigned char>(data[bytes - 1]);
  (void)sink;
}

}  // namespace

std::vector<std::byte> CopyColumnPart(const std::byte* data, size_t rows, size_t row_bytes,
                                      size_t part_begin, size_t part_bytes) {
  MACRAME_CHECK(part_begin + part_bytes <= row_bytes) << part_begin << "+" << part_bytes;
  std::vector<std::byte> out(rows * part_bytes);
  for (size_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + row * part_bytes, data + row * row_bytes + part_begin, part_bytes);
  }
  return out;
}

WeightLoader::WeightLoader(std::shared_ptr<const WeightFiles> files, const ModelConfig& config,
                           const ShardPlace& place, std::function<void(uint64_t)> on_progress)
    : files_(std::move(files)),
      config_(config),
      place_(place),
      on_progress_(std::move(on_progress)),
      model_type_(mx::float32),
      activation_type_(mx::float32) {
  const StoredTensor* norm =
      files_->Find(NeedsOfLayer(config_, place_.layer_begin).input_norm.name);
  if (norm == nullptr) return;
  model_type_ = TypeOf(*norm);
  activation_type_ = ActivationType(model_type_);
}

WeightLoader::Part WeightLoader::TakePart(const StoredTensor& tensor, Split split) {
  const size_t rows = static_cast<size_t>(tensor.shape[0]);
  const size_t row_bytes = rows == 0 ? 0 : tensor.bytes / rows;
  Part part{tensor.data, tensor.bytes, files_};
  if (split == Split::kRows) {
    part.bytes = place_.ShareOf(rows) * row_bytes;
    part.data += place_.BeforeShareOf(rows) * row_bytes;
  } else if (split == Split::kColumns && place_.tp > 1) {
    auto copy = std::make_shared<std::vector<std::byte>>(CopyColumnPart(
        tensor.data, rows, row_bytes, place_.BeforeShareOf(row_bytes), place_.ShareOf(row_bytes)));
    part = {copy->data(), copy->size(), copy};
  }
  ReadPages(part.data, part.bytes);
  on_progress_(part.bytes);
  return part;
}

std::optional<mx::array> WeightLoader::LoadBias(const MatrixNeed& need) {
  if (!need.bias) return std::nullopt;
  // What a column split yields is summed over the ranks: one of them adds the bias.
  if (need.split == Split::kColumns && place_.tp_rank != 0) return std::nullopt;
  const StoredTensor& stored = *files_->Find(absl::StrCat(need.module, ".bias"));
  const Split split = need.split == Split::kRows ? Split::kRows : Split::kNone;
  const Part part = TakePart(stored, split);
  const mx::Dtype type = TypeOf(stored);
  const int size = static_cast<int>(part.bytes / mx::size_of(type));
  return mx::astype(CopyArray(part.data, part.bytes, {size}, type), activation_type_);
}

Matrix WeightLoader::LoadForKernels(const MatrixNeed& need) {
  struct Owners {
    Part weight, scales, biases;
  };
  const StoredTensor& weight = *files_->Find(absl::StrCat(need.module, ".weight"));
  const StoredTensor* scales = files_->Find(absl::StrCat(need.module, ".scales"));
  kernels::MatrixView view;
  view.rows = need.split == Split::kRows ? place_.ShareOf(need.rows) : need.rows;
  view.columns = need.split == Split::kColumns ? place_.ShareOf(need.columns) : need.columns;
  auto owners = std::make_shared<Owners>();
  owners->weight = TakePart(weight, need.split);
  view.weights = owners->weight.data;
  view.type = ScalarOf(scales != nullptr ? *scales : weight);
  if (scales != nullptr) {
    const QuantizationTraits traits = config_.QuantizationOf(need.module);
    view.bits = traits.bits;
    view.group_size = traits.group_size;
    owners->scales = TakePart(*scales, need.split);
    owners->biases = TakePart(*files_->Find(absl::StrCat(need.module, ".biases")), need.split);
    view.scales = owners->scales.data;
    view.biases = owners->biases.data;
  }
  return Matrix(view, owners, LoadBias(need));
}

Matrix WeightLoader::LoadForMlx(const MatrixNeed& need) {
  const auto take = [&](const char* suffix) {
    const StoredTensor& stored = *files_->Find(absl::StrCat(need.module, suffix));
    const Part part = TakePart(stored, need.split);
    mx::Shape shape{static_cast<int>(stored.shape[0]), static_cast<int>(stored.shape[1])};
    if (need.split == Split::kRows) shape[0] = place_.ShareOf(shape[0]);
    if (need.split == Split::kColumns) shape[1] = place_.ShareOf(shape[1]);
    return CopyArray(part.data, part.bytes, std::move(shape), TypeOf(stored));
  };
  if (files_->Find(absl::StrCat(need.module, ".scales")) == nullptr) {
    return Matrix(mx::astype(take(".weight"), activation_type_), std::nullopt, std::nullopt, 0, 0,
                  LoadBias(need));
  }
  const QuantizationTraits traits = config_.QuantizationOf(need.module);
  return Matrix(take(".weight"), mx::astype(take(".scales"), activation_type_),
                mx::astype(take(".biases"), activation_type_), traits.group_size, traits.bits,
                LoadBias(need));
}

Matrix WeightLoader::LoadMatrix(const MatrixNeed& need) {
  return mx::default_device() == mx::Device::cpu ? LoadForKernels(need) : LoadForMlx(need);
}

std::optional<mx::array> WeightLoader::LoadVector(const VectorNeed& need) {
  if (need.name.empty()) return std::nullopt;
  const StoredTensor& stored = *files_->Find(need.name);
  const Part part = TakePart(stored, Split::kNone);
  return mx::astype(CopyArray(part.data, part.bytes, {need.size}, TypeOf(stored)),
                    activation_type_);
}

uint64_t WeightLoader::BytesOf(const MatrixNeed& need) const {
  uint64_t bytes = 0;
  for (const char* suffix : {".weight", ".scales", ".biases"}) {
    const StoredTensor* stored = files_->Find(absl::StrCat(need.module, suffix));
    if (stored == nullptr) continue;
    bytes += need.split == Split::kNone ? stored->bytes : place_.ShareOf(stored->bytes);
  }
  const StoredTensor* bias = files_->Find(absl::StrCat(need.module, ".bias"));
  if (need.bias && bias != nullptr) {
    if (need.split == Split::kRows) bytes += place_.ShareOf(bias->bytes);
    if (need.split == Split::kNone) bytes += bias->bytes;
    if (need.split == Split::kColumns && place_.tp_rank == 0) bytes += bias->bytes;
  }
  return bytes;
}

uint64_t WeightLoader::BytesNeeded() const {
  uint64_t bytes = 0;
  const auto add_vector = [&](const VectorNeed& need) {
    const StoredTensor* stored = need.name.empty() ? nullptr : files_->Find(need.name);
    if (stored != nullptr) bytes += stored->bytes;
  };
  if (place_.embeds) bytes += BytesOf(EmbeddingNeed(config_));
  for (int layer = place_.layer_begin; layer < place_.layer_end; ++layer) {
    const LayerNeeds needs = NeedsOfLayer(config_, layer);
    for (const MatrixNeed* need :
         {&needs.q, &needs.k, &needs.v, &needs.o, &needs.gate, &needs.up, &needs.down}) {
      bytes += BytesOf(*need);
    }
    for (const VectorNeed* need :
         {&needs.input_norm, &needs.post_attention_norm, &needs.q_norm, &needs.k_norm}) {
      add_vector(*need);
    }
  }
  if (place_.normalizes) add_vector(FinalNormNeed(config_));
  if (place_.has_head && !(place_.embeds && config_.tied_embeddings)) {
    bytes += BytesOf(HeadNeed(config_));
  }
  return bytes;
}

}  // namespace macrame::runtime::engine
