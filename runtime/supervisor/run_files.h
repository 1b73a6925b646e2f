#pragma once

// The files of one rank process: its launch spec, socket, and a note of who runs, by which the next
// agent finds what this one left behind.

#include <sys/types.h>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::runtime {

struct RunNote {
  pid_t pid = 0;
  std::string identity;  // process_identity.h
  std::string deployment;
  uint64_t epoch = 0;
  uint32_t rank = 0;
};

struct RunPaths {
  std::string spec, socket, note, log;
  std::string stacks;  // of a rank that stood still, beside its log
};

class RunFiles {
 public:
  explicit RunFiles(std::string state_folder);

  // Makes `ranks/` (0700) and `logs/`.
  absl::Status Prepare() const;
  // `serial` tells apart ranks of this agent; names hold no text that came from outside.
  RunPaths PathsOf(uint64_t serial, const std::string& deployment, uint32_t rank) const;
  // Mode 0600 from the first byte.
  absl::Status WriteSpec(const std::string& path, const v1::LaunchSpec& spec) const;
  absl::Status WriteNote(const std::string& path, const RunNote& note) const;
  void Remove(const RunPaths& paths) const;

  // What an earlier agent left: the notes that can be read, all of whose files are removed.
  std::vector<RunNote> TakeLeftovers() const;

 private:
  const std::string state_folder_;
};

}  // namespace macrame::runtime
