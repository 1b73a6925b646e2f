#include "agentd/cores/sqlite_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;

const NodeId kFresh(std::string(32, 'a'));

class SqliteStateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = FreshFolder() + "/new"; }

  std::unique_ptr<SqliteStateStore> Open() {
    auto store = SqliteStateStore::Open(folder_, kFresh);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void ExpectUnreadable(const std::string& what) {
    const auto store = SqliteStateStore::Open(folder_, kFresh);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(ReasonOf(store.status()).code(), "STATE_UNREADABLE");
    EXPECT_THAT(std::string(store.status().message()), HasSubstr(what));
  }
  void Fill() {
    auto store = Open();
    StateChange change;
    for (int i = 0; i < 200; ++i) {
      v1::StateEntry entry;
      entry.set_key("deployment/number_" + std::to_string(i));
      entry.set_value(std::string(100, 'x'));
      entry.set_term(1);
      entry.set_sequence(i + 1);
      entry.set_coordinator_id(kFresh.value());
      change.put.push_back(entry);
    }
    ASSERT_TRUE(store->SaveChange(change).ok());
  }
  std::string Database() const { return folder_ + "/state.db"; }

  std::string folder_;
};

TEST_F(SqliteStateStoreTest, KeepsEverythingAndRaisesTheIncarnation) {
  const GrantRecord grant{{Term(7), NodeId(std::string(32, 'b'))},
                          std::chrono::milliseconds(2000),
                          std::string("\x01\x02", 2)};
  v1::StateEntry entry;
  entry.set_key("deployment/x");
  entry.set_value(std::string("\0binary", 7));
  {
    auto store = Open();
    EXPECT_EQ(store->node_id(), kFresh);
    EXPECT_EQ(store->incarnation(), Incarnation(1));
    EXPECT_FALSE(store->loaded_grant().has_value());
    ASSERT_TRUE(store->SaveGrant(grant).ok());
    ASSERT_TRUE(store->SaveChange({{entry}, {}}).ok());
  }
  auto again = SqliteStateStore::Open(folder_, NodeId(std::string(32, 'c')));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->node_id(), kFresh) << "a fresh id is for fresh folders";
  EXPECT_EQ((*again)->incarnation(), Incarnation(2));
  EXPECT_EQ((*again)->loaded_grant(), grant);
  ASSERT_EQ((*again)->loaded_entries().size(), 1u);
  EXPECT_EQ((*again)->loaded_entries()[0].SerializeAsString(), entry.SerializeAsString());
  ASSERT_TRUE((*again)->SaveChange({{}, {"deployment/x"}}).ok());
  again->reset();
  EXPECT_TRUE(Open()->loaded_entries().empty());
}

TEST_F(SqliteStateStoreTest, IsReadableByItsOwnerOnly) {
  auto store = Open();
  struct stat info;
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat(Database().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SqliteStateStoreTest, ASecondAgentIsToldWhoHoldsTheFolder) {
  auto first = Open();
  const auto second = SqliteStateStore::Open(folder_, kFresh);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(::getpid())));
  first.reset();
  EXPECT_TRUE(SqliteStateStore::Open(folder_, kFresh).ok());
}

TEST_F(SqliteStateStoreTest, AMissingDatabaseIsNotReplaced) {
  Fill();
  std::filesystem::remove(Database());
  ExpectUnreadable("gone");
  EXPECT_FALSE(std::filesystem::exists(Database()));
}

TEST_F(SqliteStateStoreTest, AnEmptyDatabaseIsNotReplaced) {
  Fill();
  std::ofstream(Database(), std::ios::trunc);
  ExpectUnreadable("empty");
}

TEST_F(SqliteStateStoreTest, ATruncatedDatabaseIsRefused) {
  Fill();
  std::filesystem::resize_file(Database(), std::filesystem::file_size(Database()) / 2);
  ExpectUnreadable("");
}

TEST_F(SqliteStateStoreTest, GarbageIsRefused) {
  Fill();
  std::ofstream(Database(), std::ios::trunc) << std::string(8192, 'z');
  ExpectUnreadable("");
}

TEST_F(SqliteStateStoreTest, EveryFlippedByteIsFoundOrHarmless) {
  Fill();
  std::ifstream in(Database(), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  int refused = 0;
  for (size_t at = 0; at < good.size(); at += 499) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    std::ofstream(Database(), std::ios::binary | std::ios::trunc) << bad;
    const auto store = SqliteStateStore::Open(folder_, kFresh);
    if (!store.ok()) {
      ++refused;
      EXPECT_EQ(ReasonOf(store.status()).code(), "STATE_UNREADABLE");
      continue;
    }
    EXPECT_EQ((*store)->node_id(), kFresh) << "byte " << at;
    EXPECT_EQ((*store)->loaded_entries().size(), 200u) << "byte " << at;
    for (const auto& entry : (*store)->loaded_entries())
      EXPECT_EQ(entry.value(), std::string(100, 'x'));
  }
  EXPECT_GT(refused, 10);
}

TEST_F(SqliteStateStoreTest, AHalfMadeFolderIsMadeWhole) {
  std::filesystem::create_directories(folder_);
  std::ofstream(Database(), std::ios::trunc);
  EXPECT_EQ(Open()->incarnation(), Incarnation(1));
}

TEST_F(SqliteStateStoreTest, AFileInPlaceOfTheFolderIsAnError) {
  std::ofstream(folder_) << "x";
  const auto store = SqliteStateStore::Open(folder_, kFresh);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SqliteStateStoreTest, AFreshStoreNeedsAValidId) {
  EXPECT_FALSE(SqliteStateStore::Open(folder_, NodeId("short")).ok());
  EXPECT_EQ(Open()->node_id(), kFresh) << "nothing was left behind that hinders";
}

TEST_F(SqliteStateStoreTest, KeepsTheMachineAndForgetsItWithTheIdentity) {
  const NodeId fresh(std::string(32, 'd'));
  v1::StateEntry entry;
  entry.set_key("deployment/x");
  {
    auto store = Open();
    EXPECT_EQ(store->last_machine(), "");
    ASSERT_TRUE(store->SaveMachine(std::string("\0machine", 8)).ok());
    ASSERT_TRUE(store->SaveChange({{entry}, {}}).ok());
    ASSERT_TRUE(store->SaveGrant({{Term(7), kFresh}, std::chrono::milliseconds(2000)}).ok());
  }
  {
    auto store = Open();
    EXPECT_EQ(store->last_machine(), std::string("\0machine", 8));
    EXPECT_FALSE(store->BecomeNewNode(NodeId("short")).ok());
    ASSERT_TRUE(store->BecomeNewNode(fresh).ok());
  }
  auto store = Open();
  EXPECT_EQ(store->node_id(), fresh);
  EXPECT_EQ(store->incarnation(), Incarnation(1));
  EXPECT_EQ(store->last_machine(), "");
  EXPECT_FALSE(store->loaded_grant().has_value()) << "the promise is the other node's";
  EXPECT_EQ(store->loaded_entries().size(), 1u);
}

}  // namespace
}  // namespace macrame::agentd
