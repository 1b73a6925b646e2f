#include "agentd/services/access_service.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/state_keys.h"
#include "agentd/cores/tenant_limits.h"
#include "agentd/gateway/access/api_key.h"
#include "proto/reasons.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;

constexpr Duration kKeyTimeout = std::chrono::seconds(10);

std::string StateKeyOf(const v1::ApiKey& key) { return absl::StrCat(kApiKeyPrefix, key.id()); }

// As it may be shown.
v1::ApiKey WithoutDigest(v1::ApiKey key) {
  key.clear_secret_digest();
  return key;
}

bool HasEnded(const v1::ApiKey& key, uint64_t now_unix_ms) {
  return key.revoked_unix_ms() != 0 ||
         (key.expires_unix_ms() != 0 && key.expires_unix_ms() <= now_unix_ms);
}

// Gives the key a new secret, and tells it.
std::string Renew(v1::ApiKey* key) {
  std::string secret = transport::HexEncode(transport::RandomBytes(kKeySecretBytes));
  key->set_secret_digest(KeyDigest(secret));
  std::string text = FormatApiKey(key->id(), secret);
  transport::Wipe(secret);
  return text;
}

using Target = std::string (*)(const google::protobuf::MessageLite&);

template <typename Request>
const Request& As(const google::protobuf::MessageLite& request) {
  return static_cast<const Request&>(request);
}

std::string OfLoad(const google::protobuf::MessageLite& request) {
  const auto& load = As<v1::LoadModelRequest>(request);
  const std::string& tenant = load.placement().tenant();
  return absl::StrCat(load.name_or_path(),
                      load.deployment_name().empty() ? "" : " as " + load.deployment_name(),
                      tenant.empty() ? "" : " for " + tenant);
}
std::string OfUnload(const google::protobuf::MessageLite& request) {
  return As<v1::UnloadModelRequest>(request).name();
}
std::string OfForget(const google::protobuf::MessageLite& request) {
  return As<v1::ForgetNodeRequest>(request).node_id();
}
std::string OfCordon(const google::protobuf::MessageLite& request) {
  const auto& cordon = As<v1::SetCordonRequest>(request);
  switch (cordon.order()) {
    case v1::CORDON_ORDER_CORDON:
      return "cordon " + cordon.node_id();
    case v1::CORDON_ORDER_DRAIN:
      return "drain " + cordon.node_id();
    case v1::CORDON_ORDER_UNCORDON:
      return "uncordon " + cordon.node_id();
    default:
      return cordon.node_id();
  }
}
std::string OfMarks(const google::protobuf::MessageLite& request) {
  const auto& marks = As<v1::MarkNodeRequest>(request);
  std::string told = marks.node_id();
  if (marks.has_tenant()) absl::StrAppend(&told, ", tenant '", marks.tenant(), "'");
  for (const v1::NodeLabel& label : marks.labels()) {
    absl::StrAppend(&told, ", ", label.key(), "=", label.value());
  }
  for (const std::string& key : marks.removed()) absl::StrAppend(&told, ", without ", key);
  return told;
}
std::string OfProfile(const google::protobuf::MessageLite& request) {
  const auto& change = As<v1::ChangeProfileRequest>(request);
  const v1::ModelProfile& set = change.set();
  std::vector<std::string> told = {set.model()};
  if (change.clear_all()) told.emplace_back("all cleared");
  for (const std::string& field : change.cleared()) told.push_back("without " + field);
  for (const std::string& alias : set.aliases()) told.push_back("alias " + alias);
  if (set.has_sampling()) told.emplace_back("sampling");
  if (set.has_reasoning()) told.emplace_back("reasoning");
  if (!set.template_arguments_json().empty()) told.emplace_back("template arguments");
  if (set.max_tokens() > 0) told.push_back(absl::StrCat("max_tokens ", set.max_tokens()));
  if (set.pinned()) told.emplace_back("pinned");
  if (set.has_idle_unload_s()) {
    told.push_back(absl::StrCat("unloaded after ", set.idle_unload_s(), " s"));
  }
  return absl::StrJoin(told, ", ");
}
std::string OfPause(const google::protobuf::MessageLite& request) {
  switch (As<v1::PauseClusterRequest>(request).order()) {
    case v1::PAUSE_ORDER_DRAIN:
      return "drain";
    case v1::PAUSE_ORDER_STOP:
      return "stop";
    case v1::PAUSE_ORDER_START:
      return "start";
    default:
      return "";
  }
}
std::string OfToken(const google::protobuf::MessageLite& request) {
  const auto& token = As<v1::CreateJoinTokenRequest>(request);
  return absl::StrCat(std::max(1u, token.uses()), " uses",
                      token.approve() ? ", to be approved" : "");
}
std::string OfApprove(const google::protobuf::MessageLite& request) {
  return As<v1::ApproveNodeRequest>(request).node();
}
std::string OfRevokeNode(const google::protobuf::MessageLite& request) {
  return As<v1::RevokeNodeRequest>(request).node_id();
}
std::string OfCreateKey(const google::protobuf::MessageLite& request) {
  return As<v1::CreateKeyRequest>(request).key().name();
}
std::string OfAccessFile(const google::protobuf::MessageLite& request) {
  return As<v1::CreateAccessFileRequest>(request).key().name();
}
std::string OfTenant(const google::protobuf::MessageLite& request) {
  const auto& tenant = As<v1::SetTenantRequest>(request);
  std::string told = tenant.name();
  if (tenant.clear()) absl::StrAppend(&told, ", limits cleared");
  if (tenant.has_requests_per_minute()) {
    absl::StrAppend(&told, ", ", tenant.requests_per_minute(), " requests/min");
  }
  if (tenant.has_tokens_per_minute()) {
    absl::StrAppend(&told, ", ", tenant.tokens_per_minute(), " tokens/min");
  }
  if (tenant.has_concurrent_requests()) {
    absl::StrAppend(&told, ", ", tenant.concurrent_requests(), " at once");
  }
  if (tenant.has_retention_s()) {
    absl::StrAppend(&told, ", answers kept for ", tenant.retention_s(), " s");
  }
  if (tenant.clear_retention()) absl::StrAppend(&told, ", answers kept as others'");
  if (tenant.has_memory_only()) {
    absl::StrAppend(&told, ", memory only ", tenant.memory_only() ? "on" : "off");
  }
  return told;
}
std::string OfErasure(const google::protobuf::MessageLite& request) {
  return As<v1::EraseTenantRequest>(request).name();
}
std::string OfDroppedAnswers(const google::protobuf::MessageLite& request) {
  return As<v1::DropAnswersRequest>(request).tenant();
}
std::string OfRevokeKey(const google::protobuf::MessageLite& request) {
  return As<v1::RevokeKeyRequest>(request).key();
}
std::string OfRotateKey(const google::protobuf::MessageLite& request) {
  return As<v1::RotateKeyRequest>(request).key();
}

