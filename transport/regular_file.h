#pragma once

// Opens what must be a regular file: the files of a model's folder, and those that people name. To
// open a pipe is to wait for its writer, and a device may never end. Any thread.
//
// Errors begin with the path and say what is there: NOT_FOUND when nothing is, PERMISSION_DENIED
// when it can't be opened or read, INVALID_ARGUMENT when it is a pipe, a device, a socket or a
// folder, OUT_OF_RANGE when it has more bytes than are read of it.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::transport {

// INVALID_ARGUMENT "PATH is a pipe, not a file" when `info`, which is of `path`, says so.
absl::Status CheckIsRegular(const std::string& path, const struct stat& info);

class RegularFile {
 public:
  static absl::StatusOr<RegularFile> Open(const std::string& path);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;

  int fd() const { return fd_; }
  // As it was when it was opened.
  const struct stat& info() const { return info_; }
  uint64_t size() const { return static_cast<uint64_t>(info_.st_size); }
  // The descriptor is the caller's to close.
  int Release();

 private:
  RegularFile() = default;

  int fd_ = -1;
  struct stat info_ {};
};

// The whole of a file of at most `bytes_max` bytes.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t bytes_max);

// At most its first `bytes_max` bytes.
absl::StatusOr<std::string> ReadBeginning(const std::string& path, size_t bytes_max);

// As ReadRegularFile, of what a person names to a command, which may be a pipe that a program
// writes to, as a shell's <(COMMAND) is. One without a writer is not waited for: INVALID_ARGUMENT.
absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, size_t bytes_max);

}  // namespace macrame::transport
