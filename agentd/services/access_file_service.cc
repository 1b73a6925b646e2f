#include "agentd/services/access_file_service.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "agentd/base/rpc_methods.h"
#include "agentd/gateway/access/admission.h"
#include "agentd/node/peer_channels.h"
#include "transport/access_file.h"

namespace macrame::agentd {
namespace {

void AddNode(const v1::NodeIdentity& identity, v1::AccessFile* file) {
  if (identity.control_port() == 0 || file->nodes_size() >= transport::kAccessNodesMax) return;
  v1::AccessFileNode& node = *file->add_nodes();
  node.set_node_id(identity.node_id());
  node.set_hostname(identity.hostname());
  for (const v1::NodeAddress& address : identity.addresses()) {
    if (node.addresses_size() >= transport::kAccessAddressesMax) break;
    node.add_addresses(HostPort(address.ip(), identity.control_port()));
  }
}

}  // namespace

void AccessFileService::RegisterLocal(transport::RpcServer& server) {
  server.HandleUnary(kCreateAccessFile,
                     [this](const transport::Caller& caller, v1::CreateAccessFileRequest request,
                            Reply reply) { Create(caller, request, std::move(reply)); });
}

absl::Status AccessFileService::CheckPerson(const std::string& key_id, Remote needed) const {
  return CheckRemoteCall(parts_.replicator.desired().api_keys(), key_id, needed,
                         parts_.dispatcher.UnixMs());
}

// The secret file is looked for first: no key is made that nobody could show.
void AccessFileService::Create(const transport::Caller& caller,
                               const v1::CreateAccessFileRequest& request, Reply reply) {
  auto secret = parts_.trust.ReadSecret();
  if (!secret.ok()) return reply(secret.status());
  auto kept = std::make_shared<transport::ClusterSecret>(*std::move(secret));
  v1::CreateKeyRequest key;
  *key.mutable_key() = request.key();
  key.mutable_key()->set_has_access_file(true);
  const auto sign = [this, kept, reply](absl::StatusOr<v1::CreateKeyResponse> made) {
    if (!made.ok()) return reply(made.status());
    absl::StatusOr<v1::AccessFile> file = MakeFile(*kept, made->key());
    if (!file.ok()) return reply(file.status());
    v1::CreateAccessFileResponse response;
    *response.mutable_file() = *std::move(file);
    *response.mutable_key() = std::move(*made->mutable_key());
    spdlog::info("an access file is made for key {}", response.key().id());
    reply(std::move(response));
  };
  parts_.create_key(caller, key, sign);
}

absl::StatusOr<v1::AccessFile> AccessFileService::MakeFile(const transport::ClusterSecret& secret,
                                                           const v1::ApiKey& key) const {
  const auto pair = transport::MakePersonCredentials(
      secret, key.id(), static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000),
      static_cast<int64_t>(key.expires_unix_ms() / 1000));
  if (!pair.ok()) return pair.status();
  v1::AccessFile file;
  file.set_version(1);
  file.set_cluster_id(secret.cluster_id);
  file.set_cluster_name(secret.cluster_name);
  file.set_key_id(key.id());
  file.set_key_name(key.name());
  file.set_expires_unix_ms(key.expires_unix_ms());
  file.set_authority_certificate(secret.authority_certificate_pem);
  file.set_certificate(pair->certificate_pem);
  file.set_private_key(pair->key_pem);
  AddNode(parts_.own.identity(), &file);
  for (const discovery::Member* member : parts_.members.table().Members()) {
    if (member->state != v1::NODE_STATE_LEFT) AddNode(member->identity, &file);
  }
  return file;
}

}  // namespace macrame::agentd