struct Audited {
  std::string_view path;
  Target target;
};

const std::array kAudited = {
    Audited{kLoadModel.path, OfLoad},
    Audited{kUnloadModel.path, OfUnload},
    Audited{kForgetNode.path, OfForget},
    Audited{kSetCordon.path, OfCordon},
    Audited{kCreateJoinToken.path, OfToken},
    Audited{kApproveNode.path, OfApprove},
    Audited{kRevokeNode.path, OfRevokeNode},
    Audited{kCreateKey.path, OfCreateKey},
    Audited{kRevokeKey.path, OfRevokeKey},
    Audited{kRotateKey.path, OfRotateKey},
    Audited{kPauseCluster.path, OfPause},
    Audited{kMarkNode.path, OfMarks},
    Audited{kChangeProfile.path, OfProfile},
    Audited{kSetTenant.path, OfTenant},
    Audited{kEraseTenant.path, OfErasure},
    Audited{kDropAnswers.path, OfDroppedAnswers},
    Audited{kCreateAccessFile.path, OfAccessFile},
};

}  // namespace

std::string AuditName(const Caller& caller) {
  if (!caller.key_id.empty()) return absl::StrCat("key ", caller.key_id);
  if (caller.local) return caller.node_id.value().empty() ? "local" : "this agent";
  return absl::StrCat("node ", ShortId(caller.node_id));
}

std::optional<AuditEntry> AuditedOrder(std::string_view method,
                                       const google::protobuf::MessageLite& request) {
  for (const Audited& audited : kAudited) {
    if (audited.path != method) continue;
    AuditEntry entry;
    entry.what = std::string(method.substr(method.rfind('/') + 1));
    entry.target = audited.target(request);
    return entry;
  }
  return std::nullopt;
}

