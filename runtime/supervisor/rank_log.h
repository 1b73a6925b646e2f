#pragma once

// A log file that is put aside as FILE.1 when it is full, so that two files bound what a rank
// writes; or one that keeps its beginning.

#include <cstdint>
#include <string>
#include <string_view>

namespace macrame::runtime {

// What becomes of a file that is full.
enum class FullLog { kIsPutAside, kTakesNoMore };

// One thread. Errors are swallowed: a full disk must not end a rank.
class RankLog {
 public:
  RankLog(std::string path, uint64_t bytes_max, FullLog full = FullLog::kIsPutAside);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  void Write(std::string_view bytes);

 private:
  void Open();

  const std::string path_;
  const uint64_t bytes_max_;
  const FullLog full_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace macrame::runtime
