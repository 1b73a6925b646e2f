// What stands on disk is served only when every byte of it is right, whatever happened to it.

#include "runtime/serving/cold/cold_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>

#include "runtime/serving/cold/cold_worker.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/runtime/serving/cold/fake_cold_files.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::HasSubstr;

constexpr size_t kContent = 200;
constexpr int64_t kSecond = 1'000'000'000;

ColdLayout LayoutOf(uint8_t id) {
  ColdLayout layout;
  layout.id.fill(id);
  layout.content_bytes = kContent;
  return layout;
}

// Block `depth` of a conversation that begins with `first`.
ColdBlock BlockOf(int32_t first, uint32_t depth) {
  ColdBlock block;
  block.parent = RootName("");
  block.tokens.fill(first);
  for (; block.depth < depth; ++block.depth) {
    block.parent = NameOf(block);
    block.tokens.fill(first + static_cast<int32_t>(block.depth) + 1);
  }
  return block;
}

// What a rank would have computed for it.
std::vector<std::byte> ContentOf(const ColdBlock& block) {
  std::mt19937 random(static_cast<uint32_t>(NameOf(block)[0]) * 251 + NameOf(block)[1]);
  std::vector<std::byte> content(kContent);
  for (std::byte& byte : content) byte = static_cast<std::byte>(random());
  return content;
}

std::string TextOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ColdShelfTest : public ::testing::Test {
 protected:
  uint64_t FileBytes() const { return ColdFileBytes(LayoutOf(1)); }
  std::unique_ptr<ColdShelf> Open(uint64_t blocks_max = 1000, uint8_t layout = 1) {
    auto shelf =
        std::make_unique<ColdShelf>(files_, LayoutOf(layout), blocks_max * FileBytes(), "17");
    EXPECT_TRUE(shelf->Open(now_).ok());
    return shelf;
  }
  bool Store(ColdShelf& shelf, const ColdBlock& block) {
    now_ += kSecond;
    files_.now_ns = now_;
    return shelf.Store(block, ContentOf(block), now_);
  }
  // Served, and then right.
  bool Serves(ColdShelf& shelf, const ColdBlock& block) {
    now_ += kSecond;
    std::string content;
    if (!shelf.Load(block, now_, &content)) return false;
    EXPECT_EQ(content, TextOf(ContentOf(block)));
    return true;
  }

  FakeColdFiles files_;
  int64_t now_ = 1'700'000'000 * kSecond;
};

TEST_F(ColdShelfTest, WhatWasStoredIsThereAfterARestart) {
  for (uint32_t depth = 0; depth < 3; ++depth) EXPECT_TRUE(Store(*Open(), BlockOf(5, depth)));
  const auto shelf = Open();
  EXPECT_EQ(shelf->Names().size(), 3u);
  for (uint32_t depth = 0; depth < 3; ++depth) EXPECT_TRUE(Serves(*shelf, BlockOf(5, depth)));
  EXPECT_FALSE(Serves(*shelf, BlockOf(6, 0)));
  EXPECT_EQ(shelf->counts().loaded, 3u);
  EXPECT_EQ(shelf->counts().absent, 1u);
}

TEST_F(ColdShelfTest, AnyBitThatFlipsIsFoundAndTheFileGoes) {
  const ColdBlock block = BlockOf(5, 1);
  for (size_t at = 0; at < FileBytes(); ++at) {
    SCOPED_TRACE(at);
    const auto shelf = Open();
    ASSERT_TRUE(Store(*shelf, block));
    ASSERT_EQ(files_.files.size(), 1u);
    files_.files.begin()->second.bytes[at] ^= static_cast<char>(1 << at % 8);
    EXPECT_FALSE(Serves(*shelf, block));
    EXPECT_EQ(shelf->counts().broken, 1u);
    EXPECT_TRUE(files_.files.empty());
    EXPECT_EQ(shelf->TakeRemoved().size(), 1u) << "rank 0 hears of it";
  }
}

