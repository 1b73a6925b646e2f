// The secret file: a JSON object, so that people can see what it is and no editor harms it.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "transport/trust.h"

namespace macrame::transport {
namespace {

constexpr int kFormat = 1;

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

absl::Status Malformed(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the cluster secret ", path, " is not usable: ", absl::string_view(what.data(), what.size()),
      ". Copy it from another node again, or make a new one with 'clusterctl cluster "
      "init'"));
}

absl::Status CheckMode(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return Malformed(path, "it is not a file");
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the cluster secret ", path, " may be read by other users; run 'chmod 600 ", path, "'"));
  }
  if (info.st_uid != ::geteuid() && ::geteuid() != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the cluster secret ", path, " belongs to another user; run 'chown ",
                     ::geteuid(), " ", path, "' as that user or root"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat("there is no cluster secret at ", path));
    }
    return absl::PermissionDeniedError(
        absl::StrCat("the cluster secret ", path, " can't be opened: ", std::strerror(errno)));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Malformed(path, std::strerror(errno));
  absl::Status mode = CheckMode(path, info);
  if (!mode.ok()) return mode;
  std::string text(kSecretFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Malformed(path, std::strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kSecretFileBytesMax) return Malformed(path, "it is too large");
  text.resize(size);
  return text;
}

std::string StringField(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

absl::Status WriteAll(int fd, const std::string& text, const std::string& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return absl::InternalError(absl::StrCat("the cluster secret can't be written to ", path, ": ",
                                              std::strerror(errno)));
    }
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteClusterSecret(const ClusterSecret& secret, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::exists(folder, error)) {
    std::filesystem::create_directories(folder, error);
    if (error) {
      return absl::PermissionDeniedError(
          absl::StrCat("the folder ", folder.string(), " can't be made: ", error.message()));
    }
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  nlohmann::ordered_json object;
  object["macrame_cluster_secret"] = kFormat;
  object["note"] = "Whoever has this file can join the cluster. Keep its mode at 0600.";
  object["cluster_name"] = secret.cluster_name;
  object["cluster_id"] = secret.cluster_id;
  object["beacon_key"] = HexEncode(secret.beacon_key);
  object["authority_certificate"] = secret.authority_certificate_pem;
  object["authority_key"] = secret.authority_key_pem;
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0 && errno == EEXIST) {
    return absl::AlreadyExistsError(absl::StrCat(
        path,
        " is there already and is not overwritten: the nodes that have it would be cut off. "
        "Name another file, or remove it first"));
  }
  if (fd.get() < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can't be written: ", std::strerror(errno)));
  }
  absl::Status written = WriteAll(fd.get(), object.dump(2) + "\n", path);
  if (written.ok() && ::fsync(fd.get()) != 0) {
    written = absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
  }
  if (!written.ok()) ::unlink(path.c_str());
  return written;
}

absl::StatusOr<ClusterSecret> ReadClusterSecret(const std::string& path) {
  absl::StatusOr<std::string> text = ReadPrivateFile(path);
  if (!text.ok()) return text.status();
  const nlohmann::json object = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Malformed(path, "it is cut short or not a secret file");
  const auto format = object.find("macrame_cluster_secret");
  if (format == object.end() || !format->is_number_integer()) {
    return Malformed(path, "it is not a cluster secret file");
  }
  if (*format != kFormat) {
    return Malformed(path, "a newer version wrote it; install that version of macrame here");
  }
  ClusterSecret secret;
  secret.cluster_id = StringField(object, "cluster_id");
  secret.cluster_name = StringField(object, "cluster_name");
  const std::string beacon_key_hex = StringField(object, "beacon_key");
  secret.authority_certificate_pem = StringField(object, "authority_certificate");
  secret.authority_key_pem = StringField(object, "authority_key");
  if (!IsValidNodeId(secret.cluster_id)) return Malformed(path, "its cluster_id is malformed");
  if (secret.cluster_name.empty() || secret.cluster_name.size() > kClusterNameBytesMax) {
    return Malformed(path, "its cluster_name is malformed");
  }
  if (beacon_key_hex.size() != 2 * kBeaconKeyBytes ||
      beacon_key_hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Malformed(path, "its beacon_key is malformed");
  }
  secret.beacon_key = absl::HexStringToBytes(beacon_key_hex);
  // Signing once shows that certificate and key are whole and belong together.
  absl::Status usable =
      MakeNodeCredentials(secret, NodeId("00000000000000000000000000000000")).status();
  if (!usable.ok()) return Malformed(path, "its certificate and key don't belong together");
  return secret;
}

std::string DefaultClusterSecretPath() {
  const char* home = std::getenv("HOME");
  const std::string base = home != nullptr && home[0] == '/' ? home : "/var/lib/macrame";
  return base + "/.macrame/cluster.secret";
}

}  // namespace macrame::transport
