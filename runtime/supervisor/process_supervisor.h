#pragma once

// RankSupervisor over processes of `rankd`. Waiting for them, reading their output and talking to
// them is done by threads and gRPC behind it, which Post what they learnt.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/supervisor/rank_supervisor.h"
#include "transport/dispatcher.h"

namespace macrame::runtime {

class ProcessSupervisor final : public RankSupervisor {
 public:
  ProcessSupervisor(SupervisorOptions options, transport::Dispatcher* dispatcher);
  ~ProcessSupervisor() override;
  ProcessSupervisor(const ProcessSupervisor&) = delete;
  ProcessSupervisor& operator=(const ProcessSupervisor&) = delete;

  absl::Status Start() override;
  FastSynch metal_fast_synch() const override;
  void SetPython(std::string python) override;
  absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest& request,
                                              const std::string& local_ip,
                                              const NodeMemory& memory) override;
  absl::StatusOr<v1::LaunchResponse> Launch(const v1::LaunchSpec& spec) override;
  uint32_t StopRanks(const std::string& deployment, uint64_t up_to_epoch, const std::string& why,
                     bool at_once = false, uint64_t from_epoch = 0) override;
  std::vector<v1::RankStatus> Statuses() const override;
  void OnChange(std::function<void()> callback) override;
  Bytes ReservedBytes() const override;
  Bytes AwaitedBytes() const override;
  GenerateId Generate(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                      DoneCallback on_done) override;
  void VerifyGroup(const std::string& deployment, const v1::VerifyGroupRequest& request,
                   std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) override;
  void TraceRanks(const v1::TraceRankRequest& request,
                  std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) override;
  size_t generations() const override;
  void CancelGenerate(GenerateId id) override;
  void ShutDown(std::function<void()> done) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace macrame::runtime
