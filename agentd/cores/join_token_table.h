#pragma once

// The join tokens that this node gave out, who may still try to show one, and whom a person has yet
// to approve.
//
// Tokens are known to the one keeper that made them, in its memory: so one use is one use, whatever
// happens at other keepers, and a restart ends them all. A failed attempt counts against its
// address (transport::CountedAddress) and against everybody together; a good one never does. Who
// has been let in may ask again with the same request, since an answer can be lost on the way; that
// is no further use.
//
// Contract: pure. Owner: the agent's owner thread. Bounds: kJoinTokensMax, kJoinWaitingMax,
// kAttemptAddressesMax.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr size_t kJoinTokensMax = 16;
inline constexpr size_t kJoinWaitingMax = 32;
inline constexpr uint32_t kJoinUsesMax = 64;
inline constexpr Duration kJoinValidMax = std::chrono::hours(24);
// Failed attempts within kAttemptWindow.
inline constexpr size_t kFailuresPerAddressMax = 8;
inline constexpr size_t kFailuresMax = 64;
inline constexpr size_t kAttemptAddressesMax = 64;
inline constexpr Duration kAttemptWindow = std::chrono::seconds(60);
// Who waits for approval asks each second; one that has not for so long has given up.
inline constexpr Duration kJoinWaitingKept = std::chrono::seconds(30);
// A token without a use left is known for so long, for those whose answer was lost.
inline constexpr Duration kUsedTokenKept = std::chrono::seconds(60);

struct JoinPass {
  ~JoinPass();  // wipes the secret
  std::string id;
  std::string secret;
  MonotonicTime expires;
  uint32_t uses_left = 1;
  bool approve = false;
};

// Who showed a token.
struct JoinAsker {
  NodeId node;
  std::string hostname;
  std::string address;
  std::string request_digest;
};

enum class JoinVerdict { kIssue, kWait };

class JoinTokenTable {
 public:
  // RESOURCE_EXHAUSTED when there are too many.
  absl::Status Add(const JoinPass& pass, MonotonicTime now);
  // Whether anybody may come: one is valid, or was used up less than kUsedTokenKept ago.
  bool Expects(MonotonicTime now);

  // Before the proof is looked at. JOIN_LIMITED when too many attempts failed of late.
  absl::Status MayTry(const std::string& address, MonotonicTime now);
  void NoteFailure(const std::string& address, MonotonicTime now);
  // Null: unknown or expired. Used ones are found, so that who was let in may ask again.
  const JoinPass* Find(const std::string& id, MonotonicTime now);
  // The proof was good. TOKEN_USED when no use is left.
  absl::StatusOr<JoinVerdict> Take(const std::string& id, const JoinAsker& asker,
                                   MonotonicTime now);

  // It was revoked: no token that it came with lets anybody in any more.
  void ForgetTokensOf(const NodeId& node);

  // Whom a person has to approve.
  std::vector<JoinAsker> Waiting(MonotonicTime now) const;
  // `name`: its hostname, or four or more digits of its id. NODE_NOT_FOUND, NODE_AMBIGUOUS.
  absl::StatusOr<JoinAsker> Approve(const std::string& name, MonotonicTime now);

 private:
  struct Entry {
    JoinPass pass;
    std::set<std::string> issued;    // node id and request digest
    std::set<std::string> approved;  // the same
  };
  struct Wait {
    JoinAsker asker;
    std::string token_id;
    MonotonicTime last_asked;
  };
  void Expire(MonotonicTime now);

  std::map<std::string, Entry> entries_;
  std::map<std::string, Wait> waiting_;  // by node id and request digest
  std::map<std::string, std::vector<MonotonicTime>> failures_;
  size_t failures_in_all_ = 0;
};

}  // namespace macrame::agentd
