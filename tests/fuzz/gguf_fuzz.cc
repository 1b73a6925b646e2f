// A model in GGUF: what its header says must hold within the file, and its blocks can be converted.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "runtime/gguf/block_forms.h"
#include "runtime/gguf/gguf_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame::runtime::gguf;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto header = ParseGguf({bytes, size}, "fuzzed");
  if (!header.ok()) return 0;
  if (header->tensors.size() > kTensorsMax || header->metadata.size() > kMetadataEntriesMax) {
    std::abort();
  }
  for (const TensorPlace& tensor : header->tensors) {
    const BlockForm* form = FindBlockForm(tensor.type);
    if (form == nullptr) continue;
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
    const std::byte* last_row = bytes + tensor.offset + tensor.bytes - tensor.bytes / tensor.rows;
    if (form->bits == 0) {
      FloatAt(*form, last_row, tensor.columns - 1);
      continue;
    }
    std::vector<std::byte> weights(tensor.columns * static_cast<size_t>(form->bits) / 8);
    std::vector<uint16_t> scales(tensor.columns / kGroupSize), biases(tensor.columns / kGroupSize);
    if (form->mxfp4) {
      std::vector<std::byte> powers(tensor.columns / kGroupSize);
      ConvertMxfp4Row(last_row, tensor.columns, weights.data(), powers.data());
      continue;
    }
    ConversionError error;
    ConvertRow(*form, last_row, tensor.columns, {weights.data(), scales.data(), biases.data()},
               error);
  }
  return 0;
}
