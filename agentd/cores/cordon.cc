#include "agentd/cores/cordon.h"

namespace macrame::agentd {

std::optional<CordonChange> DecideCordon(const v1::SetCordonRequest& request,
                                         const v1::Cordon* present, uint64_t now_unix_ms) {
  if (request.deadline_ms() > kDrainDeadlineMaxMs) return std::nullopt;
  CordonChange change;
  if (request.order() == v1::CORDON_ORDER_UNCORDON) {
    change.response.set_changed(present != nullptr);
    return change;
  }
  const bool drains = request.order() == v1::CORDON_ORDER_DRAIN;
  if (!drains && request.order() != v1::CORDON_ORDER_CORDON) return std::nullopt;
  v1::Cordon cordon;
  if (present != nullptr) cordon = *present;
  cordon.set_node_id(request.node_id());
  if (present == nullptr) cordon.set_since_unix_ms(now_unix_ms);
  if (drains) {
    cordon.set_drain(true);
    cordon.set_deadline_ms(request.deadline_ms() == 0 ? kDrainDeadlineDefaultMs
                                                      : request.deadline_ms());
  }
  *change.response.mutable_cordon() = cordon;
  change.value = cordon.SerializeAsString();
  change.response.set_changed(present == nullptr || present->SerializeAsString() != change.value);
  return change;
}

}  // namespace macrame::agentd
