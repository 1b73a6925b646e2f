#include "transport/trust.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace macrame::transport {
namespace {

const NodeId kNode("0123456789abcdef0123456789abcdef");

class TrustTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "trust_test_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/made/cluster.secret";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

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
  Rewrite(std::string(kSecretFileBytesMax + 100, ' '));
  EXPECT_EQ(ReadClusterSecret(path_).status().code(), absl::StatusCode::kInvalidArgument);
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
