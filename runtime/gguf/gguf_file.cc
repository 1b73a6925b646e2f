#include "runtime/gguf/gguf_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/reasons.h"
#include "runtime/gguf/block_forms.h"
#include "transport/regular_file.h"

namespace macrame::runtime::gguf {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kAlignmentDefault = 32, kAlignmentMax = 1 << 20;
constexpr uint64_t kNameBytesMax = 1024;
constexpr uint32_t kDimensionsMax = 4;

// Kinds of metadata values, by the file's numbers.
enum Kind : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

// Thrown inside this file only; ParseGguf turns it into a status.
struct Fault {
  std::string message;
  const char* code = reasons::kModelFileBroken;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }

  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, Bytes(sizeof(T)), sizeof(T));
    return value;
  }

  std::string TakeString(uint64_t most) {
    const auto size = Take<uint64_t>();
    if (size > most) throw Fault{absl::StrCat("a text of ", size, " bytes, above ", most)};
    const std::byte* data = Bytes(size);
    return std::string(reinterpret_cast<const char*>(data), size);
  }

  // A key or a tensor's name: printable, since messages and files will hold it.
  std::string TakeName() {
    std::string name = TakeString(kNameBytesMax);
    const auto printable = [](char letter) { return letter > ' ' && letter <= '~'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), printable)) {
      throw Fault{absl::StrCat("'", absl::CHexEscape(name), "' is no name")};
    }
    return name;
  }

  // An array's length, once it is certain that so many elements of at least `least` bytes fit.
  uint64_t TakeCount(uint64_t least) {
    const auto count = Take<uint64_t>();
    if (count > kArrayElementsMax || count > (bytes_.size() - position_) / least) {
      throw Fault{absl::StrCat("an array of ", count, " elements, above ", kArrayElementsMax,
                               " or beyond the end of the file")};
    }
    return count;
  }

 private:
  const std::byte* Bytes(uint64_t size) {
    if (size > bytes_.size() - position_) throw Fault{"it ends in the middle of its header"};
    const std::byte* data = bytes_.data() + position_;
    position_ += size;
    return data;
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

int64_t TakeInteger(Reader& reader, uint32_t kind) {
  switch (kind) {
    case kUint8:
      return reader.Take<uint8_t>();
    case kInt8:
      return reader.Take<int8_t>();
    case kUint16:
      return reader.Take<uint16_t>();
    case kInt16:
      return reader.Take<int16_t>();
    case kUint32:
      return reader.Take<uint32_t>();
    case kInt32:
      return reader.Take<int32_t>();
    case kUint64:
      return static_cast<int64_t>(std::min<uint64_t>(reader.Take<uint64_t>(), uint64_t{INT64_MAX}));
    case kInt64:
      return reader.Take<int64_t>();
    case kBool:
      return reader.Take<uint8_t>() != 0 ? 1 : 0;
    default:
      throw Fault{absl::StrCat("a value of kind ", kind, ", which GGUF does not have")};
  }
}

double TakeNumber(Reader& reader, uint32_t kind) {
  return kind == kFloat32 ? static_cast<double>(reader.Take<float>()) : reader.Take<double>();
}

uint64_t LeastBytes(uint32_t kind) {
  switch (kind) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    default:
      return 8;
  }
}

MetadataValue TakeArray(Reader& reader) {
  const auto kind = reader.Take<uint32_t>();
  if (kind == kArray) throw Fault{"an array of arrays"};
  const uint64_t count = reader.TakeCount(LeastBytes(kind));
  if (kind == kString) {
    std::vector<std::string> texts;
    texts.reserve(count);
    for (uint64_t i = 0; i < count; ++i) texts.push_back(reader.TakeString(kMetadataBytesMax));
    return texts;
  }
  if (kind == kFloat32 || kind == kFloat64) {
    std::vector<double> numbers(count);
    for (double& number : numbers) number = TakeNumber(reader, kind);
    return numbers;
  }
  std::vector<int64_t> integers(count);
  for (int64_t& integer : integers) integer = TakeInteger(reader, kind);
  return integers;
}

MetadataValue TakeValue(Reader& reader) {
  const auto kind = reader.Take<uint32_t>();
  if (kind == kString) return reader.TakeString(kMetadataBytesMax);
  if (kind == kArray) return TakeArray(reader);
  if (kind == kBool) return TakeInteger(reader, kind) != 0;
  if (kind == kFloat32 || kind == kFloat64) return TakeNumber(reader, kind);
  return TakeInteger(reader, kind);
}

