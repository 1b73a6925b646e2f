#include "discovery/membership/failure_monitor.h"

#include <gtest/gtest.h>

#include <queue>
#include <random>

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using Kind = FailureEffect::Kind;

const MonotonicTime kStart(std::chrono::hours(2));

NodeId Node(int i) {
  char id[33];
  snprintf(id, sizeof(id), "%032x", i + 1);
  return NodeId(id);
}

// Ticks each 100 ms up to `until`; returns what happened but for probes.
class Harness {
 public:
  explicit Harness(int peers, FailureLimits limits = {}) : monitor(limits), peers_(peers) {
    for (int i = 0; i < peers; ++i) monitor.Add(Node(i), now);
    monitor.Tick(now);
  }

  // All but `silent` are heard each 500 ms.
  void RunFor(Duration span, std::vector<int> silent = {}) {
    const MonotonicTime until = now + span;
    while (now < until) {
      now += milliseconds(100);
      if ((now - kStart).count() % 500'000 == 0) {
        for (int i = 0; i < peers_; ++i) {
          if (std::find(silent.begin(), silent.end(), i) == silent.end()) {
            Note(monitor.HeartbeatReceived(Node(i), now));
          }
        }
      }
      Note(monitor.Tick(now));
    }
  }

  void Note(const FailureEffects& effects) {
    for (const FailureEffect& effect : effects) {
      if (effect.kind == Kind::kProbe) {
        ++probes;
      } else if (effect.kind == Kind::kAsk) {
        monitor.NoteAsked(effect.node, asks_sent);
      } else {
        seen.push_back(effect);
        at.push_back(now);
      }
    }
  }

  std::string Story() const {
    std::string story;
    for (size_t i = 0; i < seen.size(); ++i) {
      const char* word = seen[i].kind == Kind::kBecameDead      ? "dead"
                         : seen[i].kind == Kind::kGone          ? "gone"
                         : seen[i].kind == Kind::kBecameSuspect ? "suspect"
                                                                : "alive";
      story += std::to_string(std::chrono::duration_cast<milliseconds>(at[i] - kStart).count()) +
               " " + word + " " + seen[i].node.value().substr(31) + "; ";
    }
    return story;
  }

  MonotonicTime now = kStart;
  FailureMonitor monitor;
  std::vector<FailureEffect> seen;
  std::vector<MonotonicTime> at;
  int probes = 0;
  int asks_sent = 0;  // each time the monitor wants it

 private:
  int peers_;
};

