#pragma once

// Whose work is done next where clients share something that does one piece at a time. Pure: it is
// told what comes and what ended.
//
// Turns go by the time that each key's work has taken since it came: the key that had least goes
// first, and one that comes anew begins where those stand that wait. So short work of one key never
// waits for all that another has brought, only for the piece that is being done. A key has one
// piece done at a time; its own work keeps the order of arrival.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

// Whether one more thing of size `wanted` has a place where all may hold `most`. A key that holds
// less than its share of it finds a place even where others hold all, up to twice as much.
struct Share {
  size_t of_key = 0;  // what the key holds
  size_t of_all = 0;  // what all hold, this key too
  size_t others = 0;  // keys that hold something, without this one
  size_t most = 0;
  bool Fits(size_t wanted) const;
};

class LaneQueue {
 public:
  using WorkId = uint64_t;

  void Add(std::string_view key, WorkId id);
  // The next piece, whose key has nothing else done until Done; none: nothing waits that may begin.
  std::optional<WorkId> Next();
  // The piece of this key that Next gave took so long.
  void Done(std::string_view key, Duration taken);

  bool empty() const { return keys_.empty(); }

 private:
  struct Account {
    std::deque<WorkId> waiting;
    Duration taken{0};
    bool is_running = false;
  };

  // Of keys that have something waiting or being done.
  std::map<std::string, Account, std::less<>> keys_;
  Duration reached_{0};  // where the key stood that had the last turn
};

}  // namespace macrame::runtime::engine
