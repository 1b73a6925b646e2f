#pragma once

// What a simulated machine says of itself: memory, links, models. Each says the same at every run;
// answers come a moment later, as from a thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agentd/links/link_measurer.h"
#include "agentd/node/device_probe.h"
#include "agentd/node/model_library.h"
#include "agentd/node/second_engine_probe.h"
#include "discovery/probe/inventory.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/link_prober.h"
#include "tests/sim/sim_network.h"

namespace macrame::agentd::sim {

// What a test changes of a machine; its agent finds it at its next look. Outlives the agent.
struct SimFacts {
  double gpu_busy_ratio = 0;
  // Makes of what the machine says of its links what it says instead; may be empty.
  std::function<void(v1::LinkFacts&)> change_links;
};

// 64 GiB, with room for all models there are.
class SimInventoryProber final : public discovery::InventoryProber {
 public:
  SimInventoryProber(const ProcessPtr& process, const SimFacts& machine, const NodeId& node,
                     uint64_t first_revision);

  void Start(std::function<void(const v1::Inventory&)> on_change) override {
    on_change_ = std::move(on_change);
  }
  void Stop() override {}
  const v1::Inventory& inventory() const override { return inventory_; }
  void SetModels(std::vector<v1::LocalModel> models) override;
  void SetEngines(std::vector<v1::Engine> engines, std::optional<uint64_t>) override;
  v1::NodeLoad SampleLoad() override;

 private:
  void Changed();

  const SimFacts& machine_;
  v1::Inventory inventory_;
  std::function<void(const v1::Inventory&)> on_change_;
};

// One network interface. It looks again only when it is asked to.
class SimLinkProber final : public discovery::LinkProber {
 public:
  SimLinkProber(transport::Dispatcher& dispatcher, const ProcessPtr& process,
                const SimFacts& machine, const discovery::LinkInputs& inputs);

  void Start(std::function<void(const v1::LinkFacts&)> on_facts) override;
  void Stop() override { *alive_ = false; }
  void ProbeNow(std::function<void()> done) override;
  const v1::LinkFacts& facts() const override { return facts_; }

 private:
  void After(Duration delay, std::function<void()> task);
  v1::LinkFacts Look() const;

  transport::Dispatcher& dispatcher_;
  const SimFacts& machine_;
  v1::LinkFacts unchanged_;
  v1::LinkFacts facts_;
  std::function<void(const v1::LinkFacts&)> on_facts_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// A gigabit each way, where the way is not cut.
class SimLinkMeasurer final : public LinkMeasurer {
 public:
  SimLinkMeasurer(SimNetwork& network, transport::Dispatcher& dispatcher, ProcessPtr process)
      : network_(network), dispatcher_(dispatcher), process_(std::move(process)) {}

  absl::StatusOr<transport::LinkMeter::Offer> Open(const std::string&) override {
    return transport::LinkMeter::Offer{1, "token"};
  }
  bool Measure(const transport::MeterTarget& target,
               std::function<void(v1::LinkMeasurement)> done) override;
  void Stop() override { *alive_ = false; }

 private:
  SimNetwork& network_;
  transport::Dispatcher& dispatcher_;
  const ProcessPtr process_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The same small models on every machine: "m0" and "m1".
class SimModelLibrary final : public ModelLibrary {
 public:
  explicit SimModelLibrary(transport::Dispatcher& dispatcher);

  void Start(Duration interval,
             std::function<void(std::vector<v1::LocalModel>)> on_models) override;
  void Stop() override { *alive_ = false; }
  void ExpectSecondEngine() override {}
  void SetSecondEngine(runtime::SecondEngine) override {}
  void Resolve(const std::string& name_or_path, Described done) override;
  // Nothing has files.
  void Locate(const std::string&, Located done) override {
    done(absl::UnimplementedError("simulated models have no files"));
  }
  void Find(const v1::ModelDescription& model, Described done) override {
    Resolve(model.name(), std::move(done));
  }
  const std::vector<v1::Reason>& broken() const override { return broken_; }

 private:
  transport::Dispatcher& dispatcher_;
  std::vector<v1::ModelDescription> models_;
  const std::vector<v1::Reason> broken_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// There is none.
class NoSecondEngine final : public SecondEngineProbe {
 public:
  void Start(std::string, Found) override {}
  void Stop() override {}
};

// Nothing is reported.
class NoGpu final : public DeviceProbe {
 public:
  void Start(std::string, Found) override {}
  void Stop() override {}
};

}  // namespace macrame::agentd::sim
