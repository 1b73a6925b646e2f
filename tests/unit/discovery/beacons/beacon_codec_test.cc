#include "discovery/beacons/beacon_codec.h"

#include <gtest/gtest.h>

#include <random>

#include "discovery/base/plain_text.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

const NodeId kA("000000000000000000000000000000aa");
const NodeId kB("000000000000000000000000000000bb");

BeaconTrust Trust(const std::string& name = "loom", char seed = 'k') {
  return {name, std::string(8, seed), std::string(32, seed)};
}

BeaconCodec Codec(const NodeId& node, std::optional<BeaconTrust> trust = Trust(),
                  uint64_t incarnation = 5) {
  return BeaconCodec({node, Incarnation(incarnation), 7777}, std::move(trust));
}

v1::Beacon Payload() {
  v1::Beacon beacon;
  beacon.set_hostname("weaver-1");
  beacon.set_agent_version("0.1.0");
  beacon.set_sent_unix_ms(1'795'000'000'000);
  beacon.set_reply_wanted(true);
  return beacon;
}

TEST(BeaconCodec, MemberIsUnderstood) {
  BeaconCodec a = Codec(kA);
  BeaconCodec b = Codec(kB);
  const DecodedBeacon got = b.Decode(a.Encode(Payload()));
  ASSERT_EQ(got.verdict, BeaconVerdict::kMember);
  EXPECT_EQ(got.beacon.node_id(), kA.value());
  EXPECT_EQ(got.beacon.incarnation(), 5u);
  EXPECT_EQ(got.beacon.control_port(), 7777u);
  EXPECT_EQ(got.beacon.hostname(), "weaver-1");
  EXPECT_EQ(got.beacon.cluster_name(), "loom");
  EXPECT_TRUE(got.beacon.reply_wanted());
  EXPECT_EQ(b.Count(BeaconVerdict::kMember), 1u);
}

TEST(BeaconCodec, OthersAreToldApart) {
  BeaconCodec b = Codec(kB);
  EXPECT_EQ(b.Decode(Codec(kA, Trust("other", 'o')).Encode(Payload())).verdict,
            BeaconVerdict::kOtherCluster);
  EXPECT_EQ(b.Decode(Codec(kA, Trust("loom", 'o')).Encode(Payload())).verdict,
            BeaconVerdict::kOtherCluster);
  EXPECT_EQ(b.Decode(Codec(kA, std::nullopt).Encode(Payload())).verdict, BeaconVerdict::kNoSecret);
  BeaconTrust forged = Trust();
  forged.key = std::string(32, 'x');
  EXPECT_EQ(b.Decode(Codec(kA, forged).Encode(Payload())).verdict, BeaconVerdict::kBadSignature);
  EXPECT_EQ(b.Decode(b.Encode(Payload())).verdict, BeaconVerdict::kOwn);
  std::string newer = Codec(kA).Encode(Payload());
  newer[4] = 2;
  EXPECT_EQ(b.Decode(newer).verdict, BeaconVerdict::kOtherVersion);
}

TEST(BeaconCodec, WithoutSecretOthersAreNamed) {
  BeaconCodec b = Codec(kB, std::nullopt);
  const DecodedBeacon cluster = b.Decode(Codec(kA).Encode(Payload()));
  EXPECT_EQ(cluster.verdict, BeaconVerdict::kOtherCluster);
  EXPECT_EQ(cluster.beacon.cluster_name(), "loom");
  EXPECT_EQ(b.Decode(Codec(kA, std::nullopt).Encode(Payload())).verdict, BeaconVerdict::kNoSecret);
  EXPECT_EQ(b.Decode(b.Encode(Payload())).verdict, BeaconVerdict::kOwn);
}

TEST(BeaconCodec, OwnIdFromElsewhereIsAClash) {
  BeaconCodec b = Codec(kB);
  // A copied state folder: another port, a later incarnation, or a sequence that we never reached.
  BeaconCodec other_port({kB, Incarnation(5), 7778}, Trust());
  EXPECT_EQ(b.Decode(other_port.Encode(Payload())).verdict, BeaconVerdict::kIdClash);
  EXPECT_EQ(b.Decode(Codec(kB, Trust(), 6).Encode(Payload())).verdict, BeaconVerdict::kIdClash);
  EXPECT_EQ(b.Decode(Codec(kB).Encode(Payload())).verdict, BeaconVerdict::kIdClash);
  // An echo of the incarnation before is no clash.
  EXPECT_EQ(b.Decode(Codec(kB, Trust(), 4).Encode(Payload())).verdict, BeaconVerdict::kOwn);
}

