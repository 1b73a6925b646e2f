#pragma once

// Who leads: term, lease and fencing, as a pure core.
//
// Intuition: leading means holding leases. A node grants its lease to one coordinator at a time,
// for `lease` of its own clock, and writes the grant to disk before it answers. A coordinator
// counts a lease from the instant at which it *asked*, shortened by the drift that two clocks may
// have, so that it always stops before the granter may grant to another. It leads while it holds
// the leases of a majority of the live members; the moment it does not, it leads no more, tick or
// no tick: every effect of a coordinator is guarded by Leading(now), which is why a coordinator
// that was paused fences itself.
//
// Pairs (term, id) order coordinators; two halves that elected apart never tie. When they meet, the
// one whose coordinator holds more leases keeps the lead: its term is raised above the other's. Of
// equal ones the lower pair steps down. agentd/cores/README.md has the rules in plain words.
//
// Contract: pure. No thread, clock, socket, disk, log or random inside; `now` never goes backwards.
// Every call returns effects that are carried out in order and at once. PersistGrant is
// synchronous: the effects after it may be carried out only when it is on disk. If it can't be
// written, the rest of the list is dropped and OnPersistFailed called: such a node grants and leads
// nothing until Unsaved() was written after all (rather no vote than a guessed one). Owner: the
// agent's owner thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "macrame/v1/agent.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

enum class Consistency {
  kAvailable,  // a majority of the live members, as the candidate sees them, that is at least half
               // of the listed ones (or was alone for minority_wait): a lone survivor goes on
  kQuorum,     // a majority of the listed members: a minority stops
};

struct ElectionOptions {
  Duration lease = std::chrono::milliseconds(2000);
  Duration renew_interval = std::chrono::milliseconds(500);
  // A lease that was granted to an asking less than this ago is not asked for again yet. With a
  // renew_interval much shorter than this, one that is answered is renewed seldom, and one that is
  // not is asked for often.
  Duration fresh_for{};
  // A node that just started waits this long for others to be found before it stands for election.
  Duration discovery_grace = std::chrono::milliseconds(1000);
  // A follower without a coordinator stands after a random part of this.
  Duration election_jitter = std::chrono::milliseconds(300);
  // A round of votes that is not won in this time is given up. After each round that is lost the
  // next one waits twice as long, up to round_timeout_max, and the jitter grows alike: where many
  // nodes start at once on few cores, answers take longer than any short round.
  Duration round_timeout = std::chrono::milliseconds(400);
  Duration round_timeout_max = std::chrono::milliseconds(1600);
  // A node that has not obeyed anybody since it started does not stand before no other was found
  // for so long, or settle_max after discovery_grace: it would be elected by a few of many.
  Duration settle = std::chrono::milliseconds(300);
  Duration settle_max = std::chrono::milliseconds(4000);
  // A member that just became alive counts in the majority that a *sitting* coordinator must renew
  // after this long, or as soon as it has granted; so that two halves can meet without either
  // losing its majority.
  Duration joining_grace = std::chrono::milliseconds(3000);
  // Two clocks may differ in speed by this much of a lease; the coordinator gives up so much
  // earlier.
  uint32_t clock_drift_percent = 5;
  // kAvailable: less than half of the listed members elect nobody before they were so few for so
  // long. What is cut off for a moment raises no term and launches nothing.
  Duration minority_wait = std::chrono::seconds(30);
  // kQuorum: so many nodes have to agree on the very first list of members.
  size_t first_members = 3;
  Consistency consistency = Consistency::kAvailable;
};

// Terms and leases beyond these are refused: they come from no honest node of ours.
inline constexpr uint64_t kTermMax = uint64_t{1} << 62;
inline constexpr uint32_t kLeaseMsMax = 60'000;

// What a node promised. It is on disk before anyone is told; restarts keep it.
struct GrantRecord {
  FencePair granted;
  Duration lease{};
  std::string machine = "";  // that the coordinator runs on (Fence.machine); empty: not known
  bool operator==(const GrantRecord&) const = default;
};

