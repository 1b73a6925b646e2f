#include "runtime/text/safetensors_header.h"

#include <memory>
#include <utility>

#include "proto/reason_codes.h"
#include "runtime/text/abi_bridge.h"

namespace macrame::runtime::text {
namespace {

constexpr FailureReasons kReasons = {reasons::kModelFileMissing, reasons::kModelFileBroken,
                                     reasons::kBadRequest};

struct HeaderDeleter {
  void operator()(MacrameTextHeaderHandle* handle) const { macrame_text_safetensors_free(handle); }
};

TensorEntry Copy(const MacrameTextTensorView& view) {
  TensorEntry entry;
  entry.name = View(view.name);
  entry.dtype = View(view.dtype);
  entry.shape.assign(view.shape, view.shape + view.shape_size);
  entry.begin = view.begin;
  entry.end = view.end;
  return entry;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path) {
  SafetensorsHeader header;
  MacrameTextHeaderHandle* raw = nullptr;
  size_t tensors = 0;
  size_t pairs = 0;
  MacrameTextBytes error{};
  auto status =
      macrame_text_safetensors_read(Lend(path), &raw, &tensors, &pairs, &header.file_bytes, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  const std::unique_ptr<MacrameTextHeaderHandle, HeaderDeleter> handle(raw);
  header.tensors.reserve(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    MacrameTextTensorView view{};
    status = macrame_text_safetensors_tensor(raw, i, &view, &error);
    if (status != 0) return TakeStatus(status, error, kReasons);
    header.tensors.push_back(Copy(view));
  }
  for (size_t i = 0; i < pairs; ++i) {
    MacrameTextMetadataView view{};
    status = macrame_text_safetensors_metadata(raw, i, &view, &error);
    if (status != 0) return TakeStatus(status, error, kReasons);
    header.metadata.emplace(View(view.key), View(view.value));
  }
  return header;
}

}  // namespace macrame::runtime::text
