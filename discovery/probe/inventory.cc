#include "discovery/probe/inventory.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

#include "discovery/base/plain_text.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/node_probe.h"
#include "proto/check.h"

namespace macrame::discovery {
namespace {

constexpr size_t kHostnameBytesMax = 255;

bool IsSmallMove(const v1::Disk& a, const v1::Disk& b) {
  const uint64_t moved = a.free_bytes() > b.free_bytes() ? a.free_bytes() - b.free_bytes()
                                                         : b.free_bytes() - a.free_bytes();
  return a.path() == b.path() && a.total_bytes() == b.total_bytes() &&
         moved <= a.total_bytes() / 100;
}

}  // namespace

ModelsMemory ModelsMemoryOf(const v1::Inventory& inventory) {
  const uint64_t total = inventory.memory_total_bytes();
  const uint64_t limit = inventory.memory_models_max_bytes();
  ModelsMemory memory{inventory.memory_gpu_usable_bytes(), false};
  if (memory.bytes == 0 || (total > 0 && total < memory.bytes)) memory.bytes = total;
  if (limit > 0 && (memory.bytes == 0 || limit < memory.bytes)) memory = {limit, true};
  return memory;
}

bool SameFacts(const v1::Inventory& a, const v1::Inventory& b) {
  if (a.disks_size() != b.disks_size()) return false;
  for (int i = 0; i < a.disks_size(); ++i) {
    if (!IsSmallMove(a.disks(i), b.disks(i))) return false;
  }
  v1::Inventory first = a;
  v1::Inventory second = b;
  for (v1::Inventory* inventory : {&first, &second}) {
    inventory->set_revision(0);
    inventory->clear_disks();
    // Words that change with every asking are no facts.
    for (v1::Reason& reason : *inventory->mutable_unknown()) reason.clear_evidence();
  }
  return first.SerializeAsString() == second.SerializeAsString();
}

std::string LocalHostname() {
  char name[kHostnameBytesMax + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "unnamed";
  return ToPlainText(name, kHostnameBytesMax);
}

class InventoryProber::Impl : public std::enable_shared_from_this<InventoryProber::Impl> {
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
    slow_load_ = probe_->CollectSlowLoad();
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
                        auto load = probe->CollectSlowLoad();
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

InventoryProber::InventoryProber(transport::Dispatcher& dispatcher, InventoryInputs inputs,
                                 Options options)
    : impl_(std::make_shared<Impl>(dispatcher, std::move(inputs), std::move(options))) {}

InventoryProber::~InventoryProber() { Stop(); }

void InventoryProber::Start(std::function<void(const v1::Inventory&)> on_change) {
  MACRAME_CHECK(!impl_->running()) << "InventoryProber started twice";
  impl_->Start(std::move(on_change));
}

void InventoryProber::Stop() {
  if (impl_->running()) impl_->Stop();
}

const v1::Inventory& InventoryProber::inventory() const { return impl_->inventory(); }
InterfaceKindLookup InventoryProber::kind_lookup() const { return impl_->kind_lookup(); }
v1::NodeLoad InventoryProber::SampleLoad() { return impl_->SampleLoad(); }

void InventoryProber::SetModels(std::vector<v1::LocalModel> models) {
  impl_->SetModels(std::move(models));
}

void InventoryProber::SetEngines(std::vector<v1::Engine> engines,
                                 std::optional<uint64_t> mlx_working_set_bytes) {
  impl_->SetEngines(std::move(engines), mlx_working_set_bytes);
}

}  // namespace macrame::discovery
