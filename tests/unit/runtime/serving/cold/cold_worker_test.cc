// The cold tier's files on a real disk, and the thread that reads and writes them.

#include "runtime/serving/cold/cold_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "runtime/serving/cold/cold_files.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::runtime::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr size_t kContent = 96;

class TempFolder {
 public:
  TempFolder() { path = FreshFolder(); }
  ~TempFolder() { fs::remove_all(path); }

  fs::path path;
};

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
mode_t ModeOf(const fs::path& path) {
  struct stat found {};
  EXPECT_EQ(stat(path.c_str(), &found), 0);
  return found.st_mode & 0777;
}

class ColdFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenColdFiles(root_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    files_ = *std::move(opened);
    ASSERT_TRUE(files_->MakeFolder("v1-a").ok());
  }
  std::vector<std::string> Paths() {
    std::vector<std::string> paths;
    const auto entries = files_->List();
    EXPECT_TRUE(entries.ok()) << entries.status();
    for (const ColdFiles::Entry& entry : *entries) {
      paths.push_back((entry.is_file ? "" : "no file: ") + entry.path);
    }
    return paths;
  }

  TempFolder temp_;
  const fs::path root_ = temp_.path / "kv";
  std::unique_ptr<ColdFiles> files_;
};

TEST_F(ColdFilesTest, NobodyElseMayReadWhatIsKept) {
  ASSERT_TRUE(files_->Write("v1-a/x.kv", "abc").ok());
  EXPECT_EQ(ModeOf(root_), 0700u);
  EXPECT_EQ(ModeOf(root_ / "v1-a"), 0700u);
  EXPECT_EQ(ModeOf(root_ / "v1-a" / "x.kv"), 0600u);
  // A folder that others could read is closed when it is opened.
  chmod(root_.c_str(), 0755);
  EXPECT_TRUE(OpenColdFiles(root_).ok());
  EXPECT_EQ(ModeOf(root_), 0700u);
}

TEST_F(ColdFilesTest, FoldersThatOthersMayChangeAreRefused) {
  const fs::path open = temp_.path / "open";
  fs::create_directory(open);
  chmod(open.c_str(), 0770);
  fs::create_directory_symlink(root_, temp_.path / "link");
  WriteFile(temp_.path / "file", "");
  for (const char* name : {"open", "link", "file"}) {
    const absl::Status status = OpenColdFiles(temp_.path / name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr((temp_.path / name).string()));
  }
  const absl::Status missing = OpenColdFiles(temp_.path / "no" / "such").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
}