void CheckBegin(Reader& reader) {
  if (reader.Take<uint32_t>() != kMagic) {
    throw Fault{"it does not begin as a GGUF file does", reasons::kModelFormatUnsupported};
  }
  const auto version = reader.Take<uint32_t>();
  if (version == 2 || version == 3) return;
  const bool other_end = (version & 0xFFFFU) == 0 && version != 0;
  throw Fault{other_end ? std::string("it is stored big-endian")
                        : absl::StrCat("it is of version ", version, "; 2 and 3 are known"),
              reasons::kModelFormatUnsupported};
}

TensorPlace TakeTensor(Reader& reader) {
  TensorPlace tensor;
  tensor.name = reader.TakeName();
  const auto dimensions = reader.Take<uint32_t>();
  if (dimensions == 0 || dimensions > kDimensionsMax) {
    throw Fault{absl::StrCat("tensor '", tensor.name, "' has ", dimensions, " dimensions")};
  }
  tensor.dimensions = static_cast<int>(dimensions);
  tensor.rows = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.Take<uint64_t>();
    uint64_t& side = i == 0 ? tensor.columns : tensor.rows;
    if (size == 0 || size > kDimensionMax || (i > 1 && side > kDimensionMax / size)) {
      throw Fault{absl::StrCat("tensor '", tensor.name, "' has a side of ", size)};
    }
    side = i > 1 ? side * size : size;
    if (i == 2) tensor.experts = size;
  }
  tensor.type = reader.Take<uint32_t>();
  tensor.offset = reader.Take<uint64_t>();
  return tensor;
}

// From offsets within the data to those within the file; how many bytes each has.
void PlaceTensors(std::vector<TensorPlace>& tensors, uint64_t data_begin, uint64_t file_bytes) {
  for (TensorPlace& tensor : tensors) {
    const BlockForm* form = FindBlockForm(tensor.type);
    if (form == nullptr) continue;  // refused by name when somebody wants it
    if (tensor.columns % form->elements != 0) {
      throw Fault{absl::StrCat("tensor '", tensor.name, "' has rows of ", tensor.columns,
                               " numbers, no whole blocks of ", std::string(form->name))};
    }
    const uint64_t row_bytes = tensor.columns / form->elements * form->bytes;
    if (data_begin > file_bytes || tensor.offset > file_bytes - data_begin ||
        tensor.rows > (file_bytes - data_begin - tensor.offset) / row_bytes) {
      throw Fault{absl::StrCat("tensor '", tensor.name, "' goes beyond the end of the file")};
    }
    tensor.offset += data_begin;
    tensor.bytes = tensor.rows * row_bytes;
  }
}

GgufHeader Parse(std::span<const std::byte> file) {
  Reader reader(file);
  CheckBegin(reader);
  const auto tensor_count = reader.Take<uint64_t>(), entry_count = reader.Take<uint64_t>();
  if (tensor_count > kTensorsMax) throw Fault{absl::StrCat(tensor_count, " tensors")};
  if (entry_count > kMetadataEntriesMax) throw Fault{absl::StrCat(entry_count, " metadata keys")};
  GgufHeader header;
  for (uint64_t i = 0; i < entry_count; ++i) {
    std::string key = reader.TakeName();
    header.metadata.insert_or_assign(std::move(key), TakeValue(reader));
    if (reader.position() > kMetadataBytesMax) throw Fault{"more than 512 MiB of metadata"};
  }
  for (uint64_t i = 0; i < tensor_count; ++i) header.tensors.push_back(TakeTensor(reader));
  uint64_t alignment = kAlignmentDefault;
  if (const auto found = header.metadata.find("general.alignment");
      found != header.metadata.end()) {
    const int64_t* named = std::get_if<int64_t>(&found->second);
    alignment = named == nullptr || *named < 1 ? 0 : static_cast<uint64_t>(*named);
    if (!std::has_single_bit(alignment) || alignment > kAlignmentMax) {
      throw Fault{"its alignment is no power of two up to 1 MiB"};
    }
  }
  const uint64_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  PlaceTensors(header.tensors, data_begin, file.size());
  return header;
}

absl::Status Broken(const std::string& path, const std::string& what) {
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                      absl::StrCat(path, ": ", what));
}

