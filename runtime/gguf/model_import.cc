#include "runtime/gguf/model_import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/bytes.h"
#include "proto/reasons.h"
#include "runtime/gguf/float16.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/import_plan.h"
#include "runtime/gguf/safetensors_writer.h"
#include "runtime/gguf/tokenizer_files.h"
#include "runtime/model_files/model_description.h"
#include "runtime/text/chat_template.h"

namespace macrame::runtime::gguf {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kOtherFilesBytes = uint64_t{64} << 20;  // tokenizer and config, at most
constexpr std::array kTokenizerFiles = {"tokenizer.json",          "tokenizer_config.json",
                                        "special_tokens_map.json", "generation_config.json",
                                        "chat_template.jinja",     "chat_template.json"};

absl::Status WriteFailed(const std::string& path, const std::string& why) {
  return ReasonStatus(absl::StatusCode::kInternal, reasons::kDiskWriteFailed,
                      absl::StrCat(path, " can't be written: ", why));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file ? absl::OkStatus() : WriteFailed(path, std::strerror(errno));
}

std::string WeightName(const PlannedTensor& tensor) {
  return absl::StrCat(tensor.module, tensor.is_bias ? ".bias" : ".weight");
}

uint64_t FloatBytes(std::string_view type) { return type == "F32" ? 4 : 2; }

// The tensors that the safetensors file will hold.
std::vector<NewTensor> NewTensors(const ImportPlan& plan) {
  std::vector<NewTensor> tensors;
  for (const PlannedTensor& tensor : plan.tensors) {
    const uint64_t rows = tensor.source->rows, columns = tensor.source->columns;
    const auto shape = [&](uint64_t stored_columns) -> std::vector<uint64_t> {
      const uint64_t experts = tensor.source->experts;
      if (tensor.source->dimensions == 3) return {experts, rows / experts, stored_columns};
      return {rows, stored_columns};
    };
    if (tensor.is_vector()) {
      tensors.push_back({WeightName(tensor),
                         plan.vector_type,
                         {columns},
                         columns * FloatBytes(plan.vector_type)});
    } else if (tensor.form->bits == 0) {
      tensors.push_back({WeightName(tensor), std::string(tensor.form->name), shape(columns),
                         tensor.source->bytes});
    } else {
      const uint64_t words = columns * static_cast<uint64_t>(tensor.form->bits) / 32;
      const uint64_t groups = columns / kGroupSize;
      tensors.push_back({WeightName(tensor), "U32", shape(words), rows * words * 4});
      for (const char* part : {".scales", ".biases"}) {
        tensors.push_back(
            {absl::StrCat(tensor.module, part), "F16", shape(groups), rows * groups * 2});
      }
    }
  }
  return tensors;
}

// Goes through all tensors, piece by piece.
class Conversion {
 public:
  Conversion(const ImportPlan& plan, SafetensorsWriter& writer, const OnImportProgress& on_progress)
      : plan_(plan), writer_(writer), on_progress_(on_progress) {
    for (const PlannedTensor& tensor : plan.tensors) all_ += tensor.source->bytes;
  }

  absl::Status Run() {
    for (const PlannedTensor& tensor : plan_.tensors) {
      const absl::Status status = tensor.is_vector()       ? WriteVector(tensor)
                                  : tensor.form->bits == 0 ? WriteFloats(tensor)
                                                           : WriteGroups(tensor);
      if (!status.ok()) return status;
      v1::ConvertedTensors& kind = kinds_[tensor.form->type];
      kind.set_tensors(kind.tensors() + 1);
      kind.set_bytes(kind.bytes() + tensor.source->bytes);
    }
    return absl::OkStatus();
  }

