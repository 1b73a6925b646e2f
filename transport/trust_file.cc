// The secret file: a JSON object, so that people can see what it is and no editor harms it.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/algorithm/hex.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

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

// The two kinds of files, as errors name them.
constexpr char kSecretKind[] = "cluster secret";
constexpr char kMembershipKind[] = "node membership";

absl::Status Malformed(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the cluster secret ", path, " is not usable: ", absl::string_view(what.data(), what.size()),
      ". Copy it from another node again, or make a new one with 'clusterctl cluster "
      "init'"));
}

absl::Status MalformedMembership(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the node membership ", path, " is not usable: ", absl::string_view(what.data(), what.size()),
      ". Remove it, and join again: 'clusterctl cluster token' on a node with the secret file, "
      "'clusterctl cluster join' here"));
}

absl::Status CheckMode(const std::string& path, const char* kind, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", kind, " ", path, " is not usable: it is not a file"));
  }
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

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, const char* kind) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat("there is no ", kind, " at ", path));
    }
    return absl::PermissionDeniedError(
        absl::StrCat("the ", kind, " ", path, " can't be opened: ", std::strerror(errno)));
  }
  struct stat info {};
  const auto unreadable = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", kind, " ", path, " is not usable: ", why));
  };
  if (::fstat(fd.get(), &info) != 0) return unreadable(std::strerror(errno));
  absl::Status mode = CheckMode(path, kind, info);
  if (!mode.ok()) return mode;
  std::string text(kSecretFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(std::strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kSecretFileBytesMax) return unreadable("it is too large");
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
      return absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
    }
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status MakeFolderOf(const std::string& path) {
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
  return absl::OkStatus();
}

// The text, and the private values in the object, are wiped.
std::string TextOf(nlohmann::ordered_json& object, std::initializer_list<const char*> secrets) {
  std::string text = object.dump(2) + "\n";
  for (const char* name : secrets) Wipe(object[name].get_ref<std::string&>());
  return text;
}

bool IsBeaconKeyHex(const std::string& hex) {
  return hex.size() == 2 * kBeaconKeyBytes &&
         hex.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The object in a private file of the kind that `tag` says; the caller wipes what is secret in it.
absl::StatusOr<nlohmann::json> ReadObject(const std::string& path, const char* kind,
                                          const char* tag,
                                          absl::Status (*malformed)(const std::string&,
                                                                    std::string_view)) {
  absl::StatusOr<std::string> text = ReadPrivateFile(path, kind);
  if (!text.ok()) return text.status();
  nlohmann::json object = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  Wipe(*text);
  if (!object.is_object()) return malformed(path, "it is cut short or of another kind");
  const auto format = object.find(tag);
  if (format == object.end() || !format->is_number_integer()) {
    return malformed(path, "it is of another kind");
  }
  if (*format != kFormat) {
    return malformed(path, "a newer version wrote it; install that version of macrame here");
  }
  return object;
}

void WipeIn(nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found != object.end() && found->is_string()) Wipe(found->get_ref<std::string&>());
}

}  // namespace

absl::Status WriteClusterSecret(const ClusterSecret& secret, const std::string& path) {
  absl::Status folder = MakeFolderOf(path);
  if (!folder.ok()) return folder;
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
  std::string text = TextOf(object, {"beacon_key", "authority_key"});
  absl::Status written = WriteAll(fd.get(), text, path);
  Wipe(text);
  if (written.ok() && ::fsync(fd.get()) != 0) {
    written = absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
  }
  if (!written.ok()) ::unlink(path.c_str());
  return written;
}

