#pragma once

// A model in llama.cpp's GGUF: its metadata and where its tensors lie. Nothing in the file is
// believed before it is held against the file's size and the bounds below; weights are mapped, not
// read. Why not MLX's own reader: it copies all weights into memory, turns most kinds of blocks
// into float16 and trusts the sizes that a file declares.
//
// Source of the format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
//
// Errors: MODEL_FILE_MISSING, MODEL_FILE_BROKEN (says where), MODEL_FORMAT_UNSUPPORTED (version 1,
// big-endian, or no GGUF at all). Immutable once opened; any thread.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace macrame::runtime::gguf {

inline constexpr uint64_t kMetadataEntriesMax = 65'536;
inline constexpr uint64_t kMetadataBytesMax = uint64_t{512} << 20;
inline constexpr uint64_t kArrayElementsMax = uint64_t{1} << 22;
inline constexpr uint64_t kTensorsMax = 200'000;
inline constexpr uint64_t kDimensionMax = uint64_t{1} << 40;
inline constexpr uint32_t kPartsMax = 1'000;  // files of one model

// Numbers and flags are kept as wide as they come; arrays hold one kind each, never arrays.
using MetadataValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                   std::vector<double>, std::vector<std::string>>;

// `columns` numbers lie side by side; a vector has one row. What has three dimensions are the maps
// of all experts of a layer, one after the other.
struct TensorPlace {
  std::string name;
  uint32_t type = 0;  // block_forms.h
  int dimensions = 0;
  uint64_t columns = 0;
  uint64_t rows = 0;     // of all layers of a tensor of three dimensions together
  uint64_t experts = 1;  // its third dimension
  uint64_t offset = 0;   // from the file's begin
  uint64_t bytes = 0;    // 0 when the type is not known
};

// One file's own contents.
struct GgufHeader {
  std::map<std::string, MetadataValue, std::less<>> metadata;
  std::vector<TensorPlace> tensors;
};

// `name` is for messages.
absl::StatusOr<GgufHeader> ParseGguf(std::span<const std::byte> file, const std::string& name);

// One model: a file, or all the files of one that was split ("…-00001-of-00003.gguf").
// MODEL_FILE_BROKEN (INVALID_ARGUMENT) when `path`, of which `info` is known, is a pipe, a device,
// a socket or a folder: opening one may wait for ever, and none holds a model.
absl::Status CheckIsFile(const std::string& path, const struct stat& info);

class GgufModel {
 public:
  struct Tensor : TensorPlace {
    const std::byte* data = nullptr;
  };

  // `path` is the only file, or the first of several.
  static absl::StatusOr<std::unique_ptr<const GgufModel>> Open(const std::string& path);

  ~GgufModel();
  GgufModel(const GgufModel&) = delete;
  GgufModel& operator=(const GgufModel&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const Tensor* FindTensor(std::string_view name) const;

  // Unset when the key is not there or holds another kind.
  std::optional<int64_t> Integer(std::string_view key) const;
  std::optional<double> Number(std::string_view key) const;  // an integer too
  std::optional<bool> Flag(std::string_view key) const;
  std::optional<std::string> Text(std::string_view key) const;
  // Null when the key is not there or holds another kind.
  const std::vector<std::string>* Texts(std::string_view key) const;
  const std::vector<int64_t>* Integers(std::string_view key) const;
  const std::vector<double>* Numbers(std::string_view key) const;
  // Null when the key is not there.
  const MetadataValue* Find(std::string_view key) const;
  // All that begin so, in order.
  std::vector<std::string> KeysWith(std::string_view prefix) const;

 private:
  GgufModel() = default;
  absl::StatusOr<GgufHeader> Map(const std::string& path);
  absl::Status MapOtherParts(const std::string& path);

  struct Mapping {
    void* address;
    size_t bytes;
  };
  std::string path_;
  std::vector<Mapping> mappings_;
  std::map<std::string, MetadataValue, std::less<>> metadata_;  // of the first file
  std::map<std::string, Tensor, std::less<>> tensors_;          // of all
};

}  // namespace macrame::runtime::gguf
