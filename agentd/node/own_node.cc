#include "agentd/node/own_node.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace macrame::agentd {

OwnNode::OwnNode(transport::Dispatcher& dispatcher, v1::NodeIdentity identity,
                 discovery::InventoryProber& prober, runtime::RankSupervisor& supervisor)
    : dispatcher_(dispatcher),
      identity_(std::move(identity)),
      prober_(prober),
      supervisor_(supervisor) {}

void OwnNode::SetAddresses(const std::vector<v1::NodeAddress>& addresses) {
  identity_.clear_addresses();
  for (const v1::NodeAddress& address : addresses) *identity_.add_addresses() = address;
}

const std::vector<v1::RankStatus>& OwnNode::ranks() {
  const MonotonicTime now = dispatcher_.Now();
  // Counters change without a word, so the answer ages.
  if (!ranks_known_ || now - ranks_at_ > kLoadSampleInterval) {
    ranks_ = supervisor_.Statuses();
    for (v1::RankStatus& rank : ranks_) {
      if (const auto joules = energy_.JoulesOf(rank)) rank.set_energy_joules(*joules);
    }
    ranks_at_ = now;
    ranks_known_ = true;
  }
  return ranks_;
}

const v1::NodeLoad& OwnNode::load() {
  const MonotonicTime now = dispatcher_.Now();
  const Duration interval = ranks().empty() ? kIdleLoadSampleInterval : kLoadSampleInterval;
  if (load_at_ != MonotonicTime() && now - load_at_ < interval) return load_;
  load_ = prober_.SampleLoad();
  load_at_ = now;
  energy_.Observe(load_, ranks(), now);
  double tokens_per_second = 0;
  uint32_t running = 0;
  uint32_t queued = 0;
  for (const v1::RankStatus& rank : ranks()) {
    if (rank.rank() != 0 || rank.phase() != v1::RANK_PHASE_READY) continue;
    tokens_per_second += rank.tokens_per_second();
    running += rank.requests_running();
    queued += rank.requests_queued();
  }
  load_.set_tokens_per_second(tokens_per_second);
  load_.set_requests_running(running);
  load_.set_requests_queued(queued);
  load_.set_reserved_bytes(supervisor_.ReservedBytes().count());
  load_.set_awaited_bytes(supervisor_.AwaitedBytes().count());
  return load_;
}

runtime::NodeMemory OwnNode::memory() {
  load_at_ = MonotonicTime();  // an admission looks at what is there now
  const uint64_t available = load().memory_available_bytes();
  return {Bytes(discovery::ModelsMemoryOf(inventory()).bytes), Bytes(available),
          Bytes(discovery::WorkingSetOf(inventory()))};
}

}  // namespace macrame::agentd
