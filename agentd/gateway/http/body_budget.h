#pragma once

// Bytes of request bodies that one gateway receives and holds at once, over all its connections.
// Pure: times are handed in; one thread.
//
// A body has room for all that it announces before it is read, so none stops halfway for want of
// it; what has none yet stays with its client, who is slowed down by TCP. Room goes to whoever
// holds the least, keys before clients that show none, first come, first served. One client (a key,
// else an address) has half of it at the most, all clients of other machines without a key together
// half, large bodies leave a quarter of each share to small ones, and tiny ones always come:
// connections bound these. A body is in here until its request is answered: until then its text is
// kept, to be asked again where a node is lost.
//
// A body that comes too slowly loses its place: below kBodyFloor at any time, and below
// kBodyFloorWhileOthersWait while another waits for room.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace macrame::agentd {

inline constexpr size_t kTinyBodyBytes = 4 * 1024;
inline constexpr size_t kSmallBodyBytes = 64 * 1024;
inline constexpr size_t kBodyFloor = 1024;  // bytes a second
inline constexpr size_t kBodyFloorWhileOthersWait = 32 * 1024;
inline constexpr std::chrono::seconds kBodyFloorSpan{5};
inline constexpr std::chrono::seconds kBodyFloorSpanWhileOthersWait{2};

class BodyBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Id = uint64_t;

  struct Sender {
    std::string client;       // a key's id, or an address as it is counted
    bool is_keyless = false;  // no key, while anybody at all may come
  };

  // `body_bytes_max`: of one body. A budget that holds fewer than four is as large as four.
  BodyBudget(size_t bytes_max, size_t body_bytes_max);

  // A body of so many bytes wants to come. It waits until HasRoom.
  Id Ask(const Sender& sender, size_t bytes, Time now);
  bool HasRoom(Id id) const { return bodies_.at(id).has_room; }
  // So much of it has come in all.
  void NoteReceived(Id id, size_t bytes, Time now);
  // It has come whole, and needs no more than it is.
  void NoteWhole(Id id, size_t bytes);
  void Release(Id id);
  // It comes too slowly and is to be ended.
  bool IsTooSlow(Id id, Time now);

  // Those that were given room since the last call.
  std::vector<Id> TakeGiven();

  size_t held() const { return held_; }
  size_t waiting() const { return waiting_.size(); }
  // What one client may have at the most.
  size_t client_max() const { return bytes_max_ / 2; }
  // What a large one may have at the most.
  size_t large_body_max() const { return client_max() / 4 * 3; }

 private:
  struct Body {
    Id id = 0;
    Sender sender;
    size_t bytes = 0;  // that it has room for, or wants
    bool has_room = false;
    bool is_whole = false;
    size_t received = 0;
    // The span whose speed is looked at.
    Time span_begun;
    size_t span_received = 0;
  };

  bool Fits(const Body& body) const;
  // Its room becomes so large.
  void Give(Body* body, size_t bytes);
  void GiveRoom();
  size_t HeldBy(const std::string& client) const;

  const size_t bytes_max_;
  std::map<Id, Body> bodies_;
  std::map<std::string, size_t> held_by_;
  std::vector<Id> given_;
  Id last_id_ = 0;
  Time now_;
  size_t held_ = 0;
  size_t held_by_keyless_ = 0;
  size_t held_by_large_ = 0;
  std::set<Id> waiting_;  // in the order in which they came
};

}  // namespace macrame::agentd