TEST_F(ColdFilesTest, WhatWasWrittenIsReadUpToTheBytesAskedFor) {
  const std::string bytes("a\0b\nc", 5);
  ASSERT_TRUE(files_->Write("v1-a/x.tmp", bytes).ok());
  ASSERT_TRUE(files_->Rename("v1-a/x.tmp", "v1-a/x.kv").ok());
  EXPECT_EQ(*files_->Read("v1-a/x.kv", 100), bytes);
  EXPECT_EQ(*files_->Read("v1-a/x.kv", 2), bytes.substr(0, 2));
  EXPECT_EQ(*files_->Read("v1-a/x.kv", 0), "");
  ASSERT_TRUE(files_->Write("v1-a/x.kv", "z").ok());
  EXPECT_EQ(*files_->Read("v1-a/x.kv", 100), "z") << "nothing of the old content behind it";
  for (const char* path : {"v1-a/x.tmp", "v1-b/x.kv"}) {
    const absl::Status status = files_->Read(path, 9).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_FALSE(files_->Write("v1-b/x.kv", "").ok());
  EXPECT_FALSE(files_->Rename("v1-a/none", "v1-a/x.kv").ok());
}

TEST_F(ColdFilesTest, AListHasAllThatLiesThereTwoLevelsDeep) {
  ASSERT_TRUE(files_->Write("v1-a/x.kv", "abc").ok());
  WriteFile(root_ / "stray", "");
  fs::create_directories(root_ / "v1-a" / "deep" / "deeper");
  fs::create_symlink("/etc/passwd", root_ / "v1-a" / "link.kv");
  EXPECT_THAT(Paths(), UnorderedElementsAre("v1-a/x.kv", "no file: stray", "no file: v1-a/deep",
                                            "no file: v1-a/link.kv"));
}

// A link in the folder may lead anywhere: it is neither read nor written through, and removing it
// leaves what it led to.
TEST_F(ColdFilesTest, LinksAreNotFollowed) {
  const fs::path outside = temp_.path / "outside";
  fs::create_directory(outside);
  WriteFile(outside / "secret", "secret");
  fs::create_symlink(outside / "secret", root_ / "v1-a" / "link.kv");
  fs::create_directory_symlink(outside, root_ / "v1-link");
  EXPECT_FALSE(files_->Read("v1-a/link.kv", 100).ok());
  EXPECT_FALSE(files_->Write("v1-a/link.kv", "x").ok());
  EXPECT_FALSE(files_->Read("v1-link/secret", 100).ok());
  EXPECT_FALSE(files_->Write("v1-link/new", "x").ok());
  EXPECT_TRUE(files_->Remove("v1-a/link.kv").ok());
  EXPECT_TRUE(files_->Remove("v1-link").ok());
  EXPECT_FALSE(fs::exists(fs::symlink_status(root_ / "v1-link")));
  EXPECT_EQ(ReadFile(outside / "secret"), "secret");
  EXPECT_FALSE(fs::exists(outside / "new"));
}

TEST_F(ColdFilesTest, APipeDoesNotHoldTheReaderUp) {
  ASSERT_EQ(mkfifo((root_ / "v1-a" / "pipe.kv").c_str(), 0600), 0);
  EXPECT_EQ(files_->Read("v1-a/pipe.kv", 10).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ColdFilesTest, RemovingTakesFilesLinksAndEmptyFolders) {
  ASSERT_TRUE(files_->Write("v1-a/x.kv", "abc").ok());
  EXPECT_FALSE(files_->Remove("v1-a").ok()) << "something lies in it";
  EXPECT_TRUE(files_->Remove("v1-a/x.kv").ok());
  EXPECT_TRUE(files_->Remove("v1-a/x.kv").ok()) << "it is gone already";
  EXPECT_TRUE(files_->Remove("v1-none/x.kv").ok()) << "and so is this";
  EXPECT_TRUE(files_->Remove("v1-a").ok());
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(ColdFilesTest, TheTimeOfUseIsTheFilesOwn) {
  ASSERT_TRUE(files_->Write("v1-a/x.kv", "abc").ok());
  const int64_t used_ns = 1'600'000'000'123'456'000;
  ASSERT_TRUE(files_->SetUsed("v1-a/x.kv", used_ns).ok());
  const auto entries = files_->List();
  ASSERT_THAT(*entries, SizeIs(1));
  // Some file systems keep no more than microseconds, or seconds.
  EXPECT_NEAR(static_cast<double>((*entries)[0].used_ns - used_ns), 0.0, 1e9);
  EXPECT_EQ((*entries)[0].bytes, 3u);
  EXPECT_FALSE(files_->SetUsed("v1-a/none", used_ns).ok());
}

TEST(ColdBlockTest, NamesOfFilesAndFoldersAreReadStrictly) {
  ColdLayout layout;
  for (size_t i = 0; i < layout.id.size(); ++i) layout.id[i] = static_cast<uint8_t>(7 * i + 1);
  const std::string folder = ColdFolderName(layout);
  EXPECT_TRUE(IsColdFolderName(folder)) << folder;
  const std::string file = ColdFileName(layout.id);
  EXPECT_EQ(ParseColdFileName(file), layout.id) << file;
  for (const size_t at : {size_t{0}, size_t{3}, file.size() - 1}) {
    std::string shorter = file, other = file;
    shorter.erase(at, 1);
    other[at] = 'G';
    EXPECT_EQ(ParseColdFileName(shorter), std::nullopt) << shorter;
    EXPECT_EQ(ParseColdFileName(other), std::nullopt) << other;
    EXPECT_EQ(ParseColdFileName(file + "x"), std::nullopt);
  }
  for (const std::string& name :
       {std::string(), std::string("v1-"), folder + "0", "v2" + folder.substr(2),
        folder.substr(0, folder.size() - 1) + "A", folder.substr(0, folder.size() - 1) + "/"}) {
    EXPECT_FALSE(IsColdFolderName(name)) << name;
  }
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

std::vector<std::byte> ContentOf(const ColdBlock& block, size_t bytes = kContent) {
  std::vector<std::byte> content(bytes);
  for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(block.tokens[0] + 3 * i);
  return content;
}

std::string TextOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ColdLoad LoadOf(uint64_t id, int32_t first, uint32_t begin, uint32_t blocks) {
  ColdLoad load;
  load.id = id;
  load.parent = BlockOf(first, begin).parent;
  load.depth = begin;
  for (uint32_t i = 0; i < blocks; ++i) {
    const BlockTokens tokens = BlockOf(first, begin + i).tokens;
    load.tokens.insert(load.tokens.end(), tokens.begin(), tokens.end());
  }
  return load;
}

// A worker over a folder, and what it told.
class WorkerRun {
 public:
  explicit WorkerRun(const fs::path& folder, uint64_t bytes_max = 1 << 20,
                     size_t content = kContent)
      : worker(OptionsOf(folder, bytes_max, content), [this](ColdEvent event) {
          const std::lock_guard lock(mutex_);
          told_.push_back(std::move(event));
          changed_.notify_all();
        }) {}

  // The first event of this kind that was not taken yet; a failure when none comes.
  ColdEvent Take(ColdEvent::Kind kind) {
    std::unique_lock lock(mutex_);
    const auto find = [&] {
      return std::find_if(told_.begin(), told_.end(),
                          [kind](const ColdEvent& event) { return event.kind == kind; });
    };
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return find() != told_.end(); });
    EXPECT_TRUE(came) << "kind " << static_cast<int>(kind);
    if (!came) return {};
    const auto found = find();
    ColdEvent event = std::move(*found);
    told_.erase(found);
    EXPECT_EQ(event.rank, 3u);
    return event;
  }
  // Once everything before was done and counted.
  ColdCounts Counts() {
    worker.Load(LoadOf(1'000'000, 0, 0, 0));
    Take(ColdEvent::Kind::kLoaded);
    worker.TakeLoaded(1'000'000);
    return worker.counts();
  }
  void Store(int32_t first, uint32_t depth) {
    worker.Store(BlockOf(first, depth), ContentOf(BlockOf(first, depth)));
  }

 private:
  static ColdWorker::Options OptionsOf(const fs::path& folder, uint64_t bytes_max, size_t content) {
    ColdWorker::Options options;
    options.folder = folder;
    options.layout.id.fill(1);
    options.layout.content_bytes = content;
    options.bytes_max = bytes_max;
    options.rank = 3;
    return options;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ColdEvent> told_;

 public:
  ColdWorker worker;  // ends before what it tells
};

class ColdWorkerRunTest : public ::testing::Test {
 protected:
  TempFolder temp_;
  const fs::path root_ = temp_.path / "kv";
};

TEST_F(ColdWorkerRunTest, WhatOneRunStoredTheNextOneListsAndLoads) {
  {
    WorkerRun run(root_);
    EXPECT_THAT(run.Take(ColdEvent::Kind::kListed).names, IsEmpty());
    for (uint32_t depth = 0; depth < 3; ++depth) {
      run.Store(5, depth);
      EXPECT_THAT(run.Take(ColdEvent::Kind::kStored).names, ElementsAre(NameOf(BlockOf(5, depth))));
    }
    EXPECT_EQ(run.Counts().stored, 3u);
  }
  WorkerRun run(root_);
  EXPECT_THAT(
      run.Take(ColdEvent::Kind::kListed).names,
      UnorderedElementsAre(NameOf(BlockOf(5, 0)), NameOf(BlockOf(5, 1)), NameOf(BlockOf(5, 2))));
  run.worker.Load(LoadOf(11, 5, 1, 2));
  const ColdEvent loaded = run.Take(ColdEvent::Kind::kLoaded);
  EXPECT_EQ(loaded.id, 11u);
  EXPECT_EQ(loaded.blocks, 2u);
  const auto contents = run.worker.TakeLoaded(11);
  ASSERT_TRUE(contents.has_value());
  EXPECT_THAT(*contents,
              ElementsAre(TextOf(ContentOf(BlockOf(5, 1))), TextOf(ContentOf(BlockOf(5, 2)))));
  EXPECT_FALSE(run.worker.TakeLoaded(11).has_value()) << "it was taken";
  EXPECT_FALSE(run.worker.TakeLoaded(12).has_value());
}

TEST_F(ColdWorkerRunTest, ALoadEndsBeforeTheFirstBlockThatIsNotThere) {
  WorkerRun run(root_);
  for (const uint32_t depth : {0u, 1u, 3u}) run.Store(5, depth);
  for (int i = 0; i < 3; ++i) run.Take(ColdEvent::Kind::kStored);
  run.worker.Load(LoadOf(1, 5, 0, 4));
  EXPECT_EQ(run.Take(ColdEvent::Kind::kLoaded).blocks, 2u);
  EXPECT_THAT(*run.worker.TakeLoaded(1), SizeIs(2));
  run.worker.Load(LoadOf(2, 9, 0, 2));
  EXPECT_EQ(run.Take(ColdEvent::Kind::kLoaded).blocks, 0u) << "of another conversation nothing";
  EXPECT_THAT(*run.worker.TakeLoaded(2), IsEmpty());
  EXPECT_EQ(run.Counts().absent, 2u);
}

TEST_F(ColdWorkerRunTest, AFileThatChangedIsRemovedAndTold) {
  WorkerRun run(root_);
  for (const uint32_t depth : {0u, 1u}) run.Store(5, depth);
  for (int i = 0; i < 2; ++i) run.Take(ColdEvent::Kind::kStored);
  fs::path changed;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (entry.path().filename() == ColdFileName(NameOf(BlockOf(5, 1)))) changed = entry.path();
  }
  ASSERT_FALSE(changed.empty());
  std::string bytes = ReadFile(changed);
  bytes[bytes.size() / 2] ^= 1;
  WriteFile(changed, bytes);
  run.worker.Load(LoadOf(1, 5, 0, 2));
  EXPECT_THAT(run.Take(ColdEvent::Kind::kRemoved).names, ElementsAre(NameOf(BlockOf(5, 1))));
  EXPECT_EQ(run.Take(ColdEvent::Kind::kLoaded).blocks, 1u);
  EXPECT_FALSE(fs::exists(changed));
  EXPECT_EQ(run.Counts().broken, 1u);
}

TEST_F(ColdWorkerRunTest, WhatIsDroppedIsGoneAndWhatWasTouchedStaysLonger) {
  ColdLayout layout;
  layout.content_bytes = kContent;
  WorkerRun run(root_, 3 * ColdFileBytes(layout));
  for (const int32_t first : {1, 2, 3}) run.Store(first, 0);
  run.worker.Touch({NameOf(BlockOf(1, 0))});
  run.Store(4, 0);
  EXPECT_THAT(run.Take(ColdEvent::Kind::kRemoved).names, ElementsAre(NameOf(BlockOf(2, 0))))
      << "the one used longest ago";
  run.worker.Drop({NameOf(BlockOf(1, 0))});
  run.Store(5, 0);
  for (int i = 0; i < 5; ++i) run.Take(ColdEvent::Kind::kStored);  // loads come before the rest
  run.worker.Load(LoadOf(1, 1, 0, 1));
  EXPECT_EQ(run.Take(ColdEvent::Kind::kLoaded).blocks, 0u);
  run.worker.Load(LoadOf(2, 3, 0, 1));
  EXPECT_EQ(run.Take(ColdEvent::Kind::kLoaded).blocks, 1u);
}

// A folder that can't be used turns the tier off, with the reason; who asks is answered at once.
TEST_F(ColdWorkerRunTest, WithoutAUsableFolderItSaysWhyAndAnswersLoads) {
  WriteFile(root_, "a file");
  WorkerRun run(root_);
  const ColdEvent off = run.Take(ColdEvent::Kind::kOff);
  EXPECT_THAT(off.text, HasSubstr(root_.string()));
  EXPECT_EQ(run.worker.off_reason(), off.text);
  run.Store(5, 0);
  run.worker.Drop({NameOf(BlockOf(5, 0))});
  run.worker.Load(LoadOf(7, 5, 0, 1));
  const ColdEvent loaded = run.Take(ColdEvent::Kind::kLoaded);
  EXPECT_EQ(loaded.id, 7u);
  EXPECT_EQ(loaded.blocks, 0u);
  EXPECT_EQ(ReadFile(root_), "a file");
}

TEST_F(ColdWorkerRunTest, ABlockBeyondTheWholeBoundIsRefused) {
  WorkerRun run(root_, 10);
  run.Store(5, 0);
  EXPECT_THAT(run.Take(ColdEvent::Kind::kRefused).names, ElementsAre(NameOf(BlockOf(5, 0))));
  run.worker.Load(LoadOf(1, 5, 0, 1));
  EXPECT_EQ(run.Take(ColdEvent::Kind::kLoaded).blocks, 0u);
  EXPECT_EQ(run.worker.off_reason(), "");
}

// More than may wait is refused at once; each block is told of exactly once.
TEST_F(ColdWorkerRunTest, WhatHasNoPlaceInTheQueueIsRefusedAtOnce) {
  constexpr size_t kLarge = kColdQueuedBytesMax / 2 + 1;
  WorkerRun run(root_, 1, kLarge);  // nothing of it is kept on the disk
  constexpr int32_t kBlocks = 6;
  std::vector<BlockName> names;
  for (int32_t first = 0; first < kBlocks; ++first) {
    names.push_back(NameOf(BlockOf(first, 0)));
    run.worker.Store(BlockOf(first, 0), std::vector<std::byte>(kLarge));
  }
  std::vector<BlockName> refused;
  for (int32_t i = 0; i < kBlocks; ++i) {
    const ColdEvent event = run.Take(ColdEvent::Kind::kRefused);
    refused.insert(refused.end(), event.names.begin(), event.names.end());
  }
  EXPECT_THAT(refused, ::testing::UnorderedElementsAreArray(names));
  EXPECT_LT(run.worker.refused(), static_cast<uint64_t>(kBlocks)) << "the first one had its place";
}

}  // namespace
}  // namespace macrame::runtime::engine
