// A store that is written to and opened again at random holds what a plain map does.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/sqlite_state_store.h"
#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using Random = std::mt19937_64;

NodeId Id(char letter) { return NodeId(std::string(32, letter)); }

// What a node must not forget, in memory.
struct Remembered {
  NodeId node;
  uint64_t incarnation = 0;
  std::optional<GrantRecord> grant;
  std::string machine, revocations;
  std::map<std::string, std::string> entries;  // serialised, by key
};

class StoreAtRandom {
 public:
  StoreAtRandom(std::string folder, uint64_t seed) : folder_(std::move(folder)), random_(seed) {
    std::filesystem::remove_all(folder_);
    expected_.node = Id('f');
    Open();
  }
  ~StoreAtRandom() {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  StoreAtRandom(const StoreAtRandom&) = delete;
  StoreAtRandom& operator=(const StoreAtRandom&) = delete;

  void Step() {
    switch (random_() % 12) {
      case 0:
        return Open();
      case 1:
        return SaveGrant();
      case 2:
        expected_.machine = SomeBytes(40);
        ASSERT_TRUE(store_->SaveMachine(expected_.machine).ok());
        return;
      case 3:
        expected_.revocations = SomeBytes(2000);
        ASSERT_TRUE(store_->SaveRevocations(expected_.revocations).ok());
        return;
      case 4:
        if (random_() % 4 == 0) BecomeAnother();
        return;
      default:
        SaveChange();
    }
  }

  // Whatever was written is there at the next start, and nothing else.
  void Open() {
    store_.reset();
    auto opened = SqliteStateStore::Open(folder_, Id('f'));
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    ++expected_.incarnation;
    EXPECT_EQ(store_->node_id(), expected_.node);
    EXPECT_EQ(store_->incarnation(), Incarnation(expected_.incarnation));
    EXPECT_EQ(store_->loaded_grant(), expected_.grant);
    EXPECT_EQ(store_->last_machine(), expected_.machine);
    EXPECT_EQ(store_->loaded_revocations(), expected_.revocations);
    std::map<std::string, std::string> found;
    for (const v1::StateEntry& entry : store_->loaded_entries()) {
      EXPECT_TRUE(found.emplace(entry.key(), entry.SerializeAsString()).second) << entry.key();
    }
    EXPECT_EQ(found, expected_.entries);
    EXPECT_FALSE(store_->failure().has_value());
  }

 private:
  std::string SomeBytes(size_t most) {
    std::string bytes(random_() % (most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  void SaveGrant() {
    GrantRecord grant;
    grant.granted = {Term(random_() >> 2), Id("abc"[random_() % 3])};
    grant.lease = std::chrono::milliseconds(random_() % 60'000);
    grant.machine = SomeBytes(32);
    ASSERT_TRUE(store_->SaveGrant(grant).ok());
    expected_.grant = grant;
  }

  void SaveChange() {
    StateChange change;
    for (uint64_t n = random_() % 6; n > 0; --n) {
      v1::StateEntry entry;
      entry.set_key(absl::StrCat("it's \"key\" % _ ;--/", random_() % 12));
      entry.set_value(SomeBytes(random_() % 10 == 0 ? 200'000 : 300));
      entry.set_term(random_() % 100);
      entry.set_sequence(random_());
      entry.set_removed(random_() % 4 == 0);
      entry.add_history()->set_term(3);
      expected_.entries[entry.key()] = entry.SerializeAsString();
      change.put.push_back(std::move(entry));
    }
    for (uint64_t n = random_() % 3; n > 0; --n) {
      const std::string key = absl::StrCat("it's \"key\" % _ ;--/", random_() % 12);
      const bool is_put = std::any_of(change.put.begin(), change.put.end(),
                                      [&](const auto& entry) { return entry.key() == key; });
      if (is_put) continue;
      change.dropped.push_back(key);
      expected_.entries.erase(key);
    }
    ASSERT_TRUE(store_->SaveChange(change).ok());
  }

  // A copy that is to be a node of its own: from the next start on.
  void BecomeAnother() {
    const NodeId fresh = Id("bcde"[random_() % 4]);
    ASSERT_TRUE(store_->BecomeNewNode(fresh).ok());
    expected_.node = fresh;
    expected_.incarnation = 0;
    expected_.grant.reset();
    expected_.machine.clear();
    Open();
  }

  const std::string folder_;
  Random random_;
  std::unique_ptr<SqliteStateStore> store_;
  Remembered expected_;
};

TEST(StateStoreProperty, HoldsAtEachStartWhatWasWrittenBefore) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    StoreAtRandom store(FreshFolder() + "/new", seed);
    for (int step = 0; step < 60; ++step) store.Step();
    store.Open();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(StateStore, ADamagedFolderIsUnreadableEachTimeAndStaysAsItIs) {
  const std::string folder = FreshFolder() + "/new";
  ASSERT_TRUE(SqliteStateStore::Open(folder, Id('a')).ok());
  const std::string database = folder + "/state.db";
  std::ofstream(database, std::ios::trunc) << "this is no database";
  for (int start = 0; start < 3; ++start) {
    const auto opened = SqliteStateStore::Open(folder, Id('b'));
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(ReasonOf(opened.status()).code(), "STATE_UNREADABLE") << opened.status();
    EXPECT_NE(std::string(opened.status().message()).find(folder), std::string::npos)
        << "the folder is named: " << opened.status();
    std::ifstream file(database);
    std::string text;
    std::getline(file, text);
    EXPECT_EQ(text, "this is no database") << "somebody may want to save it";
  }
}

}  // namespace
}  // namespace macrame::agentd
