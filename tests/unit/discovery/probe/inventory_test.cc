#include "discovery/probe/machine_prober.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fake_dispatcher.h"

namespace macrame::discovery {
namespace {

v1::Inventory Sample() {
  v1::Inventory inventory;
  inventory.set_revision(4);
  inventory.set_chip("Apple M4");
  v1::Disk& disk = *inventory.add_disks();
  disk.set_path("/");
  disk.set_total_bytes(1000);
  disk.set_free_bytes(500);
  inventory.add_unknown()->set_evidence("load average 0.1");
  return inventory;
}

TEST(SameFacts, OnlyWhatMatters) {
  v1::Inventory other = Sample();
  other.set_revision(9);
  other.mutable_disks(0)->set_free_bytes(505);
  other.mutable_unknown(0)->set_evidence("load average 0.2");
  EXPECT_TRUE(SameFacts(Sample(), other));
  other.mutable_disks(0)->set_free_bytes(480);
  EXPECT_FALSE(SameFacts(Sample(), other));
  other = Sample();
  other.set_chip("Apple M5");
  EXPECT_FALSE(SameFacts(Sample(), other));
  other = Sample();
  other.add_disks();
  EXPECT_FALSE(SameFacts(Sample(), other));
}

TEST(MachineProber, FirstFactsAreThereAtOnceAndRevisionsRise) {
  transport::FakeDispatcher dispatcher;
  InventoryInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  MachineProber::Options options;
  options.first_revision = 1000;
  MachineProber prober(dispatcher, inputs, options);
  std::vector<uint64_t> revisions;
  prober.Start([&](const v1::Inventory& inventory) { revisions.push_back(inventory.revision()); });
  ASSERT_EQ(revisions, std::vector<uint64_t>{1000});
  EXPECT_EQ(prober.inventory().node_id(), inputs.node_id.value());
#ifdef __linux__
  EXPECT_GT(prober.inventory().memory_total_bytes(), 0u);
  EXPECT_GT(prober.SampleLoad().memory_available_bytes(), 0u);
#endif
  v1::LocalModel model;
  model.set_name("tiny");
  prober.SetModels({model});
  prober.SetModels({model});
  EXPECT_EQ(revisions, (std::vector<uint64_t>{1000, 1001}));
  EXPECT_EQ(prober.inventory().models_size(), 1);

  // An engine appears: asked for on the worker, taken over on the owner thread.
  v1::Engine engine;
  engine.set_name("mlx");
  prober.SetEngines({engine}, std::nullopt);
  for (int i = 0; i < 500 && revisions.size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    dispatcher.RunPosted();
  }
  EXPECT_EQ(revisions.size(), 3u);
  EXPECT_EQ(prober.inventory().engines_size(), 1);
  EXPECT_EQ(prober.inventory().models_size(), 1);
  prober.Stop();
}

TEST(MachineProber, TheNodesOwnLimitForModelsIsToldBesideTheMachines) {
  transport::FakeDispatcher dispatcher;
  MachineProber free(dispatcher, {}, {});
  free.Start({});
  InventoryInputs inputs;
  inputs.models_memory_max_bytes = 64 << 20;
  MachineProber limited(dispatcher, inputs, {});
  limited.Start({});
  EXPECT_EQ(free.inventory().memory_models_max_bytes(), 0u);
  EXPECT_EQ(limited.inventory().memory_models_max_bytes(), 64u << 20);
  EXPECT_EQ(limited.inventory().memory_gpu_usable_bytes(),
            free.inventory().memory_gpu_usable_bytes());
}

TEST(ModelsMemory, TheSmallestLimitThatIsKnownCounts) {
  struct Case {
    uint64_t total, machine, own, bytes;
    bool is_configured;
  };
  for (const Case& one :
       {Case{64, 48, 0, 48, false}, Case{64, 48, 16, 16, true}, Case{64, 48, 56, 48, false},
        Case{64, 0, 0, 64, false}, Case{64, 0, 16, 16, true}, Case{64, 80, 0, 64, false},
        Case{0, 48, 0, 48, false}, Case{0, 48, 16, 16, true}, Case{0, 0, 16, 16, true},
        Case{0, 0, 0, 0, false}}) {
    v1::Inventory inventory;
    inventory.set_memory_total_bytes(one.total);
    inventory.set_memory_gpu_usable_bytes(one.machine);
    inventory.set_memory_models_max_bytes(one.own);
    const ModelsMemory memory = ModelsMemoryOf(inventory);
    EXPECT_EQ(memory.bytes, one.bytes) << one.total << " " << one.machine << " " << one.own;
    EXPECT_EQ(memory.is_configured, one.is_configured);
  }
}

TEST(MachineProber, KindsOutliveTheProber) {
  transport::FakeDispatcher dispatcher;
  InterfaceKindLookup lookup;
  {
    MachineProber prober(dispatcher, {}, {});
    lookup = prober.kind_lookup();
  }
  EXPECT_EQ(lookup("utun4"), v1::INTERFACE_KIND_VPN);
}

TEST(LocalHostname, IsNeverEmpty) { EXPECT_FALSE(LocalHostname().empty()); }

}  // namespace
}  // namespace macrame::discovery