TEST(BeaconCodec, ReplaysAreRefused) {
  BeaconCodec a = Codec(kA);
  BeaconCodec b = Codec(kB);
  std::vector<std::string> frames;
  for (int i = 0; i < 600; ++i) frames.push_back(a.Encode(Payload()));
  EXPECT_EQ(b.Decode(frames[0]).verdict, BeaconVerdict::kMember);
  EXPECT_EQ(b.Decode(frames[0]).verdict, BeaconVerdict::kReplayed);
  // Out of order within the window, each once.
  EXPECT_EQ(b.Decode(frames[200]).verdict, BeaconVerdict::kMember);
  EXPECT_EQ(b.Decode(frames[100]).verdict, BeaconVerdict::kMember);
  EXPECT_EQ(b.Decode(frames[100]).verdict, BeaconVerdict::kReplayed);
  EXPECT_EQ(b.Decode(frames[200]).verdict, BeaconVerdict::kReplayed);
  // Far ahead: what falls out of the window is old news even if it was never seen.
  EXPECT_EQ(b.Decode(frames[599]).verdict, BeaconVerdict::kMember);
  EXPECT_EQ(b.Decode(frames[343]).verdict, BeaconVerdict::kReplayed);
  EXPECT_EQ(b.Decode(frames[344]).verdict, BeaconVerdict::kMember);
  // A restart begins anew, and the former incarnation is over.
  BeaconCodec restarted = Codec(kA, Trust(), 6);
  EXPECT_EQ(b.Decode(restarted.Encode(Payload())).verdict, BeaconVerdict::kMember);
  EXPECT_EQ(b.Decode(a.Encode(Payload())).verdict, BeaconVerdict::kReplayed);
}

TEST(BeaconCodec, EveryDeliveryOfManyIsTakenExactlyOnce) {
  BeaconCodec a = Codec(kA);
  BeaconCodec b = Codec(kB);
  std::mt19937_64 random(11);
  std::vector<std::string> frames;
  for (int i = 0; i < 2000; ++i) {
    const std::string frame = a.Encode(Payload());
    frames.push_back(frame);
    frames.push_back(frame);
  }
  // Shuffled within blocks smaller than the window.
  for (size_t i = 0; i < frames.size(); i += 200) {
    std::shuffle(frames.begin() + static_cast<long>(i), frames.begin() + static_cast<long>(i) + 200,
                 random);
  }
  for (const std::string& frame : frames) b.Decode(frame);
  EXPECT_EQ(b.Count(BeaconVerdict::kMember), 2000u);
  EXPECT_EQ(b.Count(BeaconVerdict::kReplayed), 2000u);
}

TEST(BeaconCodec, ManyNodesDoNotGrowTheWindowsWithoutBound) {
  BeaconCodec b = Codec(kB);
  for (int i = 0; i < 1000; ++i) {
    char id[33];
    snprintf(id, sizeof(id), "%032x", i + 1000);
    EXPECT_EQ(b.Decode(Codec(NodeId(id)).Encode(Payload())).verdict, BeaconVerdict::kMember);
  }
}

TEST(BeaconCodec, FramesNeverExceedTheLimit) {
  BeaconCodec a = Codec(kA, Trust(std::string(64, 'n')));
  v1::Beacon beacon = Payload();
  beacon.set_hostname(std::string(300, 'h'));
  beacon.set_agent_version(std::string(300, 'v'));
  for (int i = 0; i < 64; ++i) beacon.add_heard_node_ids(kB.value());
  const std::string frame = a.Encode(beacon);
  EXPECT_LE(frame.size(), kBeaconBytesMax);
  EXPECT_GT(a.last_heard_count(), 0u);
  EXPECT_LT(a.last_heard_count(), 64u);
  EXPECT_EQ(Codec(kB, Trust(std::string(64, 'n'))).Decode(frame).verdict, BeaconVerdict::kMember);
}

TEST(BeaconCodec, NamesWithControlCharactersAreMadeHarmlessOrRefused) {
  BeaconCodec a = Codec(kA);
  v1::Beacon beacon = Payload();
  beacon.set_hostname("evil\x1b[2Jname\xff");
  const DecodedBeacon got = Codec(kB).Decode(a.Encode(beacon));
  EXPECT_EQ(got.verdict, BeaconVerdict::kMember);
  EXPECT_EQ(got.beacon.hostname(), "evil?[2Jname?");
}

