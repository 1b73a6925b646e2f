#pragma once

// Where the entry ranks of a deployment's replicas are, and which of them to ask: the one that was
// sent the beginning of this prompt before, as long as it has not many more requests of this node's
// under way than another; else the one with the fewest. One that lately had no answer, or is on a
// dead node, only when there is no other. Owner thread; decides by the desired state and the
// membership.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agentd/cores/desired_state.h"
#include "agentd/cores/prefix_affinity.h"
#include "proto/ids.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// A replica without an answer is passed over for so long while there are others.
inline constexpr Duration kFailedReplicaPause = std::chrono::seconds(5);

// A beginning shorter than this is computed anew as fast as anywhere.
inline constexpr size_t kAffinityBytesMin = 1024;
// Requests more than the least busy replica's that a known beginning is worth: a gang computes so
// many at once at little loss.
inline constexpr uint32_t kAffinityRequests = 4;

class EntryTable {
 public:
  struct Entry {
    std::string replica;
    NodeId node;
    uint64_t epoch = 0;
    bool failed_lately = false;
  };

  EntryTable(const transport::Clock& clock, const DesiredState& desired)
      : clock_(clock), desired_(desired) {}

  // "NAME#2" means that replica alone. NOT_FOUND with MODEL_NOT_LOADED when no such deployment is
  // wanted; UNAVAILABLE with NOT_READY when it is and no replica of it has a place.
  absl::StatusOr<Entry> Find(const std::string& asked,
                             const std::vector<PromptStep>& prompt = {}) const;
  // MODEL_NOT_LOADED, with the names of what there is.
  static absl::Status NotLoaded(const std::string& asked, const std::vector<std::string>& loaded);
  // Whether there is more than one replica to choose from: only then its prompt matters.
  bool HasChoice(const std::string& asked) const;
  // Whether somebody wants it served.
  bool IsWanted(const std::string& asked) const;
  // Whom the membership holds for dead; nobody before.
  void SetIsDead(std::function<bool(const NodeId&)> is_dead) { is_dead_ = std::move(is_dead); }
  bool IsDead(const NodeId& node) const { return is_dead_ && is_dead_(node); }
  // Whether the gang of this entry ended, or was launched anew somewhere.
  bool HasMovedOn(const Entry& entry) const;
  // It did because one of its nodes is about to stop: it has time for what it was asked.
  bool MovesInOrder(const Entry& entry) const;
  // How long answers have at the most that some order to drain names; zero: there is none.
  Duration DrainTime() const;
  // What a client is told: of a wanted deployment never that there is none.
  absl::Status Told(const std::string& asked, const absl::Status& status) const;

  // A request goes there, and is over. `failed`: it had no answer.
  void NoteSent(const Entry& entry, const std::vector<PromptStep>& prompt = {});
  void NoteOver(const std::string& replica, bool failed);

 private:
  // Of each replica: requests under way, and when one was last sent there (counted in requests).
  struct Sent {
    uint32_t under_way = 0;
    uint64_t last = 0;
    std::optional<MonotonicTime> failed_at;
    uint64_t epoch = 0;  // whose ranks were sent `prompts`
    PrefixMemory prompts;
  };

  struct Choice {
    Entry entry;
    uint32_t under_way = 0;
    uint64_t last = 0;
    size_t matched = 0;  // bytes of the prompt that it was sent before
  };

  // The replicas that `asked` may mean and that have an entry node.
  std::vector<Choice> ChoicesOf(const std::string& asked, const std::string& deployment,
                                const v1::Deployment& wanted,
                                const std::vector<PromptStep>& prompt) const;
  static const Choice& IdlestOf(const std::vector<Choice>& choices);
  // The one that was sent most of the prompt before; null when none was, or all are too busy.
  static const Choice* NearestOf(const std::vector<Choice>& choices, uint32_t under_way_max);

  const transport::Clock& clock_;
  const DesiredState& desired_;
  std::function<bool(const NodeId&)> is_dead_;
  std::map<std::string, Sent> sent_;
  uint64_t requests_sent_ = 0;
};

}  // namespace macrame::agentd
