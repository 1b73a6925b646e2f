// Where tests put their files: below TMPDIR, and nothing of it stays.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>

#include "proto/check.h"

namespace macrame {

// A new, empty folder. Its path is short, because a Unix socket's path may have 104 bytes only. All
// of them are removed when the process exits; a child that it forked removes none. From any thread.
inline std::string FreshFolder() {
  class Folders {
   public:
    Folders() : owner_(getpid()) {
      path_ = std::filesystem::temp_directory_path() / "macrame-XXXXXX";
      MACRAME_CHECK(mkdtemp(path_.data()) != nullptr) << path_;
      // A test that becomes another user goes on reaching what is inside.
      MACRAME_CHECK(chmod(path_.c_str(), 0711) == 0) << path_;
    }
    ~Folders() {
      std::error_code ignored;
      if (getpid() == owner_) std::filesystem::remove_all(path_, ignored);
    }
    Folders(const Folders&) = delete;
    Folders& operator=(const Folders&) = delete;

    std::string Next() {
      const std::string folder = path_ + "/" + std::to_string(++count_);
      std::filesystem::create_directory(folder);
      return folder;
    }

   private:
    const pid_t owner_;
    std::string path_;
    std::atomic<int> count_ = 0;
  };
  static Folders folders;
  return folders.Next();
}

}  // namespace macrame
