#include "runtime/gguf/tensor_conversion.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/gguf/float16.h"

namespace macrame::runtime::gguf {
namespace {

std::string WeightName(const PlannedTensor& tensor) {
  if (tensor.is_whole) return tensor.module;
  return absl::StrCat(tensor.module, tensor.is_bias ? ".bias" : ".weight");
}

std::string VectorType(const ImportPlan& plan, const PlannedTensor& tensor) {
  return tensor.is_exact ? "F32" : plan.vector_type;
}

uint64_t FloatBytes(std::string_view type) { return type == "F32" ? 4 : 2; }

// Of a matrix of floats: as in the file, unless two tensors of different types make it.
std::string MatrixType(const PlannedTensor& tensor) {
  const bool is_mixed = tensor.other != nullptr && tensor.other->type != tensor.source->type;
  return is_mixed ? "F32" : std::string(tensor.form->name);
}

uint64_t RowBytes(const GgufModel::Tensor& tensor) { return tensor.bytes / tensor.rows; }

// How much of the file becomes the tensor.
uint64_t SourceBytes(const PlannedTensor& tensor) {
  if (tensor.is_vector()) return tensor.source->bytes;
  uint64_t bytes = tensor.rows() * RowBytes(*tensor.source);
  if (tensor.other != nullptr) bytes = tensor.source->bytes + tensor.other->bytes;
  return bytes;
}

uint64_t RowsAtOnce(const PlannedTensor& tensor) {
  return std::clamp<uint64_t>(kPieceBytes / RowBytes(*tensor.source), 1, tensor.rows());
}

void PutFloat(float value, std::string_view type, std::byte* out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  const uint32_t stored = type == "F32"    ? bits
                          : type == "BF16" ? rounded >> 16
                                           : HalfFromFloat(value);
  for (uint64_t byte = 0; byte < FloatBytes(type); ++byte) {
    out[byte] = static_cast<std::byte>(stored >> (8 * byte));
  }
}

// Puts a row's runs of columns in the plan's order; `run_bytes` of each.
void OrderRuns(const PlannedTensor& tensor, std::byte* row, uint64_t run_bytes,
               std::vector<std::byte>& scratch) {
  if (tensor.column_run == 0) return;
  const uint64_t runs = tensor.columns() / tensor.column_run;
  scratch.assign(row, row + runs * run_bytes);
  for (uint64_t run = 0; run < runs; ++run) {
    std::memcpy(row + run * run_bytes, scratch.data() + tensor.run_of(run) * run_bytes, run_bytes);
  }
}

}  // namespace

std::vector<NewTensor> NewTensors(const ImportPlan& plan) {
  std::vector<NewTensor> tensors;
  for (const PlannedTensor& tensor : plan.tensors) {
    const uint64_t rows = tensor.rows(), columns = tensor.columns();
    const auto shape = [&](uint64_t stored_columns) {
      std::vector<uint64_t> sides = tensor.shape;
      sides.back() = stored_columns;
      return sides;
    };
    if (tensor.is_vector()) {
      uint64_t all = 1;
      for (const uint64_t side : tensor.shape) all *= side;
      const std::string type = VectorType(plan, tensor);
      tensors.push_back({WeightName(tensor), type, tensor.shape, all * FloatBytes(type)});
      continue;
    }
    if (tensor.bits == 0) {
      const std::string type = MatrixType(tensor);
      tensors.push_back(
          {WeightName(tensor), type, tensor.shape, rows * columns * FloatBytes(type)});
      continue;
    }
    const uint64_t words = columns * static_cast<uint64_t>(tensor.bits) / 32;
    const uint64_t groups = columns / kGroupSize;
    tensors.push_back({WeightName(tensor), "U32", shape(words), rows * words * 4});
    if (tensor.form->mxfp4) {
      tensors.push_back(
          {absl::StrCat(tensor.module, ".scales"), "U8", shape(groups), rows * groups});
      continue;
    }
    for (const char* part : {".scales", ".biases"}) {
      tensors.push_back(
          {absl::StrCat(tensor.module, part), "F16", shape(groups), rows * groups * 2});
    }
  }
  return tensors;
}

TensorConversion::TensorConversion(const ImportPlan& plan, SafetensorsWriter& writer,
                                   const OnImportProgress& on_progress)
    : plan_(plan), writer_(writer), on_progress_(on_progress) {
  for (const PlannedTensor& tensor : plan.tensors) all_ += SourceBytes(tensor);
}

absl::Status TensorConversion::Run() {
  for (const PlannedTensor& tensor : plan_.tensors) {
    const absl::Status status = tensor.is_vector()   ? WriteVector(tensor)
                                : tensor.bits == 0   ? WriteFloats(tensor)
                                : tensor.form->mxfp4 ? WriteMxfp4(tensor)
                                                     : WriteGroups(tensor);
    if (!status.ok()) return status;
    v1::ConvertedTensors& kind = kinds_[tensor.form->type];
    kind.set_tensors(kind.tensors() + 1);
    kind.set_bytes(kind.bytes() + SourceBytes(tensor));
  }
  return absl::OkStatus();
}

std::vector<v1::ConvertedTensors> TensorConversion::Kinds() {
  std::vector<v1::ConvertedTensors> kinds;
  for (auto& [type, kind] : kinds_) {
    const BlockForm& form = *FindBlockForm(type);
    kind.set_type(std::string(form.name));
    kind.set_bits(static_cast<uint32_t>(form.bits));
    kind.set_exact(form.exact);
    kind.set_relative_error(errors_[type].Relative());
    kinds.push_back(kind);
  }
  return kinds;
}

absl::Status TensorConversion::Advance(uint64_t bytes) {
  done_ += bytes;
  return on_progress_(done_, all_) ? absl::OkStatus()
                                   : absl::CancelledError("the import was stopped");
}

absl::Status TensorConversion::WriteVector(const PlannedTensor& tensor) {
  const std::string type = VectorType(plan_, tensor);
  uint64_t all = 1;
  for (const uint64_t side : tensor.shape) all *= side;
  std::vector<std::byte> out(all * FloatBytes(type));
  for (uint64_t i = 0; i < all; ++i) {
    PutFloat(tensor.NumberAt(i), type, out.data() + i * FloatBytes(type));
  }
  const absl::Status written = writer_.Write(WeightName(tensor), 0, out.data(), out.size());
  return written.ok() ? Advance(SourceBytes(tensor)) : written;
}

absl::Status TensorConversion::ForRows(const PlannedTensor& tensor, const ConvertRowAt& convert,
                                       const std::vector<Part>& parts) {
  for (uint64_t row = 0; row < tensor.rows();) {
    const uint64_t count = std::min(RowsAtOnce(tensor), tensor.rows() - row);
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const RowPlace place = tensor.PlaceOf(row + i);
      const GgufModel::Tensor& source = tensor.SourceOf(place);
      const absl::Status status = convert(source, source.data + place.row * RowBytes(source), i);
      if (!status.ok()) return status;
      taken += RowBytes(source);
    }
    for (const Part& part : parts) {
      const std::string name =
          *part.ending == '\0' ? WeightName(tensor) : absl::StrCat(tensor.module, part.ending);
      const absl::Status status =
          writer_.Write(name, row * part.row_bytes, part.data, count * part.row_bytes);
      if (!status.ok()) return status;
    }
    const absl::Status status = Advance(taken);
    if (!status.ok()) return status;
    row += count;
  }
  return absl::OkStatus();
}

