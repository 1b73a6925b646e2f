#pragma once

// The RPC edge of a rank: keeps the rank's status, tells watchers of each change, queues requests
// for the engine. Serves macrame.v1.RankService on the spec's unix socket. Owner thread only, but
// where noted.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/batch_scheduler.h"
#include "runtime/serving/cache/prefix_index.h"
#include "runtime/serving/generation_job.h"
#include "runtime/serving/mailbox.h"
#include "runtime/serving/preparation_lanes.h"
#include "transport/dispatcher.h"
#include "transport/grpc_server.h"

namespace macrame::runtime::engine {

inline constexpr uint32_t kQueuedRequestsDefault = 32;
inline constexpr Duration kStatusInterval = std::chrono::seconds(1);
inline constexpr Duration kRateWindow = std::chrono::seconds(10);

// A request on its way through a lane, which makes its `job`, and through the engine. The engine
// thread reads `job` and `cancelled`, and writes chunks to `stream`, which is thread-safe.
struct PendingRequest {
  GenerationJob job;
  std::atomic<bool> cancelled = false;
  transport::ServerStream stream;
  bool is_prepared = false;  // owner thread: the engine has it
  // The lane's thread: for what the prefix cache lacked of it.
  v1::GenerateRequest request;
  Lane lane = Lane::kShort;
  std::vector<int32_t> prompt;
  int64_t local_unix_s = 0;
  MonotonicTime received{};  // set before
  // Set by the lane where no answer is wanted: all that is told, and the engine never sees it.
  std::optional<v1::GenerateChunk> told;
  // From the lane to the engine thread, at most one.
  Mailbox<v1::PrefixMiss> explained;
  // Set instead of `job` and `stream`: timed rounds of collectives. `on_verified` is called once,
  // by the service.
  std::optional<v1::VerifyGroupRequest> verify;
  std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> on_verified;
};

// Requests that may wait at this rank's model.
uint32_t QueuedRequestsMax(const v1::LaunchSpec& spec);

// RankStatus.phase_detail of a ready entry rank that can't take chats.
inline constexpr std::string_view kNoChatTemplate = "no_chat_template";

class RankService {
 public:
  // `submit` hands a request to the engine; `stop` begins an orderly end.
  RankService(transport::Dispatcher& dispatcher, const v1::LaunchSpec& spec,
              std::function<void(std::shared_ptr<PendingRequest>)> submit,
              std::function<void()> stop);
  absl::Status Start();
  // Ends requests and verifications with the reason; `grace` is for sending it.
  void Stop(Duration grace);

