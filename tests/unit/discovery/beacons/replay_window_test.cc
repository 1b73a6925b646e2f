// What a receiver takes of many nodes' beacons in any order, against a memory of all that came.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "discovery/base/incarnation_bound.h"
#include "discovery/beacons/beacon_codec.h"

namespace macrame::discovery {
namespace {

const NodeId kReceiver("000000000000000000000000000000bb");

BeaconTrust Trust() { return {"loom", std::string(8, 'k'), std::string(32, 'k')}; }

NodeId Node(uint32_t number) { return NodeId(absl::StrFormat("%032x", number + 1000)); }

BeaconCodec Sender(const NodeId& node, uint64_t incarnation, const std::string& machine) {
  return BeaconCodec({node, Incarnation(incarnation), 7777, machine}, Trust());
}

// Everything that a node on a machine ever sent, by incarnation and sequence.
class Memory {
 public:
  bool IsNew(uint64_t incarnation, uint64_t sequence) {
    if (incarnation < incarnation_) return false;
    if (incarnation > incarnation_) {
      incarnation_ = incarnation;
      taken_.clear();
    }
    const uint64_t highest = taken_.empty() ? 0 : *taken_.rbegin();
    if (sequence + kReplayWindow <= highest) return false;
    return taken_.insert(sequence).second;
  }