absl::Status TensorConversion::WriteFloats(const PlannedTensor& tensor) {
  const std::string type = MatrixType(tensor);
  const uint64_t columns = tensor.columns(), row_bytes = columns * FloatBytes(type);
  std::vector<std::byte> piece(RowsAtOnce(tensor) * row_bytes), scratch;
  const auto convert = [&](const GgufModel::Tensor& source, const std::byte* from, uint64_t i) {
    const BlockForm& form = *FindBlockForm(source.type);
    std::byte* to = piece.data() + i * row_bytes;
    if (form.name == type) {
      std::memcpy(to, from, row_bytes);
    } else {
      for (uint64_t at = 0; at < columns; ++at) {
        PutFloat(FloatAt(form, from, at), type, to + at * FloatBytes(type));
      }
    }
    OrderRuns(tensor, to, tensor.column_run * FloatBytes(type), scratch);
    return absl::OkStatus();
  };
  return ForRows(tensor, convert, {{"", row_bytes, piece.data()}});
}

absl::Status TensorConversion::WriteGroups(const PlannedTensor& tensor) {
  const uint64_t columns = tensor.columns(), groups = columns / kGroupSize;
  const uint64_t packed_bytes = columns * static_cast<uint64_t>(tensor.bits) / 8;
  const uint64_t run_groups = tensor.column_run / kGroupSize;
  std::vector<std::byte> weights(RowsAtOnce(tensor) * packed_bytes), scratch;
  std::vector<uint16_t> scales(RowsAtOnce(tensor) * groups), biases(RowsAtOnce(tensor) * groups);
  const auto convert = [&](const GgufModel::Tensor& source, const std::byte* from,
                           uint64_t i) -> absl::Status {
    ConversionError& error = errors_[source.type];
    const AffineRow to{weights.data() + i * packed_bytes, scales.data() + i * groups,
                       biases.data() + i * groups};
    ConvertRow(*FindBlockForm(source.type), from, columns, to, error, tensor.bits);
    if (error.infinite) {
      return ReasonStatus(
          absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
          absl::StrCat("tensor '", source.name, "' has a scale that is no finite float16"));
    }
    OrderRuns(tensor, to.weights, run_groups * kGroupSize * static_cast<uint64_t>(tensor.bits) / 8,
              scratch);
    for (uint16_t* pairs : {to.scales, to.biases}) {
      OrderRuns(tensor, reinterpret_cast<std::byte*>(pairs), run_groups * 2, scratch);
    }
    return absl::OkStatus();
  };
  return ForRows(tensor, convert,
                 {{"", packed_bytes, weights.data()},
                  {".scales", groups * 2, scales.data()},
                  {".biases", groups * 2, biases.data()}});
}

absl::Status TensorConversion::WriteMxfp4(const PlannedTensor& tensor) {
  const uint64_t columns = tensor.columns(), groups = columns / kGroupSize;
  std::vector<std::byte> weights(RowsAtOnce(tensor) * columns / 2), scratch;
  std::vector<std::byte> scales(RowsAtOnce(tensor) * groups);
  const auto convert = [&](const GgufModel::Tensor&, const std::byte* from, uint64_t i) {
    std::byte* own_weights = weights.data() + i * columns / 2;
    std::byte* own_scales = scales.data() + i * groups;
    ConvertMxfp4Row(from, columns, own_weights, own_scales);
    OrderRuns(tensor, own_weights, tensor.column_run / 2, scratch);
    OrderRuns(tensor, own_scales, tensor.column_run / kGroupSize, scratch);
    return absl::OkStatus();
  };
  return ForRows(tensor, convert,
                 {{"", columns / 2, weights.data()}, {".scales", groups, scales.data()}});
}

}  // namespace macrame::runtime::gguf
