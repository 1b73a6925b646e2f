// EntryTable against a small model of it, over many courses of requests, failures and launches.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agentd/cores/gang_reconciler.h"
#include "agentd/state/entry_table.h"
#include "macrame/v1/agent.pb.h"
#include "proto/reasons.h"
#include "proto/replicas.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kReplicas = 4;

NodeId NodeOf(uint32_t index) { return NodeId(std::string(32, static_cast<char>('a' + index))); }

class EntryTableProperty : public ::testing::TestWithParam<uint32_t> {
 protected:
  EntryTableProperty() : table_(NodeId(std::string(32, '1'))), entries_(clock_, desired_) {
    table_.BeginLeading(FencePair{});
    Want(kReplicas);
    entries_.SetIsDead([this](const NodeId& node) { return dead_.contains(node); });
  }

  void Want(uint32_t replicas) {
    v1::Deployment wanted;
    wanted.set_name("m");
    wanted.set_replicas(replicas);
    ASSERT_TRUE(table_.Propose(DeploymentKey("m"), wanted.SerializeAsString()).ok());
  }
  // Epoch 0: it has no place.
  void Place(uint32_t index, uint64_t epoch) {
    epochs_[index] = epoch;
    v1::GangRecord record;
    record.set_deployment(ReplicaName("m", index));
    record.set_epoch(epoch);
    if (epoch > 0) record.set_entry_node_id(NodeOf(index).value());
    ASSERT_TRUE(table_.Propose(GangKey(record.deployment()), record.SerializeAsString()).ok());
  }
  bool IsBad(uint32_t index) const {
    const auto failed = failed_.find(index);
    return dead_.contains(NodeOf(index)) ||
           (failed != failed_.end() && clock_.Now() - failed->second < kFailedReplicaPause);
  }
  std::set<uint32_t> Placed() const {
    std::set<uint32_t> placed;
    for (const auto& [index, epoch] : epochs_) {
      if (epoch > 0) placed.insert(index);
    }
    return placed;
  }
  uint32_t UnderWay(uint32_t index) const {
    return static_cast<uint32_t>(std::count(under_way_.begin(), under_way_.end(), index));
  }
  // Without a prompt in common: a good one before a bad one, and of these the least busy.
  void CheckChoice(const EntryTable::Entry& entry, uint32_t index) const {
    EXPECT_EQ(entry.node, NodeOf(index));
    EXPECT_EQ(entry.epoch, epochs_.at(index));
    EXPECT_EQ(entry.failed_lately, IsBad(index));
    for (const uint32_t other : Placed()) {
      EXPECT_FALSE(IsBad(index) && !IsBad(other)) << "a better one was passed over";
      if (IsBad(other) == IsBad(index)) {
        EXPECT_LE(UnderWay(index), UnderWay(other));
      }
    }
  }
  static uint32_t IndexOf(const std::string& replica) {
    uint32_t index = 0;
    while (ReplicaName("m", index) != replica) ++index;
    return index;
  }
  void Send() {
    const auto entry = entries_.Find("m");
    if (Placed().empty()) {
      EXPECT_EQ(ReasonOf(entry.status()).code(), reasons::kNotReady);
      return;
    }
    ASSERT_TRUE(entry.ok()) << entry.status();
    const uint32_t index = IndexOf(entry->replica);
    CheckChoice(*entry, index);
    entries_.NoteSent(*entry);
    under_way_.push_back(index);
  }
  void End(size_t place, bool failed) {
    const uint32_t index = under_way_.at(place);
    under_way_.erase(under_way_.begin() + static_cast<long>(place));
    entries_.NoteOver(ReplicaName("m", index), failed);
    failed_.erase(index);
    if (failed) failed_[index] = clock_.Now();
  }

  transport::FakeDispatcher clock_;
  StateTable table_;
  DesiredState desired_{table_};
  EntryTable entries_;
  std::map<uint32_t, uint64_t> epochs_;
  std::set<NodeId> dead_;
  std::map<uint32_t, MonotonicTime> failed_;
  std::vector<uint32_t> under_way_;
};

