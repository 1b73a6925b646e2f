#pragma once

// What the agent and its gateway share of access: the keys there are, how much of its limits each
// has used, what is kept of their answers, and who is told of refusals. Any thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/access/api_key.h"
#include "agentd/gateway/access/known_models.h"
#include "agentd/gateway/access/request_limits.h"
#include "agentd/gateway/access/stored_answers.h"
#include "agentd/gateway/base/inference_backend.h"

namespace macrame::agentd {

// A request that was not let in.
struct RefusedRequest {
  std::string method;
  std::string path;    // without its query
  std::string key_id;  // empty: no known key was shown
  std::string address;
  int status = 0;
  std::string code;
};

class GatewayAccess {
 public:
  using OnRefused = std::function<void(const RefusedRequest&)>;
  // `on_refused` is called on the gateway's thread, and may be empty. `retention`: how long answers
  // of tenants without an order are stored; 0: as long as there is room.
  explicit GatewayAccess(OnRefused on_refused = nullptr,
                         std::chrono::seconds retention = std::chrono::seconds(0));

  // `tenants`: limits of those that have some, by name. Keys of access files are left out. Stored
  // answers that are too old by what tenants say now go at once.
  void SetKeys(std::map<std::string, v1::ApiKey> keys,
               std::map<std::string, v1::TenantLimits> tenants = {});
  std::shared_ptr<const KeyTable> keys() const;
  // Who ends what would not be let in any more: called when there are other keys, and by CheckKeys,
  // on the caller's thread. Null: nobody. One gateway.
  void SetOnCheck(std::function<void()> on_check);
  // Time alone ends keys, too: for whoever does so every second or so.
  void CheckKeys() const;

  // Whose each deployment is now: names and tenants. What is gone is remembered.
  void SetModels(std::map<std::string, std::string> tenants);
  std::shared_ptr<const ModelOwners> owners() const;
  // What whoever is let in as `principal` may know, where `served` is what there is.
  KnownModels KnownTo(const Principal& principal, const std::vector<ServedModel>& served) const;

  LimitVerdict Begin(const Principal& principal);
  void End(const Principal& principal);
  // Whether somebody has to know what its answers cost.
  bool CountsTokens(const Principal& principal) const;
  void AddTokens(const Principal& principal, uint64_t tokens);
  void NoteRefused(const RefusedRequest& refused) const;

  StoredAnswers& answers() { return answers_; }
  // Drops those that are too old; for whoever does so every second or so.
  void PurgeAnswers();
  // All of a tenant's keys.
  StoredAnswers::Dropped EraseAnswers(const std::string& tenant);

 private:
  const OnRefused on_refused_;
  const std::chrono::seconds retention_;
  StoredAnswers answers_;
  mutable std::mutex mutex_;
  const v1::TenantLimits* FindTenant(const std::string& name) const;

  std::shared_ptr<const ModelOwners> owners_ = std::make_shared<ModelOwners>();
  std::shared_ptr<const KeyTable> keys_ = std::make_shared<KeyTable>();
  std::function<void()> on_check_;
  std::map<std::string, v1::TenantLimits> tenants_;
  RequestLimits limits_;
};

// Of the machine's clock.
uint64_t GatewayUnixMs();

// Of a request that counts against its key's and its tenant's limits, for as long as it lives.
class LimitedRequest {
 public:
  LimitedRequest(std::shared_ptr<GatewayAccess> access, Principal principal)
      : access_(std::move(access)), principal_(std::move(principal)) {}
  ~LimitedRequest() { access_->End(principal_); }
  LimitedRequest(const LimitedRequest&) = delete;
  LimitedRequest& operator=(const LimitedRequest&) = delete;

 private:
  std::shared_ptr<GatewayAccess> access_;
  const Principal principal_;
};

// The backend as one principal has it: what was loaded for other tenants is not in the list and not
// there to be asked, failures do not name it, tokens count against the key, and prompts of a tenant
// that said so stay out of the cache on disk. The backend and `access` outlive it and its answers.
class PrincipalBackend : public InferenceBackend {
 public:
  PrincipalBackend(InferenceBackend& backend, std::shared_ptr<GatewayAccess> access,
                   Principal principal)
      : backend_(backend), access_(std::move(access)), principal_(std::move(principal)) {}

  const Principal& principal() const { return principal_; }

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override;
  // Without those of models that it may not see.
  std::map<std::string, std::string> Aliases() override;
  bool IsLooking() override { return backend_.IsLooking(); }
  // What it may know.
  KnownModels Known() const { return access_->KnownTo(principal_, backend_.ListModels()); }

 private:
  InferenceBackend& backend_;
  const std::shared_ptr<GatewayAccess> access_;
  const Principal principal_;
};

}  // namespace macrame::agentd
