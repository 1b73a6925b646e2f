#pragma once

// InventoryProber of this machine. Whatever may be slow runs on one worker thread, each fact with
// its own interval.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discovery/base/interfaces.h"
#include "discovery/probe/inventory.h"
#include "transport/dispatcher.h"

namespace macrame::discovery {

class MachineProber final : public InventoryProber {
 public:
  struct Options {
    // Revisions rise from here; Unix milliseconds at start keeps them rising over restarts.
    uint64_t first_revision = 1;
    Duration inventory_interval = std::chrono::seconds(60);
    Duration load_interval = std::chrono::seconds(10);  // of what only commands can tell
    std::string root;                                   // Linux: below which /proc and /sys are
    CommandRunner* runner = nullptr;  // commands; null: real ones. Outlives the prober.
  };

  MachineProber(transport::Dispatcher& dispatcher, InventoryInputs inputs, Options options);
  ~MachineProber() override;  // waits for the worker, at most some 50 ms and a blocked disk's time

  void Start(std::function<void(const v1::Inventory&)> on_change) override;
  void Stop() override;
  const v1::Inventory& inventory() const override;
  void SetModels(std::vector<v1::LocalModel> models) override;
  void SetEngines(std::vector<v1::Engine> engines,
                  std::optional<uint64_t> mlx_working_set_bytes) override;
  v1::NodeLoad SampleLoad() override;

  // For BeaconServiceOptions.kind_of; owner thread; works on after the prober is gone.
  InterfaceKindLookup kind_lookup() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace macrame::discovery
