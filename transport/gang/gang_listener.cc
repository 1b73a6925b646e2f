#include "transport/gang/gang_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kAcceptPauseMs = 10;

void SetWaits(const StreamSocket& socket, bool waits) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  fcntl(socket.fd(), F_SETFL, waits ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

}  // namespace

GangListener::GangListener(const StreamSocket& socket, GangMember own, Options options)
    : socket_(socket), own_(std::move(own)), options_(std::move(options)) {
  SetWaits(socket_, false);
}

std::string GangListener::Refused() const {
  if (refused_count_ == 0) return "";
  return absl::StrCat("; one caller was refused: ", refused_,
                      refused_count_ == 1 ? "" : absl::StrCat(", the last of ", refused_count_));
}

void GangListener::Refuse(const Caller& caller, std::string why) {
  refused_ = absl::StrCat(why, " (", caller.ip, ")");
  ++refused_count_;
}

GangListener::Callers::iterator GangListener::WhoLeaves() {
  const auto silent = std::find_if(callers_.begin(), callers_.end(), [](const Caller& caller) {
    return !caller.is_member && !caller.has_answered;
  });
  if (silent != callers_.end()) return silent;
  return std::find_if(callers_.begin(), callers_.end(),
                      [](const Caller& caller) { return !caller.is_member; });
}

bool GangListener::Evict() {
  if (callers_.size() < kPendingCallersMax) return true;
  const auto leaves = WhoLeaves();
  if (leaves == callers_.end()) return false;
  Refuse(*leaves, "it said too little while others came");
  callers_.erase(leaves);
  return true;
}

void GangListener::TakeNew(Time now) {
  // At most as many as can be heard: those that came before must be heard in between.
  for (size_t taken = 0; taken < kPendingCallersMax && Evict(); ++taken) {
    auto socket = socket_.Accept(milliseconds(0));
    if (!socket.ok()) {
      // No descriptor is left, say: whoever waits would be seen to wait at once again.
      if (!absl::IsDeadlineExceeded(socket.status())) poll(nullptr, 0, kAcceptPauseMs);
      return;
    }
    SetWaits(*socket, false);
    std::string ip = socket->PeerIp();
    const bool is_member = std::find(options_.member_ips.begin(), options_.member_ips.end(), ip) !=
                           options_.member_ips.end();
    callers_.push_back(
        {*std::move(socket), std::move(ip), is_member, now,
         now + (is_member ? kMemberHandshakeLimit : kFirstBytesLimit),
         ListenerHandshake(own_, options_.is_private, options_.random_bytes(kHandshakeNonceBytes)),
         false, ""});
  }
}

absl::Status GangListener::Wait(Time end) {
  std::vector<pollfd> waits;
  const bool has_room =
      callers_.size() < kPendingCallersMax ||
      std::any_of(callers_.begin(), callers_.end(), [](const Caller& c) { return !c.is_member; });
  waits.push_back({has_room ? socket_.fd() : -1, POLLIN, 0});
  for (const Caller& caller : callers_) {
    waits.push_back({caller.socket.fd(), POLLIN, 0});
    end = std::min(end, caller.due);
  }
  const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
  const int ready =
      poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
  if (ready < 0 && errno != EINTR) {
    return absl::UnavailableError(absl::StrCat("poll: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> GangListener::Hear(Caller& caller) {
  while (true) {
    const size_t whole = caller.has_answered ? kFinishBytes : kHelloBytes;
    char bytes[kHelloBytes];
    // No more than the message: what follows it is the connection's.
    const ssize_t got = recv(caller.socket.fd(), bytes, whole - caller.bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got < 0) return absl::UnavailableError(std::strerror(errno));
    if (got == 0) return absl::UnavailableError("it hung up");
    if (caller.bytes.empty() && !caller.has_answered) {
      caller.due = caller.came + (caller.is_member ? kMemberHandshakeLimit : kHandshakeLimit);
    }
    caller.bytes.append(bytes, static_cast<size_t>(got));
    if (caller.bytes.size() < whole) continue;
    const std::string message = std::exchange(caller.bytes, "");
    if (caller.has_answered) {
      const absl::Status finished = caller.handshake.OnFinish(message);
      if (!finished.ok()) return finished;
      return true;
    }
    const auto answer = caller.handshake.OnHello(message);
    if (!answer.ok()) return answer.status();
    // Far less than any socket's buffer: it goes at once or not at all.
    const absl::Status sent = caller.socket.SendBytes(*answer);
    if (!sent.ok()) return sent;
    caller.has_answered = true;
  }
}

absl::StatusOr<GangConnection> GangListener::Accept(Time end) {
  while (true) {
    const Time now = steady_clock::now();
    TakeNew(now);
    for (auto caller = callers_.begin(); caller != callers_.end();) {
      const auto through = Hear(*caller);
      if (through.ok() && *through) {
        SetWaits(caller->socket, true);
        GangConnection connection =
            MakeConnection(std::move(caller->socket), caller->handshake.Agreement());
        callers_.erase(caller);
        return connection;
      }
      if (through.ok() && now < caller->due) {
        ++caller;
        continue;
      }
      Refuse(*caller,
             through.ok() ? "it said too little in time" : std::string(through.status().message()));
      caller = callers_.erase(caller);
    }
    if (now >= end) return absl::DeadlineExceededError("nobody came");
    const absl::Status waited = Wait(end);
    if (!waited.ok()) return waited;
  }
}

}  // namespace macrame::transport
