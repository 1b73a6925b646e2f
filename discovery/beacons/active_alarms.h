#pragma once

// Troubles that last: each is logged once when it begins and once when it is over. Pure but for the
// log; one owner thread.

#include <map>
#include <string>
#include <vector>

#include "macrame/v1/common.pb.h"

namespace macrame::discovery {

inline constexpr size_t kProblemsMax = 64;

class ActiveAlarms {
 public:
  // `key` names the trouble ("send/en0"); raising it again changes nothing but its text.
  void Raise(const std::string& key, const v1::Reason& reason);
  void Clear(const std::string& key);
  std::vector<v1::Reason> Problems() const;

 private:
  std::map<std::string, v1::Reason> problems_;
};

}  // namespace macrame::discovery
