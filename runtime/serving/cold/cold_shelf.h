#pragma once

// One rank's part of the cold tier: which blocks stand on disk, what gives way to what, and what is
// wrong with a file. Decides; all it does with files goes through ColdFiles, time is handed in. One
// thread.
//
// Bounded by bytes over all files of the folder, those of other models and layouts too: the one
// used longest ago is removed first, and since the time of use is the file's own, the order
// survives restarts. With an age, those not used for longer go too, whenever stock is taken:
// others' uses of a file are seen then. Several ranks of a node may share the folder: names say
// what a file holds, so that what another writes is the same and what another removes is a miss.
// Each takes stock anew when it has written an eighth of the bound.
//
// A file is written under another name and renamed. Whatever a crash leaves is found by its size or
// its checksum, removed and counted; it is never served.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/serving/cold/cold_block.h"
#include "runtime/serving/cold/cold_files.h"

namespace macrame::runtime::engine {

// A half-written file of another process is left alone for so long.
inline constexpr int64_t kColdTemporaryNs = 60'000'000'000;

struct ColdCounts {
  uint64_t blocks = 0;  // of this layout
  uint64_t bytes = 0;   // of all files
  uint64_t stored = 0;
  uint64_t loaded = 0;
  uint64_t absent = 0;   // asked for, and not there
  uint64_t broken = 0;   // removed: size, checksum, tokens, or what has no place here
  uint64_t evicted = 0;  // removed for the bound
  uint64_t expired = 0;  // removed for their age
  uint64_t failed = 0;   // writes that the system refused
};

class ColdShelf {
 public:
  // `own`: tells the half-written files of this process from others'. `age_max_ns`: of what was
  // not used since; 0: any age is good.
  ColdShelf(ColdFiles& files, const ColdLayout& layout, uint64_t bytes_max, std::string own,
            int64_t age_max_ns = 0);

  // Takes stock: what has no place here is removed, then what is too old, then what is beyond the
  // bound.
  absl::Status Open(int64_t now_ns);
  // Whether it is there now. Nothing is written any more after the disk was full.
  bool Store(const ColdBlock& block, std::span<const std::byte> content, int64_t now_ns);
  // False: not there, or not usable and removed.
  bool Load(const ColdBlock& block, int64_t now_ns, std::string* content);
  // Was used just now, with `depth` blocks before it.
  void Touch(const BlockName& name, uint32_t depth, int64_t now_ns);
  void Drop(const BlockName& name);

  std::vector<BlockName> Names() const;
  // Of this layout, removed since the last call for other reasons than Drop.
  std::vector<BlockName> TakeRemoved() { return std::exchange(removed_, {}); }
  ColdCounts counts() const;
  // Why nothing is written any more; empty while it is.
  const std::string& off_reason() const { return off_reason_; }

 private:
  struct Held {
    uint64_t bytes = 0;
    int64_t used_ns = 0;
  };
  std::string PathOf(const BlockName& name) const;
  bool BelongsHere(const ColdFiles::Entry& entry, int64_t now_ns) const;
  void Put(const std::string& path, Held held);
  void Forget(const std::string& path);
  void Remove(const std::string& path);
  void Expire(int64_t now_ns);
  void Evict(uint64_t bytes);
  bool WriteFile(const std::string& path, const std::string& bytes);

  ColdFiles& files_;
  const ColdLayout layout_;
  const uint64_t bytes_max_;
  const std::string own_;
  const int64_t age_max_ns_;
  const std::string folder_;
  std::map<std::string, Held> held_;
  std::set<std::pair<int64_t, std::string>> by_use_;
  uint64_t bytes_ = 0;
  uint64_t written_since_open_ = 0;
  std::vector<BlockName> removed_;
  ColdCounts counts_;
  std::string off_reason_;
};

}  // namespace macrame::runtime::engine
