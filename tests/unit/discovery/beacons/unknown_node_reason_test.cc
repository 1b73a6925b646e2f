#include "discovery/beacons/unknown_node_reason.h"

#include <gtest/gtest.h>

namespace macrame::discovery {
namespace {

std::optional<v1::UnknownNode> Of(BeaconVerdict verdict, const std::string& theirs,
                                  const std::string& ours) {
  DecodedBeacon decoded;
  decoded.verdict = verdict;
  decoded.beacon.set_node_id("000000000000000000000000000000bb");
  decoded.beacon.set_hostname("weaver-2");
  decoded.beacon.set_cluster_name(theirs);
  return UnknownNodeOf(decoded, "10.1.2.3", ours, 99);
}

TEST(UnknownNodeReason, EachKindSaysWhatWouldAdmitIt) {
  struct Case {
    BeaconVerdict verdict;
    const char* theirs;
    const char* ours;
    const char* code;
    const char* remedy_has;
  };
  for (const Case& c : {
           Case{BeaconVerdict::kOtherCluster, "silk", "loom", "OTHER_CLUSTER", "secret file"},
           Case{BeaconVerdict::kOtherCluster, "loom", "loom", "OTHER_CLUSTER", "secret file"},
           Case{BeaconVerdict::kOtherCluster, "silk", "", "OTHER_CLUSTER", "cluster join"},
           Case{BeaconVerdict::kNoSecret, "", "loom", "NO_SECRET", "secret file to it"},
           Case{BeaconVerdict::kNoSecret, "", "", "NO_SECRET", "cluster init"},
           Case{BeaconVerdict::kBadSignature, "loom", "loom", "BAD_SIGNATURE", "secret file"},
       }) {
    const auto unknown_node = Of(c.verdict, c.theirs, c.ours);
    ASSERT_TRUE(unknown_node.has_value());
    EXPECT_EQ(unknown_node->reason().code(), c.code);
    EXPECT_NE(unknown_node->reason().remedy().find(c.remedy_has), std::string::npos)
        << unknown_node->reason().remedy();
    EXPECT_NE(unknown_node->reason().message().find("weaver-2 at 10.1.2.3"), std::string::npos);
    EXPECT_EQ(unknown_node->last_heard_unix_ms(), 99u);
  }
  EXPECT_FALSE(Of(BeaconVerdict::kMember, "loom", "loom").has_value());
  EXPECT_FALSE(Of(BeaconVerdict::kMalformed, "", "loom").has_value());
}

}  // namespace
}  // namespace macrame::discovery
