#include "transport/regular_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

constexpr size_t kReadBytes = 64 * 1024;

absl::Status Unopened(const std::string& path, int code) {
  if (code == ENOENT || code == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(path, " is not there"));
  }
  return absl::PermissionDeniedError(absl::StrCat(path, " can't be read: ", std::strerror(code)));
}

// Looks before it opens: to open a device may do something to it. The flags are for what took the
// file's place in between.
absl::StatusOr<int> OpenAtOnce(const std::string& path, bool may_be_pipe, struct stat* info) {
  if (::stat(path.c_str(), info) != 0) return Unopened(path, errno);
  const auto check = [&] {
    return may_be_pipe && S_ISFIFO(info->st_mode) ? absl::OkStatus() : CheckIsRegular(path, *info);
  };
  if (absl::Status fits = check(); !fits.ok()) return fits;
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return Unopened(path, errno);
  absl::Status fits = ::fstat(fd, info) == 0 ? absl::OkStatus() : Unopened(path, errno);
  if (fits.ok()) fits = check();
  if (fits.ok()) return fd;
  ::close(fd);
  return fits;
}

absl::StatusOr<std::string> ReadUpTo(int fd, const std::string& path, size_t bytes_max) {
  std::string text;
  size_t size = 0;
  while (size < bytes_max) {
    text.resize(size + std::min(kReadBytes, bytes_max - size));
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      pollfd pipe{fd, POLLIN, 0};
      ::poll(&pipe, 1, -1);
      continue;
    }
    if (got < 0) return Unopened(path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

absl::StatusOr<std::string> ReadWholeOf(int fd, const std::string& path, size_t bytes_max) {
  absl::StatusOr<std::string> text = ReadUpTo(fd, path, bytes_max + 1);
  if (!text.ok() || text->size() <= bytes_max) return text;
  return absl::OutOfRangeError(
      absl::StrCat(path, " is larger than ", bytes_max, " bytes, the most that are read of it"));
}

}  // namespace

absl::Status CheckIsRegular(const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, " is ",
                                                 S_ISDIR(info.st_mode)    ? "a folder"
                                                 : S_ISFIFO(info.st_mode) ? "a pipe"
                                                 : S_ISSOCK(info.st_mode) ? "a socket"
                                                                          : "a device",
                                                 ", not a file"));
}

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path) {
  RegularFile file;
  const absl::StatusOr<int> fd = OpenAtOnce(path, /*may_be_pipe=*/false, &file.info_);
  if (!fd.ok()) return fd.status();
  file.fd_ = *fd;
  return file;
}

RegularFile::~RegularFile() {
  if (fd_ >= 0) ::close(fd_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), info_(other.info_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(info_, other.info_);
  return *this;
}

int RegularFile::Release() { return std::exchange(fd_, -1); }

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t bytes_max) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  if (!file.ok()) return file.status();
  return ReadWholeOf(file->fd(), path, bytes_max);
}

absl::StatusOr<std::string> ReadBeginning(const std::string& path, size_t bytes_max) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  if (!file.ok()) return file.status();
  return ReadUpTo(file->fd(), path, bytes_max);
}

absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, size_t bytes_max) {
  struct stat info {};
  const absl::StatusOr<int> fd = OpenAtOnce(path, /*may_be_pipe=*/true, &info);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::string> text = ReadWholeOf(*fd, path, bytes_max);
  ::close(*fd);
  if (text.ok() && text->empty() && S_ISFIFO(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a pipe that no program writes to; name a file"));
  }
  return text;
}

}  // namespace macrame::transport
