#include "agentd/cores/dial_table.h"

namespace macrame::agentd {

void DialTable::NoteCall(const NodeId& node, bool reached, MonotonicTime now) {
  if (reached) {
    failing_.erase(node);
    return;
  }
  if (failing_.size() >= kDialsMax && !failing_.contains(node)) {
    std::erase_if(failing_, [now](const auto& entry) {
      return now - entry.second.last > kDialForgottenAfter;
    });
    if (failing_.size() >= kDialsMax) return;
  }
  Failing& failing = failing_[node];
  if (failing.calls == 0 || now - failing.last > kDialForgottenAfter) failing = {0, now, now};
  ++failing.calls;
  failing.last = now;
}

std::set<NodeId> DialTable::Undialled(const std::set<NodeId>& heard, MonotonicTime now) const {
  std::set<NodeId> undialled;
  for (const auto& [node, failing] : failing_) {
    if (heard.contains(node) && failing.calls >= kDialFailuresMin &&
        failing.last - failing.since >= kUndialledAfter &&
        now - failing.last <= kDialForgottenAfter) {
      undialled.insert(node);
    }
  }
  return undialled;
}

}  // namespace macrame::agentd