 private:
  uint64_t incarnation_ = 0;
  std::set<uint64_t> taken_;
};

struct Frame {
  uint32_t node = 0, machine = 0;
  uint64_t incarnation = 0, sequence = 0;
  std::string bytes;
};

std::string MachineName(uint32_t machine) {
  return std::string(kBeaconMachineBytes, static_cast<char>('a' + machine));
}

// Some hundred beacons of nodes that run on two machines each and restart now and then.
std::vector<Frame> SomeFrames(std::mt19937& random) {
  std::vector<Frame> frames;
  for (uint32_t node = 0; node < 3; ++node) {
    for (uint32_t machine = 0; machine < 2; ++machine) {
      for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
        BeaconCodec sender = Sender(Node(node), incarnation, MachineName(machine));
        const uint64_t count = 1 + random() % 400;
        for (uint64_t sequence = 1; sequence <= count; ++sequence) {
          frames.push_back({node, machine, incarnation, sequence, sender.Encode(v1::Beacon())});
        }
      }
    }
  }
  return frames;
}

// Delivered mostly in order, some late by up to `late`, some twice.
std::vector<Frame> Delivered(const std::vector<Frame>& sent, size_t late, std::mt19937& random) {
  std::vector<std::pair<size_t, const Frame*>> order;
  for (size_t i = 0; i < sent.size(); ++i) {
    for (uint32_t copies = 1 + random() % 2; copies > 0; --copies) {
      order.emplace_back(i + random() % late, &sent[i]);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Frame> delivered;
  for (const auto& [at, frame] : order) delivered.push_back(*frame);
  return delivered;
}

TEST(ReplayWindow, TakesWhatIsNewOnceAndNothingElse) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    BeaconCodec receiver({kReceiver, Incarnation(1), 1}, Trust());
    std::map<std::pair<uint32_t, uint32_t>, Memory> memories;
    const size_t late = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 50 : 2000;
    for (const Frame& frame : Delivered(SomeFrames(random), late, random)) {
      const bool is_new =
          memories[{frame.node, frame.machine}].IsNew(frame.incarnation, frame.sequence);
      const BeaconVerdict verdict = receiver.Decode(frame.bytes).verdict;
      ASSERT_EQ(verdict, is_new ? BeaconVerdict::kMember : BeaconVerdict::kReplayed)
          << frame.node << "/" << frame.machine << " " << frame.incarnation << ":"
          << frame.sequence;
    }
  }
}

TEST(ReplayWindow, WhatNobodySignedMovesNoWindow) {
  std::mt19937 random(9);
  BeaconCodec receiver({kReceiver, Incarnation(1), 1}, Trust());
  BeaconCodec member = Sender(Node(1), 5, MachineName(0));
  BeaconTrust forged = Trust();
  forged.key = std::string(32, 'x');
  for (int round = 0; round < 200; ++round) {
    // Somebody without the key claims to be this node, in a later life and far ahead.
    BeaconCodec forger({Node(1), Incarnation(6 + random() % 1000), 7777, MachineName(0)}, forged);
    EXPECT_EQ(receiver.Decode(forger.Encode(v1::Beacon())).verdict, BeaconVerdict::kBadSignature);
    BeaconCodec elsewhere({Node(1), Incarnation(900), 7777, MachineName(0)},
                          BeaconTrust{"other", std::string(8, 'o'), std::string(32, 'k')});
    EXPECT_EQ(receiver.Decode(elsewhere.Encode(v1::Beacon())).verdict,
              BeaconVerdict::kOtherCluster);
    EXPECT_EQ(receiver.Decode(member.Encode(v1::Beacon())).verdict, BeaconVerdict::kMember);
  }
}

TEST(ReplayWindow, TheLargestIncarnationIsTakenAndOneMoreIsNot) {
  BeaconCodec receiver({kReceiver, Incarnation(1), 1}, Trust());
  BeaconCodec largest = Sender(Node(1), kIncarnationMax, MachineName(0));
  BeaconCodec larger = Sender(Node(2), kIncarnationMax + 1, MachineName(0));
  EXPECT_EQ(receiver.Decode(largest.Encode(v1::Beacon())).verdict, BeaconVerdict::kMember);
  EXPECT_EQ(receiver.Decode(larger.Encode(v1::Beacon())).verdict, BeaconVerdict::kMalformed);
}

// With more nodes than are remembered, those that were heard lately are.
TEST(ReplayWindow, TheNodeThatWasSilentLongestIsForgottenFirst) {
  BeaconCodec receiver({kReceiver, Incarnation(1), 1}, Trust());
  std::vector<std::string> firsts;
  for (uint32_t node = 0; node < kReplayNodesMax; ++node) {
    firsts.push_back(Sender(Node(node), 1, "").Encode(v1::Beacon()));
    ASSERT_EQ(receiver.Decode(firsts.back()).verdict, BeaconVerdict::kMember);
  }
  // The first is heard again, then one more comes: the second has to go.
  EXPECT_EQ(receiver.Decode(firsts[0]).verdict, BeaconVerdict::kReplayed);
  EXPECT_EQ(receiver.Decode(Sender(Node(kReplayNodesMax), 1, "").Encode(v1::Beacon())).verdict,
            BeaconVerdict::kMember);
  EXPECT_EQ(receiver.Decode(firsts[0]).verdict, BeaconVerdict::kReplayed);
  EXPECT_EQ(receiver.Decode(firsts[2]).verdict, BeaconVerdict::kReplayed);
  EXPECT_EQ(receiver.Decode(firsts[1]).verdict, BeaconVerdict::kMember);
}

TEST(BeaconFrames, AsManyHeardNodesAsFitAndTheCallerIsToldHowMany) {
  BeaconCodec sender({Node(1), Incarnation(kIncarnationMax), 65535, MachineName(0)},
                     BeaconTrust{std::string(kBeaconClusterNameBytesMax, 'n'), std::string(8, 'k'),
                                 std::string(32, 'k')});
  BeaconCodec receiver({kReceiver, Incarnation(1), 1},
                       BeaconTrust{std::string(kBeaconClusterNameBytesMax, 'n'),
                                   std::string(8, 'k'), std::string(32, 'k')});
  for (const uint32_t heard : {0u, 1u, 5u, 100u}) {
    v1::Beacon beacon;
    beacon.set_hostname(std::string(300, 'h'));
    beacon.set_agent_version(std::string(300, 'v'));
    beacon.set_sent_unix_ms(~uint64_t{0});
    beacon.set_news(~uint64_t{0});
    for (uint32_t i = 0; i < heard; ++i) beacon.add_heard_node_ids(Node(i).value());
    const std::string frame = sender.Encode(beacon);
    EXPECT_LE(frame.size(), kBeaconBytesMax);
    EXPECT_LE(sender.last_heard_count(), heard);
    EXPECT_EQ(sender.last_heard_count() == 0, heard == 0);
    const DecodedBeacon got = receiver.Decode(frame);
    ASSERT_EQ(got.verdict, BeaconVerdict::kMember);
    ASSERT_EQ(static_cast<size_t>(got.beacon.heard_node_ids_size()), sender.last_heard_count());
    for (int i = 0; i < got.beacon.heard_node_ids_size(); ++i) {
      EXPECT_EQ(got.beacon.heard_node_ids(i), Node(static_cast<uint32_t>(i)).value());
    }
    // One more id would not have fitted.
    if (sender.last_heard_count() < heard) {
      EXPECT_GT(frame.size() + 36, kBeaconBytesMax);
    }
  }
}

}  // namespace
}  // namespace macrame::discovery