RpcServer::Observer AuditObserver(AuditLog& log) {
  return [&log](const Caller& caller, std::string_view method,
                const google::protobuf::MessageLite& request) -> RpcServer::OnEnded {
    std::optional<AuditEntry> entry = AuditedOrder(method, request);
    if (!entry.has_value()) return nullptr;
    entry->who = AuditName(caller);
    entry->from = caller.local ? "socket" : caller.address;
    return [&log, entry = *std::move(entry)](const absl::Status& status) {
      AuditEntry ended = entry;
      ended.outcome = status.ok() ? "ok" : ReasonOf(status).code();
      if (absl::IsCancelled(status)) ended.outcome = "caller left";
      log.Add(std::move(ended));
    };
  };
}

void AccessService::RegisterCluster(RpcServer& server) {
  server.HandleUnary(kCreateKey, [this](const Caller& caller, v1::CreateKeyRequest request,
                                        Reply<v1::CreateKeyResponse> reply) {
    CreateKey(caller, request, std::move(reply));
  });
  server.HandleUnary(kListKeys, [this](const Caller& caller, v1::ListKeysRequest request,
                                       Reply<v1::ListKeysResponse> reply) {
    way_.Unary(kListKeys, caller, request, kKeyTimeout, reply, [this, reply] {
      v1::ListKeysResponse response;
      for (const auto& [id, key] : parts_.replicator.desired().api_keys()) {
        *response.add_keys() = WithoutDigest(key);
      }
      reply(std::move(response));
    });
  });
  server.HandleUnary(kRevokeKey, [this](const Caller& caller, v1::RevokeKeyRequest request,
                                        Reply<v1::RevokeKeyResponse> reply) {
    way_.Unary(kRevokeKey, caller, request, kKeyTimeout, reply,
               [this, request, reply] { RevokeHere(request.key(), reply); });
  });
  RegisterTenants(server);
  server.HandleUnary(kRotateKey, [this](const Caller& caller, v1::RotateKeyRequest request,
                                        Reply<v1::RotateKeyResponse> reply) {
    way_.Unary(kRotateKey, caller, request, kKeyTimeout, reply,
               [this, request, reply] { RotateHere(request.key(), reply); });
  });
}

void AccessService::CreateKey(const Caller& caller, const v1::CreateKeyRequest& request,
                              Reply<v1::CreateKeyResponse> reply) {
  way_.Unary(kCreateKey, caller, request, kKeyTimeout, reply,
             [this, request, reply] { CreateHere(request, reply); });
}

void AccessService::RegisterTenants(RpcServer& server) {
  server.HandleUnary(kSetTenant, [this](const Caller& caller, v1::SetTenantRequest request,
                                        Reply<v1::SetTenantResponse> reply) {
    way_.Unary(kSetTenant, caller, request, kKeyTimeout, reply,
               [this, request, reply] { SetTenantHere(request, reply); });
  });
  server.HandleUnary(kListTenants, [this](const Caller& caller, v1::ListTenantsRequest request,
                                          Reply<v1::ListTenantsResponse> reply) {
    way_.Unary(kListTenants, caller, request, kKeyTimeout, reply, [this, reply] {
      v1::ListTenantsResponse response;
      for (const auto& [name, tenant] : parts_.replicator.desired().tenants()) {
        *response.add_tenants() = tenant;
      }
      reply(std::move(response));
    });
  });
}

void AccessService::SetTenantHere(const v1::SetTenantRequest& request,
                                  Reply<v1::SetTenantResponse> reply) {
  static_assert(kTenantLimitMax == kKeyLimitMax);
  const absl::StatusOr<TenantChange> change =
      DecideTenant(request, parts_.replicator.desired().tenants());
  if (!change.ok()) return reply(change.status());
  if (!change->response.changed()) return reply(change->response);
  parts_.replicator.Set(absl::StrCat(kTenantPrefix, request.name()), change->value,
                        AnswerWhenWritten(reply, change->response));
}

