// The agent's own StateReplicator, LeaseClient, PeerChannels and StateStore on three to five nodes
// over FakeNetwork, in one thread from one seed, with `consistency: quorum`: at most one
// coordinator leads, and what was acknowledged is on every disk in the end.
//
// MACRAME_SIM_SEED=n runs that seed alone; MACRAME_SIM_SEEDS=n runs so many.

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/sqlite_state_store.h"
#include "agentd/node/peer_channels.h"
#include "agentd/state/lease_client.h"
#include "agentd/state/state_replicator.h"
#include "tests/sim/fake_network.h"
#include "transport/fake_dispatcher.h"

namespace macrame::agentd::sim {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kQuietAtEnd = std::chrono::seconds(5);
constexpr Duration kLeaseTimeout = std::chrono::milliseconds(500);

// One process; its disk is the folder, which outlives it.
struct Process {
  Process(transport::Dispatcher& dispatcher, FakeNetwork& network, NodeId self,
          const std::set<NodeId>& everybody, const std::string& folder, uint64_t seed);
  ~Process() { network.Down(self); }

  FakeNetwork& network;
  const NodeId self;
  const std::set<NodeId> everybody;
  std::set<NodeId> live;
  int won = 0;
  std::unique_ptr<StateStore> store;
  std::unique_ptr<Election> election;
  std::unique_ptr<PeerChannels> channels;
  std::unique_ptr<StateReplicator> replicator;
  std::unique_ptr<LeaseClient> leases;
};

ElectionOptions QuorumOf(size_t count) {
  ElectionOptions options;
  options.consistency = Consistency::kQuorum;
  options.renew_interval = options.lease / 8;
  options.fresh_for = options.lease * 21 / 50;
  options.first_members = count;
  return options;
}

Process::Process(transport::Dispatcher& dispatcher, FakeNetwork& network_in, NodeId self_in,
                 const std::set<NodeId>& everybody_in, const std::string& folder, uint64_t seed)
    : network(network_in), self(std::move(self_in)), everybody(everybody_in), live(everybody_in) {
  store = *SqliteStateStore::Open(folder, self);
  auto random = std::make_shared<std::mt19937_64>(seed);
  election = std::make_unique<Election>(
      self, QuorumOf(everybody.size()), store->loaded_grant(), [random] { return (*random)(); },
      dispatcher.Now());
  channels = std::make_unique<PeerChannels>(
      [this](const NodeId& node, const auto&, const auto&) { return network.Connect(self, node); });
  channels->UsePlain();
  for (const NodeId& node : everybody) {
    v1::NodeAddress address;
    address.set_ip("10.0.0.1");
    if (node != self) channels->SetAddresses(node, {address}, 4711);
  }
  replicator = std::make_unique<StateReplicator>(
      dispatcher, self, *store, *election, *channels, StateReplicator::Options(),
      StateReplicator::Callbacks{[this] { return everybody; }, [this] { return live; },
                                 [this] { return everybody; }, [] { return true; }, [] {},
                                 [](const v1::GangRecord&) {}});
  LeaseClient::Callbacks told;
  told.on_became_coordinator = [this](const FencePair& fence) {
    ++won;
    replicator->BeginLeading(fence);
  };
  told.on_lost_coordination = [this] { replicator->StopLeading(); };
  told.on_obeys_changed = [] {};
  told.on_call = [](const NodeId&, bool) {};
  told.send_lease = [this](const NodeId& node, const v1::LeaseRequest& request,
                           LeaseClient::LeaseDone done) {
    channels->For(node)->Call(kRequestLease, request, kLeaseTimeout, std::move(done));
  };
  leases = std::make_unique<LeaseClient>(dispatcher, *election, *store, *replicator, *channels,
                                         kLeaseTimeout, std::move(told));
  network.Handle(self, kRequestLease, [this](const NodeId& from, const auto& request, auto reply) {
    leases->OnLeaseRequest(from, request, std::move(reply));
  });
  network.Handle(self, kReplicate, [this](const NodeId& from, const auto& request, auto reply) {
    reply(replicator->OnReplicate(from, request));
  });
  leases->OnMemberList(everybody);
  leases->OnMembersChanged(everybody, everybody);
}

class StateSim {
 public:
  StateSim(uint64_t seed, const std::string& folder)
      : folder_(folder), random_(seed), network_(dispatcher_, seed + 1) {
    const int count = 3 + static_cast<int>(seed % 3);
    for (int i = 0; i < count; ++i) everybody_.insert(NodeId(std::string(32, "abcde"[i])));
    for (const NodeId& node : everybody_) Start(node);
  }

  // Faults for so long, then none until the end; an empty text, or what did not hold.
  std::string Run(Duration faults, Duration healed) {
    for (Duration passed{}; passed < faults; passed += kTick) {
      if (Between(0, 5) == 0) InjectFault();
      Step();
    }
    for (const NodeId& node : everybody_) {
      for (const NodeId& other : everybody_) network_.Cut(node, other, false);
    }
    network_.SetWeather({});
    for (const NodeId& node : everybody_) {
      if (processes_[node] == nullptr) Start(node);
    }
    for (Duration passed{}; passed < healed; passed += kTick) {
      // What is under way at the end is on some disks only.
      is_writing_ = passed + kQuietAtEnd < healed;
      Step();
    }
    CheckConverged();
    return violation_;
  }

  size_t acknowledged() const { return acknowledged_.size(); }
  uint64_t lost() const { return network_.lost(); }
  int elections() const { return elections_; }

 private:
  uint64_t Between(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }
  NodeId AnyNode() {
    return *std::next(everybody_.begin(), static_cast<int>(Between(0, everybody_.size() - 1)));
  }

