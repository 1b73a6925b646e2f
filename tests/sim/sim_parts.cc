#include "tests/sim/sim_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::agentd::sim {
namespace {

constexpr uint64_t kMemoryBytes = 64 * planner::kGiB;
constexpr uint64_t kModelBytes = planner::kGiB;
constexpr uint32_t kModelLayers = 24;
constexpr Duration kLooks = std::chrono::milliseconds(5);  // of a thread that asks the machine
constexpr Duration kMeasures = std::chrono::milliseconds(300);

}  // namespace

SimInventoryProber::SimInventoryProber(const ProcessPtr& process, const SimFacts& machine,
                                       const NodeId& node, uint64_t first_revision)
    : machine_(machine) {
  inventory_.set_node_id(node.value());
  inventory_.set_revision(first_revision);
  inventory_.set_os_name("simulated");
  inventory_.set_cpu_cores(8);
  inventory_.set_memory_total_bytes(kMemoryBytes);
  inventory_.set_memory_gpu_usable_bytes(kMemoryBytes);
  inventory_.set_boot_digest(absl::StrCat("boot ", process->machine));
}

void SimInventoryProber::Changed() {
  inventory_.set_revision(inventory_.revision() + 1);
  if (on_change_) on_change_(inventory_);
}

void SimInventoryProber::SetModels(std::vector<v1::LocalModel> models) {
  inventory_.clear_models();
  for (v1::LocalModel& model : models) *inventory_.add_models() = std::move(model);
  Changed();
}

void SimInventoryProber::SetEngines(std::vector<v1::Engine> engines, std::optional<uint64_t>) {
  inventory_.clear_engines();
  for (v1::Engine& engine : engines) *inventory_.add_engines() = std::move(engine);
  Changed();
}

v1::NodeLoad SimInventoryProber::SampleLoad() {
  v1::NodeLoad load;
  load.set_memory_available_bytes(kMemoryBytes);
  load.set_gpu_busy_ratio(machine_.gpu_busy_ratio);
  return load;
}

SimLinkProber::SimLinkProber(transport::Dispatcher& dispatcher, const ProcessPtr& process,
                             const SimFacts& machine, const discovery::LinkInputs& inputs)
    : dispatcher_(dispatcher), machine_(machine) {
  facts_.set_node_id(inputs.node_id.value());
  facts_.set_hostname(inputs.hostname);
  facts_.set_mlx_version(inputs.mlx_version);
  facts_.set_is_mac(v1::FACT_NO);
  facts_.set_has_thunderbolt(v1::FACT_NO);
  facts_.set_rdma_devices_listed(v1::FACT_YES);
  facts_.set_boot_time_unix_seconds(1'790'000'000);
  v1::LinkInterface& interface = *facts_.add_interfaces();
  interface.set_name("en0");
  interface.set_kind(v1::INTERFACE_KIND_ETHERNET);
  interface.set_is_up(v1::FACT_YES);
  interface.set_has_carrier(v1::FACT_YES);
  interface.set_mtu(1500);
  interface.set_speed_mbps(1000);
  v1::NodeAddress& address = *interface.add_addresses();
  address.set_ip(IpOf(process->machine));
  address.set_interface_name("en0");
  address.set_interface_kind(v1::INTERFACE_KIND_ETHERNET);
  address.set_prefix_length(24);
  unchanged_ = facts_;
}

v1::LinkFacts SimLinkProber::Look() const {
  v1::LinkFacts fresh = unchanged_;
  if (machine_.change_links) machine_.change_links(fresh);
  return fresh;
}

void SimLinkProber::After(Duration delay, std::function<void()> task) {
  dispatcher_.PostAfter(delay, [alive = alive_, task = std::move(task)] {
    if (*alive) task();
  });
}

void SimLinkProber::Start(std::function<void(const v1::LinkFacts&)> on_facts) {
  on_facts_ = std::move(on_facts);
  After(kLooks, [this] {
    facts_ = Look();
    on_facts_(facts_);
  });
}

void SimLinkProber::ProbeNow(std::function<void()> done) {
  if (!done && !machine_.change_links) return;
  After(kLooks, [this, done = std::move(done)] {
    v1::LinkFacts fresh = Look();
    const bool changed = !discovery::SameLinkFacts(fresh, facts_);
    facts_ = std::move(fresh);
    if (changed && on_facts_) on_facts_(facts_);
    if (done) done();
  });
}

bool SimLinkMeasurer::Measure(const transport::MeterTarget& target,
                              std::function<void(v1::LinkMeasurement)> done) {
  if (!*alive_) return false;
  v1::LinkMeasurement measured;
  measured.set_from_ip(target.from_ip);
  measured.set_to_ip(target.to_ip);
  dispatcher_.PostAfter(
      kMeasures, [this, alive = alive_, measured, done = std::move(done)]() mutable {
        if (!*alive) return;
        const int self = process_->machine, to = MachineAt(measured.to_ip());
        if (to < 0 || network_.IsCut(self, to) || network_.IsCut(to, self)) {
          *measured.mutable_failure() =
              MakeReason(reasons::kLinkUnreachable, "nobody answered the measurement");
        } else {
          measured.set_round_trip_us_p50(300);
          measured.set_round_trip_us_p99(900);
          measured.set_bandwidth_bytes_per_second(110e6);
          measured.set_bytes_total(1 << 20);
        }
        done(std::move(measured));
      });
  return true;
}

SimModelLibrary::SimModelLibrary(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {
  for (const char* name : {"m0", "m1"}) {
    v1::ModelDescription model = planner::LargeModel(name, kModelBytes, kModelLayers);
    model.set_fingerprint(absl::StrCat("fingerprint of ", name));
    model.set_path(absl::StrCat("/models/", name));
    models_.push_back(std::move(model));
  }
}

void SimModelLibrary::Start(Duration, std::function<void(std::vector<v1::LocalModel>)> on_models) {
  std::vector<v1::LocalModel> found;
  for (const v1::ModelDescription& model : models_) {
    v1::LocalModel local;
    local.set_name(model.name());
    local.set_path(model.path());
    local.set_fingerprint(model.fingerprint());
    found.push_back(std::move(local));
  }
  dispatcher_.PostAfter(kLooks, [alive = alive_, on_models = std::move(on_models), found] {
    if (*alive) on_models(found);
  });
}

void SimModelLibrary::Resolve(const std::string& name_or_path, Described done) {
  absl::StatusOr<DescribedModel> answer = ReasonStatus(
      absl::StatusCode::kNotFound, reasons::kModelNotFound, "no such model is simulated");
  for (const v1::ModelDescription& model : models_) {
    if (name_or_path == model.name() || name_or_path == model.path()) {
      answer = DescribedModel{model, ""};
    }
  }
  dispatcher_.PostAfter(kLooks, [alive = alive_, done = std::move(done), answer] {
    if (*alive) done(answer);
  });
}

}  // namespace macrame::agentd::sim
