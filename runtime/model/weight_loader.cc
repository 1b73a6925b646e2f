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

}  // namespace

WeightLoader::WeightLoader(std::shared_ptr<const WeightFiles> files, const ModelConfig& config,
                           const ShardPlace& place, std::function<void(uint64_t)> on_progress)
    : files_(std::move(files)),
      config_(config),
      place_(place),
      reader_(OrderOfReading(), std::move(on_progress)),
      model_type_(mx::float32),
      activation_type_(mx::float32) {
  const LayerNeeds first = NeedsOfLayer(config_, place_, place_.layer_begin);
  const StoredTensor* norm = nullptr;
  for (const VectorNeed* need : {&first.attention_norm, &first.attention_out_norm}) {
    if (norm == nullptr && !need->name.empty()) norm = files_->Find(need->name);
  }
  if (norm == nullptr) return;
  model_type_ = TypeOf(*norm);
  activation_type_ = ActivationType(model_type_);
}

WeightLoader::StoredPart WeightLoader::WholeOf(const StoredTensor& tensor) {
  return {1, 0, tensor.bytes, 0, tensor.bytes};
}

WeightLoader::StoredPart WeightLoader::PartOf(const StoredTensor& tensor,
                                              const MatrixNeed& need) const {
  const bool stacked = IsStacked(need, *files_);
  const size_t rows = static_cast<size_t>(need.all_stored_rows()) *
                      static_cast<size_t>(stacked ? need.experts : 1);  // of the whole tensor
  StoredPart part;
  part.rows = static_cast<size_t>(need.part_rows());
  part.row_bytes = rows == 0 ? 0 : tensor.bytes / rows;
  part.bytes = part.row_bytes;
  if (stacked) part.first_row = static_cast<size_t>(need.expert) * static_cast<size_t>(need.rows);
  part.first_row += static_cast<size_t>(need.first_row);
  if (need.split == Split::kRows) part.first_row += static_cast<size_t>(need.part.begin);
  if (need.split == Split::kColumns) {
    const auto columns = static_cast<size_t>(need.columns);
    part.begin = part.row_bytes * static_cast<size_t>(need.part.begin) / columns;
    part.bytes = part.row_bytes * static_cast<size_t>(need.part.size()) / columns;
  }
  return part;
}

// What is read of the tensor for a part of it: whole rows.
StoredBytes WeightLoader::SourceOf(const StoredTensor& tensor, const StoredPart& part) {
  if (part.all_bytes() == 0) return {tensor.data, 0};
  return {tensor.data + part.first_row * part.row_bytes, part.rows * part.row_bytes};
}

WeightLoader::Part WeightLoader::TakePart(const StoredTensor& tensor, const StoredPart& part) {
  const StoredBytes source = SourceOf(tensor, part);
  if (!source.empty() && part.bytes < part.row_bytes) {
    const std::shared_ptr<std::byte[]> copy =
        reader_.CopyColumns(source, {part.rows, part.row_bytes, part.begin, part.bytes});
    return {copy.get(), part.all_bytes(), copy};
  }
  reader_.Read(source);
  return {source.data(), source.size(), files_};
}

// A part's bytes as an array of its own.
mx::array WeightLoader::TakeCopy(const Part& part, mx::Shape shape, mx::Dtype type) const {
  mx::array out = CopyArray(part.data, part.bytes, std::move(shape), type);
  if (part.owner == files_) reader_.Release({part.data, part.bytes});
  return out;
}

std::optional<mx::array> WeightLoader::LoadBias(const MatrixNeed& need) {
  if (!need.bias) return std::nullopt;
  // What a column split yields is summed over the ranks: one of them adds the bias.
  if (need.split == Split::kColumns && place_.tp_rank != 0) return std::nullopt;
  const StoredTensor& stored = *files_->Find(absl::StrCat(need.module, ".bias"));
  const Part part =
      TakePart(stored, need.split == Split::kRows ? PartOf(stored, need) : WholeOf(stored));
  const mx::Dtype type = TypeOf(stored);
  const int size = static_cast<int>(part.bytes / mx::size_of(type));
  return mx::astype(TakeCopy(part, {size}, type), activation_type_);
}

