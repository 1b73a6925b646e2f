#include "transport/access_file.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/private_file.h"
#include "transport/trust.h"
#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

constexpr char kTag[] = "macrame_access_file";
constexpr int kFormat = 1;

absl::Status Unusable(const std::string& path, const std::string& why) {
  v1::Reason reason = MakeReason(reasons::kConfigInvalid,
                                 absl::StrCat("the access file ", path, " is not usable: ", why));
  reason.set_remedy(
      "make a new one on a node with the secret file: 'clusterctl key create "
      "--access-file FILE'");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

std::string Text(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Nodes that are malformed are left out: the others can be asked.
void TakeNodes(const nlohmann::json& nodes, v1::AccessFile* file) {
  if (!nodes.is_array()) return;
  for (const nlohmann::json& node : nodes) {
    if (file->nodes_size() >= kAccessNodesMax) return;
    if (!node.is_object() || !IsValidNodeId(Text(node, "id"))) continue;
    v1::AccessFileNode& taken = *file->add_nodes();
    taken.set_node_id(Text(node, "id"));
    taken.set_hostname(Text(node, "name"));
    const auto addresses = node.find("addresses");
    if (addresses == node.end() || !addresses->is_array()) continue;
    for (const nlohmann::json& address : *addresses) {
      if (taken.addresses_size() >= kAccessAddressesMax) break;
      if (address.is_string()) taken.add_addresses(address.get<std::string>());
    }
  }
}

// What is wrong with certificate and key; empty: nothing.
std::string WhyNotWhole(const v1::AccessFile& file) {
  Owned<X509> authority = ParseCertificate(file.authority_certificate());
  Owned<X509> certificate = ParseCertificate(file.certificate());
  Owned<EVP_PKEY> key = ParseKey(file.private_key());
  if (authority == nullptr || certificate == nullptr || key == nullptr) {
    return "a certificate or key in it can't be read";
  }
  Owned<EVP_PKEY> signer(X509_get_pubkey(authority.get()));
  if (X509_check_private_key(certificate.get(), key.get()) != 1 ||
      X509_check_ca(authority.get()) != 1 || X509_verify(certificate.get(), signer.get()) != 1) {
    return "its certificates and key don't belong together";
  }
  return "";
}

}  // namespace

std::string FormatAccessFile(const v1::AccessFile& file) {
  nlohmann::ordered_json object;
  object[kTag] = kFormat;
  object["note"] =
      "Whoever has this file may use clusterctl on the cluster as its key may. Keep its mode at "
      "0600; 'clusterctl key revoke' ends it.";
  object["cluster_name"] = file.cluster_name();
  object["cluster_id"] = file.cluster_id();
  object["key_id"] = file.key_id();
  object["key_name"] = file.key_name();
  object["expires_unix_ms"] = file.expires_unix_ms();
  object["nodes"] = nlohmann::ordered_json::array();
  for (const v1::AccessFileNode& node : file.nodes()) {
    nlohmann::ordered_json one;
    one["id"] = node.node_id();
    one["name"] = node.hostname();
    one["addresses"] = std::vector<std::string>(node.addresses().begin(), node.addresses().end());
    object["nodes"].push_back(std::move(one));
  }
  object["authority_certificate"] = file.authority_certificate();
  object["certificate"] = file.certificate();
  object["key"] = file.private_key();
  std::string text = object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  Wipe(object["key"].get_ref<std::string&>());
  return text;
}

absl::StatusOr<v1::AccessFile> ReadAccessFile(const std::string& path, int64_t unix_s) {
  absl::StatusOr<std::string> text = ReadPrivateFile(path, "access file");
  if (!text.ok()) return text.status();
  nlohmann::json object = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  Wipe(*text);
  const auto format = object.is_object() ? object.find(kTag) : object.end();
  if (!object.is_object() || format == object.end() || !format->is_number_integer()) {
    return Unusable(path, "it is cut short, or of another kind");
  }
  if (*format != kFormat) {
    return Unusable(path, "a newer version wrote it; install that version of clusterctl here");
  }
  v1::AccessFile file;
  file.set_version(kFormat);
  file.set_cluster_name(Text(object, "cluster_name"));
  file.set_cluster_id(Text(object, "cluster_id"));
  file.set_key_id(Text(object, "key_id"));
  file.set_key_name(Text(object, "key_name"));
  const auto expires = object.find("expires_unix_ms");
  if (expires != object.end() && expires->is_number_unsigned()) {
    file.set_expires_unix_ms(expires->get<uint64_t>());
  }
  file.set_authority_certificate(Text(object, "authority_certificate"));
  file.set_certificate(Text(object, "certificate"));
  file.set_private_key(Text(object, "key"));
  const auto nodes = object.find("nodes");
  if (nodes != object.end()) TakeNodes(*nodes, &file);
  const auto key = object.find("key");
  if (key != object.end() && key->is_string()) Wipe(key->get_ref<std::string&>());
  if (const std::string why = WhyNotWhole(file); !why.empty()) return Unusable(path, why);
  if (file.expires_unix_ms() / 1000 <= static_cast<uint64_t>(unix_s)) {
    return Unusable(path, absl::StrCat("its key ", file.key_id(), " has expired"));
  }
  return file;
}

std::string DefaultAccessFilePath() {
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.macrame/cluster.access" : "";
}

}  // namespace macrame::transport
