#include "runtime/gguf/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::runtime::gguf {
namespace {

constexpr size_t kHeaderAlignment = 8;

absl::Status Failed(const std::string& path, int error) {
  return ReasonStatus(absl::StatusCode::kInternal, reasons::kDiskWriteFailed,
                      absl::StrCat(path, " can't be written: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<NewTensor>& tensors) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(path, errno);
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path, fd));
  nlohmann::json header = {{"__metadata__", {{"format", "mlx"}}}};
  uint64_t offset = 0;
  for (const NewTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    writer->places_[tensor.name] = {offset, tensor.bytes};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  for (auto& [name, place] : writer->places_) place.begin += sizeof(uint64_t) + text.size();
  const uint64_t size = text.size();
  absl::Status written = writer->WriteAt(0, &size, sizeof(size));
  if (written.ok()) written = writer->WriteAt(sizeof(size), text.data(), text.size());
  if (!written.ok()) return written;
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SafetensorsWriter::Write(const std::string& tensor, uint64_t offset, const void* data,
                                      uint64_t bytes) {
  const auto place = places_.find(tensor);
  MACRAME_CHECK(place != places_.end() && bytes <= place->second.bytes &&
                offset <= place->second.bytes - bytes);
  return WriteAt(place->second.begin + offset, data, bytes);
}

absl::Status SafetensorsWriter::WriteAt(uint64_t position, const void* data, uint64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(fd_, from, bytes, static_cast<off_t>(position));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed(path_, written == 0 ? ENOSPC : errno);
    from += written;
    position += static_cast<uint64_t>(written);
    bytes -= static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Close() {
  const int fd = fd_;
  fd_ = -1;
  return close(fd) == 0 ? absl::OkStatus() : Failed(path_, errno);
}

}  // namespace macrame::runtime::gguf
