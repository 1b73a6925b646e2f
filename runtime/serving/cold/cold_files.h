#pragma once

// The few things that the cold tier does with files, so that tests can let any of them fail. Paths
// are relative to the folder of the tier: "v1-…/….kv".

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::runtime::engine {

class ColdFiles {
 public:
  struct Entry {
    std::string path;
    uint64_t bytes = 0;
    int64_t used_ns = 0;  // since 1970
    bool is_file = true;  // a regular file, and no link
  };

  virtual ~ColdFiles() = default;
  // Makes the folder of a layout.
  virtual absl::Status MakeFolder(const std::string& name) = 0;
  // Everything in the folders, two levels deep; what is no folder of ours comes with its own name.
  virtual absl::StatusOr<std::vector<Entry>> List() = 0;
  // A new file. RESOURCE_EXHAUSTED when the disk is full.
  virtual absl::Status Write(const std::string& path, const std::string& bytes) = 0;
  // Replaces what is there.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // NOT_FOUND; what is longer than `bytes_max` is cut behind that.
  virtual absl::StatusOr<std::string> Read(const std::string& path, size_t bytes_max) = 0;
  // A file, a link, or an empty folder. One that is not there is removed already.
  virtual absl::Status Remove(const std::string& path) = 0;
  virtual absl::Status SetUsed(const std::string& path, int64_t used_ns) = 0;
};

// On disk below `folder`, which is made with mode 0700 (0600 for files); links are never followed.
// FAILED_PRECONDITION when `folder` is a link, is not this user's, or others may write to it.
absl::StatusOr<std::unique_ptr<ColdFiles>> OpenColdFiles(const std::string& folder);

}  // namespace macrame::runtime::engine
