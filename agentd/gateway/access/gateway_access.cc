#include "agentd/gateway/access/gateway_access.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/base/token_counts.h"

namespace macrame::agentd {
namespace {

RequestLimits::Time Now() { return std::chrono::steady_clock::now(); }

// The last chunk has the count of an answer's tokens, and does not come where the client left or a
// node failed: then those count that were sent. An answer that begins again costs as much as the
// longer of its tries.
struct AnswerCost {
  TokenCounts counts;
  uint64_t sent = 0;
  uint64_t before = 0;  // of the tries that were lost

  void BeginAgain() {
    before = tokens();
    counts = {};
    sent = 0;
  }

  void Add(const v1::GenerateChunk& chunk) {
    UpdateCounts(chunk, &counts);
    sent += static_cast<uint64_t>(chunk.token_ids_size());
  }
  uint64_t tokens() const {
    const uint64_t now = counts.prompt_tokens + std::max<uint64_t>(counts.completion_tokens, sent);
    return std::max(before, now);
  }
};

void TellOfDropped(const StoredAnswers::Dropped& dropped, const char* why) {
  if (dropped.turns == 0) return;
  spdlog::info("gateway: {} stored answers dropped ({} bytes): {}", dropped.turns, dropped.bytes,
               why);
}

}  // namespace

uint64_t GatewayUnixMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

GatewayAccess::GatewayAccess(OnRefused on_refused, std::chrono::seconds retention)
    : on_refused_(std::move(on_refused)), retention_(retention) {
  answers_.SetRules(RetentionRules(retention_, {}), GatewayUnixMs());
}

void GatewayAccess::SetKeys(std::map<std::string, v1::ApiKey> keys,
                            std::map<std::string, v1::TenantLimits> tenants) {
  // Those of access files are never shown here, and are no reason to ask others for a key.
  std::erase_if(keys, [](const auto& entry) { return entry.second.has_access_file(); });
  std::set<std::string> ids, names;
  for (const auto& [id, key] : keys) {
    ids.insert(id);
    names.insert(key.tenant());
  }
  const auto dropped = answers_.SetRules(RetentionRules(retention_, tenants), GatewayUnixMs());
  TellOfDropped(dropped, "older than their tenant lets them be");
  auto table = std::make_shared<const KeyTable>(std::move(keys));
  {
    const std::lock_guard lock(mutex_);
    keys_ = std::move(table);
    tenants_ = std::move(tenants);
    limits_.Keep(ids, names);
  }
  CheckKeys();
}

void GatewayAccess::SetOnCheck(std::function<void()> on_check) {
  const std::lock_guard lock(mutex_);
  on_check_ = std::move(on_check);
}

// Under the mutex, so that none runs after SetOnCheck returned: it only posts.
void GatewayAccess::CheckKeys() const {
  const std::lock_guard lock(mutex_);
  if (on_check_) on_check_();
}

std::shared_ptr<const KeyTable> GatewayAccess::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

void GatewayAccess::SetModels(std::map<std::string, std::string> tenants) {
  const std::lock_guard lock(mutex_);
  if (owners_->present() == tenants) return;
  auto owners = std::make_shared<ModelOwners>(*owners_);
  owners->Take(std::move(tenants));
  owners_ = std::move(owners);
}

std::shared_ptr<const ModelOwners> GatewayAccess::owners() const {
  const std::lock_guard lock(mutex_);
  return owners_;
}

KnownModels GatewayAccess::KnownTo(const Principal& principal,
                                   const std::vector<ServedModel>& served) const {
  std::map<std::string, std::string> tenants;
  for (const ServedModel& model : served) tenants[model.id] = model.tenant;
  std::shared_ptr<const ModelOwners> owners = this->owners();
  if (owners->present() != tenants) {
    auto newer = std::make_shared<ModelOwners>(*owners);
    newer->Take(std::move(tenants));
    owners = std::move(newer);
  }
  return KnownModels(principal, std::move(owners));
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

void GatewayAccess::PurgeAnswers() { TellOfDropped(answers_.Purge(GatewayUnixMs()), "too old"); }

StoredAnswers::Dropped GatewayAccess::EraseAnswers(const std::string& tenant) {
  const auto dropped = answers_.EraseOf(OwnerOfTenant(tenant));
  TellOfDropped(dropped, "their tenant's were erased");
  return dropped;
}

void GatewayAccess::NoteRefused(const RefusedRequest& refused) const {
  if (on_refused_) on_refused_(refused);
}

std::shared_ptr<GenerateCall> PrincipalBackend::StartGenerate(v1::GenerateRequest request,
                                                              ChunkCallback on_chunk,
                                                              DoneCallback on_done) {
  if (access_->answers().IsMemoryOnly(principal_.tenant)) request.set_memory_only(true);
  // Others' models are answered as those that do not exist: by whoever answers these.
  if (!Known().MayUse(request.deployment())) request.set_deployment(kNoModel);
  const auto told = [access = access_, principal = principal_, &backend = backend_,
                     on_done = std::move(on_done)](const absl::Status& status) {
    if (status.ok()) return on_done(status);
    on_done(access->KnownTo(principal, backend.ListModels()).Filter(status));
  };
  // What only tells tokens runs no model.
  if (!access_->CountsTokens(principal_) || request.has_tokenize()) {
    return backend_.StartGenerate(std::move(request), std::move(on_chunk), told);
  }
  auto cost = std::make_shared<AnswerCost>();
  return backend_.StartGenerate(
      std::move(request),
      on_chunk.Behind(
          [cost, on_chunk](const v1::GenerateChunk& chunk) {
            cost->Add(chunk);
            on_chunk(chunk);
          },
          [cost] { cost->BeginAgain(); }),
      [cost, access = access_, principal = principal_, told](const absl::Status& status) {
        access->AddTokens(principal, cost->tokens());
        told(status);
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
  const KnownModels known = Known();
  std::erase_if(seen, [&](const auto& alias) { return !known.MayUse(alias.second); });
  return seen;
}

}  // namespace macrame::agentd
