#pragma once

// How many calls callers may have open at a server, how much memory their messages may take
// (parsed_size.h), and how many of persons' messages may be on their way to it. Members have places
// that nobody else takes, and so have the processes of this machine; nodes that are no members and
// persons have fewer, of their own. Any thread.
//
// The message of a person or of a node that is no member counts until its call has ended and its
// handler has dropped it: a handler may keep it for as long (a request that waits for its model).
// A member's counts until its handler was called: what members ask for is passed on or done at
// once, and requests under way must not keep an order out.
//
// Persons' messages come a few at a time, because each may have kMessageBytesMax (peer_channel.h):
// kReadsOfPersonsMax of these are all that gRPC gathers for persons, beside the kStreamWindowBytes
// that each call may send ahead.

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/rpc_server.h"

namespace macrame::transport {

inline constexpr int kCallsMax = 512;                     // of members, or of this machine
inline constexpr int kCallsOfOthersMax = kCallsMax / 2;   // of nodes that are no members
inline constexpr int kCallsOfPersonsMax = kCallsMax / 4;  // of all access files
inline constexpr int kCallsOfKeyMax = 32;                 // of one access file
inline constexpr int kReadsOfPersonsMax = 8;
inline constexpr int kReadsOfKeyMax = 2;
// Messages that are held: of all members, of all persons, of all other nodes, and of one of these
// persons and nodes.
inline constexpr size_t kHeldBytesOfMembersMax = size_t{256} << 20;
inline constexpr size_t kHeldBytesMax = size_t{64} << 20;
inline constexpr size_t kHeldBytesOfCallerMax = size_t{16} << 20;
// Messages of at most this size always fit and are not counted.
inline constexpr size_t kSmallMessageBytesMax = size_t{64} << 10;

class CallPlaces {
 public:
  enum class Kind { kMember, kOther, kPerson };
  struct Place {
    Kind kind = Kind::kMember;
    std::string caller;     // a person's key, or the node that is no member
    size_t held_bytes = 0;  // of its message, as counted
  };

  // QUEUE_FULL (RESOURCE_EXHAUSTED) says which limit is reached. `is_member`: also this machine's.
  absl::StatusOr<Place> Take(const Caller& caller, bool is_member);
  void GiveBack(const Place& place);

  // Counts the message of the call that has this place, until LetGo. QUEUE_FULL
  // (RESOURCE_EXHAUSTED) says which limit would be exceeded.
  absl::Status Hold(size_t bytes, Place* place);
  // Does nothing where none is counted. May come after GiveBack.
  void LetGo(Place* place);

  // Runs `begin` when a message of this key may come: here, or within an EndRead. Then EndRead
  // follows, once. It is forgotten when `waiting` is gone before that.
  void Read(const std::string& key_id, const std::weak_ptr<void>& waiting,
            std::function<void()> begin);
  void EndRead(const std::string& key_id);

 private:
  struct Waiting {
    std::string key_id;
    std::weak_ptr<void> call;
    std::function<void()> begin;
  };

  // What may begin now, counted. Under the mutex.
  std::function<void()> NextRead();
  size_t& HeldBytesOf(Kind kind) { return held_bytes_[static_cast<size_t>(kind)]; }

  std::mutex mutex_;
  int members_ = 0;
  int others_ = 0;
  int persons_ = 0;
  int reads_ = 0;
  std::map<std::string, int> calls_of_;  // by key, as the next one
  std::map<std::string, int> reads_of_;
  std::array<size_t, 3> held_bytes_{};           // by Kind
  std::map<std::string, size_t> held_bytes_of_;  // by caller that is no member
  std::deque<Waiting> waiting_;
};

}  // namespace macrame::transport