  void Start(const NodeId& node) {
    processes_[node] = std::make_unique<Process>(dispatcher_, network_, node, everybody_,
                                                 folder_ + "/" + node.value(), random_());
  }
  void Crash(const NodeId& node) {
    if (processes_[node] != nullptr) elections_ += processes_[node]->won;
    processes_[node].reset();
  }

  void InjectFault() {
    const NodeId node = AnyNode(), other = AnyNode();
    switch (Between(0, 6)) {
      case 0:
        return Crash(node);
      case 1:
      case 2:
        if (processes_[node] == nullptr) Start(node);
        return;
      case 3:  // one way
        if (node != other) network_.Cut(node, other, true);
        return;
      case 4:
        for (const NodeId& peer : everybody_) {
          if (peer == node) continue;
          network_.Cut(node, peer, true);
          network_.Cut(peer, node, true);
        }
        return;
      case 5:
        for (const NodeId& a : everybody_) {
          for (const NodeId& b : everybody_) network_.Cut(a, b, false);
        }
        return;
      default:
        network_.SetWeather({static_cast<double>(Between(0, 20)) / 100,
                             std::chrono::microseconds(100),
                             std::chrono::milliseconds(Between(1, 200))});
    }
  }

  void Step() {
    dispatcher_.AdvanceBy(kTick);
    std::set<NodeId> up;
    for (const auto& [node, process] : processes_) {
      if (process != nullptr) up.insert(node);
    }
    for (const auto& [node, process] : processes_) {
      if (process == nullptr) continue;
      if (std::exchange(process->live, up) != up) process->leases->OnMembersChanged(up, everybody_);
      process->leases->Tick();
      process->replicator->Tick();
      process->election->CheckInvariants();
    }
    Write();
    std::vector<std::string> leaders;
    for (const auto& [node, process] : processes_) {
      if (process != nullptr && process->election->Leading(dispatcher_.Now()).has_value()) {
        leaders.push_back(node.value().substr(0, 1));
      }
    }
    if (leaders.size() > 1) Violate(absl::StrCat(leaders.size(), " coordinators lead at once"));
  }

  // A deployment of a name of its own, at whoever leads.
  void Write() {
    if (!is_writing_ || Between(0, 2) != 0) return;
    for (const auto& [node, process] : processes_) {
      if (process == nullptr || !process->election->Leading(dispatcher_.Now())) continue;
      v1::Deployment wanted;
      wanted.set_name(absl::StrCat("m", ++writes_));
      const std::string key = DeploymentKey(wanted.name());
      process->replicator->Write(key, wanted.SerializeAsString(),
                                 [this, key](const absl::Status& written) {
                                   if (written.ok()) acknowledged_.push_back(key);
                                 });
      return;
    }
  }

  // What nobody acknowledged may lie on a few disks: agents find it by the digests in their
  // heartbeats, which are not here.
  void CheckConverged() {
    int leaders = 0;
    for (const auto& [node, process] : processes_) {
      elections_ += process->won;
      leaders += process->election->Leading(dispatcher_.Now()).has_value();
      for (const std::string& key : acknowledged_) {
        if (process->replicator->table().Find(key) != nullptr) continue;
        Violate(absl::StrCat("the acknowledged ", key, " is not on ", node.value().substr(0, 1)));
      }
    }
    if (leaders != 1) Violate(absl::StrCat("healed, and ", leaders, " lead"));
  }

  void Violate(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }

  const std::string folder_;
  std::mt19937_64 random_;
  transport::FakeDispatcher dispatcher_;
  FakeNetwork network_;
  std::set<NodeId> everybody_;
  std::map<NodeId, std::unique_ptr<Process>> processes_;
  std::vector<std::string> acknowledged_;
  std::string violation_;
  bool is_writing_ = true;
  int writes_ = 0;
  int elections_ = 0;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class StateSimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    folder_ = ::testing::TempDir() + "state-sim-" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string FolderOf(const std::string& name) const {
    std::filesystem::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }
  std::string folder_;
};

TEST_F(StateSimTest, WhatWasAcknowledgedIsNeverLost) {
  const uint64_t only = FromEnvironment("MACRAME_SIM_SEED", 0);
  const uint64_t first = only != 0 ? only : 1;
  const uint64_t last = only != 0 ? only : FromEnvironment("MACRAME_SIM_SEEDS", 24);
  size_t acknowledged = 0;
  uint64_t lost = 0;
  int elections = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    StateSim sim(seed, FolderOf(std::to_string(seed)));
    EXPECT_EQ(sim.Run(std::chrono::seconds(15), std::chrono::seconds(15)), "")
        << "MACRAME_SIM_SEED=" << seed;
    acknowledged += sim.acknowledged();
    lost += sim.lost();
    elections += sim.elections();
  }
  EXPECT_GT(acknowledged, last - first + 1);
  EXPECT_GT(lost, 0u);
  EXPECT_GT(elections, static_cast<int>(last - first + 1)) << "nobody lost the lead";
}

// One seed is one history: the same elections, writes and lost messages.
TEST_F(StateSimTest, ASeedIsOneHistory) {
  StateSim one(7, FolderOf("one")), other(7, FolderOf("other"));
  EXPECT_EQ(one.Run(std::chrono::seconds(10), std::chrono::seconds(10)), "");
  EXPECT_EQ(other.Run(std::chrono::seconds(10), std::chrono::seconds(10)), "");
  EXPECT_EQ(one.acknowledged(), other.acknowledged());
  EXPECT_EQ(one.lost(), other.lost());
  EXPECT_EQ(one.elections(), other.elections());
}

}  // namespace
}  // namespace macrame::agentd::sim
