#include "transport/unix_socket.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/private_file.h"

namespace macrame::transport {
namespace {

// The owner of the service's folder, when `path` is the service's socket and nobody but root can
// have made that folder.
std::optional<uid_t> ServiceUser(const std::string& path) {
  if (path != ServiceSocketPath()) return std::nullopt;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct stat info {
  }, above{};
  if (::lstat(folder.c_str(), &info) != 0 || ::lstat(folder.parent_path().c_str(), &above) != 0) {
    return std::nullopt;
  }
  const bool made_by_root = above.st_uid == 0 && (above.st_mode & S_IWOTH) == 0;
  const bool closed = S_ISDIR(info.st_mode) && (info.st_mode & S_IWOTH) == 0;
  if (!made_by_root || !closed) return std::nullopt;
  return info.st_uid;
}

// Why nobody but a group gets in.
absl::Status NotOfTheGroup(const std::string& path, gid_t id) {
  const ::group* found = ::getgrgid(id);
  const std::string name = found == nullptr ? absl::StrCat(id) : found->gr_name;
  return absl::PermissionDeniedError(
      absl::StrCat("the socket ", path, " is open to its own user and to the group ", name,
                   ". Become a member (on Linux: sudo usermod -a -G ", name,
                   " $USER) and log in again, or use sudo"));
}

bool IsOurs(uid_t user) { return user == ::geteuid() || user == 0; }

// Nobody but this user, its group and root may put anything into the folder; into a shared one with
// the sticky bit (/tmp) others may, but take nothing of ours away. What is not there is nobody's.
absl::Status CheckFolder(const std::string& folder) {
  struct stat link {
  }, info{};
  if (::lstat(folder.c_str(), &link) != 0 || ::stat(folder.c_str(), &info) != 0) {
    return absl::OkStatus();
  }
  const bool shared = (info.st_mode & S_IWOTH) != 0;
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  if (IsOurs(link.st_uid) && IsOurs(info.st_uid) && (!shared || sticky)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "another user may write to ", folder, " (owner ", info.st_uid, ", mode ",
      absl::StrFormat("%04o", info.st_mode & 07777), "): choose a socket_path elsewhere, or give ",
      "the folder to this user with mode 0700"));
}

// Connected to whoever serves `path`; -1 and errno when nobody does.
int ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return -1;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int why = errno;
  ::close(fd);
  errno = why;
  return -1;
}

// True when a process accepts connections at `path`.
bool IsServed(const std::string& path) {
  const int fd = ConnectTo(path);
  // A full backlog also means that somebody is there.
  if (fd < 0) return errno == EAGAIN;
  ::close(fd);
  return true;
}

// The user of the process at the other end.
std::optional<uid_t> UserBehind(int fd) {
#ifdef __linux__
  struct ucred credentials {};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials.uid;
#else
  uid_t user = 0;
  gid_t group = 0;
  if (::getpeereid(fd, &user, &group) != 0) return std::nullopt;
  return user;
#endif
}

std::string UserName(uid_t user) {
  const passwd* entry = ::getpwuid(user);
  return entry == nullptr || entry->pw_name == nullptr ? absl::StrCat("user ", user)
                                                       : absl::StrCat(entry->pw_name);
}

// The system does not let this user at the socket: it is `owner`'s, or what is known of the nearest
// folder above that can be looked at.
absl::Status NotPermitted(const std::string& path, std::optional<uid_t> owner) {
  std::filesystem::path above = path;
  while (!owner.has_value() && above.has_relative_path()) {
    above = above.parent_path();
    struct stat info {};
    if (::stat(above.c_str(), &info) == 0) owner = info.st_uid;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("this user may not use the socket ", path, ": it is ",
                   owner.has_value() ? UserName(*owner) : std::string("another user"),
                   "'s. Run this as that user, or name your own agent's socket with --socket"));
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

std::string ServiceSocketPath() {
#ifdef __APPLE__
  return kServiceSocketOfMacs;
#else
  return kServiceSocketOfLinux;
#endif
}

std::string SocketToAsk() {
  std::error_code error;
  const std::string own = DefaultSocketPath();
  const std::string service = ServiceSocketPath();
  if (!std::filesystem::exists(own, error) && std::filesystem::exists(service, error)) {
    return service;
  }
  return own;
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
  absl::Status folder = MakePrivateFolder(std::filesystem::path(path).parent_path());
  if (!folder.ok()) return folder;
  folder = CheckFolder(std::filesystem::path(path).parent_path().string());
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

absl::Status CheckSocketOwner(const std::string& path) {
  if (::geteuid() == 0 || path.size() >= kSocketPathBytesMax) return absl::OkStatus();
  const std::optional<uid_t> service = ServiceUser(path);
  const auto is_trusted = [&](uid_t user) { return IsOurs(user) || service == user; };
  if (!service.has_value()) {
    absl::Status folder = CheckFolder(std::filesystem::path(path).parent_path().string());
    if (!folder.ok()) return folder;
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == EACCES ? NotPermitted(path, std::nullopt) : absl::OkStatus();
  }
  uid_t user = info.st_uid;
  if (is_trusted(user)) {
    const int fd = ConnectTo(path);
    if (fd < 0 && errno == EACCES) {
      const bool is_shared = (info.st_mode & S_IWGRP) != 0;
      return is_shared ? NotOfTheGroup(path, info.st_gid) : NotPermitted(path, user);
    }
    if (fd < 0) return absl::OkStatus();
    user = UserBehind(fd).value_or(user);
    ::close(fd);
  }
  if (is_trusted(user)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the socket ", path, " is another user's (", user,
                   "): nothing was sent to it. Name your agent's with --socket"));
}

absl::Status RestrictSocket(const std::string& path) {
  if (::chmod(path.c_str(), 0600) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the mode of ", path, " can't be set to 0600: ", std::strerror(errno)));
}

absl::Status ShareSocket(const std::string& path, const std::string& group) {
  const ::group* found = ::getgrnam(group.c_str());
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket_group: this machine has no group ", group));
  }
  if (::chown(path.c_str(), static_cast<uid_t>(-1), found->gr_gid) != 0 ||
      ::chmod(path.c_str(), 0660) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("socket_group: ", path,
                                                   " can't be given to the group ", group, ": ",
                                                   std::strerror(errno)));
  }
  return absl::OkStatus();
}

std::string SocketTarget(const std::string& path) { return absl::StrCat("unix:", path); }

}  // namespace macrame::transport