absl::StatusOr<ClusterSecret> ReadClusterSecret(const std::string& path) {
  absl::StatusOr<nlohmann::json> object =
      ReadObject(path, kSecretKind, "macrame_cluster_secret", Malformed);
  if (!object.ok()) return object.status();
  ClusterSecret secret;
  secret.cluster_id = StringField(*object, "cluster_id");
  secret.cluster_name = StringField(*object, "cluster_name");
  std::string beacon_key_hex = StringField(*object, "beacon_key");
  secret.authority_certificate_pem = StringField(*object, "authority_certificate");
  secret.authority_key_pem = StringField(*object, "authority_key");
  WipeIn(*object, "authority_key");
  WipeIn(*object, "beacon_key");
  if (!IsValidNodeId(secret.cluster_id)) return Malformed(path, "its cluster_id is malformed");
  if (secret.cluster_name.empty() || secret.cluster_name.size() > kClusterNameBytesMax) {
    return Malformed(path, "its cluster_name is malformed");
  }
  if (!IsBeaconKeyHex(beacon_key_hex)) return Malformed(path, "its beacon_key is malformed");
  secret.beacon_key = boost::algorithm::unhex(beacon_key_hex);
  Wipe(beacon_key_hex);
  // Signing once shows that certificate and key are whole and belong together.
  absl::Status usable =
      MakeNodeCredentials(secret, NodeId("00000000000000000000000000000000")).status();
  if (!usable.ok()) return Malformed(path, "its certificate and key don't belong together");
  return secret;
}

absl::Status WriteNodeMembership(const NodeMembership& membership, const std::string& path) {
  absl::Status folder = MakeFolderOf(path);
  if (!folder.ok()) return folder;
  nlohmann::ordered_json object;
  object["macrame_node_membership"] = kFormat;
  object["note"] = "This node's own key and certificate: for this machine alone. Mode 0600.";
  object["cluster_name"] = membership.cluster_name;
  object["cluster_id"] = membership.cluster_id;
  object["node_id"] = membership.node.node_id.value();
  object["beacon_key"] = HexEncode(membership.beacon_key);
  object["authority_certificate"] = membership.node.authority_certificate_pem;
  object["certificate"] = membership.node.certificate_pem;
  object["key"] = membership.node.key_pem;
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(fresh, " can't be written: ", std::strerror(errno)));
  }
  std::string text = TextOf(object, {"beacon_key", "key"});
  absl::Status written = WriteAll(fd.get(), text, fresh);
  Wipe(text);
  if (written.ok() && (::fsync(fd.get()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0)) {
    written = absl::InternalError(absl::StrCat(path, " can't be written: ", std::strerror(errno)));
  }
  if (!written.ok()) ::unlink(fresh.c_str());
  return written;
}

absl::StatusOr<NodeMembership> ReadNodeMembership(const std::string& path) {
  absl::StatusOr<nlohmann::json> object =
      ReadObject(path, kMembershipKind, "macrame_node_membership", MalformedMembership);
  if (!object.ok()) return object.status();
  NodeMembership membership;
  membership.cluster_id = StringField(*object, "cluster_id");
  membership.cluster_name = StringField(*object, "cluster_name");
  membership.node.node_id = NodeId(StringField(*object, "node_id"));
  membership.node.authority_certificate_pem = StringField(*object, "authority_certificate");
  membership.node.certificate_pem = StringField(*object, "certificate");
  membership.node.key_pem = StringField(*object, "key");
  std::string beacon_key_hex = StringField(*object, "beacon_key");
  WipeIn(*object, "key");
  WipeIn(*object, "beacon_key");
  if (!IsValidNodeId(membership.cluster_id) || membership.cluster_name.empty() ||
      membership.cluster_name.size() > kClusterNameBytesMax) {
    return MalformedMembership(path, "its cluster is malformed");
  }
  if (!IsValidNodeId(membership.node.node_id.value())) {
    return MalformedMembership(path, "its node_id is malformed");
  }
  if (!IsBeaconKeyHex(beacon_key_hex)) {
    return MalformedMembership(path, "its beacon_key is malformed");
  }
  membership.beacon_key = boost::algorithm::unhex(beacon_key_hex);
  Wipe(beacon_key_hex);
  const absl::Status whole = CheckNodeCredentials(membership.node);
  if (!whole.ok()) return MalformedMembership(path, std::string(whole.message()));
  return membership;
}

std::string NodeMembershipPath(const std::string& secret_path) {
  return (std::filesystem::path(secret_path).parent_path() / "node.membership").string();
}

std::string DefaultClusterSecretPath() {
  const char* home = std::getenv("HOME");
  const std::string base = home != nullptr && home[0] == '/' ? home : "/var/lib/macrame";
  return base + "/.macrame/cluster.secret";
}

}  // namespace macrame::transport
