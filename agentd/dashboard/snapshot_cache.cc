#include "agentd/dashboard/snapshot_cache.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/message_json.h"

namespace macrame::agentd::dashboard {
namespace {

using Json = nlohmann::ordered_json;

std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A live node was heard within the last second or two: how many milliseconds ago changes always.
uint64_t HashOf(v1::ClusterStatus status) {
  for (v1::NodeStatus& node : *status.mutable_nodes()) {
    if (node.state() == v1::NODE_STATE_ALIVE) node.set_last_heartbeat_age_ms(0);
  }
  return std::hash<std::string>()(status.SerializeAsString());
}

}  // namespace

bool SnapshotCache::ShouldAsk(Time now) {
  if (IsFresh(now)) return false;
  if (asked_at_.has_value() && now - *asked_at_ < kPatience) return false;
  asked_at_ = now;
  return true;
}

bool SnapshotCache::IsFresh(Time now) const {
  return taken_at_.has_value() && now - *taken_at_ < kHolds;
}

void SnapshotCache::Take(const v1::ClusterStatus& status, Time now) {
  asked_at_.reset();
  taken_at_ = now;
  const uint64_t hash = HashOf(status);
  if (latest_ != nullptr && hash == told_hash_) return;
  told_hash_ = hash;
  auto next = std::make_shared<Snapshot>();
  next->json = LineOf(MessageToJson(status));
  next->etag = absl::StrCat("\"", absl::StrFormat("%016x", hash), "\"");
  next->revision = latest_ == nullptr ? 1 : latest_->revision + 1;
  latest_ = std::move(next);
}

}  // namespace macrame::agentd::dashboard
