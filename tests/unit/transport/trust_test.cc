#include "transport/trust.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/fresh_folder.h"
#include "transport/private_file.h"

namespace macrame::transport {
namespace {

const NodeId kNode("0123456789abcdef0123456789abcdef");

class TrustTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/made/cluster.secret";
  }

  std::string Text() const {
    std::ifstream file(path_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void Rewrite(const std::string& text) const {
    std::ofstream(path_, std::ios::trunc) << text;
    ::chmod(path_.c_str(), 0600);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(TrustTest, WhatIsWrittenIsReadBack) {
  const auto made = CreateClusterSecret("studio-2");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(WriteClusterSecret(*made, path_).ok());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto read = ReadClusterSecret(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cluster_id, made->cluster_id);
  EXPECT_EQ(read->cluster_name, "studio-2");
  EXPECT_EQ(read->beacon_key, made->beacon_key);
  EXPECT_EQ(read->authority_key_pem, made->authority_key_pem);
  EXPECT_EQ(*ClusterFingerprint(*read), *ClusterFingerprint(*made));
  EXPECT_EQ(ClusterFingerprint(*read)->size(), kClusterFingerprintBytes);
}

TEST_F(TrustTest, TwoClustersHaveNothingInCommon) {
  const auto one = CreateClusterSecret("home");
  const auto two = CreateClusterSecret("home");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->cluster_id, two->cluster_id);
  EXPECT_NE(one->beacon_key, two->beacon_key);
  EXPECT_NE(*ClusterFingerprint(*one), *ClusterFingerprint(*two));
}

TEST_F(TrustTest, AnExistingFileIsNeverOverwritten) {
  const auto secret = CreateClusterSecret("home");
  ASSERT_TRUE(WriteClusterSecret(*secret, path_).ok());
  const std::string before = Text();
  EXPECT_EQ(WriteClusterSecret(*CreateClusterSecret("other"), path_).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Text(), before);
}

TEST_F(TrustTest, AFileThatOthersMayReadIsRefusedWithTheRemedy) {
  ASSERT_TRUE(WriteClusterSecret(*CreateClusterSecret("home"), path_).ok());
  ::chmod(path_.c_str(), 0640);
  const auto read = ReadClusterSecret(path_);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(read.status().message().find("chmod 600 " + path_), absl::string_view::npos);
}

TEST_F(TrustTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadClusterSecret(path_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TrustTest, AFileCutAnywhereIsRefused) {
  ASSERT_TRUE(WriteClusterSecret(*CreateClusterSecret("home"), path_).ok());
  const std::string whole = Text();
  // The last two bytes are the closing brace and a line feed.
  for (size_t size = 0; size < whole.size() - 2; size += 7) {
    Rewrite(whole.substr(0, size));
    EXPECT_EQ(ReadClusterSecret(path_).status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST_F(TrustTest, CertificateAndKeyOfDifferentClustersAreRefused) {
  auto one = CreateClusterSecret("home");
  one->authority_key_pem = CreateClusterSecret("home")->authority_key_pem;
  ASSERT_TRUE(WriteClusterSecret(*one, path_).ok());
  const auto read = ReadClusterSecret(path_);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(read.status().message().find("belong together"), absl::string_view::npos);
}

TEST_F(TrustTest, AFolderOrHugeFileIsRefused) {
  std::filesystem::create_directories(path_);
  EXPECT_FALSE(ReadClusterSecret(path_).ok());
  std::filesystem::remove_all(path_);
  Rewrite(std::string(kPrivateFileBytesMax + 100, ' '));
  EXPECT_EQ(ReadClusterSecret(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

// What a node that joins with a token gets.
NodeMembership MembershipOf(const ClusterSecret& secret, const NodeId& node) {
  const CertificateRequest request = MakeCertificateRequest();
  NodeMembership membership;
  membership.cluster_id = secret.cluster_id;
  membership.cluster_name = secret.cluster_name;
  membership.beacon_key = secret.beacon_key;
  membership.node.node_id = node;
  membership.node.key_pem = request.key_pem;
  membership.node.certificate_pem = *SignCertificateRequest(secret, node, request.request_der);
  membership.node.authority_certificate_pem = secret.authority_certificate_pem;
  return membership;
}

TEST_F(TrustTest, AMembershipIsReadBackWithoutTheAuthoritysKey) {
  const ClusterSecret secret = *CreateClusterSecret("home");
  const NodeMembership made = MembershipOf(secret, kNode);
  ASSERT_TRUE(CheckNodeCredentials(made.node).ok());
  ASSERT_TRUE(WriteNodeMembership(made, path_).ok());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(Text().find("authority_key"), std::string::npos);
  const auto read = ReadNodeMembership(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cluster_id, secret.cluster_id);
  EXPECT_EQ(read->beacon_key, secret.beacon_key);
  EXPECT_EQ(read->node.node_id, kNode);
  EXPECT_EQ(read->node.key_pem, made.node.key_pem);
  // A renewed one takes its place.
  const NodeMembership renewed = MembershipOf(secret, kNode);
  ASSERT_TRUE(WriteNodeMembership(renewed, path_).ok());
  EXPECT_EQ(ReadNodeMembership(path_)->node.key_pem, renewed.node.key_pem);
  EXPECT_EQ(ReadClusterSecret(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TrustTest, AMembershipPutTogetherFromTwoIsRefused) {
  const ClusterSecret secret = *CreateClusterSecret("home");
  const NodeMembership whole = MembershipOf(secret, kNode);
  NodeMembership other_key = whole;
  other_key.node.key_pem = MembershipOf(secret, kNode).node.key_pem;
  NodeMembership other_name = whole;
  other_name.node.node_id = NodeId(std::string(32, 'f'));
  NodeMembership other_cluster = whole;
  other_cluster.node.authority_certificate_pem =
      CreateClusterSecret("home")->authority_certificate_pem;
  for (const NodeMembership& mixed : {other_key, other_name, other_cluster}) {
    ASSERT_TRUE(WriteNodeMembership(mixed, path_).ok());
    EXPECT_EQ(ReadNodeMembership(path_).status().code(), absl::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(WriteNodeMembership(whole, path_).ok());
  ::chmod(path_.c_str(), 0644);
  EXPECT_EQ(ReadNodeMembership(path_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(CertificateRequestTest, OnlyWholeRequestsAreSigned) {
  const ClusterSecret secret = *CreateClusterSecret("home");
  const std::string request = MakeCertificateRequest().request_der;
  EXPECT_TRUE(SignCertificateRequest(secret, kNode, request).ok());
  EXPECT_FALSE(SignCertificateRequest(secret, NodeId("short"), request).ok());
  EXPECT_FALSE(SignCertificateRequest(secret, kNode, "").ok());
  EXPECT_FALSE(SignCertificateRequest(secret, kNode, std::string(10'000, 'x')).ok());
  for (size_t at = 0; at < request.size(); at += 5) {
    std::string damaged = request;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_FALSE(SignCertificateRequest(secret, kNode, damaged).ok()) << at;
  }
}

TEST(CertificateDatesTest, ACertificateIsOfAWeekFromItsClock) {
  const ClusterSecret secret = *CreateClusterSecret("home", 1'700'000'000);
  const auto node = MakeNodeCredentials(secret, kNode, 1'763'900'000);
  const auto dates = DatesOf(node->certificate_pem);
  ASSERT_TRUE(dates.ok());
  EXPECT_EQ(dates->not_before_s, 1'763'900'000 - 2 * kSecondsPerDay);
  EXPECT_EQ(dates->not_after_s, 1'763'900'000 + 7 * kSecondsPerDay);
}

TEST(RevocationTest, OnlyTheAuthorityOfTheClusterRevokes) {
  const ClusterSecret secret = *CreateClusterSecret("home");
  const std::string signature = *SignRevocation(secret, kNode, 1234);
  const std::string& authority = secret.authority_certificate_pem;
  EXPECT_TRUE(IsRevocationSigned(authority, secret.cluster_id, kNode, 1234, signature));
  EXPECT_FALSE(IsRevocationSigned(authority, secret.cluster_id, kNode, 1235, signature));
  EXPECT_FALSE(IsRevocationSigned(authority, secret.cluster_id, NodeId(std::string(32, 'a')), 1234,
                                  signature));
  EXPECT_FALSE(IsRevocationSigned(authority, secret.cluster_id, kNode, 1234, ""));
  const ClusterSecret other = *CreateClusterSecret("home");
  EXPECT_FALSE(IsRevocationSigned(authority, secret.cluster_id, kNode, 1234,
                                  *SignRevocation(other, kNode, 1234)));
}

TEST(ClusterNameTest, NamesAreChecked) {
  EXPECT_TRUE(CreateClusterSecret("a.b_C-9").ok());
  for (const std::string name : {"", "two words", "naïve", "a/b"}) {
    EXPECT_EQ(CreateClusterSecret(name).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_FALSE(CreateClusterSecret(std::string(64, 'x')).ok());
}

TEST(TlsNameTest, NameAndIdAreEachOthersReverse) {
  EXPECT_EQ(NodeTlsName(kNode), "0123456789abcdef0123456789abcdef.macrame");
  EXPECT_EQ(NodeIdFromTlsName(NodeTlsName(kNode)), kNode);
  EXPECT_EQ(NodeIdFromTlsName("short.macrame"), NodeId());
  EXPECT_EQ(NodeIdFromTlsName("0123456789abcdef0123456789abcdef"), NodeId());
}

TEST(HexEncodeTest, BytesBecomeLowerCaseDigits) {
  EXPECT_EQ(HexEncode(std::string("\x00\xff\x1a", 3)), "00ff1a");
}

}  // namespace
}  // namespace macrame::transport
