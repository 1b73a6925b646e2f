#include "agentd/gateway/access/response_store.h"

#include <utility>

namespace macrame::agentd {

void ResponseStore::Held::Add(const Turn& turn) {
  ++turns;
  bytes += turn.bytes();
}

void ResponseStore::Held::Take(const Turn& turn) {
  --turns;
  bytes -= turn.bytes();
}

void ResponseStore::Drop(std::list<Kept>::iterator at) {
  bytes_ -= at->turn.bytes();
  at->tenant->Take(at->turn);
  at->holder->all.Take(at->turn);
  if (at->tenant->turns == 0) at->holder->by_tenant.erase(at->turn.tenant);
  if (at->holder->all.turns == 0) holders_.erase(at->turn.holder);
  by_id_.erase(at->id);
  turns_.erase(at);
}

std::list<ResponseStore::Kept>::iterator ResponseStore::NextToLeave() {
  const auto scarce = turns_.size() > turns_max_ ? &Held::turns : &Held::bytes;
  auto leaves = turns_.end();
  std::pair<size_t, size_t> most;  // of the holder, of the tenant
  for (auto at = turns_.end(); at != turns_.begin();) {
    --at;
    const std::pair held(at->holder->all.*scarce, at->tenant->*scarce);
    if (held <= most) continue;
    most = held;
    leaves = at;
  }
  return leaves;
}

void ResponseStore::Put(const std::string& id, Turn turn) {
  if (const auto before = by_id_.find(id); before != by_id_.end()) Drop(before->second);
  if (turns_max_ == 0 || turn.bytes() > bytes_max_) return;
  bytes_ += turn.bytes();
  Holder& holder = holders_[turn.holder];
  Held& tenant = holder.by_tenant[turn.tenant];
  holder.all.Add(turn);
  tenant.Add(turn);
  turns_.push_front({id, std::move(turn), &holder, &tenant});
  by_id_[id] = turns_.begin();
  while (turns_.size() > turns_max_ || bytes_ > bytes_max_) Drop(NextToLeave());
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
