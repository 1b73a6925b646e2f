// An agent that was started with --cluster-secret-file is the same member when it is started
// without.

#include "agentd/config/membership_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/fresh_folder.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

namespace fs = std::filesystem;

class MembershipRecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = DefaultConfig();
    config_.values.state_folder = folder_;
    config_.values.cluster_secret_file = folder_ + "/default/cluster.secret";
  }
  void Touch(const std::string& path) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << "x";
  }

  const std::string folder_ = FreshFolder();
  LoadedConfig config_;
};

TEST_F(MembershipRecordTest, AStartWithoutTheFlagTakesTheRecordedSecret) {
  const std::string secret = folder_ + "/given/home.secret";
  Touch(secret);
  ASSERT_TRUE(WriteMembershipRecord(folder_, {secret, "home"}).ok());
  RecallSecretFile(&config_);
  EXPECT_EQ(config_.values.cluster_secret_file, secret);
  EXPECT_EQ(config_.origins["cluster_secret_file"], folder_ + "/membership.json")
      << "--print-config says where it is from";
}

TEST_F(MembershipRecordTest, WhatIsNamedWins) {
  ASSERT_TRUE(WriteMembershipRecord(folder_, {folder_ + "/a.secret", "home"}).ok());
  config_.values.cluster_secret_file = folder_ + "/b.secret";
  config_.origins["cluster_secret_file"] = "flag --cluster-secret-file";
  RecallSecretFile(&config_);
  EXPECT_EQ(config_.values.cluster_secret_file, folder_ + "/b.secret");
}

TEST_F(MembershipRecordTest, ASecretThatIsGoneIsStillWhereTheNodeLooks) {
  ASSERT_TRUE(WriteMembershipRecord(folder_, {folder_ + "/gone.secret", "home"}).ok());
  RecallSecretFile(&config_);
  EXPECT_EQ(config_.values.cluster_secret_file, folder_ + "/gone.secret");
  EXPECT_EQ(ReadMembershipRecord(folder_)->cluster_name, "home");
}

TEST_F(MembershipRecordTest, AClusterThatWasMadeAnewAtTheDefaultPlaceIsTaken) {
  ASSERT_TRUE(WriteMembershipRecord(folder_, {folder_ + "/gone.secret", "home"}).ok());
  const std::string fresh = config_.values.cluster_secret_file;
  Touch(fresh);
  RecallSecretFile(&config_);
  EXPECT_EQ(config_.values.cluster_secret_file, fresh);
}

TEST_F(MembershipRecordTest, ARelativePlaceIsKeptWhole) {
  ASSERT_TRUE(WriteMembershipRecord(folder_, {"home.secret", "home"}).ok());
  EXPECT_EQ(ReadMembershipRecord(folder_)->secret_file,
            (fs::current_path() / "home.secret").string());
}

TEST_F(MembershipRecordTest, WithoutARecordTheDefaultStands) {
  const std::string before = config_.values.cluster_secret_file;
  RecallSecretFile(&config_);
  EXPECT_EQ(config_.values.cluster_secret_file, before);
  std::ofstream(MembershipRecordPath(folder_)) << "{\"cluster_secret_file\": 3}";
  EXPECT_FALSE(ReadMembershipRecord(folder_).has_value());
  EXPECT_TRUE(WriteMembershipRecord("", {"/a", "home"}).ok()) << "kept nowhere";
}

}  // namespace
}  // namespace macrame::agentd