absl::Status NoFile(const absl::Status& kind) {
  v1::Reason reason = MakeReason(reasons::kModelFileBroken, std::string(kind.message()));
  reason.set_remedy("name the file itself, as it was downloaded to a disk");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

absl::StatusOr<GgufHeader> ParseGguf(std::span<const std::byte> file, const std::string& name) {
  try {
    return Parse(file);
  } catch (const Fault& fault) {
    return ReasonStatus(absl::StatusCode::kDataLoss, fault.code,
                        absl::StrCat(name, ": ", fault.message));
  }
}

absl::StatusOr<std::unique_ptr<const GgufModel>> GgufModel::Open(const std::string& path) {
  std::unique_ptr<GgufModel> model(new GgufModel);
  model->path_ = path;
  auto header = model->Map(path);
  if (!header.ok()) return header.status();
  model->metadata_ = std::move(header->metadata);
  const absl::Status parts = model->MapOtherParts(path);
  if (!parts.ok()) return parts;
  return model;
}

GgufModel::~GgufModel() {
  for (const Mapping& mapping : mappings_) munmap(mapping.address, mapping.bytes);
}

absl::Status CheckIsFile(const std::string& path, const struct stat& info) {
  const absl::Status is_file = transport::CheckIsRegular(path, info);
  return is_file.ok() ? is_file : NoFile(is_file);
}

absl::StatusOr<GgufHeader> GgufModel::Map(const std::string& path) {
  const auto file = transport::RegularFile::Open(path);
  if (absl::IsInvalidArgument(file.status())) return NoFile(file.status());
  if (!file.ok()) {
    v1::Reason reason =
        MakeReason(reasons::kModelFileMissing, std::string(file.status().message()));
    reason.set_remedy("check the file's name and who may read it");
    return ReasonStatus(absl::StatusCode::kNotFound, reason);
  }
  const size_t bytes = static_cast<size_t>(file->size());
  if (bytes == 0) return Broken(path, "it is empty");
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file->fd(), 0);
  if (address == MAP_FAILED) {
    return Broken(path, absl::StrCat("it can't be mapped: ", std::strerror(errno)));
  }
  mappings_.push_back({address, bytes});
  const auto* data = static_cast<const std::byte*>(address);
  auto header = ParseGguf({data, bytes}, path);
  if (!header.ok()) return header;
  for (const TensorPlace& place : header->tensors) {
    Tensor tensor;
    static_cast<TensorPlace&>(tensor) = place;
    tensor.data = data + (place.bytes == 0 ? 0 : place.offset);
    if (!tensors_.emplace(place.name, tensor).second) {
      return Broken(path, absl::StrCat("tensor '", place.name, "' is there twice"));
    }
  }
  return header;
}

absl::Status GgufModel::MapOtherParts(const std::string& path) {
  const int64_t count = Integer("split.count").value_or(1);
  if (count <= 1) return absl::OkStatus();
  if (count > int64_t{kPartsMax}) return Broken(path, absl::StrCat("it has ", count, " parts"));
  const std::string ending = absl::StrFormat("-00001-of-%05d.gguf", count);
  if (!absl::EndsWith(path, ending)) {
    v1::Reason reason = MakeReason(reasons::kModelFileMissing,
                                   absl::StrCat(path, " is one of ", count, " parts of a model"));
    reason.set_remedy(
        absl::StrCat("name the first part, which ends in ", ending, ", with the others beside it"));
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
  }
  const std::string begin = path.substr(0, path.size() - ending.size());
  for (int64_t part = 2; part <= count; ++part) {
    const auto header = Map(absl::StrFormat("%s-%05d-of-%05d.gguf", begin, part, count));
    if (!header.ok()) return header.status();
  }
  const int64_t expected = Integer("split.tensors.count").value_or(0);
  if (expected > 0 && static_cast<uint64_t>(expected) != tensors_.size()) {
    return Broken(path,
                  absl::StrCat("its parts hold ", tensors_.size(), " tensors, not ", expected));
  }
  return absl::OkStatus();
}

const GgufModel::Tensor* GgufModel::FindTensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const MetadataValue* GgufModel::Find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufModel::KeysWith(std::string_view prefix) const {
  std::vector<std::string> keys;
  for (auto it = metadata_.lower_bound(prefix); it != metadata_.end(); ++it) {
    if (it->first.compare(0, prefix.size(), prefix) != 0) break;
    keys.push_back(it->first);
  }
  return keys;
}

std::optional<int64_t> GgufModel::Integer(std::string_view key) const {
  const auto* value = std::get_if<int64_t>(Find(key));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> GgufModel::Number(std::string_view key) const {
  if (const auto integer = Integer(key); integer.has_value()) return static_cast<double>(*integer);
  const auto* value = std::get_if<double>(Find(key));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufModel::Flag(std::string_view key) const {
  const auto* value = std::get_if<bool>(Find(key));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::string> GgufModel::Text(std::string_view key) const {
  const auto* value = std::get_if<std::string>(Find(key));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::vector<std::string>* GgufModel::Texts(std::string_view key) const {
  return std::get_if<std::vector<std::string>>(Find(key));
}

const std::vector<int64_t>* GgufModel::Integers(std::string_view key) const {
  return std::get_if<std::vector<int64_t>>(Find(key));
}

const std::vector<double>* GgufModel::Numbers(std::string_view key) const {
  return std::get_if<std::vector<double>>(Find(key));
}

}  // namespace macrame::runtime::gguf
