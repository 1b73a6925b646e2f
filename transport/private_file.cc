#include "transport/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "transport/regular_file.h"

namespace macrame::transport {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status CheckMode(const std::string& path, const char* kind, const struct stat& info) {
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the ", kind, " ", path, " may be read by other users; run 'chmod 600 ", path, "'"));
  }
  if (info.st_uid != ::geteuid() && ::geteuid() != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the ", kind, " ", path, " belongs to another user; run 'chown ", ::geteuid(),
                     " ", path, "' as that user or root"));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, const std::string& text, const std::string& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
    }
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

// A file that is not there yet, on disk when this returns; what could not be written whole is
// taken away.
absl::Status WriteFresh(const std::string& path, const std::string& text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0 && errno == EEXIST) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
  }
  if (fd.get() < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can't be written: ", std::strerror(errno)));
  }
  absl::Status written = WriteAll(fd.get(), text, path);
  if (written.ok() && ::fsync(fd.get()) != 0) {
    written = absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
  }
  if (!written.ok()) ::unlink(path.c_str());
  return written;
}

}  // namespace

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, const char* kind) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat("there is no ", kind, " at ", path));
  }
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("the ", kind, " ", file.status().message()));
  }
  const auto unreadable = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", kind, " ", path, " is not usable: ", why));
  };
  absl::Status mode = CheckMode(path, kind, file->info());
  if (!mode.ok()) return mode;
  std::string text(kPrivateFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file->fd(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(std::strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kPrivateFileBytesMax) return unreadable("it is too large");
  text.resize(size);
  return text;
}

absl::Status MakePrivateFolder(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::exists(folder, error)) return absl::OkStatus();
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("the folder ", folder.string(), " can't be made: ", error.message()));
  }
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  return absl::OkStatus();
}

absl::Status WriteNewPrivateFile(const std::string& path, const std::string& text) {
  absl::Status folder = MakePrivateFolder(std::filesystem::path(path).parent_path());
  return folder.ok() ? WriteFresh(path, text) : folder;
}

absl::Status ReplacePrivateFile(const std::string& path, const std::string& text) {
  absl::Status written = MakePrivateFolder(std::filesystem::path(path).parent_path());
  if (!written.ok()) return written;
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  written = WriteFresh(fresh, text);
  if (written.ok() && ::rename(fresh.c_str(), path.c_str()) != 0) {
    written = absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
    ::unlink(fresh.c_str());
  }
  return written;
}

}  // namespace macrame::transport
