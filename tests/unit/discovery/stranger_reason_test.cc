#include "discovery/stranger_reason.h"

#include <gtest/gtest.h>

namespace macrame::discovery {
namespace {

std::optional<v1::Stranger> Of(BeaconVerdict verdict, const std::string& theirs,
                               const std::string& ours) {
  DecodedBeacon decoded;
  decoded.verdict = verdict;
  decoded.beacon.set_node_id("000000000000000000000000000000bb");
  decoded.beacon.set_hostname("weaver-2");
  decoded.beacon.set_cluster_name(theirs);
  return StrangerOf(decoded, "10.1.2.3", ours, 99);
}

TEST(StrangerReason, EachKindSaysWhatWouldAdmitIt) {
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
           Case{BeaconVerdict::kOtherCluster, "silk", "", "OTHER_CLUSTER", "to this machine"},
           Case{BeaconVerdict::kNoSecret, "", "loom", "NO_SECRET", "secret file to it"},
           Case{BeaconVerdict::kNoSecret, "", "", "NO_SECRET", "cluster init"},
           Case{BeaconVerdict::kBadSignature, "loom", "loom", "BAD_SIGNATURE", "secret file"},
       }) {
    const auto stranger = Of(c.verdict, c.theirs, c.ours);
    ASSERT_TRUE(stranger.has_value());
    EXPECT_EQ(stranger->reason().code(), c.code);
    EXPECT_NE(stranger->reason().remedy().find(c.remedy_has), std::string::npos)
        << stranger->reason().remedy();
    EXPECT_NE(stranger->reason().message().find("weaver-2 at 10.1.2.3"), std::string::npos);
    EXPECT_EQ(stranger->last_heard_unix_ms(), 99u);
  }
  EXPECT_FALSE(Of(BeaconVerdict::kMember, "loom", "loom").has_value());
  EXPECT_FALSE(Of(BeaconVerdict::kMalformed, "", "loom").has_value());
}

}  // namespace
}  // namespace macrame::discovery
