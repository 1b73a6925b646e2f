#pragma once

// Files of the cold tier in memory, of which any can fail: a disk that is full after so many bytes,
// a crash in the middle of any change, bits that flip.

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/serving/cold/cold_files.h"

namespace macrame::runtime::engine {

class FakeColdFiles : public ColdFiles {
 public:
  struct Crash {};
  struct File {
    std::string bytes;
    int64_t used_ns = 0;
    bool is_file = true;
  };

  std::map<std::string, File> files;
  uint64_t disk_bytes = UINT64_MAX;
  // Changes from here on that are made before one is cut in half and the process ends.
  int64_t changes_until_crash = INT64_MAX;
  int64_t now_ns = 0;
  uint64_t reads = 0;

  absl::Status MakeFolder(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<Entry>> List() override {
    std::vector<Entry> entries;
    for (const auto& [path, file] : files) {
      entries.push_back({path, file.bytes.size(), file.used_ns, file.is_file});
    }
    return entries;
  }
  absl::Status Write(const std::string& path, const std::string& bytes) override {
    const bool crashes = Change();
    if (Used() + bytes.size() > disk_bytes) {
      files[path] = {bytes.substr(0, bytes.size() / 2), now_ns};
      return absl::ResourceExhaustedError("No space left on device");
    }
    files[path] = {crashes ? bytes.substr(0, bytes.size() / 2) : bytes, now_ns};
    if (crashes) throw Crash();
    return absl::OkStatus();
  }
  // A crash here may leave the name with what had reached the disk of the content: half.
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const bool crashes = Change();
    const auto found = files.find(from);
    if (found == files.end()) return absl::NotFoundError(from);
    File moved = std::move(found->second);
    files.erase(found);
    if (crashes) moved.bytes.resize(moved.bytes.size() / 2);
    files[to] = std::move(moved);
    if (crashes) throw Crash();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Read(const std::string& path, size_t bytes_max) override {
    ++reads;
    const auto found = files.find(path);
    if (found == files.end() || !found->second.is_file) return absl::NotFoundError(path);
    return found->second.bytes.substr(0, bytes_max);
  }
  absl::Status Remove(const std::string& path) override {
    const bool crashes = Change();
    files.erase(path);
    if (crashes) throw Crash();
    return absl::OkStatus();
  }
  absl::Status SetUsed(const std::string& path, int64_t used_ns) override {
    if (Change()) throw Crash();
    const auto found = files.find(path);
    if (found == files.end()) return absl::NotFoundError(path);
    found->second.used_ns = used_ns;
    return absl::OkStatus();
  }
  uint64_t Used() const {
    uint64_t bytes = 0;
    for (const auto& [path, file] : files) bytes += file.bytes.size();
    return bytes;
  }

 private:
  bool Change() { return --changes_until_crash == 0; }
};

}  // namespace macrame::runtime::engine
