#include "discovery/probe/machine_prober.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

#include "discovery/probe/link_facts.h"
#include "discovery/probe/node_probe.h"
#include "proto/check.h"

namespace macrame::discovery {

class MachineProber::Impl : public std::enable_shared_from_this<MachineProber::Impl> {
 public:
  Impl(transport::Dispatcher& dispatcher, InventoryInputs inputs, Options options)
      : dispatcher_(dispatcher),
        inputs_(std::move(inputs)),
        options_(std::move(options)),
        own_runner_(MakeCommandRunner()),
        probe_(MakeNodeProbe(options_.root,
                             options_.runner != nullptr ? *options_.runner : *own_runner_)),
        kinds_(std::make_shared<Kinds>()) {
    inventory_.set_node_id(inputs_.node_id.value());
  }

  void Start(std::function<void(const v1::Inventory&)> on_change) {
    on_change_ = std::move(on_change);
    running_ = true;
    *kinds_ = probe_->CollectInterfaceKinds();
    slow_load_ = probe_->CollectSlowLoad(dispatcher_.Now());
    Take(probe_->CollectInventory(inputs_));
    ArmInventory();
    ArmLoad();
  }

  void Stop() {
    running_ = false;
    dispatcher_.Cancel(inventory_timer_);
    dispatcher_.Cancel(load_timer_);
    own_runner_->Stop();
    worker_.stop();
    worker_.join();
  }

  const v1::Inventory& inventory() const { return inventory_; }
  bool running() const { return running_; }

  InterfaceKindLookup kind_lookup() const {
    return [kinds = kinds_, root = options_.root](const std::string& name) {
      const auto found = kinds->find(name);
      return found != kinds->end() ? found->second : QuickInterfaceKind(root, name);
    };
  }

  void SetModels(std::vector<v1::LocalModel> models) {
    models_ = std::move(models);
    Take(inventory_);
  }

  void SetEngines(std::vector<v1::Engine> engines, std::optional<uint64_t> mlx_working_set_bytes) {
    inputs_.engines = std::move(engines);
    inputs_.mlx_working_set_bytes = mlx_working_set_bytes;
    if (running_) AskInventory();
  }

  v1::NodeLoad SampleLoad() {
    v1::NodeLoad load = slow_load_;
    probe_->SampleFastLoad(load);
    return load;
  }

 private:
  using Kinds = std::map<std::string, v1::InterfaceKind>;

  void Take(v1::Inventory fresh) {
    fresh.set_memory_models_max_bytes(inputs_.models_memory_max_bytes);
    fresh.clear_models();
    for (const v1::LocalModel& model : models_) *fresh.add_models() = model;
    const bool is_first = inventory_.revision() == 0;
    const uint64_t revision = inventory_.revision();
    if (!is_first && SameFacts(fresh, inventory_)) return;
    inventory_ = std::move(fresh);
    inventory_.set_revision(is_first ? std::max<uint64_t>(1, options_.first_revision)
                                     : revision + 1);
    if (on_change_) on_change_(inventory_);
  }

  void ArmInventory() {
    inventory_timer_ =
        dispatcher_.PostAfter(options_.inventory_interval, [weak = weak_from_this()] {
          const auto self = weak.lock();
          if (self && self->running_) self->AskInventory();
        });
  }

  // The probe outlives the worker, which Stop() joins; results find their way back by a weak
  // pointer.
  void AskInventory() {
    dispatcher_.Cancel(inventory_timer_);
    boost::asio::post(worker_, [weak = weak_from_this(), probe = probe_.get(), inputs = inputs_,
                                dispatcher = &dispatcher_] {
      auto fresh = probe->CollectInventory(inputs);
      auto kinds = probe->CollectInterfaceKinds();
      dispatcher->Post([weak, fresh = std::move(fresh), kinds = std::move(kinds)]() mutable {
        const auto self = weak.lock();
        if (!self || !self->running_) return;
        *self->kinds_ = std::move(kinds);
        self->Take(std::move(fresh));
        self->dispatcher_.Cancel(self->inventory_timer_);
        self->ArmInventory();
      });
    });
  }

  void ArmLoad() {
    load_timer_ = dispatcher_.PostAfter(options_.load_interval, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && self->running_) self->AskLoad();
    });
  }

  void AskLoad() {
    boost::asio::post(worker_,
                      [weak = weak_from_this(), probe = probe_.get(), dispatcher = &dispatcher_] {
                        auto load = probe->CollectSlowLoad(dispatcher->Now());
                        dispatcher->Post([weak, load = std::move(load)] {
                          const auto self = weak.lock();
                          if (!self || !self->running_) return;
                          self->slow_load_ = load;
                          self->ArmLoad();
                        });
                      });
  }

  transport::Dispatcher& dispatcher_;
  InventoryInputs inputs_;
  const Options options_;
  const std::unique_ptr<ProcessCommandRunner> own_runner_;
  const std::unique_ptr<NodeProbe> probe_;
  const std::shared_ptr<Kinds> kinds_;
  boost::asio::thread_pool worker_{1};
  bool running_ = false;
  std::function<void(const v1::Inventory&)> on_change_;
  v1::Inventory inventory_;
  v1::NodeLoad slow_load_;
  std::vector<v1::LocalModel> models_;
  transport::Dispatcher::TimerId inventory_timer_ = 0;
  transport::Dispatcher::TimerId load_timer_ = 0;
};

MachineProber::MachineProber(transport::Dispatcher& dispatcher, InventoryInputs inputs,
                             Options options)
    : impl_(std::make_shared<Impl>(dispatcher, std::move(inputs), std::move(options))) {}

MachineProber::~MachineProber() { Stop(); }

void MachineProber::Start(std::function<void(const v1::Inventory&)> on_change) {
  MACRAME_CHECK(!impl_->running()) << "MachineProber started twice";
  impl_->Start(std::move(on_change));
}

void MachineProber::Stop() {
  if (impl_->running()) impl_->Stop();
}

const v1::Inventory& MachineProber::inventory() const { return impl_->inventory(); }
InterfaceKindLookup MachineProber::kind_lookup() const { return impl_->kind_lookup(); }
v1::NodeLoad MachineProber::SampleLoad() { return impl_->SampleLoad(); }

void MachineProber::SetModels(std::vector<v1::LocalModel> models) {
  impl_->SetModels(std::move(models));
}

void MachineProber::SetEngines(std::vector<v1::Engine> engines,
                               std::optional<uint64_t> mlx_working_set_bytes) {
  impl_->SetEngines(std::move(engines), mlx_working_set_bytes);
}

}  // namespace macrame::discovery
