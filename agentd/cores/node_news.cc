#include "agentd/cores/node_news.h"

#include <string_view>

namespace macrame::agentd {
namespace {

// FNV-1a: no secret depends on it, and the beacon that carries it is signed.
class Digest {
 public:
  void Add(std::string_view text) {
    Add(text.size());
    for (const char c : text) AddByte(static_cast<unsigned char>(c));
  }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) AddByte((number >> shift) & 0xFF);
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }

  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t NewsOf(const v1::HeartbeatRequest& heartbeat) {
  Digest digest;
  const v1::NodeIdentity& identity = heartbeat.identity();
  digest.Add(identity.incarnation());
  digest.Add(identity.hostname());
  digest.Add(identity.control_port());
  digest.Add(identity.gateway_port());
  digest.Add(identity.agent_version());
  digest.Add(identity.addresses_size());
  for (const v1::NodeAddress& address : identity.addresses()) digest.Add(address.ip());
  digest.Add(heartbeat.ranks_size());
  for (const v1::RankStatus& rank : heartbeat.ranks()) {
    digest.Add(rank.deployment());
    digest.Add(rank.epoch());
    digest.Add(rank.rank());
    digest.Add(static_cast<uint64_t>(rank.phase()));
    digest.Add(rank.bytes_loaded());
    digest.Add(rank.failure().code());
  }
  digest.Add(heartbeat.inventory_revision());
  digest.Add(heartbeat.links_revision());
  digest.Add(heartbeat.coordinator().term());
  digest.Add(heartbeat.coordinator().coordinator_id());
  digest.Add(heartbeat.state_failure().code());
  digest.Add(heartbeat.draining() ? 1 : 0);
  digest.Add(heartbeat.undialled_node_ids_size());
  for (const std::string& node : heartbeat.undialled_node_ids()) digest.Add(node);
  return digest.value() == 0 ? 1 : digest.value();
}

}  // namespace macrame::agentd