void AccessService::RegisterLocal(RpcServer& server) {
  server.HandleUnary(kReadAudit, [this](const Caller&, v1::ReadAuditRequest request,
                                        Reply<v1::ReadAuditResponse> reply) {
    reply(parts_.audit.Read(request));
  });
  server.HandleUnary(
      kVerifyAudit, [this](const Caller&, v1::VerifyAuditRequest,
                           Reply<v1::VerifyAuditResponse> reply) { reply(parts_.audit.Verify()); });
}

template <typename Response>
void AccessService::Write(const v1::ApiKey& key, const Response& response,
                          const Reply<Response>& reply) {
  parts_.replicator.Write(StateKeyOf(key), key.SerializeAsString(),
                          AnswerWhenWritten(reply, response));
}

absl::Status AccessService::MakeRoom() {
  const auto& keys = parts_.replicator.desired().api_keys();
  if (keys.size() < kKeysMax) return absl::OkStatus();
  const v1::ApiKey* oldest = nullptr;
  for (const auto& [id, key] : keys) {
    if (!HasEnded(key, parts_.way.dispatcher.UnixMs())) continue;
    if (oldest == nullptr || key.created_unix_ms() < oldest->created_unix_ms()) oldest = &key;
  }
  if (oldest == nullptr) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kBadRequest,
                        absl::StrCat(kKeysMax, " keys are in use; revoke one first"));
  }
  const std::string state_key = StateKeyOf(*oldest);
  parts_.replicator.Remove(state_key, "", [](const absl::Status&) {});
  return absl::OkStatus();
}

void AccessService::CreateHere(const v1::CreateKeyRequest& request,
                               Reply<v1::CreateKeyResponse> reply) {
  const uint64_t now = parts_.way.dispatcher.UnixMs();
  absl::Status fits = CheckNewKey(request.key(), now);
  if (fits.ok()) fits = MakeRoom();
  if (!fits.ok()) return reply(fits);
  v1::CreateKeyResponse response;
  v1::ApiKey key = request.key();
  key.set_id(transport::HexEncode(transport::RandomBytes(kKeyIdBytes)));
  key.set_created_unix_ms(now);
  key.clear_revoked_unix_ms();
  response.set_secret_key(Renew(&key));
  *response.mutable_key() = WithoutDigest(key);
  Write(key, response, reply);
}

absl::StatusOr<v1::ApiKey> AccessService::Find(const std::string& name) const {
  const auto& keys = parts_.replicator.desired().api_keys();
  const auto by_id = keys.find(name);
  if (by_id != keys.end()) return by_id->second;
  const v1::ApiKey* found = nullptr;
  for (const auto& [id, key] : keys) {
    if (key.name() != name || name.empty() || HasEnded(key, parts_.way.dispatcher.UnixMs())) {
      continue;
    }
    if (found != nullptr) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kKeyNotFound,
                          absl::StrCat("several keys have the name '", name.substr(0, 100),
                                       "'; name one by its id"));
    }
    found = &key;
  }
  if (found != nullptr) return *found;
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kKeyNotFound,
                      absl::StrCat("there is no key '", name.substr(0, 100), "'"));
}

void AccessService::RevokeHere(const std::string& name, Reply<v1::RevokeKeyResponse> reply) {
  absl::StatusOr<v1::ApiKey> key = Find(name);
  if (!key.ok()) return reply(key.status());
  if (key->revoked_unix_ms() == 0) key->set_revoked_unix_ms(parts_.way.dispatcher.UnixMs());
  v1::RevokeKeyResponse response;
  *response.mutable_key() = WithoutDigest(*key);
  Write(*key, response, reply);
}

void AccessService::RotateHere(const std::string& name, Reply<v1::RotateKeyResponse> reply) {
  absl::StatusOr<v1::ApiKey> key = Find(name);
  if (!key.ok()) return reply(key.status());
  if (HasEnded(*key, parts_.way.dispatcher.UnixMs())) {
    return reply(ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kKeyNotFound,
                              absl::StrCat("key ", key->id(), " has ended; make a new one")));
  }
  if (key->has_access_file()) {
    return reply(ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kBadRequest,
                              absl::StrCat("key ", key->id(),
                                           " is of an access file, which can't be renewed: revoke "
                                           "it, and make a new one")));
  }
  v1::RotateKeyResponse response;
  response.set_secret_key(Renew(&*key));
  *response.mutable_key() = WithoutDigest(*key);
  Write(*key, response, reply);
}

}  // namespace macrame::agentd
