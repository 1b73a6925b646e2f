#include "transport/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

absl::Status MakeFolder(const std::filesystem::path& folder) {
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

// True when a process accepts connections at `path`.
bool IsServed(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return false;
  const int result = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  // A full backlog also means that somebody is there.
  const bool served = result == 0 || errno == EAGAIN;
  ::close(fd);
  return served;
}

}  // namespace

std::string DefaultSocketPath() {
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') {
    std::string path = absl::StrCat(home, "/.macrame/agentd.sock");
    if (path.size() < kSocketPathBytesMax) return path;
  }
  return absl::StrCat("/tmp/macrame-", ::getuid(), "/agentd.sock");
}

absl::Status PrepareSocketPath(const std::string& path) {
  if (path.size() >= kSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path ", path, " has ", path.size(),
                                                   " bytes; at most ", kSocketPathBytesMax - 1,
                                                   " work. Choose a shorter socket_path"));
  }
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("the socket path '", path, "' must be absolute"));
  }
  absl::Status folder = MakeFolder(std::filesystem::path(path).parent_path());
  if (!folder.ok()) return folder;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is there and is not a socket; remove it or choose another socket_path"));
  }
  if (IsServed(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process serves ", path,
                     "; stop it, or give this one its own state_folder and socket_path"));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::PermissionDeniedError(
        absl::StrCat("the stale socket ", path, " can't be removed: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status RestrictSocket(const std::string& path) {
  if (::chmod(path.c_str(), 0600) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the mode of ", path, " can't be set to 0600: ", std::strerror(errno)));
}

std::string SocketTarget(const std::string& path) { return absl::StrCat("unix:", path); }

}  // namespace macrame::transport