// Write and fsync the record before doing what follows in the list.
struct PersistGrant {
  GrantRecord record;
};
// The answer to the LeaseRequest that was handed in. When `with_entries`, the shell adds the whole
// desired state (LeaseResponse.entries).
struct AnswerLease {
  v1::LeaseResponse response;
  bool with_entries = false;
};
// Sent by AgentService.RequestLease. The whole struct is handed back with the response. A request
// with lease_ms 0 gives a lease back; its answer may be dropped.
struct SendLeaseRequest {
  NodeId to;
  v1::LeaseRequest request;
  MonotonicTime sent_at;
};
struct BecameCoordinator {
  FencePair fence;
};
struct LostCoordination {
  FencePair fence;
  v1::Reason why;
};
// Whom this node obeys changed (nobody: empty). For heartbeats, forwarding and the event log.
struct ObeysChanged {
  std::optional<FencePair> coordinator;
};

using ElectionEffect = std::variant<PersistGrant, AnswerLease, SendLeaseRequest, BecameCoordinator,
                                    LostCoordination, ObeysChanged>;
using ElectionEffects = std::vector<ElectionEffect>;

class Election {
 public:
  // `record` is what StateStore holds (empty on a fresh node). A grant to another is taken to run
  // its whole length from `now`. `random` gives uniformly distributed 64-bit numbers.
  Election(NodeId self, ElectionOptions options, std::optional<GrantRecord> record,
           std::function<uint64_t()> random, MonotonicTime now);

  // NodeIdentity.machine of this node, for FenceOf. To be called first, where it is known.
  void SetMachine(std::string machine) { machine_ = std::move(machine); }
  // `pair` of this node as its orders and its requests for leases carry it.
  v1::Fence FenceOf(const FencePair& pair) const;

  // Each 100 ms or so: what is late by a tick is no danger, leases are seconds.
  ElectionEffects OnTick(MonotonicTime now);
  // When OnTick has something to do at the soonest, should nothing else happen; in the past: it
  // waits for something else.
  MonotonicTime NextDue() const;
  // `live`: members that are alive or suspect. `all`: every member that has not left. This node
  // counts as live whether it is listed or not.
  ElectionEffects OnMembershipChanged(const std::set<NodeId>& live, const std::set<NodeId>& all,
                                      MonotonicTime now);
  // Members that live and count in no majority (their disks are full): they are asked for their
  // leases, so that they are told the state and take orders.
  void SetBeside(std::set<NodeId> nodes) { beside_ = std::move(nodes); }
  // The member list (cores/member_list.h) of this node's desired state; empty: there is none yet.
  // To be called before anything else where there is one, and whenever it changes.
  ElectionEffects OnMemberList(const std::set<NodeId>& listed, MonotonicTime now);
  // `from` is the caller as its certificate names it. Exactly one AnswerLease is among the effects.
  ElectionEffects OnLeaseRequest(const NodeId& from, const v1::LeaseRequest& request,
                                 MonotonicTime now);
  // Response entries must be merged into the StateTable *before* this call: what a new coordinator
  // leads with is the sum of what its electors hold.
  ElectionEffects OnLeaseResponse(const SendLeaseRequest& asked, const v1::LeaseResponse& response,
                                  MonotonicTime now);
  // No process of this node runs any more: its machine refuses connections, and nothing was heard
  // of it for longer than it lets pass between two renewals. The lease that it has of this node is
  // free. (README.md, "Election", 10.)
  ElectionEffects OnGone(const NodeId& node, MonotonicTime now);
  ElectionEffects OnPersistFailed(MonotonicTime now);
  // What OnPersistFailed was about; to be written again from time to time, and OnPersisted called
  // when it is on disk.
  std::optional<GrantRecord> Unsaved() const;
  ElectionEffects OnPersisted(MonotonicTime now);
  // This node can't write its desired state (set) or can again (unset): a coordinator resigns, and
  // nobody stands who could commit nothing.
  ElectionEffects OnDiskTrouble(const std::optional<v1::Reason>& why, MonotonicTime now);
  // This node's disk comes from another machine, which may have led under the same id since: terms
  // are left out, so that no pair is likely to be used on both.
  void SkipTerms();
  // Steps down and gives the leases back, so that a successor need not wait for them, and stands
  // for election no more; it goes on granting. For shutting down.
  ElectionEffects Resign(MonotonicTime now);