TEST(FailureMonitor, SilenceMakesSuspectThenDead) {
  Harness harness(4);
  harness.RunFor(milliseconds(2000));
  EXPECT_EQ(harness.Story(), "");
  harness.RunFor(milliseconds(4000), {1});
  EXPECT_EQ(harness.Story(), "3500 suspect 2; 5000 dead 2; ");
  EXPECT_EQ(harness.seen[0].reason.code(), "NODE_SUSPECT");
  EXPECT_EQ(harness.seen[1].reason.code(), "NODE_DEAD");
  EXPECT_EQ(harness.seen[1].reason.message(), "not heard for 3.0 s");
  EXPECT_EQ(harness.seen[1].reason.node_id(), Node(1).value());
  EXPECT_GE(harness.probes, 5);
  // It comes back.
  harness.RunFor(milliseconds(1000));
  EXPECT_EQ(harness.monitor.StateOf(Node(1)), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(harness.seen.back().kind, Kind::kBecameAlive);
}

TEST(FailureMonitor, WhoLeavesBeaconsUnansweredIsDeadSooner) {
  Harness harness(4);
  harness.asks_sent = 2;
  harness.RunFor(milliseconds(2000));
  harness.RunFor(milliseconds(3000), {1});
  EXPECT_EQ(harness.Story(), "3500 suspect 2; 3900 dead 2; ");
  EXPECT_EQ(harness.seen[1].reason.message(), "not heard for 1.9 s, and 20 beacons not answered");
  // One that came late ends it, and the next silence is counted anew.
  harness.RunFor(milliseconds(1000));
  EXPECT_EQ(harness.monitor.StateOf(Node(1)), v1::NODE_STATE_ALIVE);
  harness.RunFor(milliseconds(1800), {1});
  harness.Note(harness.monitor.BeaconReceived(Node(1), harness.now));
  harness.RunFor(milliseconds(1800), {1});
  EXPECT_EQ(harness.monitor.StateOf(Node(1)), v1::NODE_STATE_SUSPECT);
}

TEST(FailureMonitor, APauseOfOnesOwnIsNoUnansweredBeacon) {
  Harness harness(4);
  harness.asks_sent = 2;
  harness.RunFor(milliseconds(2000));
  harness.RunFor(milliseconds(1100), {1});
  harness.now += milliseconds(1000);  // without a tick, and without an ask
  harness.RunFor(milliseconds(300), {1});
  EXPECT_NE(harness.monitor.StateOf(Node(1)), v1::NODE_STATE_DEAD) << harness.Story();
}

TEST(FailureMonitor, TheOnlyPeerDiesInTime) {
  Harness harness(1);
  harness.RunFor(milliseconds(500));
  harness.RunFor(milliseconds(4000), {0});
  EXPECT_EQ(harness.Story(), "2000 suspect 1; 3500 dead 1; ");
}

TEST(FailureMonitor, OneOfTwoPeersDiesInTime) {
  Harness harness(2);
  harness.RunFor(milliseconds(500));
  harness.RunFor(milliseconds(4000), {0});
  EXPECT_EQ(harness.Story(), "2000 suspect 1; 3500 dead 1; ");
}

TEST(FailureMonitor, RefusedTwiceIsDeadSooner) {
  Harness harness(2);
  harness.RunFor(milliseconds(500));
  harness.RunFor(milliseconds(600), {0});
  harness.Note(harness.monitor.HeartbeatFailed(Node(0), HeartbeatFailure::kRefused, harness.now));
  EXPECT_EQ(harness.Story(), "");
  harness.RunFor(milliseconds(200), {0});
  harness.Note(harness.monitor.HeartbeatFailed(Node(0), HeartbeatFailure::kRefused, harness.now));
  EXPECT_EQ(harness.Story(), "1300 dead 1; ");
  EXPECT_NE(harness.seen[0].reason.message().find("refused 2 connections"), std::string::npos);
}

TEST(FailureMonitor, WhoRefusesAndStaysSilentIsGone) {
  for (const bool is_heard : {false, true}) {
    Harness harness(2);
    harness.RunFor(milliseconds(500));
    harness.RunFor(milliseconds(800), {0});
    for (int i = 0; i < 2; ++i) {
      harness.Note(
          harness.monitor.HeartbeatFailed(Node(0), HeartbeatFailure::kRefused, harness.now));
    }
    // Of a process behind a firewall a beacon comes in all the same, read a quarter late.
    if (is_heard) harness.monitor.BeaconOfDeadReceived(Node(0));
    harness.RunFor(milliseconds(3000), {0});
    EXPECT_EQ(harness.Story(), is_heard ? "1300 dead 1; " : "1300 dead 1; 1500 gone 1; ");
  }
}

TEST(FailureMonitor, APauseOfOnesOwnIsNoSilenceOfWhoRefuses) {
  Harness harness(2);
  harness.RunFor(milliseconds(500));
  harness.now += milliseconds(900);  // without a tick
  for (int i = 0; i < 2; ++i) {
    harness.Note(harness.monitor.HeartbeatFailed(Node(0), HeartbeatFailure::kRefused, harness.now));
  }
  harness.RunFor(milliseconds(700), {0});
  EXPECT_EQ(harness.Story().find("gone"), std::string::npos) << harness.Story();
}

TEST(FailureMonitor, RefusalsOfANodeThatStillSpeaksMeanNothing) {
  Harness harness(2);
  for (int i = 0; i < 50; ++i) {
    harness.Note(harness.monitor.HeartbeatFailed(Node(0), HeartbeatFailure::kRefused, harness.now));
    harness.RunFor(milliseconds(100));
  }
  EXPECT_EQ(harness.Story(), "");
}

TEST(FailureMonitor, ATimeOutAddsNothingToSilence) {
  Harness harness(2);
  for (int i = 0; i < 10; ++i) {
    harness.Note(harness.monitor.HeartbeatFailed(Node(0), HeartbeatFailure::kTimeout, harness.now));
  }
  harness.RunFor(milliseconds(1000));
  EXPECT_EQ(harness.Story(), "");
}

TEST(FailureMonitor, AnOwnPauseBlamesNobody) {
  Harness harness(3);
  harness.RunFor(milliseconds(1000));
  harness.now += std::chrono::seconds(20);  // stopped, or asleep
  harness.Note(harness.monitor.Tick(harness.now));
  EXPECT_EQ(harness.Story(), "");
  EXPECT_EQ(harness.monitor.widening(), 2);
  harness.RunFor(milliseconds(1000));
  EXPECT_EQ(harness.Story(), "");
}

TEST(FailureMonitor, PausesWidenUpToABoundAndWearOff) {
  Harness harness(2);
  for (int i = 0; i < 6; ++i) {
    harness.now += milliseconds(1000);
    harness.Note(harness.monitor.Tick(harness.now));
  }
  EXPECT_EQ(harness.monitor.widening(), 8);
  harness.RunFor(std::chrono::seconds(31));
  EXPECT_EQ(harness.monitor.widening(), 1);
  // While widened, death takes longer, but not for ever.
  harness.now += milliseconds(1000);
  harness.Note(harness.monitor.Tick(harness.now));
  ASSERT_EQ(harness.monitor.widening(), 2);
  harness.RunFor(milliseconds(4500), {0});
  EXPECT_EQ(harness.monitor.StateOf(Node(0)), v1::NODE_STATE_SUSPECT);
  harness.RunFor(milliseconds(2500), {0});
  EXPECT_EQ(harness.monitor.StateOf(Node(0)), v1::NODE_STATE_DEAD);
}

TEST(FailureMonitor, ManySilentAtOnceGetOneFurtherLimit) {
  Harness harness(4);
  harness.RunFor(milliseconds(500));
  harness.RunFor(milliseconds(5000), {0, 1, 2});
  EXPECT_EQ(harness.monitor.StateOf(Node(0)), v1::NODE_STATE_SUSPECT);
  harness.RunFor(milliseconds(1100), {0, 1, 2});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(harness.monitor.StateOf(Node(i)), v1::NODE_STATE_DEAD);
  EXPECT_EQ(harness.monitor.StateOf(Node(3)), v1::NODE_STATE_ALIVE);
}

TEST(FailureMonitor, AShortOutageOfOurOwnNetworkKillsNobody) {
  Harness harness(4);
  harness.RunFor(milliseconds(500));
  harness.RunFor(milliseconds(5000), {0, 1, 2, 3});
  harness.RunFor(milliseconds(1000));
  for (const FailureEffect& effect : harness.seen) EXPECT_NE(effect.kind, Kind::kBecameDead);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(harness.monitor.StateOf(Node(i)), v1::NODE_STATE_ALIVE);
}

// Beacons each 500 ms and ticks each 100 ms for `duration`; what became of the peers in that time.
FailureEffects BeaconsFor(FailureMonitor& monitor, const NodeId& node, MonotonicTime& now,
                          Duration duration) {
  FailureEffects all;
  for (Duration passed{}; passed < duration; passed += std::chrono::milliseconds(100)) {
    FailureEffects effects;
    if (passed.count() % std::chrono::microseconds(500'000).count() == 0) {
      effects = monitor.BeaconReceived(node, now);
      all.insert(all.end(), effects.begin(), effects.end());
    }
    now += std::chrono::milliseconds(100);
    effects = monitor.Tick(now);
    for (const FailureEffect& effect : effects) {
      const bool is_question =
          effect.kind == FailureEffect::Kind::kProbe || effect.kind == FailureEffect::Kind::kAsk;
      if (!is_question) all.push_back(effect);
    }
  }
  return all;
}

TEST(FailureMonitor, BeaconsKeepAMemberAliveAsLongAsHeartbeatsProveItsPort) {
  FailureMonitor monitor;
  const NodeId node(std::string(32, 'a'));
  MonotonicTime now(std::chrono::hours(1));
  monitor.Add(node, now);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(BeaconsFor(monitor, node, now, std::chrono::seconds(25)).empty());
    monitor.HeartbeatAnswered(node, now);
  }
  EXPECT_TRUE(BeaconsFor(monitor, node, now, std::chrono::seconds(35)).empty());
  // Nobody answers any more: what still sends beacons is not a member that can be counted on.
  const FailureEffects effects = BeaconsFor(monitor, node, now, std::chrono::seconds(7));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(effects[0].kind, FailureEffect::Kind::kBecameSuspect);
  EXPECT_EQ(effects[1].kind, FailureEffect::Kind::kBecameDead);
}

TEST(FailureMonitor, ABeaconEndsSuspicionAndRefusalsButRaisesNoDead) {
  FailureMonitor monitor;
  const NodeId node(std::string(32, 'a'));
  MonotonicTime now(std::chrono::hours(1));
  monitor.Add(node, now);
  now += std::chrono::milliseconds(1600);
  const FailureEffects effects = monitor.Tick(now);
  ASSERT_EQ(effects.front().kind, FailureEffect::Kind::kBecameSuspect);
  ASSERT_EQ(monitor.BeaconReceived(node, now).front().kind, FailureEffect::Kind::kBecameAlive);
  monitor.HeartbeatFailed(node, HeartbeatFailure::kRefused, now);
  now += std::chrono::milliseconds(800);
  monitor.BeaconReceived(node, now);  // its agent runs: the refusal was of another matter
  monitor.HeartbeatFailed(node, HeartbeatFailure::kRefused, now);
  EXPECT_EQ(monitor.StateOf(node), v1::NODE_STATE_ALIVE);
  now += std::chrono::milliseconds(800);
  monitor.HeartbeatFailed(node, HeartbeatFailure::kRefused, now);
  ASSERT_EQ(monitor.StateOf(node), v1::NODE_STATE_DEAD);
  EXPECT_TRUE(monitor.BeaconReceived(node, now).empty());
  EXPECT_EQ(monitor.StateOf(node), v1::NODE_STATE_DEAD);
  monitor.HeartbeatReceived(node, now);
  EXPECT_EQ(monitor.StateOf(node), v1::NODE_STATE_ALIVE);
}

TEST(FailureMonitor, UnknownAndRemovedNodesAreIgnored) {
  Harness harness(2);
  EXPECT_TRUE(harness.monitor.HeartbeatReceived(Node(9), harness.now).empty());
  EXPECT_TRUE(
      harness.monitor.HeartbeatFailed(Node(9), HeartbeatFailure::kRefused, harness.now).empty());
  harness.monitor.Remove(Node(0));
  EXPECT_EQ(harness.monitor.StateOf(Node(0)), v1::NODE_STATE_UNSPECIFIED);
  harness.RunFor(std::chrono::seconds(5), {0});
  EXPECT_EQ(harness.Story(), "");
}

// Counts what loss looked like; whom the monitor wants to be asked.
std::vector<NodeId> Count(const FailureEffects& effects, int& deaths, int& suspicions) {
  std::vector<NodeId> probes;
  for (const FailureEffect& effect : effects) {
    if (effect.kind == Kind::kBecameDead) ++deaths;
    if (effect.kind == Kind::kBecameSuspect) ++suspicions;
    if (effect.kind == Kind::kProbe) probes.push_back(effect.node);
  }
  return probes;
}

// One node's monitor among peers that are all alive, with every datagram lost independently.
// Returns false deaths; `suspicions` counts how often loss looked like trouble.
int SimulateLoss(uint64_t seed, int peers, double loss, Duration span, int& suspicions) {
  std::mt19937_64 random(seed);
  const auto arrives = [&] { return std::generate_canonical<double, 53>(random) >= loss; };
  FailureMonitor monitor;
  MonotonicTime now = kStart;
  for (int i = 0; i < peers; ++i) monitor.Add(Node(i), now);
  int deaths = 0;
  const auto note = [&](const FailureEffects& effects) {
    return Count(effects, deaths, suspicions);
  };
  const auto round_trip = [&](const NodeId& node) {
    if (arrives() && arrives()) note(monitor.HeartbeatAnswered(node, now));
  };
  for (int64_t tick = 1; now < kStart + span; ++tick) {
    // The timer is up to 40 ms late each time.
    now = kStart + milliseconds(100) * tick + milliseconds(random() % 40);
    for (int i = 0; i < peers; ++i) {
      if ((tick + i) % 5 != 0) continue;
      round_trip(Node(i));
      if (arrives()) note(monitor.HeartbeatReceived(Node(i), now));
    }
    for (const NodeId& node : note(monitor.Tick(now))) round_trip(node);
  }
  return deaths;
}

TEST(FailureMonitorProperty, LossKillsNobody) {
  for (const double loss : {0.05, 0.20, 0.30}) {
    int suspicions = 0;
    int deaths = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      deaths += SimulateLoss(seed, 7, loss, std::chrono::hours(3), suspicions);
    }
    RecordProperty("suspicions", suspicions);
    std::cout << "84 peer-hours at " << loss * 100 << " % loss: " << suspicions << " suspicions, "
              << deaths << " false deaths\n";
    EXPECT_EQ(deaths, 0) << loss;
  }
}

