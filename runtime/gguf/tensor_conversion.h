#pragma once

// Turns the tensors of a plan into those of a safetensors file, piece by piece, so that memory is
// bounded whatever the model's size. One thread.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "macrame/v1/model_import.pb.h"
#include "runtime/gguf/import_plan.h"
#include "runtime/gguf/safetensors_writer.h"

namespace macrame::runtime::gguf {

inline constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

// Bytes of the file that are done, of all; false ends the import.
using OnImportProgress = std::function<bool(uint64_t done, uint64_t all)>;

// The tensors that the safetensors file will hold.
std::vector<NewTensor> NewTensors(const ImportPlan& plan);

class TensorConversion {
 public:
  TensorConversion(const ImportPlan& plan, SafetensorsWriter& writer,
                   const OnImportProgress& on_progress);

  // Goes through all tensors. CANCELLED when on_progress says so; MODEL_FILE_BROKEN of a scale that
  // is no finite float16.
  absl::Status Run();

  // By the kind of blocks in the file, in the order of their numbers in GGUF.
  std::vector<v1::ConvertedTensors> Kinds();

 private:
  absl::Status Advance(uint64_t bytes);
  absl::Status WriteVector(const PlannedTensor& tensor);
  absl::Status WriteFloats(const PlannedTensor& tensor);
  absl::Status WriteGroups(const PlannedTensor& tensor);
  absl::Status WriteMxfp4(const PlannedTensor& tensor);
  // A tensor of the result that the rows of one of the plan become: how its name ends, the bytes of
  // a row, and where those of a piece are put.
  struct Part {
    const char* ending;
    uint64_t row_bytes;
    const void* data;
  };
  // Converts the row that lies at `from` in the file to row `i` of the piece.
  using ConvertRowAt = std::function<absl::Status(const GgufModel::Tensor& source,
                                                  const std::byte* from, uint64_t i)>;
  // Piece by piece: converts its rows, writes its parts, tells of progress.
  absl::Status ForRows(const PlannedTensor& tensor, const ConvertRowAt& convert,
                       const std::vector<Part>& parts);

  const ImportPlan& plan_;
  SafetensorsWriter& writer_;
  const OnImportProgress& on_progress_;
  uint64_t done_ = 0, all_ = 0;
  std::map<uint32_t, v1::ConvertedTensors> kinds_;
  std::map<uint32_t, ConversionError> errors_;
};

}  // namespace macrame::runtime::gguf
