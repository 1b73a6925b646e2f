#pragma once

// How many calls callers may have open at a server, and how many of persons' messages may be on
// their way to it. Members have places that nobody else takes, and so have the processes of this
// machine; nodes that are no members and persons have fewer, of their own. Any thread.
//
// Persons' messages come a few at a time, because each may have kMessageBytesMax (peer_channel.h):
// kReadsOfPersonsMax of these are all that gRPC gathers for persons, beside the kStreamWindowBytes
// that each call may send ahead.

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

class CallPlaces {
 public:
  enum class Kind { kMember, kOther, kPerson };
  struct Place {
    Kind kind = Kind::kMember;
    std::string key_id;  // of a person
  };

  // QUEUE_FULL (RESOURCE_EXHAUSTED) says which limit is reached. `is_member`: also this machine's.
  absl::StatusOr<Place> Take(const Caller& caller, bool is_member);
  void GiveBack(const Place& place);

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

  std::mutex mutex_;
  int members_ = 0;
  int others_ = 0;
  int persons_ = 0;
  int reads_ = 0;
  std::map<std::string, int> calls_of_;  // by key, as the next one
  std::map<std::string, int> reads_of_;
  std::deque<Waiting> waiting_;
};

}  // namespace macrame::transport
