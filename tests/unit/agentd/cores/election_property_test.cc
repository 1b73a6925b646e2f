// Elections over a network that loses, delays and parts, on machines that crash, pause and have
// clocks of their own: what has to hold at every instant, and that it ends well once all is quiet.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agentd/cores/election.h"

namespace macrame::agentd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr size_t kNodes = 5;
constexpr milliseconds kStep{20};

NodeId Id(size_t index) { return NodeId(std::string(32, static_cast<char>('a' + index))); }

std::set<NodeId> AllIds() {
  std::set<NodeId> all;
  for (size_t i = 0; i < kNodes; ++i) all.insert(Id(i));
  return all;
}

struct Weather {
  Consistency consistency = Consistency::kQuorum;
  bool parts = true;  // the network falls into two
  bool crashes = true;
  bool pauses = true;
  bool disks_fail = true;
  uint32_t loss_percent = 20;
};

class Electors {
 public:
  Electors(uint64_t seed, Weather weather) : random_(seed), weather_(weather) {
    options_.consistency = weather.consistency;
    for (size_t i = 0; i < kNodes; ++i) {
      machines_.emplace_back();
      // Within the five percent that two of them may differ by.
      machines_[i].speed = 0.976 + 0.048 * static_cast<double>(Below(1001)) / 1000;
      Start(i);
    }
  }

  void Run(Duration length, bool is_stormy) {
    for (const Duration end = now_ + length; now_ < end; now_ += kStep) {
      if (is_stormy) Disturb();
      Deliver();
      for (size_t i = 0; i < kNodes; ++i) {
        if (!Acts(i)) continue;
        SeeMembers(i);
        SaveAgain(i);
        Carry(i, machines_[i].election->OnTick(Local(i)));
        machines_[i].election->CheckInvariants();
      }
      Check();
      if (::testing::Test::HasFailure()) return;
    }
  }
  void Calm() {
    weather_.loss_percent = 0;
    for (size_t i = 0; i < kNodes; ++i) {
      machines_[i].side = 0;
      machines_[i].paused_until = now_;
      machines_[i].disk_fails = false;
      if (machines_[i].election == nullptr) Start(i);
    }
  }

  std::vector<FencePair> Leaders() {
    std::vector<FencePair> leaders;
    for (size_t i = 0; i < kNodes; ++i) {
      const Election* election = machines_[i].election.get();
      const auto fence = election == nullptr ? std::nullopt : election->Leading(Local(i));
      if (fence.has_value()) leaders.push_back(*fence);
    }
    return leaders;
  }
  // How many would carry out an order of this pair.
  size_t Obeying(const FencePair& fence) {
    size_t obeying = 0;
    for (const Machine& machine : machines_) {
      obeying += machine.election != nullptr && machine.election->CheckFence(fence).ok();
    }
    return obeying;
  }
  size_t elections() const { return pairs_.size(); }

 private:
  struct Machine {
    std::unique_ptr<Election> election;  // null: it is down
    std::optional<GrantRecord> disk;
    FencePair granted;  // the highest that was ever on its disk
    double speed = 1;
    int side = 0;
    Duration paused_until{};
    bool disk_fails = false;
    uint64_t run = 0;
    std::set<NodeId> seen;
    Duration seen_at{};
  };
  struct Message {
    Duration due;
    size_t to, from;
    SendLeaseRequest asked;
    std::optional<v1::LeaseResponse> answer;
    uint64_t run;  // of who asked
  };

  size_t Below(size_t bound) { return random_() % bound; }
  bool Chance(size_t in) { return Below(in) == 0; }
  MonotonicTime Local(size_t i) const {
    const double local = static_cast<double>(now_.count()) * machines_[i].speed;
    return MonotonicTime(std::chrono::hours(1) + microseconds(static_cast<int64_t>(local)));
  }
  bool Acts(size_t i) const {
    return machines_[i].election != nullptr && machines_[i].paused_until <= now_;
  }

  void Start(size_t i) {
    Machine& machine = machines_[i];
    ++machine.run;
    machine.seen.clear();
    machine.seen_at = now_;
    machine.election = std::make_unique<Election>(
        Id(i), options_, machine.disk, [this] { return random_(); }, Local(i));
    Carry(i, machine.election->OnMemberList(AllIds(), Local(i)));
  }

  // Once in so many steps something goes wrong, and something else is well again.
  void Disturb() {
    const size_t i = Below(kNodes);
    Machine& machine = machines_[i];
    if (weather_.parts && Chance(150)) {
      const bool heals = Chance(2);
      for (Machine& one : machines_) one.side = heals ? 0 : static_cast<int>(Below(2));
    }
    if (weather_.pauses && Chance(150)) machine.paused_until = now_ + milliseconds(Below(5000));
    if (weather_.disks_fail && Chance(200)) machine.disk_fails = !machine.disk_fails;
    if (machine.election == nullptr) {
      if (Chance(20)) Start(i);
    } else if (weather_.crashes && Chance(100)) {
      machine.election.reset();
    }
  }

  // Who is there is noticed after a while.
  void SeeMembers(size_t i) {
    Machine& machine = machines_[i];
    std::set<NodeId> live;
    for (size_t other = 0; other < kNodes; ++other) {
      if (Reaches(i, other) && Acts(other)) live.insert(Id(other));
    }
    if (live == machine.seen) {
      machine.seen_at = now_;
      return;
    }
    if (now_ - machine.seen_at < milliseconds(800)) return;
    machine.seen = live;
    Carry(i, machine.election->OnMembershipChanged(live, AllIds(), Local(i)));
  }
  bool Reaches(size_t a, size_t b) const { return machines_[a].side == machines_[b].side; }

