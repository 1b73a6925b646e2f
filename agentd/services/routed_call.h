#pragma once

// One request on its way to an entry rank: asks again, where the record then says, until a first
// chunk came, the failure is of another kind or the wait is over. An answer of which the client was
// sent nothing yet (ChunkCallback::can_begin_again) is asked for again after chunks as well. It
// ends when the node it was sent to is dead or its gang was launched anew, whatever the connection
// says: a frozen machine keeps its connections for long.
//
// Owner thread, but for its making, Cancel and the chunks: these pass from the channel of the rank
// (or of its node) to `on_chunk` on that channel's thread, and wait for nothing that the owner
// thread does.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/state/entry_table.h"
#include "macrame/v1/rank.pb.h"
#include "transport/dispatcher.h"
#include "transport/peer_channel.h"

namespace macrame::agentd {

// A request that has no answer yet waits this long for an entry rank that is being moved: a node
// that was away knows only after a moment that the gang went elsewhere. Counted anew when the gang
// that had it is lost.
inline constexpr Duration kEntryWaitMax = std::chrono::seconds(8);
inline constexpr Duration kEntryRetryPause = std::chrono::milliseconds(100);
// Gangs that a request may lose and be sent again: one that ends gangs must not end them all.
inline constexpr int kGangsLostMax = 2;
// An answer under way may still come to its end when its gang was launched anew: as long as the
// ranks of a gang that gave way have (GangReconcilerOptions::drain_limit), unless told. One without
// an answer is asked again; a record that a merge changed for a moment is looked at once more
// before.
inline constexpr Duration kMovedOnGrace = std::chrono::seconds(20);
inline constexpr Duration kMovedOnLook = std::chrono::milliseconds(200);
// The longest that one answer may take, with all its tries.
inline constexpr Duration kGenerateLimit = std::chrono::hours(2);

// Whether the same request may find an entry rank a moment later: the failure is of the way there
// (NOT_READY, ENTRY_UNREACHABLE) or of a record that is out of date (MODEL_NOT_LOADED, from a node
// that was said to hold the entry rank). Pure.
bool IsWorthAnotherTry(const absl::Status& status);
// Whether the gang that had the request is gone (a rank's end, a lost node). Pure.
bool IsLossOfGang(const absl::Status& status);

class RoutedCall : public GenerateCall, public std::enable_shared_from_this<RoutedCall> {
 public:
  using ChunkCallback = InferenceBackend::ChunkCallback;
  using DoneCallback = InferenceBackend::DoneCallback;
  // Sends a request to a node's entry rank: chunks from any thread, one at a time; `on_done` once
  // on the owner thread, never from within the call.
  using Send = std::function<transport::CallHandle(const NodeId&, const v1::GenerateRequest&,
                                                   ChunkCallback, DoneCallback)>;

  // Any thread. No chunk comes at the same time as `on_done` or after it.
  RoutedCall(transport::Dispatcher& dispatcher, EntryTable& entries, Send send,
             v1::GenerateRequest request, ChunkCallback on_chunk, DoneCallback on_done,
             Duration moved_on_grace = kMovedOnGrace);

  // Any thread.
  void Cancel() override;
  CallRoute Route() const override;
  // Sends it, with what the model's profile says where the request says nothing (null: there is
  // none). `on_done` may run from within this call.
  void Start(const v1::ModelProfile* profile = nullptr);
  // As it was asked for; maybe a replica's name.
  const std::string& deployment() const { return deployment_; }
  // A member is dead: whatever it was sent has no answer.
  void NoteDead(const NodeId& node);
  // The desired state changed: the gang may have been launched anew.
  void NoteStateChanged();
  // It is over with this error, wherever it is; or where no rank has it yet.
  void End(const absl::Status& why);
  void EndUnlessSent(const absl::Status& why);

 private:
  void Try();
  void TakeChunk(uint64_t attempt, const v1::GenerateChunk& chunk);
  bool HasAnswered() const;
  // Whether the present attempt's rank was heard of: it has taken the request up.
  bool WasTaken() const;
  // What came so far is dropped. False: some of it may be with the client.
  bool BeginAgain();
  uint64_t BeginAttempt();
  // No chunk is taken any more. Whether there was an attempt under way.
  bool EndAttempt();
  // The same, unless a first chunk came.
  bool EndAttemptUnlessAnswered();
  // That is under way.
  std::optional<uint64_t> Attempt() const;
  // The present attempt is over, with its node's answer or without.
  void Over(const absl::Status& status);
  void EndAtLimit(MonotonicTime now);
  // At once when a replica stands ready that has not failed.
  void TryAgainSoon();
  // It is over for the cause of its gang, which may never say so.
  void Lost(const absl::Status& why);
  void Finish(const absl::Status& status);
  // For whoever traces it.
  void NoteSent();
  void NoteFailed(const absl::Status& status);

  transport::Dispatcher& dispatcher_;
  EntryTable& entries_;
  const Send send_;
  v1::GenerateRequest request_;
  const std::string deployment_;
  std::vector<PromptStep> prompt_;  // where there are replicas to choose from
  DoneCallback on_done_;            // let go of at the end
  const Duration moved_on_grace_;
  MonotonicTime give_up_;
  MonotonicTime limit_;
  bool cancelled_ = false;
  bool finished_ = false;
  int gangs_lost_ = 0;
  absl::Status lost_as_;  // how an answer that had begun was lost
  transport::CallHandle handle_;
  EntryTable::Entry entry_;

  // Held while a chunk is handed on.
  mutable std::mutex mutex_;
  ChunkCallback on_chunk_ ABSL_GUARDED_BY(mutex_);  // let go of at the end
  bool has_answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_taken_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the present attempt; chunks of earlier ones don't count any more.
  uint64_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  CallRoute route_ ABSL_GUARDED_BY(mutex_);  // of a request that is traced
};

}  // namespace macrame::agentd