  // The pair under which this node may act as coordinator at `now`. To be asked before every order,
  // write and answer that only a coordinator may give.
  std::optional<FencePair> Leading(MonotonicTime now) const;
  // True when `node` has granted its lease to this coordinator and it has not run out: it will
  // obey.
  bool HoldsLeaseOf(const NodeId& node, MonotonicTime now) const;
  // How many of the listed members live, and whether that is too few to elect. `until`: when they
  // are enough by themselves (kAvailable). Without a list (kQuorum): how many nodes have to write
  // the first one.
  struct Minority {
    size_t live = 0;
    size_t listed = 0;
    std::optional<MonotonicTime> until;
  };
  std::optional<Minority> InMinority(MonotonicTime now) const;
  // Whom this node obeys: itself when it leads, else the holder of its running lease.
  std::optional<FencePair> Coordinator(MonotonicTime now) const;
  // The highest pair granted (durable), and the highest term heard of.
  const FencePair& granted() const { return granted_; }
  Term highest_term() const { return highest_term_; }

  // To be asked before any order (Replicate, Reserve, Launch, StopRanks) is obeyed. OK only for the
  // very pair that this node has granted; as grants are durable, so is this fence. An older pair:
  // FAILED_PRECONDITION with STALE_TERM. A newer one that has not been granted (yet): UNAVAILABLE
  // with NO_COORDINATOR; the sender tries again after its next renewal.
  absl::Status CheckFence(const FencePair& fence) const;

  // Ends the process when its state is one that no sequence of calls may lead to. For simulations,
  // after every step.
  void CheckInvariants() const;

 private:
  // A follower becomes a pre-candidate, with enough pre-votes a candidate, with enough leases the
  // coordinator; which may raise its term, and is a candidate until it has its leases again. Each
  // becomes a follower when it loses.
  enum class Role { kFollower, kPreCandidate, kCandidate, kCoordinator };

  bool LeasedToOther(const NodeId& asker, MonotonicTime now) const;
  // The same of a coordinator's machine: of two that carry its id one alone holds the lease.
  bool LeasedToOther(const v1::Fence& asker, MonotonicTime now) const;
  // It is from the coordinator's id, and not from its machine.
  bool IsOfTwin(const v1::Fence& fence) const;
  size_t MajorityOf(size_t count) const { return count / 2 + 1; }
  std::set<NodeId> Electorate() const;
  size_t VotesNeeded() const;
  size_t VotesHeld(MonotonicTime now) const;
  uint32_t LeasesHeld(MonotonicTime now) const;
  size_t CountListed(const std::set<NodeId>& nodes) const;
  void NoteMinority(MonotonicTime now);
  // Too few of the listed members live, and that for minority_wait.
  bool HasWaited(MonotonicTime now) const;
  bool MayElect(const std::set<NodeId>& voters, MonotonicTime now) const;
  bool IsSmaller(uint32_t electors, const FencePair& fence, MonotonicTime now) const;
  Duration UsableLease() const;
  MonotonicTime LeaseEnd(MonotonicTime sent_at) const;
  bool IsFresh(const NodeId& node, MonotonicTime now) const;
  // When the first of all leases, which are fresh, is fresh no more.
  MonotonicTime FirstStale(MonotonicTime now) const;
  // As it has grown with the rounds that were lost.
  Duration RoundTimeout() const;
  Duration Jitter() const;
  std::set<NodeId> Sitting(MonotonicTime now);
  void RecomputeLeadsUntil(MonotonicTime now);
  MonotonicTime ListedUntil(MonotonicTime now) const;
  Duration RandomPartOf(Duration whole);