// The same where members hear each other's beacons: each 500 ms, read up to 250 ms later. Who hears
// none for 875 ms asks for some, twice each tick. If `has_heartbeats` it exchanges heartbeats each
// 250 ms besides, and so does the other side; each direction of these is lost as a datagram is,
// though TCP sends what was lost anew. Without, they get through only each 10 s.
int SimulateLossOfBeacons(uint64_t seed, int peers, double loss, bool has_heartbeats, Duration span,
                          int& suspicions) {
  std::mt19937_64 random(seed);
  const auto arrives = [&] { return std::generate_canonical<double, 53>(random) >= loss; };
  FailureMonitor monitor;
  std::vector<MonotonicTime> heard(static_cast<size_t>(peers), kStart);
  std::vector<MonotonicTime> called(static_cast<size_t>(peers), kStart);
  std::vector<MonotonicTime> exchanged(static_cast<size_t>(peers), kStart);
  std::vector<int64_t> read(static_cast<size_t>(peers), 0);  // by tick
  int deaths = 0;
  MonotonicTime now = kStart;
  for (int i = 0; i < peers; ++i) monitor.Add(Node(i), now);
  const auto note = [&](const FailureEffects& effects) {
    return Count(effects, deaths, suspicions);
  };
  const auto hear_beacon = [&](int i) {
    note(monitor.BeaconReceived(Node(i), now));
    heard[static_cast<size_t>(i)] = now;
  };
  for (int64_t tick = 1; now < kStart + span; ++tick) {
    now = kStart + milliseconds(100) * tick + milliseconds(random() % 40);
    for (int i = 0; i < peers; ++i) {
      MonotonicTime& last_heard = heard[static_cast<size_t>(i)];
      MonotonicTime& last_called = called[static_cast<size_t>(i)];
      int64_t& read_at = read[static_cast<size_t>(i)];
      if ((tick + i) % 5 == 0 && arrives()) read_at = tick + static_cast<int64_t>(random() % 3);
      if (tick == read_at) hear_beacon(i);
      const bool is_silent = has_heartbeats && now - last_heard >= milliseconds(875);
      MonotonicTime& last_exchange = exchanged[static_cast<size_t>(i)];
      const bool is_due = is_silent || now - last_exchange >= milliseconds(10'000);
      if (!is_due || now - last_called < milliseconds(is_silent ? 250 : 500)) continue;
      last_called = now;
      const bool is_answered = !has_heartbeats || (arrives() && arrives());
      const bool is_called = is_silent && arrives();
      if (is_answered) note(monitor.HeartbeatAnswered(Node(i), now));
      if (is_called) note(monitor.HeartbeatReceived(Node(i), now));
      if (is_answered || is_called) last_exchange = now;
    }
    const FailureEffects effects = monitor.Tick(now);
    for (const NodeId& node : note(effects)) {
      if (has_heartbeats && arrives() && arrives()) note(monitor.HeartbeatAnswered(node, now));
    }
    for (const FailureEffect& effect : effects) {
      if (effect.kind != Kind::kAsk) continue;
      monitor.NoteAsked(effect.node, 2);
      const bool is_answered = (arrives() && arrives()) || (arrives() && arrives());
      for (int i = 0; i < peers; ++i) {
        if (is_answered && Node(i) == effect.node) hear_beacon(i);
      }
    }
  }
  return deaths;
}

TEST(FailureMonitorProperty, LossOfBeaconsKillsNobody) {
  for (const bool has_heartbeats : {true, false}) {
    for (const double loss : {0.05, 0.20, 0.30}) {
      int suspicions = 0;
      int deaths = 0;
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        deaths +=
            SimulateLossOfBeacons(seed, 7, loss, has_heartbeats, std::chrono::hours(3), suspicions);
      }
      std::cout << "84 peer-hours of beacons at " << loss * 100 << " % loss"
                << (has_heartbeats ? ": " : ", hardly a heartbeat: ") << suspicions
                << " suspicions, " << deaths << " false deaths\n";
      EXPECT_EQ(deaths, 0) << loss;
    }
  }
}

