#pragma once

// A log file that is put aside as FILE.1 when it is full, so that two files bound what a rank
// writes.

#include <cstdint>
#include <string>
#include <string_view>

namespace macrame::runtime {

// One thread. Errors are swallowed: a full disk must not end a rank.
class RankLog {
 public:
  RankLog(std::string path, uint64_t bytes_max);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  void Write(std::string_view bytes);

 private:
  void Open();

  const std::string path_;
  const uint64_t bytes_max_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace macrame::runtime