Matrix WeightLoader::LoadForKernels(const MatrixNeed& need) {
  struct Owners {
    Part weight, scales, biases;
  };
  const std::string module = StoredModule(need, *files_);
  const StoredTensor& weight = *files_->Find(absl::StrCat(module, ".weight"));
  const StoredTensor* scales = files_->Find(absl::StrCat(module, ".scales"));
  kernels::MatrixView view;
  view.rows = static_cast<size_t>(need.part_rows());
  view.columns = static_cast<size_t>(need.part_columns());
  auto owners = std::make_shared<Owners>();
  owners->weight = TakePart(weight, PartOf(weight, need));
  view.weights = owners->weight.data;
  view.type = ScalarOf(scales != nullptr ? *scales : weight);
  if (scales != nullptr) {
    const QuantizationTraits traits = config_.QuantizationOf(module);
    view.bits = traits.bits;
    view.group_size = traits.group_size;
    owners->scales = TakePart(*scales, PartOf(*scales, need));
    const StoredTensor& biases = *files_->Find(absl::StrCat(module, ".biases"));
    owners->biases = TakePart(biases, PartOf(biases, need));
    view.scales = owners->scales.data;
    view.biases = owners->biases.data;
  }
  return Matrix(view, owners, LoadBias(need));
}

Matrix WeightLoader::LoadForMlx(const MatrixNeed& need) {
  const std::string module = StoredModule(need, *files_);
  const auto take = [&](const char* suffix) {
    const StoredTensor& stored = *files_->Find(absl::StrCat(module, suffix));
    const Part part = TakePart(stored, PartOf(stored, need));
    const int rows = need.part_rows();
    const size_t numbers = part.bytes / mx::size_of(TypeOf(stored));
    const int columns = rows == 0 ? 0 : static_cast<int>(numbers) / rows;
    return TakeCopy(part, {rows, columns}, TypeOf(stored));
  };
  if (files_->Find(absl::StrCat(module, ".scales")) == nullptr) {
    return Matrix(mx::astype(take(".weight"), activation_type_), std::nullopt, std::nullopt, 0, 0,
                  LoadBias(need));
  }
  const QuantizationTraits traits = config_.QuantizationOf(module);
  return Matrix(take(".weight"), mx::astype(take(".scales"), activation_type_),
                mx::astype(take(".biases"), activation_type_), traits.group_size, traits.bits,
                LoadBias(need));
}

// All parts copied into one array, so that no more than one copy of them is ever there.
mx::array WeightLoader::TakeStack(const std::vector<const MatrixNeed*>& needs, const char* suffix) {
  const auto stored_of = [&](const MatrixNeed& need) -> const StoredTensor& {
    return *files_->Find(absl::StrCat(StoredModule(need, *files_), suffix));
  };
  const StoredTensor& first = stored_of(*needs[0]);
  const size_t bytes = PartOf(first, *needs[0]).all_bytes();
  const mx::Dtype type = TypeOf(first);
  const int rows = needs[0]->part_rows();
  const int columns = rows == 0 ? 0 : static_cast<int>(bytes / mx::size_of(type)) / rows;
  mx::array out(mx::allocator::malloc(bytes * needs.size()),
                {static_cast<int>(needs.size()), rows, columns}, type);
  std::byte* to = out.data<std::byte>();
  for (const MatrixNeed* need : needs) {
    const StoredTensor& stored = stored_of(*need);
    const Part part = TakePart(stored, PartOf(stored, *need));
    MACRAME_CHECK(part.bytes == bytes) << stored.name;
    if (bytes > 0) std::memcpy(to, part.data, bytes);
    to += bytes;
    if (part.owner == files_) reader_.Release({part.data, part.bytes});
  }
  return out;
}

