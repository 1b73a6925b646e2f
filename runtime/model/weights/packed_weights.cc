#include "runtime/model/weights/packed_weights.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/model/weights/fp8_weights.h"

namespace macrame::runtime::engine {
namespace {

bool IsBeside(std::string_view name, std::string_view ending, const WeightFiles& files) {
  if (name.size() < ending.size() || name.substr(name.size() - ending.size()) != ending) {
    return false;
  }
  const std::string module(name.substr(0, name.size() - ending.size()));
  return files.Find(absl::StrCat(module, std::string(kPackedWeight))) != nullptr;
}

}  // namespace

bool IsPackedWeight(const StoredTensor& tensor) {
  return absl::EndsWith(tensor.name, std::string(kPackedWeight));
}

bool IsPackedScale(const StoredTensor& tensor, const WeightFiles& files) {
  return IsBeside(tensor.name, kPackedScale, files);
}

bool IsPackedShape(const StoredTensor& tensor, const WeightFiles& files) {
  return IsBeside(tensor.name, kPackedShape, files);
}

uint64_t HeldBytes(const StoredTensor& tensor, const WeightFiles& files) {
  if (IsFp8(tensor)) return uint64_t{2} * tensor.bytes;
  if (IsFp8Scale(tensor, files) || IsPackedShape(tensor, files)) return 0;
  return IsPackedScale(tensor, files) ? uint64_t{2} * tensor.bytes : tensor.bytes;
}

}  // namespace macrame::runtime::engine
