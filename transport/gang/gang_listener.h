#pragma once

// The listening side of a gang's connections: whoever calls is heard beside all others, so that
// those who say nothing, or nonsense, hold nobody up.
//
// A caller must begin within kFirstBytesLimit and be through within kHandshakeLimit; from the
// addresses that members are known by, there is more time. Of kPendingCallersMax that are heard at
// once, the one from elsewhere that has been there longest makes room for the next: of those whose
// hello proved nothing yet, and only where there is none, of the others.

#include <chrono>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/gang/gang_connection.h"
#include "transport/gang/gang_handshake.h"
#include "transport/stream_socket.h"

namespace macrame::transport {

inline constexpr std::chrono::milliseconds kFirstBytesLimit{250};
inline constexpr std::chrono::milliseconds kHandshakeLimit{1000};
// A lost packet on the way from a member costs up to a second or so.
inline constexpr std::chrono::milliseconds kMemberHandshakeLimit{3000};
inline constexpr size_t kPendingCallersMax = 64;

// One thread.
class GangListener {
 public:
  struct Options {
    std::vector<std::string> member_ips;       // where members are likely to call from
    std::function<bool(uint32_t)> is_private;  // see ListenerHandshake
    RandomBytesSource random_bytes = SystemRandomBytes;
  };
  // `socket` listens, and must live as long. It accepts without waiting from here on.
  GangListener(const StreamSocket& socket, GangMember own, Options options);

  // The next caller that has proven itself. DEADLINE_EXCEEDED when none did before `end`.
  absl::StatusOr<GangConnection> Accept(std::chrono::steady_clock::time_point end);

  // For messages: "; one caller was refused: …" about the last of them, or nothing.
  std::string Refused() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Caller {
    StreamSocket socket;
    std::string ip;
    bool is_member = false;
    Time came, due;
    ListenerHandshake handshake;
    bool has_answered = false;
    std::string bytes;  // of the message that is coming
  };
  using Callers = std::list<Caller>;  // in the order in which they came

  // Until a caller says something, one comes, or one is due.
  absl::Status Wait(Time end);
  void TakeNew(Time now);
  bool Evict();
  Callers::iterator WhoLeaves();
  // True when it is through.
  absl::StatusOr<bool> Hear(Caller& caller);
  void Refuse(const Caller& caller, std::string why);

  const StreamSocket& socket_;
  const GangMember own_;
  const Options options_;
  Callers callers_;
  std::string refused_;
  size_t refused_count_ = 0;
};

}  // namespace macrame::transport