StackedMatrix WeightLoader::LoadStacked(const std::vector<const MatrixNeed*>& needs) {
  const std::string module = StoredModule(*needs[0], *files_);
  mx::array weight = TakeStack(needs, ".weight");
  if (files_->Find(absl::StrCat(module, ".scales")) == nullptr) {
    return {mx::astype(weight, activation_type_), std::nullopt, std::nullopt};
  }
  const QuantizationTraits traits = config_.QuantizationOf(module);
  return {std::move(weight), mx::astype(TakeStack(needs, ".scales"), activation_type_),
          mx::astype(TakeStack(needs, ".biases"), activation_type_), traits.group_size,
          traits.bits};
}

Matrix WeightLoader::LoadMatrix(const MatrixNeed& need) {
  return mx::default_device() == mx::Device::cpu ? LoadForKernels(need) : LoadForMlx(need);
}

std::optional<mx::array> WeightLoader::LoadVector(const VectorNeed& need) {
  if (need.name.empty()) return std::nullopt;
  const StoredTensor& stored = *files_->Find(need.name);
  const Part part = TakePart(stored, WholeOf(stored));
  mx::array vector = TakeCopy(part, {need.size}, TypeOf(stored));
  if (need.adds_one) vector = mx::add(mx::astype(vector, mx::float32), mx::array(1.0F));
  if (need.part.size() > 0) vector = mx::slice(vector, {need.part.begin}, {need.part.end});
  return mx::astype(vector, need.exact ? mx::float32 : activation_type_);
}

// Every stored tensor that this rank reads something of, in the order in which it loads them.
void WeightLoader::ForEachTensor(const Visit& visit) const {
  const auto see_vector = [&](const std::string& name) {
    const StoredTensor* stored = name.empty() ? nullptr : files_->Find(name);
    if (stored != nullptr) visit(*stored, WholeOf(*stored));
  };
  const auto see_matrix = [&](const MatrixNeed& need) {
    const std::string module = StoredModule(need, *files_);
    for (const char* suffix : {".weight", ".scales", ".biases"}) {
      const StoredTensor* stored = files_->Find(absl::StrCat(module, suffix));
      if (stored != nullptr) visit(*stored, PartOf(*stored, need));
    }
    if (!need.bias || (need.split == Split::kColumns && place_.tp_rank != 0)) return;
    const StoredTensor* bias = files_->Find(absl::StrCat(need.module, ".bias"));
    if (bias != nullptr) {
      visit(*bias, need.split == Split::kRows ? PartOf(*bias, need) : WholeOf(*bias));
    }
  };
  if (place_.embeds) see_matrix(EmbeddingNeed(config_, place_));
  for (int layer = place_.layer_begin; layer < place_.layer_end; ++layer) {
    const LayerNeeds needs = NeedsOfLayer(config_, place_, layer);
    for (const MatrixNeed* need : MatricesOf(needs)) see_matrix(*need);
    for (const VectorNeed* need : VectorsOf(needs)) see_vector(need->name);
  }
  if (place_.has_head) {
    see_vector(FinalNormNeed(config_).name);
    if (!(place_.embeds && config_.tied_embeddings)) see_matrix(HeadNeed(config_, place_));
  }
}

std::vector<StoredBytes> WeightLoader::OrderOfReading() const {
  std::vector<StoredBytes> order;
  ForEachTensor([&](const StoredTensor& tensor, const StoredPart& part) {
    const StoredBytes source = SourceOf(tensor, part);
    if (!source.empty()) order.push_back(source);
  });
  return order;
}

uint64_t WeightLoader::BytesNeeded() const {
  uint64_t bytes = 0;
  ForEachTensor([&](const StoredTensor&, const StoredPart& part) { bytes += part.all_bytes(); });
  return bytes;
}

}  // namespace macrame::runtime::engine