  void Ask(const NodeId& to, bool pre_vote, Duration lease, MonotonicTime now,
           ElectionEffects& effects);
  void AskAll(bool pre_vote, MonotonicTime now, ElectionEffects& effects);
  void GiveBackLeases(MonotonicTime now, ElectionEffects& effects);
  void BecomePreCandidate(MonotonicTime now, ElectionEffects& effects);
  void BecomeCandidate(MonotonicTime now, ElectionEffects& effects);
  void BecomeCoordinator(MonotonicTime now, ElectionEffects& effects);
  void BecomeFollower();
  void OnPreVote(const NodeId& from, bool granted, MonotonicTime now, ElectionEffects& effects);
  void OnAnswerToCandidate(const SendLeaseRequest& asked, const v1::LeaseResponse& response,
                           MonotonicTime now, ElectionEffects& effects);
  void OnAnswerToCoordinator(const SendLeaseRequest& asked, const v1::LeaseResponse& response,
                             MonotonicTime now, ElectionEffects& effects);
  void TakeLease(const SendLeaseRequest& asked);
  void WinIfMajority(MonotonicTime now, ElectionEffects& effects);
  void GiveUpRound(MonotonicTime now, ElectionEffects& effects);
  void StepDown(v1::Reason why, MonotonicTime now, ElectionEffects& effects);
  void RaiseTerm(const FencePair& above, MonotonicTime now, ElectionEffects& effects);
  void Meet(const NodeId& teller, const FencePair& other, uint32_t electors, MonotonicTime now,
            ElectionEffects& effects);
  void Grant(const v1::Fence& fence, Duration lease, MonotonicTime now, ElectionEffects& effects);
  void Answer(bool granted, bool with_entries, MonotonicTime now, ElectionEffects& effects) const;
  void TickFollower(MonotonicTime now, ElectionEffects& effects);
  void TickCoordinator(MonotonicTime now, ElectionEffects& effects);
  void RenewGrant(const v1::LeaseRequest& request, MonotonicTime now, ElectionEffects& effects);
  void AnswerHigherPair(const v1::LeaseRequest& request, MonotonicTime now,
                        ElectionEffects& effects);
  void AnswerRelease(const v1::Fence& fence, MonotonicTime now, ElectionEffects& effects);
  void NoteObeyed(MonotonicTime now, ElectionEffects& effects);

  const NodeId self_;
  const ElectionOptions options_;
  const std::function<uint64_t()> random_;
  const MonotonicTime started_;
  std::string machine_;

  bool broken_ = false;  // the grant could not be written
  bool unable_ = false;  // the desired state can't be written
  bool resigned_ = false;
  Role role_ = Role::kFollower;
  FencePair granted_;
  MonotonicTime granted_until_;    // of a grant to another, by this node's clock
  std::string granted_machine_;    // of the coordinator: a copy of its disk is another one
  uint32_t granted_electors_ = 0;  // what that coordinator last said that it holds
  Term highest_term_;
  FencePair mine_;                          // unless follower
  std::set<NodeId> pre_votes_;              // while pre-candidate
  std::map<NodeId, MonotonicTime> leases_;  // while candidate or coordinator: held until
  // What this coordinator held when it raised its term, for as long as those leases may run.
  uint32_t raised_with_ = 0;
  MonotonicTime raised_until_;
  std::set<NodeId> asked_;         // who may hold a lease for mine_
  std::set<NodeId> entries_from_;  // whose desired state was handed in under mine_
  std::set<NodeId> live_;
  std::set<NodeId> all_;
  std::set<NodeId> listed_;
  std::set<NodeId> beside_;
  std::optional<MonotonicTime> minority_since_;  // less than half of the listed members live
  std::map<NodeId, MonotonicTime> live_since_;
  std::set<NodeId> sitting_;  // while coordinator: who counts in its majority
  MonotonicTime round_ends_;
  int lost_rounds_ = 0;  // in a row
  bool ever_obeyed_ = false;
  MonotonicTime settled_at_;
  std::optional<MonotonicTime> stand_at_;
  MonotonicTime renew_at_;
  MonotonicTime leads_until_;
  std::optional<FencePair> last_obeyed_;
};

v1::Fence ToProto(const FencePair& fence);
FencePair FromProto(const v1::Fence& fence);

}  // namespace macrame::agentd
