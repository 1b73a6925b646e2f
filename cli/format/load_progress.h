#pragma once

// `model load` while it runs: a bar per rank for terminals, plain lines for logs. Pure.

#include <map>
#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// One line for the deployment and one with a bar for each rank; line breaks included.
std::string ProgressBars(const v1::LoadModelProgress& progress, int width, const Style& style);

// Says what changed since the last message: phases, each quarter of loading, failures.
class ProgressLines {
 public:
  // Empty when nothing worth a line has changed.
  std::string Update(const v1::LoadModelProgress& progress);

 private:
  std::map<uint32_t, std::string> said_;  // by rank
  std::string said_of_all_;
  std::string said_failure_;
};

}  // namespace macrame::cli
