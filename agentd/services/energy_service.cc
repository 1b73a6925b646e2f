#include "agentd/services/energy_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "agentd/base/rpc_methods.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/services/gathering.h"
#include "proto/power_parts.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;

constexpr Duration kAskTimeout = std::chrono::seconds(3);

// What the gateways answered so far.
struct KeysTold {
  std::map<std::string, v1::KeyEnergy> keys;
  std::vector<v1::Reason> missing;

  void Add(const NodeId& node, const absl::StatusOr<v1::GetKeyEnergyResponse>& answer) {
    if (!answer.ok()) {
      missing.push_back(ReasonOf(answer.status()));
      if (missing.back().node_id().empty()) missing.back().set_node_id(node.value());
      return;
    }
    for (const v1::KeyEnergy& key : answer->keys()) {
      v1::KeyEnergy& all = keys[key.key_id()];
      all.set_key_id(key.key_id());
      all.set_joules(all.joules() + key.joules());
      all.set_generated_tokens(all.generated_tokens() + key.generated_tokens());
      all.set_prompt_tokens(all.prompt_tokens() + key.prompt_tokens());
    }
  }
  v1::GetKeyEnergyResponse Response() {
    v1::GetKeyEnergyResponse response;
    for (auto& [id, key] : keys) *response.add_keys() = std::move(key);
    for (v1::Reason& why : missing) *response.add_missing() = std::move(why);
    return response;
  }
};

}  // namespace

void EnergyService::Register(RpcServer& server) {
  server.HandleUnary(kGetKeyEnergy, [this](const Caller& caller, v1::GetKeyEnergyRequest,
                                           Reply<v1::GetKeyEnergyResponse> reply) {
    Tell(caller, std::move(reply));
  });
}

v1::GetKeyEnergyResponse EnergyService::Own() const {
  v1::GetKeyEnergyResponse response;
  for (v1::KeyEnergy& key : ledger_.Keys()) *response.add_keys() = std::move(key);
  return response;
}

void EnergyService::Tell(const Caller& caller, Reply<v1::GetKeyEnergyResponse> reply) {
  // What came over the wire is not passed on again.
  if (!caller.IsPerson()) return reply(Own());
  auto told = std::make_shared<KeysTold>();
  told->Add(parts_.self, Own());
  AskEach(
      parts_.channels, parts_.members.Live(), kGetKeyEnergy, v1::GetKeyEnergyRequest(), kAskTimeout,
      [told](const NodeId& node, const absl::StatusOr<v1::GetKeyEnergyResponse>& answer) {
        told->Add(node, answer);
      },
      [told, reply = std::move(reply)] { reply(told->Response()); });
}

void EnergyService::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (looked_at_ != MonotonicTime() && now - looked_at_ < kEnergyLookInterval) return;
  looked_at_ = now;
  EnergyLedger::PartsOfNodes parts;
  for (const NodeFacts& facts : parts_.views.All()) {
    if (facts.load == nullptr || facts.load->power_parts().empty()) continue;
    parts[facts.id.value()] = PartsOf(facts.load->power_parts());
  }
  ledger_.Observe(parts_.gang_controller.Statuses(), parts, now);
}

void EnergyService::SetKeys(const std::map<std::string, v1::ApiKey>& keys) {
  key_of_digest_.clear();
  for (const auto& [id, key] : keys) key_of_digest_[AskerOfKey("", id).queue] = id;
}

void EnergyService::Note(const UsedRequest& used) {
  const std::string digest = used.fairness_key.substr(0, used.fairness_key.find('/'));
  const auto key = key_of_digest_.find(digest);
  ledger_.Charge(key == key_of_digest_.end() ? "" : key->second, used.deployment, used.tokens,
                 used.begun, parts_.dispatcher.Now());
}

}  // namespace macrame::agentd
