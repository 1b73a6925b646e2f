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
#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/import_plan.h"
#include "runtime/gguf/model_name.h"
#include "runtime/gguf/safetensors_writer.h"
#include "runtime/gguf/tensor_conversion.h"
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

}  // namespace

absl::StatusOr<v1::ModelImportResult> ImportModel(const ImportOptions& options,
                                                  const OnImportProgress& on_progress) {
  if (absl::Status given = CheckModelName(options.name, options.file); !given.ok()) return given;
  const auto model = GgufModel::Open(options.file);
  if (!model.ok()) return model.status();
  const auto name = ModelName(**model, options.name);
  if (!name.ok()) return name.status();
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
  TensorConversion conversion(*plan, **writer, on_progress);
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
