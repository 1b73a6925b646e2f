#include "agentd/gateway/gateway_access.h"

#include <chrono>
#include <utility>

#include "agentd/gateway/answer_format.h"

namespace macrame::agentd {
namespace {

RequestLimits::Time Now() { return std::chrono::steady_clock::now(); }

}  // namespace

void GatewayAccess::SetKeys(std::map<std::string, v1::ApiKey> keys,
                            std::map<std::string, v1::TenantLimits> tenants) {
  std::set<std::string> ids, names;
  for (const auto& [id, key] : keys) {
    ids.insert(id);
    names.insert(key.tenant());
  }
  auto table = std::make_shared<const KeyTable>(std::move(keys));
  const std::lock_guard lock(mutex_);
  keys_ = std::move(table);
  tenants_ = std::move(tenants);
  limits_.Keep(ids, names);
}

std::shared_ptr<const KeyTable> GatewayAccess::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

LimitVerdict GatewayAccess::Begin(const Principal& principal) {
  const std::lock_guard lock(mutex_);
  return limits_.Begin(principal, Now(), FindTenant(principal.tenant));
}

const v1::TenantLimits* GatewayAccess::FindTenant(const std::string& name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? nullptr : &found->second;
}

void GatewayAccess::End(const Principal& principal) {
  const std::lock_guard lock(mutex_);
  limits_.End(principal);
}

bool GatewayAccess::CountsTokens(const Principal& principal) const {
  const std::lock_guard lock(mutex_);
  const v1::TenantLimits* tenant = FindTenant(principal.tenant);
  return principal.tokens_per_minute > 0 || (tenant != nullptr && tenant->tokens_per_minute() > 0);
}

void GatewayAccess::AddTokens(const Principal& principal, uint64_t tokens) {
  const std::lock_guard lock(mutex_);
  limits_.AddTokens(principal, tokens, Now());
}

void GatewayAccess::NoteRefused(const RefusedRequest& refused) const {
  if (on_refused_) on_refused_(refused);
}

std::shared_ptr<GenerateCall> PrincipalBackend::StartGenerate(v1::GenerateRequest request,
                                                              ChunkCallback on_chunk,
                                                              DoneCallback on_done) {
  // What only tells tokens runs no model.
  if (!access_->CountsTokens(principal_) || request.has_tokenize()) {
    return backend_.StartGenerate(std::move(request), std::move(on_chunk), std::move(on_done));
  }
  auto counts = std::make_shared<TokenCounts>();
  return backend_.StartGenerate(
      std::move(request),
      [counts, on_chunk = std::move(on_chunk)](const v1::GenerateChunk& chunk) {
        UpdateCounts(chunk, counts.get());
        on_chunk(chunk);
      },
      [counts, access = access_, principal = principal_,
       on_done = std::move(on_done)](absl::Status status) {
        access->AddTokens(principal, uint64_t{counts->prompt_tokens} + counts->completion_tokens);
        on_done(std::move(status));
      });
}

std::vector<ServedModel> PrincipalBackend::ListModels() {
  std::vector<ServedModel> seen;
  for (ServedModel& model : backend_.ListModels()) {
    if (MaySee(principal_, model.id, model.tenant)) seen.push_back(std::move(model));
  }
  return seen;
}

std::map<std::string, std::string> PrincipalBackend::Aliases() {
  std::map<std::string, std::string> seen = backend_.Aliases();
  if (seen.empty()) return seen;
  const std::vector<ServedModel> served = backend_.ListModels();
  std::erase_if(seen, [&](const auto& alias) {
    const ServedModel* model = FindModel(served, alias.second);
    return !MaySee(principal_, alias.second, model == nullptr ? "" : model->tenant);
  });
  return seen;
}

}  // namespace macrame::agentd