TEST(FailureMonitorProperty, TheDeadAreFoundWithinTheLimit) {
  Duration worst{0};
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const int peers = 2 + static_cast<int>(random() % 7);
    const int victim = static_cast<int>(random() % static_cast<uint64_t>(peers));
    const Duration dies_after = milliseconds(1000 + random() % 5000);
    FailureMonitor monitor;
    MonotonicTime now = kStart;
    for (int i = 0; i < peers; ++i) monitor.Add(Node(i), now);
    MonotonicTime last_sign = now;
    bool dead = false;
    for (int64_t tick = 1; !dead && tick < 400; ++tick) {
      now = kStart + milliseconds(100) * tick + milliseconds(random() % 30);
      for (int i = 0; i < peers; ++i) {
        const bool speaks = i != victim || now - kStart < dies_after;
        if (!speaks || random() % 5 == 0 || (tick + i) % 5 != 0) continue;
        monitor.HeartbeatReceived(Node(i), now);
        if (i == victim) last_sign = now;
      }
      for (const FailureEffect& effect : monitor.Tick(now)) {
        if (effect.kind != Kind::kBecameDead) continue;
        ASSERT_EQ(effect.node, Node(victim)) << "seed " << seed;
        worst = std::max(worst, now - last_sign);
        dead = true;
      }
    }
    ASSERT_TRUE(dead) << "seed " << seed;
  }
  std::cout << "slowest detection after the last sign of life: " << worst.count() / 1000 << " ms\n";
  EXPECT_LE(worst, milliseconds(6200));
}

}  // namespace
}  // namespace macrame::discovery