  // In the order of their numbers in GGUF.
  std::vector<v1::ConvertedTensors> Kinds() {
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

 private:
  absl::Status Advance(uint64_t bytes) {
    done_ += bytes;
    return on_progress_(done_, all_) ? absl::OkStatus()
                                     : absl::CancelledError("the import was stopped");
  }

  static uint64_t RowsAtOnce(const PlannedTensor& tensor) {
    const uint64_t row_bytes = tensor.source->bytes / tensor.source->rows;
    return std::clamp<uint64_t>(kPieceBytes / row_bytes, 1, tensor.source->rows);
  }

  absl::Status WriteVector(const PlannedTensor& tensor) {
    std::vector<std::byte> out;
    for (uint64_t i = 0; i < tensor.source->columns; ++i) {
      const float value = FloatAt(*tensor.form, tensor.source->data, tensor.SourceRow(i));
      const auto bits = std::bit_cast<uint32_t>(value);
      const uint32_t stored = plan_.vector_type == "F32"    ? bits
                              : plan_.vector_type == "BF16" ? bits >> 16
                                                            : HalfFromFloat(value);
      for (uint64_t byte = 0; byte < FloatBytes(plan_.vector_type); ++byte) {
        out.push_back(static_cast<std::byte>(stored >> (8 * byte)));
      }
    }
    const absl::Status written = writer_.Write(WeightName(tensor), 0, out.data(), out.size());
    return written.ok() ? Advance(tensor.source->bytes) : written;
  }

  absl::Status WriteFloats(const PlannedTensor& tensor) {
    const uint64_t row_bytes = tensor.source->bytes / tensor.source->rows;
    std::vector<std::byte> piece(RowsAtOnce(tensor) * row_bytes);
    for (uint64_t row = 0; row < tensor.source->rows;) {
      const uint64_t count = std::min(RowsAtOnce(tensor), tensor.source->rows - row);
      for (uint64_t i = 0; i < count; ++i) {
        std::memcpy(piece.data() + i * row_bytes,
                    tensor.source->data + tensor.SourceRow(row + i) * row_bytes, row_bytes);
      }
      absl::Status status =
          writer_.Write(WeightName(tensor), row * row_bytes, piece.data(), count * row_bytes);
      if (status.ok()) status = Advance(count * row_bytes);
      if (!status.ok()) return status;
      row += count;
    }
    return absl::OkStatus();
  }

  absl::Status WriteGroups(const PlannedTensor& tensor) {
    const uint64_t columns = tensor.source->columns, groups = columns / kGroupSize;
    const uint64_t row_bytes = tensor.source->bytes / tensor.source->rows;
    const uint64_t packed_bytes = columns * static_cast<uint64_t>(tensor.form->bits) / 8;
    const uint64_t rows_at_once = RowsAtOnce(tensor);
    std::vector<std::byte> weights(rows_at_once * packed_bytes);
    std::vector<uint16_t> scales(rows_at_once * groups), biases(rows_at_once * groups);
    ConversionError error;
    for (uint64_t row = 0; row < tensor.source->rows;) {
      const uint64_t count = std::min(rows_at_once, tensor.source->rows - row);
      for (uint64_t i = 0; i < count; ++i) {
        ConvertRow(*tensor.form, tensor.source->data + tensor.SourceRow(row + i) * row_bytes,
                   columns,
                   {weights.data() + i * packed_bytes, scales.data() + i * groups,
                    biases.data() + i * groups},
                   error);
      }
      if (error.infinite) {
        return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                            absl::StrCat("tensor '", tensor.source->name,
                                         "' has a scale that is no finite float16"));
      }
      absl::Status status = writer_.Write(WeightName(tensor), row * packed_bytes, weights.data(),
                                          count * packed_bytes);
      const uint64_t at = row * groups * 2, bytes = count * groups * 2;
      const std::string& module = tensor.module;
      if (status.ok())
        status = writer_.Write(absl::StrCat(module, ".scales"), at, scales.data(), bytes);
      if (status.ok())
        status = writer_.Write(absl::StrCat(module, ".biases"), at, biases.data(), bytes);
      if (status.ok()) status = Advance(count * row_bytes);
      if (!status.ok()) return status;
      row += count;
    }
    errors_[tensor.form->type].Add(error);
    return absl::OkStatus();
  }

  const ImportPlan& plan_;
  SafetensorsWriter& writer_;
  const OnImportProgress& on_progress_;
  uint64_t done_ = 0, all_ = 0;
  std::map<uint32_t, v1::ConvertedTensors> kinds_;
  std::map<uint32_t, ConversionError> errors_;
};

absl::Status WriteTokenizer(const GgufModel& model, const ImportOptions& options,
                            const std::string& folder) {
  if (options.tokenizer_folder.empty()) {
    const auto files = TokenizerFiles(model);
    if (!files.ok()) return files.status();
    for (const auto& [name, text] : *files) {
      const absl::Status written = WriteText(absl::StrCat(folder, "/", name), text);
      if (!written.ok()) return written;
    }
  } else {
    for (const char* name : kTokenizerFiles) {
      std::error_code error;
      const fs::path from = fs::path(options.tokenizer_folder) / name;
      struct stat info {};
      if (stat(from.c_str(), &info) != 0) continue;
      if (absl::Status is_file = CheckIsFile(from.string(), info); !is_file.ok()) return is_file;
      fs::copy_file(from, fs::path(folder) / name, fs::copy_options::overwrite_existing, error);
      if (error) return WriteFailed(absl::StrCat(folder, "/", name), error.message());
    }
  }
  return CheckTokenizer(model, folder);
}

absl::Status CheckDiskSpace(const std::string& folder, uint64_t bytes) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return absl::OkStatus();  // writing will say so
  const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free >= bytes) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kDiskShort,
                      absl::StrCat(folder, " has ", FormatBytes(Bytes(free)),
                                   " free, the model takes ", FormatBytes(Bytes(bytes))));
}