TEST_P(EntryTableProperty, TheLeastBusyOfThoseThatAnswerIsChosen) {
  std::mt19937 dice(GetParam());
  for (int step = 0; step < 400; ++step) {
    const uint32_t index = dice() % kReplicas;
    switch (dice() % 8) {
      case 0:
        Place(index, dice() % 5 == 0 ? 0 : epochs_[index] + 1);
        break;
      case 1:
        dead_.contains(NodeOf(index)) ? dead_.erase(NodeOf(index))
                                      : dead_.insert(NodeOf(index)).second;
        break;
      case 2:
        clock_.AdvanceBy(milliseconds(dice() % 3000));
        break;
      case 3:
      case 4:
        if (!under_way_.empty()) End(dice() % under_way_.size(), dice() % 4 == 0);
        break;
      default:
        Send();
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(EntryTableProperty, AReplicaThatIsNamedIsTheOneOrNone) {
  std::mt19937 dice(GetParam());
  for (int step = 0; step < 100; ++step) {
    const uint32_t index = dice() % kReplicas;
    Place(index, dice() % 3 == 0 ? 0 : epochs_[index] + 1);
    // "m" is the name of the first replica, and of all of them.
    for (uint32_t asked = 1; asked < kReplicas; ++asked) {
      const auto entry = entries_.Find(ReplicaName("m", asked));
      if (Placed().contains(asked)) {
        ASSERT_TRUE(entry.ok()) << entry.status();
        EXPECT_EQ(entry->replica, ReplicaName("m", asked));
      } else {
        EXPECT_EQ(ReasonOf(entry.status()).code(), reasons::kNotReady);
      }
    }
    for (const std::string& none : {ReplicaName("m", kReplicas), ReplicaName("n", 1),
                                    std::string("m#"), std::string("m#x"), std::string("#2")}) {
      EXPECT_FALSE(entries_.Find(none).ok()) << none;
    }
  }
}

// The beginning of a conversation is at one replica: it goes on there unless that is much busier,
// failed, or was launched anew.
TEST_P(EntryTableProperty, AConversationMovesOnlyForAReason) {
  std::mt19937 dice(GetParam());
  for (uint32_t index = 0; index < kReplicas; ++index) Place(index, 1);
  struct Talk {
    std::string name;
    int turns = 0;
    std::optional<uint32_t> at;
    uint64_t epoch = 0;
  };
  std::vector<Talk> talks(6);
  for (size_t talk = 0; talk < talks.size(); ++talk)
    talks[talk].name = "talk" + std::to_string(talk);
  const auto prompt_of = [](const Talk& talk) {
    v1::GenerateRequest request;
    for (int turn = 0; turn <= talk.turns; ++turn) {
      request.add_messages()->set_content(talk.name + std::to_string(turn) +
                                          std::string(kAffinityBytesMin, '.'));
    }
    return PromptSteps(request);
  };
  for (int step = 0; step < 200; ++step) {
    const uint32_t what = dice() % 10;
    if (what == 0) {
      const uint32_t index = dice() % kReplicas;
      Place(index, epochs_[index] + 1);
      continue;
    }
    if (what < 5 && !under_way_.empty()) {
      End(dice() % under_way_.size(), /*failed=*/false);
      continue;
    }
    Talk& talk = talks[dice() % talks.size()];
    const auto prompt = prompt_of(talk);
    const auto entry = entries_.Find("m", prompt);
    ASSERT_TRUE(entry.ok()) << entry.status();
    const uint32_t index = IndexOf(entry->replica);
    uint32_t least = UnderWay(0);
    for (uint32_t other = 1; other < kReplicas; ++other) least = std::min(least, UnderWay(other));
    EXPECT_LE(UnderWay(index), least + kAffinityRequests) << "nobody waits behind a long queue";
    const bool may_stay = talk.at.has_value() && talk.epoch == epochs_[*talk.at] &&
                          UnderWay(*talk.at) <= least + kAffinityRequests;
    if (may_stay) {
      EXPECT_EQ(index, *talk.at) << talk.name;
    }
    entries_.NoteSent(*entry, prompt);
    under_way_.push_back(index);
    talk.at = index;
    talk.epoch = entry->epoch;
    ++talk.turns;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EntryTableProperty, ::testing::Range(1u, 31u));

}  // namespace
}  // namespace macrame::agentd
