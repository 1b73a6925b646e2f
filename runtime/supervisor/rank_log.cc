#include "runtime/supervisor/rank_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace macrame::runtime {

RankLog::RankLog(std::string path, uint64_t bytes_max, FullLog full)
    : path_(std::move(path)), bytes_max_(bytes_max), full_(full) {
  Open();
}

RankLog::~RankLog() {
  if (fd_ >= 0) close(fd_);
}

void RankLog::Open() {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat info {};
  bytes_ = fd_ >= 0 && fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

void RankLog::Write(std::string_view bytes) {
  if (full_ == FullLog::kTakesNoMore)
    bytes = bytes.substr(0, bytes_max_ - std::min(bytes_, bytes_max_));
  if (bytes.empty()) return;
  if (bytes_ >= bytes_max_ && fd_ >= 0) {
    close(fd_);
    // What can't be put aside is begun anew: the bound holds all the same.
    if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) unlink(path_.c_str());
    Open();
  }
  if (fd_ < 0) return;
  const ssize_t written = write(fd_, bytes.data(), bytes.size());
  if (written > 0) bytes_ += static_cast<uint64_t>(written);
}

}  // namespace macrame::runtime
