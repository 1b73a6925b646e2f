#pragma once

// What an answer of ListEvents tells that earlier ones did not. What several agents tell is one
// event in an answer (agentd/cores/event_log.h); a later answer may give it as another of them saw
// it. Pure.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "macrame/v1/operation.pb.h"

namespace macrame::cli {

class NewEvents {
 public:
  // In the order of the answer.
  std::vector<v1::Event> Take(const v1::ListEventsResponse& response);
  // The time of the newest event up to `now_unix_ms`; 0: there is none. Later ones were noted while
  // a clock was ahead, and tell nothing of what the others told.
  uint64_t newest_unix_ms(uint64_t now_unix_ms) const;

 private:
  struct Known {
    uint64_t at_unix_ms = 0;
    std::string seen_by;
    bool is_told = false;  // by the answer that is looked at
  };

  // True: `event` is one that is known and that this answer has not told yet, the same or as
  // another agent saw it at most `apart_max_ms` from then.
  bool NoteTold(const v1::Event& event, uint64_t apart_max_ms);

  std::map<std::string, std::vector<Known>> known_;  // by what happened to whom
};

}  // namespace macrame::cli