  // The engine's news.
  void SetPhase(v1::RankPhase phase);
  void SetProgress(uint64_t loaded, uint64_t total, uint64_t memory_bytes);
  void SetConnecting(const std::string& detail);
  // `stalled_rank`: whose fault it is, where that is known to be a rank that made no progress.
  void SetFailure(const v1::Reason& reason, std::optional<uint32_t> stalled_rank = std::nullopt);
  // Where the group's own figures come from, once it is formed; called on the owner thread.
  void SetGroup(std::function<void(v1::RankStatus&)> fill);
  // What steps took so far; called on the owner thread each second and for new watchers.
  void SetTimings(std::function<void(v1::RankStatus&)> fill) { fill_timings_ = std::move(fill); }
  // Before Start: how a trace is begun (false: one is being taken) and ended; owner thread.
  void SetTrace(std::function<bool()> begin, std::function<v1::RankTrace()> end) {
    begin_trace_ = std::move(begin);
    end_trace_ = std::move(end);
  }
  // What is resident from here on; called on the owner thread each second and for new watchers.
  void SetMemory(std::function<uint64_t()> resident);
  // Where the figures of the cold tier come from; called on the owner thread each second and for
  // new watchers.
  void SetColdFigures(std::function<void(v1::KvCacheDisk&)> fill);
  // Rank 0, before READY: what requests are prepared with.
  void SetModel(std::shared_ptr<const ModelText> text, int vocab_size, uint32_t context_length);
  // Names the part of a request's prompt from which on it was not cached, in the request's lane.
  void Explain(const std::shared_ptr<PendingRequest>& request, const PrefixMiss& miss);
  void OnTokens(uint32_t count);
  // So far; watchers hear it with the next change.
  void SetPreempted(const PreemptionCounts& counts);
  void SetKvCacheUsed(double ratio) { status_.set_kv_cache_used_ratio(ratio); }
  // How many requests are being answered, and how many wait.
  void SetCounts(uint32_t running, uint32_t waiting);
  // Tokens that a step had drafted, and those that were right.
  void OnDrafted(uint32_t drafted, uint32_t accepted);
  // What was held against the CPU's kernels (model/device_proof.h).
  void SetDeviceProof(int layers, int left_out, int rows, int agreeing);
  // Rank 0 has a draft model of this name; it drafts no more; what of the above was its.
  void SetDraftModel(const std::string& name) { status_.mutable_draft_model()->set_name(name); }
  void SetDraftModelOff(const std::string& why);
  void OnModelDrafted(uint32_t drafted, uint32_t accepted);
  // An answer that had the engine for itself told how long its decode steps took (DecodeStepUs).
  void OnDecodeTimed(double step_us);
  void OnRequestDone(const std::shared_ptr<PendingRequest>& request, const absl::Status& status);
  // The end of a verification.
  void OnVerified(const std::shared_ptr<PendingRequest>& request,
                  const absl::StatusOr<v1::VerifyGroupResponse>& response);

  const v1::RankStatus& status() const { return status_; }

 private:
  void Watch(transport::ServerStream stream);
  void Generate(v1::GenerateRequest request, transport::ServerStream stream);
  // Its lane is through with it: to the engine, or its end with what was wrong.
  void OnPrepared(const std::shared_ptr<PendingRequest>& request, const absl::Status& status);
  void TellQueued();
  void VerifyGroup(v1::VerifyGroupRequest request,
                   transport::GrpcServer::Reply<v1::VerifyGroupResponse> reply);
  void Trace(const v1::TraceRankRequest& request,
             transport::GrpcServer::Reply<v1::TraceRankResponse> reply);
  // What requests are here, of this key and of all.
  Share ShareOf(std::string_view key) const;
  absl::Status CheckServing(const v1::GenerateRequest& request) const;
  void ReadFigures();
  void Publish();
  void Tick();

  transport::Dispatcher& dispatcher_;
  const v1::LaunchSpec spec_;
  const std::function<void(std::shared_ptr<PendingRequest>)> submit_;
  const std::function<void()> stop_;
  transport::GrpcServer server_;
  v1::RankStatus status_;
  double told_progress_ = 0;  // of loading, to watchers
  std::vector<transport::ServerStream> watchers_;
  std::deque<std::shared_ptr<PendingRequest>> requests_;
  uint32_t preparing_ = 0;                                      // of these
  uint32_t engine_waiting_ = 0;                                 // of these, as the engine said last
  std::vector<std::shared_ptr<PendingRequest>> verifications_;  // under way; at most one
  std::shared_ptr<const ModelText> text_;
  std::function<void(v1::RankStatus&)> fill_group_;
  std::function<void(v1::RankStatus&)> fill_timings_;
  std::function<bool()> begin_trace_;
  std::function<v1::RankTrace()> end_trace_;
  std::function<uint64_t()> resident_;
  std::function<void(v1::KvCacheDisk&)> fill_cold_;
  int vocab_size_ = 0;
  uint32_t context_length_ = 0;
  struct Made {
    MonotonicTime when;
    uint32_t tokens;
  };
  std::deque<Made> made_;   // within kRateWindow
  PreparationLanes lanes_;  // ends first: its work knows this object
};

}  // namespace macrame::runtime::engine
