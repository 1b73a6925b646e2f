#include "agentd/gateway/response_store.h"

#include <utility>

namespace macrame::agentd {

void ResponseStore::Drop(std::list<Kept>::iterator at) {
  bytes_ -= at->turn.bytes();
  by_id_.erase(at->id);
  turns_.erase(at);
}

void ResponseStore::Put(const std::string& id, Turn turn) {
  if (const auto before = by_id_.find(id); before != by_id_.end()) Drop(before->second);
  if (turns_max_ == 0 || turn.bytes() > bytes_max_) return;
  bytes_ += turn.bytes();
  turns_.push_front({id, std::move(turn)});
  by_id_[id] = turns_.begin();
  while (turns_.size() > turns_max_ || bytes_ > bytes_max_) Drop(std::prev(turns_.end()));
}

const ResponseStore::Turn* ResponseStore::Find(const std::string& id, const std::string& tenant) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->turn.tenant != tenant) return nullptr;
  turns_.splice(turns_.begin(), turns_, found->second);
  return &found->second->turn;
}

bool ResponseStore::Erase(const std::string& id, const std::string& tenant) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->turn.tenant != tenant) return false;
  Drop(found->second);
  return true;
}

ResponseStore::Dropped ResponseStore::DropIf(const std::function<bool(const Turn&)>& goes) {
  Dropped dropped;
  for (auto at = turns_.begin(); at != turns_.end();) {
    const auto next = std::next(at);
    if (goes(at->turn)) {
      ++dropped.turns;
      dropped.bytes += at->turn.bytes();
      Drop(at);
    }
    at = next;
  }
  return dropped;
}

}  // namespace macrame::agentd
