#pragma once

// A machine and its ranks as a test sets them: what OwnNode asks.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "discovery/probe/inventory.h"
#include "runtime/supervisor/rank_supervisor.h"

namespace macrame::tests {

// Counts how often the machine is asked.
class CountingProber final : public discovery::InventoryProber {
 public:
  void Start(std::function<void(const v1::Inventory&)>) override {}
  void Stop() override {}
  const v1::Inventory& inventory() const override { return facts; }
  void SetModels(std::vector<v1::LocalModel>) override {}
  void SetEngines(std::vector<v1::Engine>, std::optional<uint64_t>) override {}
  v1::NodeLoad SampleLoad() override {
    ++samples;
    return next;
  }

  v1::Inventory facts;
  v1::NodeLoad next;
  int samples = 0;
};

// Takes every order and does nothing.
class ListedRanks : public runtime::RankSupervisor {
 public:
  absl::Status Start() override { return absl::OkStatus(); }
  runtime::FastSynch metal_fast_synch() const override { return runtime::FastSynch::kAuto; }
  void SetPython(std::string) override {}
  absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest&, const std::string&,
                                              const runtime::NodeMemory&) override {
    return v1::ReserveResponse();
  }
  absl::StatusOr<v1::LaunchResponse> Launch(const v1::LaunchSpec&) override {
    return v1::LaunchResponse();
  }
  uint32_t StopRanks(const std::string&, uint64_t, const std::string&, bool, uint64_t) override {
    return 0;
  }
  std::vector<v1::RankStatus> Statuses() const override { return ranks; }
  void OnChange(std::function<void()>) override {}
  Bytes ReservedBytes() const override { return reserved; }
  Bytes AwaitedBytes() const override { return awaited; }
  GenerateId Generate(const v1::GenerateRequest&, ChunkCallback, DoneCallback) override {
    return 0;
  }
  void VerifyGroup(const std::string&, const v1::VerifyGroupRequest&,
                   std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)>) override {}
  void TraceRanks(const v1::TraceRankRequest&,
                  std::function<void(absl::StatusOr<v1::TraceRankResponse>)>) override {}
  size_t generations() const override { return 0; }
  void CancelGenerate(GenerateId) override {}
  void ShutDown(std::function<void()>) override {}

  std::vector<v1::RankStatus> ranks;
  Bytes reserved{0}, awaited{0};
};

}  // namespace macrame::tests