// The folder while it is written; gone with its object unless it took its place.
class NewFolder {
 public:
  NewFolder(const std::string& into, const std::string& name)
      : final_((fs::path(into) / name).string()),
        path_((fs::path(into) / absl::StrCat(".", name, ".importing")).string()) {}
  ~NewFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& final_path() const { return final_; }

  absl::Status Make() const {
    std::error_code error;
    if (fs::exists(final_, error)) {
      return ReasonStatus(absl::StatusCode::kAlreadyExists, reasons::kModelExists,
                          absl::StrCat(final_, " is there already"));
    }
    fs::remove_all(path_, error);
    fs::create_directories(path_, error);
    return error ? WriteFailed(path_, error.message()) : absl::OkStatus();
  }

  absl::Status TakePlace() {
    for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
      if (absl::Status synced = Sync(entry.path()); !synced.ok()) return synced;
    }
    std::error_code error;
    fs::rename(path_, final_, error);
    if (error) return WriteFailed(final_, error.message());
    path_.clear();
    return Sync(fs::path(final_).parent_path());
  }

 private:
  // On the disk, not only in the cache of it.
  static absl::Status Sync(const fs::path& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = fd >= 0 && fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) close(fd);
    return synced ? absl::OkStatus() : WriteFailed(path.string(), std::strerror(error));
  }

  const std::string final_;
  std::string path_;
};

absl::StatusOr<std::string> NameOf(const ImportOptions& options) {
  std::string name = options.name;
  if (name.empty()) {
    name = fs::path(options.file).filename().string();
    if (absl::EndsWithIgnoreCase(name, ".gguf")) name.resize(name.size() - 5);
    const size_t part = name.rfind("-00001-of-");
    if (part != std::string::npos && part + 15 == name.size()) name.resize(part);
  }
  if (!name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
      name.find('\0') == std::string::npos && name.size() <= 200) {
    return name;
  }
  v1::Reason reason =
      MakeReason(reasons::kBadRequest, absl::StrCat("'", name, "' can't name a model"));
  reason.set_remedy("give --name a name without '/' that does not begin with '.'");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

absl::StatusOr<v1::ModelImportResult> ImportModel(const ImportOptions& options,
                                                  const OnImportProgress& on_progress) {
  const auto name = NameOf(options);
  if (!name.ok()) return name.status();
  const auto model = GgufModel::Open(options.file);
  if (!model.ok()) return model.status();
  const auto plan = PlanImport(**model);
  if (!plan.ok()) return plan.status();
  const std::vector<NewTensor> tensors = NewTensors(*plan);
  uint64_t bytes = kOtherFilesBytes;
  for (const NewTensor& tensor : tensors) bytes += tensor.bytes;

  NewFolder folder(options.into, *name);
  absl::Status status = folder.Make();
  if (status.ok()) status = CheckDiskSpace(folder.path(), bytes);
  // What may be refused comes before what takes long.
  if (status.ok()) status = WriteTokenizer(**model, options, folder.path());
  if (!status.ok()) return status;
  auto writer =
      SafetensorsWriter::Create(absl::StrCat(folder.path(), "/model.safetensors"), tensors);
  if (!writer.ok()) return writer.status();
  Conversion conversion(*plan, **writer, on_progress);
  status = conversion.Run();
  if (status.ok()) status = (*writer)->Close();
  if (status.ok()) {
    status = WriteText(absl::StrCat(folder.path(), "/config.json"), plan->config.dump(1));
  }
  if (!status.ok()) return status;
  auto description = DescribeModel(folder.path());
  if (!description.ok()) return description.status();
  const auto chat_template = text::ChatTemplate::Load(folder.path());
  status = folder.TakePlace();
  if (!status.ok()) return status;

  v1::ModelImportResult result;
  description->set_name(*name);
  description->set_path(folder.final_path());
  *result.mutable_model() = *std::move(description);
  for (const v1::ConvertedTensors& kind : conversion.Kinds()) *result.add_kinds() = kind;
  result.set_has_chat_template(chat_template.ok());
  if (!chat_template.ok()) *result.mutable_no_chat_template() = ReasonOf(chat_template.status());
  return result;
}

}  // namespace macrame::runtime::gguf
