#pragma once

// The safetensors files of a model folder, memory-mapped. Nothing is read until a tensor's bytes
// are touched; what a rank does not touch never leaves the disk.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace macrame::runtime::engine {

// What a tensor (or module) of a text model is called here. Checkpoints with a vision tower put
// "language_model." before it, or behind "model"; Nemotron's "backbone" is "model" here. Those that
// were saved from the bare model lack "model.": WeightFiles puts it there. So does it with the
// names of DeepSeek-V4.1 as published ("layers.0.attn.wq_a.weight"); its experts' packed 4-bit
// floats are MXFP4's words here, with ".scales".
std::string TextTensorName(std::string_view stored);

// A file with weights that are not part of the model's own: the same ones in its makers' own form
// ("consolidated.safetensors"), or an adapter to put on them.
bool IsAdapterFile(std::string_view name);
bool IsBesideWeights(std::string_view name);

// One tensor as stored: dtype as safetensors spells it ("F32", "BF16", "F16", "U32", …).
struct StoredTensor {
  std::string name;  // TextTensorName
  std::string dtype;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // inside the mapping, not necessarily aligned
  uint64_t begin = 0;               // of it, within the file
  size_t bytes = 0;
  std::string file;  // for messages
};

// Immutable after Open; any thread. Arrays made over the mapping keep a shared_ptr to it.
class WeightFiles {
 public:
  // The shards that model.safetensors.index.json names, or else the folder's model*.safetensors, or
  // else every *.safetensors (hidden ones aside, at most kShardsMax); never IsBesideWeights. A
  // tensor that two files have alike is read from the first. MODEL_FILE_MISSING, MODEL_FILE_BROKEN
  // or MODEL_FORMAT_UNSUPPORTED: two files with different tensors of one name, or an adapter, which
  // is not applied; both say what to do.
  static absl::StatusOr<std::shared_ptr<const WeightFiles>> Open(const std::string& folder);

  ~WeightFiles();
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;

  // Null when no file holds it.
  const StoredTensor* Find(std::string_view name) const;
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const std::string& folder() const { return folder_; }
  // Saved from the bare model, without a head: "layers.0…", and no "lm_head".
  bool is_bare() const { return is_bare_; }

  static constexpr size_t kShardsMax = 2048;

 private:
  WeightFiles() = default;
  absl::Status Map(const std::string& path);
  void NameBareTensors();
  void NamePublishedTensors();

  struct Mapping {
    void* address;
    size_t bytes;
  };
  std::string folder_;
  bool is_bare_ = false;
  std::vector<Mapping> mappings_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace macrame::runtime::engine