  void SaveAgain(size_t i) {
    Machine& machine = machines_[i];
    const auto unsaved = machine.election->Unsaved();
    if (!unsaved.has_value() || machine.disk_fails) return;
    Save(i, *unsaved);
    Carry(i, machine.election->OnPersisted(Local(i)));
  }
  void Save(size_t i, const GrantRecord& record) {
    Machine& machine = machines_[i];
    EXPECT_GE(record.granted, machine.granted) << "a node goes back on what it granted";
    machine.granted = record.granted;
    machine.disk = record;
  }

  // `asked`: what the answer among the effects answers.
  void Carry(size_t i, const ElectionEffects& effects, const Message* asked = nullptr) {
    Machine& machine = machines_[i];
    for (const ElectionEffect& effect : effects) {
      if (const auto* grant = std::get_if<PersistGrant>(&effect)) {
        if (machine.disk_fails) {
          return Carry(i, machine.election->OnPersistFailed(Local(i)), asked);
        }
        Save(i, grant->record);
      } else if (const auto* request = std::get_if<SendLeaseRequest>(&effect)) {
        Post({now_, IndexOf(request->to), i, *request, std::nullopt, machine.run});
      } else if (const auto* answer = std::get_if<AnswerLease>(&effect)) {
        ASSERT_NE(asked, nullptr) << "an answer that nobody asked for";
        Post({now_, asked->from, i, asked->asked, answer->response, asked->run});
      } else if (const auto* became = std::get_if<BecameCoordinator>(&effect)) {
        EXPECT_TRUE(pairs_.insert(became->fence).second) << "one pair leads twice";
        EXPECT_EQ(became->fence.coordinator, Id(i));
      }
    }
  }
  static size_t IndexOf(const NodeId& node) { return static_cast<size_t>(node.value()[0] - 'a'); }

  void Post(Message message) {
    if (Below(100) < weather_.loss_percent) return;
    message.due = now_ + milliseconds(1 + Below(Chance(20) ? 1500 : 60));
    messages_.push_back(std::move(message));
  }
  void Deliver() {
    std::vector<Message> due;
    std::erase_if(messages_, [&](Message& message) {
      if (message.due > now_ || !WakesSoon(message.to)) return false;
      due.push_back(std::move(message));
      return true;
    });
    for (const Message& message : due) {
      if (machines_[message.to].election == nullptr || !Reaches(message.to, message.from)) continue;
      Election& election = *machines_[message.to].election;
      if (!message.answer.has_value()) {
        Carry(message.to,
              election.OnLeaseRequest(Id(message.from), message.asked.request, Local(message.to)),
              &message);
      } else if (message.run == machines_[message.to].run) {
        Carry(message.to,
              election.OnLeaseResponse(message.asked, *message.answer, Local(message.to)));
      }
    }
  }
  // What comes for a machine that is paused waits for it.
  bool WakesSoon(size_t i) const {
    return machines_[i].election == nullptr || machines_[i].paused_until <= now_;
  }

  void Check() {
    const std::vector<FencePair> leaders = Leaders();
    if (weather_.consistency == Consistency::kQuorum) {
      EXPECT_LE(leaders.size(), 1u) << leaders[0].term << " and " << leaders.back().term
                                    << " lead at once, after " << now_.count() / 1000 << " ms";
    }
    std::set<FencePair> different(leaders.begin(), leaders.end());
    EXPECT_EQ(different.size(), leaders.size());
  }

  std::mt19937_64 random_;
  Weather weather_;
  ElectionOptions options_;
  std::vector<Machine> machines_;
  std::vector<Message> messages_;
  std::set<FencePair> pairs_;
  Duration now_{};
};

void ExpectAllAgree(Electors& electors, uint64_t seed) {
  const std::vector<FencePair> leaders = electors.Leaders();
  ASSERT_EQ(leaders.size(), 1u) << "seed " << seed;
  EXPECT_EQ(electors.Obeying(leaders[0]), kNodes) << "seed " << seed;
}

TEST(ElectionProperty, OfAQuorumOneLeadsAtATimeWhateverHappens) {
  size_t elections = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Electors electors(seed, {});
    electors.Run(std::chrono::seconds(90), true);
    electors.Calm();
    electors.Run(std::chrono::seconds(20), false);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    ExpectAllAgree(electors, seed);
    elections += electors.elections();
  }
  EXPECT_GT(elections, 150u) << "the storm has to cost coordinators their lead";
}

TEST(ElectionProperty, HalvesThatElectedApartAgreeWhenTheyMeet) {
  Weather weather;
  weather.consistency = Consistency::kAvailable;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Electors electors(seed, weather);
    electors.Run(std::chrono::seconds(90), true);
    electors.Calm();
    electors.Run(std::chrono::seconds(20), false);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    ExpectAllAgree(electors, seed);
  }
}

// Loss alone: what a healthy machine room with a bad switch has.
TEST(ElectionProperty, LostMessagesCostNoCoordinatorItsLead) {
  Weather weather{Consistency::kAvailable, false, false, false, false, 10};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Electors electors(seed, weather);
    electors.Run(std::chrono::seconds(10), true);
    const size_t before = electors.elections();
    EXPECT_GE(before, 1u) << "seed " << seed;
    electors.Run(std::chrono::seconds(60), true);
    EXPECT_LE(electors.elections(), before + 1) << "seed " << seed;
    ASSERT_EQ(electors.Leaders().size(), 1u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace macrame::agentd