TEST(BeaconCodec, EveryTruncationAndEveryFlippedBitIsRefused) {
  BeaconCodec a = Codec(kA);
  const std::string frame = a.Encode(Payload());
  BeaconCodec b = Codec(kB);
  for (size_t n = 0; n < frame.size(); ++n) {
    EXPECT_EQ(b.Decode(frame.substr(0, n)).verdict, BeaconVerdict::kMalformed) << n;
  }
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::string damaged = frame;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const BeaconVerdict verdict = b.Decode(damaged).verdict;
    EXPECT_NE(verdict, BeaconVerdict::kMember) << bit;
    EXPECT_NE(verdict, BeaconVerdict::kReplayed) << bit;
    EXPECT_NE(verdict, BeaconVerdict::kOwn) << bit;
  }
  EXPECT_EQ(b.Decode(frame).verdict, BeaconVerdict::kMember);
}

TEST(BeaconCodec, HostileBytesNeverPass) {
  BeaconCodec a = Codec(kA);
  BeaconCodec b = Codec(kB);
  std::mt19937_64 random(20261120);
  const std::string frame = a.Encode(Payload());
  const std::string keyless = Codec(kA, std::nullopt).Encode(Payload());
  for (int i = 0; i < 200'000; ++i) {
    const std::string& from = i % 2 == 0 ? frame : keyless;
    const std::string damaged = tests::Mutate(from, random);
    if (damaged == from) continue;
    const DecodedBeacon got = b.Decode(damaged);
    ASSERT_NE(got.verdict, BeaconVerdict::kMember) << "round " << i;
    ASSERT_NE(got.verdict, BeaconVerdict::kOwn) << "round " << i;
    ASSERT_TRUE(IsPlainText(got.beacon.hostname())) << "round " << i;
  }
  for (int i = 0; i < 50'000; ++i) {
    std::string noise(random() % 700, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    if (i % 2 == 0 && noise.size() > 8) noise.replace(0, 5, std::string("MCRM\x01", 5));
    ASSERT_NE(b.Decode(noise).verdict, BeaconVerdict::kMember);
  }
  EXPECT_EQ(b.Decode(frame).verdict, BeaconVerdict::kMember);
}

TEST(BeaconCodec, TrustCanBeChangedButNotSpoilt) {
  BeaconCodec b = Codec(kB, std::nullopt);
  BeaconTrust short_key = Trust();
  short_key.key.pop_back();
  EXPECT_FALSE(b.SetTrust(short_key).ok());
  EXPECT_FALSE(b.has_trust());
  EXPECT_TRUE(b.SetTrust(Trust()).ok());
  EXPECT_EQ(b.Decode(Codec(kA).Encode(Payload())).verdict, BeaconVerdict::kMember);
}

BeaconCodec CodecOn(char machine, const NodeId& node, uint64_t incarnation) {
  return BeaconCodec({node, Incarnation(incarnation), 7777, std::string(8, machine)}, Trust());
}

TEST(BeaconCodec, ACopysBeaconsDoNotMuteThoseOfTheNode) {
  BeaconCodec receiver = Codec(kB);
  BeaconCodec node = CodecOn('m', kA, 5), copy = CodecOn('x', kA, 6);
  EXPECT_EQ(receiver.Decode(node.Encode(Payload())).verdict, BeaconVerdict::kMember);
  const DecodedBeacon of_copy = receiver.Decode(copy.Encode(Payload()));
  EXPECT_EQ(of_copy.verdict, BeaconVerdict::kMember);
  EXPECT_EQ(of_copy.beacon.machine(), std::string(8, 'x'));
  EXPECT_EQ(receiver.Decode(node.Encode(Payload())).verdict, BeaconVerdict::kMember);
  // Each hears of the other, though port and incarnation could be its own earlier ones.
  EXPECT_EQ(copy.Decode(node.Encode(Payload())).verdict, BeaconVerdict::kIdClash);
  EXPECT_EQ(node.Decode(copy.Encode(Payload())).verdict, BeaconVerdict::kIdClash);
}

TEST(BeaconCodec, AnIncarnationThatNoNodeReachesMutesNobody) {
  BeaconCodec receiver = Codec(kB);
  BeaconCodec liar = Codec(kA, Trust(), ~uint64_t{0});
  EXPECT_EQ(receiver.Decode(liar.Encode(Payload())).verdict, BeaconVerdict::kMalformed);
  EXPECT_EQ(receiver.Decode(Codec(kA).Encode(Payload())).verdict, BeaconVerdict::kMember);
}

}  // namespace
}  // namespace macrame::discovery
