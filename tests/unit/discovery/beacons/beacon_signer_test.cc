#include "discovery/beacons/beacon_signer.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace macrame::discovery {
namespace {

// RFC 4231, test case 2.
TEST(BeaconSigner, MakesTheStandardsTags) {
  BeaconSigner signer("Jefe");
  const std::string expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  // Again and again under the same key.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(absl::BytesToHexString(signer.Tag("what do ya want for nothing?")), expected);
    EXPECT_NE(absl::BytesToHexString(signer.Tag("what do ya want for something?")), expected);
  }
}

TEST(BeaconSigner, TakesNoTagOfAnotherKeyOrLength) {
  BeaconSigner signer(std::string(32, 'a'));
  BeaconSigner other(std::string(32, 'b'));
  const std::string tag = signer.Tag("beacon");
  EXPECT_TRUE(signer.TagFits("beacon", tag));
  EXPECT_FALSE(other.TagFits("beacon", tag));
  EXPECT_FALSE(signer.TagFits("beacon", tag.substr(1)));
  EXPECT_FALSE(signer.TagFits("beacons", tag));
}

// A key of zero bytes only is a key too: it finds damage in beacons of nodes without a cluster.
TEST(BeaconSigner, AnEmptyLookingKeySigns) {
  BeaconSigner signer(std::string(32, '\0'));
  EXPECT_TRUE(signer.TagFits("", signer.Tag("")));
  EXPECT_FALSE(signer.TagFits("x", signer.Tag("")));
}

}  // namespace
}  // namespace macrame::discovery
