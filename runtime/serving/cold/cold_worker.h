#pragma once

// The thread that reads and writes one rank's files of the cold tier (ColdShelf), so that no step
// waits for a disk. The engine thread hands it copies of blocks and takes what it has read; both
// queues are bounded, and what has no place is refused and counted. With an age, stock is taken
// every so often, also while there is nothing to do, so that what is too old goes.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/serving/cold/cold_block.h"
#include "runtime/serving/cold/cold_event.h"
#include "runtime/serving/cold/cold_shelf.h"

namespace macrame::runtime::engine {

// Copies of blocks that wait to be written; a larger block goes alone.
inline constexpr size_t kColdQueuedBytesMax = size_t{64} << 20;
// Between two looks for files that are too old.
inline constexpr std::chrono::minutes kColdStockPause{5};

class ColdWorker {
 public:
  struct Options {
    std::string folder;
    ColdLayout layout;
    uint64_t bytes_max = 0;
    uint32_t rank = 0;
    std::chrono::nanoseconds age_max{0};  // ColdShelf's; 0: any
    std::chrono::nanoseconds stock_pause = kColdStockPause;
  };
  // `tell` is called on the worker's thread, for what is refused at once on the engine's.
  ColdWorker(Options options, std::function<void(ColdEvent)> tell);
  // What waits to be written is left out.
  ~ColdWorker();
  ColdWorker(const ColdWorker&) = delete;
  ColdWorker& operator=(const ColdWorker&) = delete;

  const ColdLayout& layout() const { return options_.layout; }

  // Engine thread.
  void Store(const ColdBlock& block, std::vector<std::byte> content);
  void Load(const ColdLoad& load);
  // The contents that were read for a load, which is forgotten; nothing when it is not known.
  std::optional<std::vector<std::string>> TakeLoaded(uint64_t id);
  void Drop(std::vector<BlockName> names);
  void Touch(std::vector<BlockName> names);

  // Any thread.
  ColdCounts counts() const;
  uint64_t refused() const { return refused_; }
  std::string off_reason() const;

 private:
  struct Job {
    enum class Kind : uint8_t { kStore, kLoad, kDrop, kTouch } kind;
    ColdBlock block{};
    std::vector<std::byte> content{};
    ColdLoad load{};
    std::vector<BlockName> names{};
  };
  void Run();
  bool Open();
  // The next job; nothing: stock is due, or it is closed.
  std::optional<Job> TakeJob(bool* closed);
  void TakeStock();
  void Do(Job& job);
  void DoLoad(const ColdLoad& load);
  void Tell(ColdEvent event);
  void TellRemoved();
  void NoteState();
  void Put(Job job);

  const Options options_;
  const std::function<void(ColdEvent)> tell_;
  std::unique_ptr<ColdFiles> files_;  // worker's thread, as the next
  std::unique_ptr<ColdShelf> shelf_;
  std::chrono::steady_clock::time_point stock_due_ = std::chrono::steady_clock::time_point::max();

  mutable absl::Mutex mutex_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, std::vector<std::string>> loaded_ ABSL_GUARDED_BY(mutex_);
  ColdCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::string off_reason_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> refused_ = 0;
  std::thread thread_;
};

}  // namespace macrame::runtime::engine
