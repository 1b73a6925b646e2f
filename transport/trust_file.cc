// The secret file: a JSON object, so that people can see what it is and no editor harms it.

#include <boost/algorithm/hex.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "transport/private_file.h"
#include "transport/trust.h"

namespace macrame::transport {
namespace {

constexpr int kFormat = 1;

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

std::string StringField(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
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
  nlohmann::ordered_json object;
  object["macrame_cluster_secret"] = kFormat;
  object["note"] = "Whoever has this file can join the cluster. Keep its mode at 0600.";
  object["cluster_name"] = secret.cluster_name;
  object["cluster_id"] = secret.cluster_id;
  object["beacon_key"] = HexEncode(secret.beacon_key);
  object["authority_certificate"] = secret.authority_certificate_pem;
  object["authority_key"] = secret.authority_key_pem;
  std::string text = TextOf(object, {"beacon_key", "authority_key"});
  absl::Status written = WriteNewPrivateFile(path, text);
  Wipe(text);
  if (!absl::IsAlreadyExists(written)) return written;
  return absl::AlreadyExistsError(absl::StrCat(
      path,
      " is there already and is not overwritten: the nodes that have it would be cut off. "
      "Name another file, or remove it first"));
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
  std::string text = TextOf(object, {"beacon_key", "key"});
  absl::Status written = ReplacePrivateFile(path, text);
  Wipe(text);
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
