#include "runtime/serving/cold/cold_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

absl::Status Failed(const std::string& what) {
  const int error = errno;
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  if (error == ENOENT) return absl::NotFoundError(message);
  return absl::UnavailableError(message);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  // An error of the last write may come only now.
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

int64_t ModifiedNs(const struct stat& file) {
#ifdef __APPLE__
  const timespec& time = file.st_mtimespec;
#else
  const timespec& time = file.st_mtim;
#endif
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Calls `visit` with each name in the folder behind `fd`, which stays the caller's.
absl::Status ForEachName(int fd, const std::function<void(const std::string&)>& visit) {
  DIR* folder = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder == nullptr) return Failed("a folder of the KV cache can't be listed");
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") visit(name);
  }
  closedir(folder);
  return absl::OkStatus();
}

class PosixColdFiles : public ColdFiles {
 public:
  PosixColdFiles(std::string folder, int fd) : folder_(std::move(folder)), root_(fd) {}

  absl::Status MakeFolder(const std::string& name) override {
    if (mkdirat(root_.fd(), name.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
    return Failed(Named(name));
  }

  absl::StatusOr<std::vector<Entry>> List() override {
    std::vector<Entry> entries;
    const absl::Status listed = ForEachName(root_.fd(), [&](const std::string& name) {
      struct stat file {};
      if (fstatat(root_.fd(), name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return;
      if (!S_ISDIR(file.st_mode)) {
        entries.push_back({name, static_cast<uint64_t>(file.st_size), ModifiedNs(file), false});
        return;
      }
      ListFolder(name, entries);
    });
    if (!listed.ok()) return listed;
    return entries;
  }

  absl::Status Write(const std::string& path, const std::string& bytes) override {
    const Descriptor folder = FolderOf(path);
    if (!folder.open()) return Failed(Named(path));
    Descriptor file(openat(folder.fd(), NameIn(path).c_str(),
                           O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.open()) return Failed(Named(path));
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t wrote = write(file.fd(), bytes.data() + done, bytes.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return Failed(Named(path));
      done += static_cast<size_t>(wrote);
    }
    return file.Close() ? absl::OkStatus() : Failed(Named(path));
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    const Descriptor folder = FolderOf(from);
    if (folder.open() &&
        renameat(folder.fd(), NameIn(from).c_str(), folder.fd(), NameIn(to).c_str()) == 0) {
      return absl::OkStatus();
    }
    return Failed(Named(from));
  }

  absl::StatusOr<std::string> Read(const std::string& path, size_t bytes_max) override {
    const Descriptor folder = FolderOf(path);
    if (!folder.open()) return Failed(Named(path));
    const Descriptor file(
        openat(folder.fd(), NameIn(path).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat found {};
    if (!file.open() || fstat(file.fd(), &found) != 0) return Failed(Named(path));
    if (!S_ISREG(found.st_mode)) return absl::NotFoundError(Named(path) + " is no file");
    std::string bytes(bytes_max, '\0');
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = read(file.fd(), bytes.data() + done, bytes.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed(Named(path));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    return bytes;
  }

  absl::Status Remove(const std::string& path) override {
    const bool is_top = path.find('/') == std::string::npos;
    const Descriptor folder(is_top ? dup(root_.fd()) : FolderDescriptor(path));
    const std::string name = is_top ? path : NameIn(path);
    if (!folder.open()) return errno == ENOENT ? absl::OkStatus() : Failed(Named(path));
    if (unlinkat(folder.fd(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
    if (unlinkat(folder.fd(), name.c_str(), AT_REMOVEDIR) == 0) return absl::OkStatus();
    return Failed(Named(path));
  }

  absl::Status SetUsed(const std::string& path, int64_t used_ns) override {
    const Descriptor folder = FolderOf(path);
    timespec times[2]{};
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = static_cast<time_t>(used_ns / 1'000'000'000);
    times[1].tv_nsec = static_cast<long>(used_ns % 1'000'000'000);
    if (folder.open() &&
        utimensat(folder.fd(), NameIn(path).c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) {
      return absl::OkStatus();
    }
    return Failed(Named(path));
  }

 private:
  std::string Named(const std::string& path) const { return absl::StrCat(folder_, "/", path); }
  static std::string NameIn(const std::string& path) { return path.substr(path.find('/') + 1); }
  int FolderDescriptor(const std::string& path) const {
    const std::string name = path.substr(0, path.find('/'));
    return openat(root_.fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }
  Descriptor FolderOf(const std::string& path) const { return Descriptor(FolderDescriptor(path)); }

  void ListFolder(const std::string& name, std::vector<Entry>& entries) const {
    const Descriptor folder(FolderDescriptor(name + "/"));
    if (!folder.open()) return;
    ForEachName(folder.fd(), [&](const std::string& inside) {
      struct stat file {};
      if (fstatat(folder.fd(), inside.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return;
      entries.push_back({absl::StrCat(name, "/", inside), static_cast<uint64_t>(file.st_size),
                         ModifiedNs(file), S_ISREG(file.st_mode)});
    }).IgnoreError();
  }

  const std::string folder_;
  const Descriptor root_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ColdFiles>> OpenColdFiles(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Failed(folder);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is a link, or no folder"));
  }
  if (fd < 0) return Failed(folder);
  auto files = std::make_unique<PosixColdFiles>(folder, fd);
  struct stat found {};
  if (fstat(fd, &found) != 0) return Failed(folder);
  if (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " belongs to another user, or others may write to it"));
  }
  if ((found.st_mode & 077) != 0 && fchmod(fd, 0700) != 0) return Failed(folder);
  return files;
}

}  // namespace macrame::runtime::engine
