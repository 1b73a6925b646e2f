#pragma once

// How many may watch one thing at this agent, each for as long as it likes. A quarter of the places
// is kept for the agent's own socket; of the rest the key of one access file has a quarter at the
// most, and two at the least. Owner thread.

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "transport/rpc_server.h"

namespace macrame::agentd {

class WatchPlaces {
 public:
  // Given back when its last copy goes.
  class Place;

  explicit WatchPlaces(size_t most) : most_(most) {}

  // Places that the socket alone may take.
  size_t kept() const { return most_ / 4; }
  size_t of_key_max() const { return std::max<size_t>(2, (most_ - kept()) / 4); }

  // Null: there is none for this caller.
  std::shared_ptr<const Place> Take(const transport::Caller& caller);

 private:
  struct Taken {
    size_t all = 0;
    size_t of_others = 0;  // than this agent's own socket
    std::map<std::string, size_t> of_key;
  };

  const size_t most_;
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();
};

class WatchPlaces::Place {
 public:
  Place(std::shared_ptr<Taken> taken, bool is_local, std::string key_id)
      : taken_(std::move(taken)), is_local_(is_local), key_id_(std::move(key_id)) {
    ++taken_->all;
    if (!is_local_) ++taken_->of_others;
    if (!key_id_.empty()) ++taken_->of_key[key_id_];
  }
  ~Place() {
    --taken_->all;
    if (!is_local_) --taken_->of_others;
    if (!key_id_.empty() && --taken_->of_key[key_id_] == 0) taken_->of_key.erase(key_id_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  const std::shared_ptr<Taken> taken_;
  const bool is_local_;
  const std::string key_id_;
};

inline std::shared_ptr<const WatchPlaces::Place> WatchPlaces::Take(
    const transport::Caller& caller) {
  if (taken_->all >= most_) return nullptr;
  if (!caller.local && taken_->of_others >= most_ - kept()) return nullptr;
  const auto of_key = taken_->of_key.find(caller.key_id);
  if (of_key != taken_->of_key.end() && of_key->second >= of_key_max()) return nullptr;
  return std::make_shared<Place>(taken_, caller.local, caller.key_id);
}

}  // namespace macrame::agentd
