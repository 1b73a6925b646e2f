#pragma once

// What is left on a node that is drained. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

struct Draining {
  uint32_t ranks = 0;               // that run there, of every epoch
  std::vector<std::string> models;  // in force there, by name
  std::string reason;               // why one of them could not be moved yet; empty: none was given
  bool has_other = false;           // a live node is there that may take ranks

  bool is_empty() const { return ranks == 0 && models.empty(); }
  // "a, b", "the answers of a gang that moved".
  std::string Models() const;
  // What is left and why.
  std::string Why() const;
};

Draining DrainOf(const v1::ClusterStatus& status, const std::string& node_id);
// A line of progress, with its line break.
std::string DrainLine(const Draining& left, const std::string& node_name);

}  // namespace macrame::cli