TEST_F(ColdShelfTest, AFileThatIsCutShortOrTooLongIsRemovedAtTheStart) {
  const ColdBlock block = BlockOf(5, 0);
  for (size_t size : {size_t{0}, size_t{1}, size_t{FileBytes() - 1}, size_t{FileBytes() + 1}}) {
    ASSERT_TRUE(Store(*Open(), block));
    files_.files.begin()->second.bytes.resize(size);
    const auto shelf = Open();
    EXPECT_EQ(shelf->counts().broken, 1u);
    EXPECT_TRUE(shelf->Names().empty());
    EXPECT_TRUE(files_.files.empty());
    EXPECT_FALSE(Serves(*shelf, block));
  }
  // And when it is cut later.
  const auto shelf = Open();
  ASSERT_TRUE(Store(*shelf, block));
  files_.files.begin()->second.bytes.resize(50);
  EXPECT_FALSE(Serves(*shelf, block));
  EXPECT_EQ(shelf->counts().broken, 1u);
}

// Somebody renames or copies files: the name says one thing, the content another.
TEST_F(ColdShelfTest, AnotherBlocksContentIsNotServed) {
  const auto shelf = Open();
  ASSERT_TRUE(Store(*shelf, BlockOf(5, 0)));
  const std::string path = files_.files.begin()->first;
  const FakeColdFiles::File mine = files_.files.begin()->second;
  ASSERT_TRUE(Store(*shelf, BlockOf(6, 0)));
  for (auto& [other, file] : files_.files) {
    if (other != path) file = mine;
  }
  EXPECT_FALSE(Serves(*shelf, BlockOf(6, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(5, 0)));
}

TEST_F(ColdShelfTest, AnotherModelsOrLayoutsBlocksAreNotServed) {
  ASSERT_TRUE(Store(*Open(), BlockOf(5, 0)));
  const auto other = Open(1000, 2);
  EXPECT_TRUE(other->Names().empty());
  EXPECT_FALSE(Serves(*other, BlockOf(5, 0)));
  // Moved into its folder by hand.
  const auto file = files_.files.extract(files_.files.begin());
  const std::string moved = ColdFolderName(LayoutOf(2)) + file.key().substr(file.key().find('/'));
  files_.files[moved] = file.mapped();
  const auto again = Open(1000, 2);
  EXPECT_FALSE(Serves(*again, BlockOf(5, 0)));
  EXPECT_EQ(again->counts().broken, 1u);
}

TEST_F(ColdShelfTest, ASaltsBlocksAreFoundUnderNoOther) {
  const auto shelf = Open();
  ColdBlock mine = BlockOf(5, 0);
  mine.parent = RootName("tenant-a");
  ASSERT_TRUE(Store(*shelf, mine));
  ColdBlock theirs = mine;
  theirs.parent = RootName("tenant-b");
  EXPECT_FALSE(Serves(*shelf, theirs));
  EXPECT_TRUE(Serves(*shelf, mine));
}

TEST_F(ColdShelfTest, WhatHasNoPlaceHereIsRemovedAndCounted) {
  const std::string folder = ColdFolderName(LayoutOf(1));
  files_.files["notes.txt"] = {"x", now_, false};
  files_.files["v0-00112233445566778899aabbccddeeff/" + ColdFileName(RootName("a"))] = {"old",
                                                                                        now_};
  files_.files[folder + "/readme"] = {"x", now_};
  files_.files[folder + "/" + ColdFileName(RootName("link"))] = {std::string(FileBytes(), 'x'),
                                                                 now_, false};
  files_.files[folder + "/" + ColdFileName(RootName("b")) + ".99.tmp"] = {
      "half", now_ - 2 * kColdTemporaryNs};
  const std::string busy = folder + "/" + ColdFileName(RootName("c")) + ".98.tmp";
  files_.files[busy] = {"half", now_};
  const auto shelf = Open();
  EXPECT_EQ(shelf->counts().broken, 5u);
  ASSERT_EQ(files_.files.size(), 1u) << "but another rank's half-written file";
  EXPECT_EQ(files_.files.begin()->first, busy);
}

TEST_F(ColdShelfTest, TheBoundHoldsAndTheOneUsedLongestAgoGivesWay) {
  auto shelf = Open(4);
  for (int32_t i = 0; i < 4; ++i) ASSERT_TRUE(Store(*shelf, BlockOf(i, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(0, 0)));
  ASSERT_TRUE(Store(*shelf, BlockOf(9, 0)));
  EXPECT_LE(files_.Used(), 4 * FileBytes());
  EXPECT_EQ(shelf->counts().evicted, 1u);
  EXPECT_FALSE(Serves(*shelf, BlockOf(1, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(0, 0)));
  // In the same order after a restart, with less room, and for another model.
  shelf = Open(3, 2);
  EXPECT_EQ(shelf->counts().evicted, 1u);
  ASSERT_TRUE(Store(*shelf, BlockOf(0, 0)));
  shelf = Open(3);
  EXPECT_FALSE(Serves(*shelf, BlockOf(2, 0)));
  EXPECT_FALSE(Serves(*shelf, BlockOf(3, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(9, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(0, 0)));
}

TEST_F(ColdShelfTest, AConversationsEndGivesWayBeforeItsBeginning) {
  auto shelf = Open(3);
  for (uint32_t depth = 0; depth < 3; ++depth) {
    files_.now_ns = now_;
    ASSERT_TRUE(shelf->Store(BlockOf(5, depth), ContentOf(BlockOf(5, depth)), now_));
  }
  ASSERT_TRUE(Store(*shelf, BlockOf(8, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(5, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(5, 1)));
  EXPECT_FALSE(Serves(*shelf, BlockOf(5, 2)));
}

TEST_F(ColdShelfTest, AFullDiskTurnsWritingOffAndSaysSo) {
  const auto shelf = Open();
  ASSERT_TRUE(Store(*shelf, BlockOf(1, 0)));
  files_.disk_bytes = files_.Used() + FileBytes() / 2;
  EXPECT_FALSE(Store(*shelf, BlockOf(2, 0)));
  EXPECT_THAT(shelf->off_reason(), HasSubstr("No space left"));
  EXPECT_EQ(files_.files.size(), 1u) << "nothing half-written is left";
  files_.disk_bytes = UINT64_MAX;
  EXPECT_FALSE(Store(*shelf, BlockOf(3, 0)));
  EXPECT_TRUE(Serves(*shelf, BlockOf(1, 0)));
}

// Several ranks share the folder: what one removes is a miss for the other, what one writes is
// counted by the other when it takes stock.
TEST_F(ColdShelfTest, TwoShelvesOnOneFolder) {
  const auto one = Open(8), other = Open(8);
  ASSERT_TRUE(Store(*one, BlockOf(1, 0)));
  EXPECT_TRUE(Serves(*other, BlockOf(1, 0)));
  one->Drop(NameOf(BlockOf(1, 0)));
  EXPECT_FALSE(Serves(*other, BlockOf(1, 0)));
  for (int32_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(Store(i % 2 == 0 ? *one : *other, BlockOf(100 + i, 0)));
    EXPECT_LE(files_.Used(), (8 + 3) * FileBytes()) << "an eighth for each";
  }
}

// Random work, a crash at every possible change, a restart: nothing wrong is ever served, what was
// whole is, and no half-written file outlives the next start by more than its time.
TEST_F(ColdShelfTest, ACrashBetweenAnyTwoChanges) {
  uint64_t served = 0, crashes = 0, broken = 0;
  for (int64_t crash_at = 1; crash_at < 160; ++crash_at) {
    SCOPED_TRACE(crash_at);
    files_ = FakeColdFiles();
    std::mt19937 random(static_cast<uint32_t>(crash_at) % 7);
    files_.changes_until_crash = crash_at;
    try {
      auto shelf = Open(6);
      for (int i = 0; i < 90; ++i) {
        const ColdBlock block = BlockOf(static_cast<int32_t>(random() % 5), random() % 3);
        if (random() % 3 == 0) {
          Serves(*shelf, block);
        } else {
          Store(*shelf, block);
        }
      }
    } catch (const FakeColdFiles::Crash&) {
      ++crashes;
    }
    files_.changes_until_crash = INT64_MAX;
    now_ += 2 * kColdTemporaryNs;
    auto shelf = Open(6);
    broken += shelf->counts().broken;
    EXPECT_LE(files_.Used(), 6 * FileBytes());
    for (const auto& [path, file] : files_.files) EXPECT_EQ(file.bytes.size(), FileBytes()) << path;
    for (int32_t first = 0; first < 5; ++first) {
      for (uint32_t depth = 0; depth < 3; ++depth) {
        served += Serves(*shelf, BlockOf(first, depth)) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(crashes, 100u);
  EXPECT_GT(broken, 30u) << "crashes that left something";
  EXPECT_GT(served, 300u);
}

constexpr int64_t kHour = 3600 * kSecond;

TEST_F(ColdShelfTest, WhatNobodyUsedForTooLongGoesWhenStockIsTaken) {
  ASSERT_TRUE(Store(*Open(), BlockOf(1, 0)));
  ASSERT_TRUE(Store(*Open(1000, 2), BlockOf(1, 0)));
  ColdShelf shelf(files_, LayoutOf(1), 1000 * FileBytes(), "17", 2 * kHour);
  now_ += kHour;
  ASSERT_TRUE(shelf.Open(now_).ok());
  EXPECT_EQ(shelf.counts().expired, 0u);
  EXPECT_TRUE(Serves(shelf, BlockOf(1, 0)));
  now_ += kHour;
  ASSERT_TRUE(shelf.Open(now_).ok());
  EXPECT_EQ(shelf.counts().expired, 1u) << "another model's, too";
  EXPECT_EQ(shelf.Names().size(), 1u) << "it was used an hour ago";
  EXPECT_EQ(files_.files.size(), 1u);
  EXPECT_TRUE(shelf.TakeRemoved().empty()) << "the other was none of this layout";
  now_ += kHour;
  ASSERT_TRUE(shelf.Open(now_).ok());
  EXPECT_EQ(shelf.counts().expired, 2u);
  EXPECT_TRUE(files_.files.empty());
  EXPECT_EQ(shelf.TakeRemoved().size(), 1u) << "rank 0 hears of it";
  EXPECT_FALSE(Serves(shelf, BlockOf(1, 0)));
}

// Another rank of the node used it meanwhile, which the file's own time says.
TEST_F(ColdShelfTest, AFileThatAnotherShelfUsesIsNotTooOld) {
  ColdShelf one(files_, LayoutOf(1), 1000 * FileBytes(), "17", 2 * kHour);
  ASSERT_TRUE(one.Open(now_).ok());
  ASSERT_TRUE(Store(one, BlockOf(1, 0)));
  const auto other = Open();
  now_ += kHour;
  EXPECT_TRUE(Serves(*other, BlockOf(1, 0)));
  now_ += kHour + kHour / 2;
  ASSERT_TRUE(one.Open(now_).ok());
  EXPECT_EQ(one.counts().expired, 0u);
  now_ += kHour;
  ASSERT_TRUE(one.Open(now_).ok());
  EXPECT_EQ(one.counts().expired, 1u);
}

TEST_F(ColdShelfTest, WithoutAnAgeAnyIsGood) {
  ASSERT_TRUE(Store(*Open(), BlockOf(1, 0)));
  now_ += 100'000 * kHour;
  EXPECT_TRUE(Serves(*Open(), BlockOf(1, 0)));
}

// On a real disk, by a thread that has nothing else to do.
TEST(ColdWorkerTest, AnIdleWorkerRemovesWhatIsTooOld) {
  const std::string folder = FreshFolder();
  std::mutex mutex;
  std::condition_variable told;
  std::map<ColdEvent::Kind, size_t> heard;
  ColdWorker::Options options;
  options.folder = folder + "/kv";
  options.layout = LayoutOf(1);
  options.bytes_max = 1 << 20;
  options.age_max = std::chrono::milliseconds(300);
  options.stock_pause = std::chrono::milliseconds(20);
  {
    ColdWorker worker(options, [&](const ColdEvent& event) {
      const std::lock_guard lock(mutex);
      heard[event.kind] += event.names.size();
      told.notify_all();
    });
    worker.Store(BlockOf(1, 0), ContentOf(BlockOf(1, 0)));
    std::unique_lock lock(mutex);
    const bool removed = told.wait_for(lock, std::chrono::seconds(20),
                                       [&] { return heard[ColdEvent::Kind::kRemoved] == 1; });
    EXPECT_TRUE(removed);
    EXPECT_EQ(heard[ColdEvent::Kind::kStored], 1u);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace macrame::runtime::engine
