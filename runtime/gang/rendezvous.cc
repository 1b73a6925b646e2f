#include "runtime/gang/rendezvous.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/collectives/tcp_handshake.h"
#include "transport/stream_socket.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using transport::StreamSocket;

constexpr milliseconds kGoLimit{5000};  // from the last arrival to everybody's going on
constexpr char kGo = 'g';

absl::Status Unreachable(std::string message) {
  return ReasonStatus(absl::StatusCode::kUnavailable, "RENDEZVOUS_UNREACHABLE", std::move(message));
}

milliseconds Left(steady_clock::time_point end) {
  return std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
}

transport::HandshakePlace HandshakeOf(const RendezvousPlace& place) {
  return {static_cast<int>(place.rank), static_cast<int>(place.world_size), place.secret};
}

absl::Status Host(const RendezvousPlace& place, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  const auto listener = StreamSocket::Listen(place.address);
  if (!listener.ok()) return listener.status();
  std::map<int, StreamSocket> guests;
  while (guests.size() + 1 < place.world_size) {
    auto socket = Left(end).count() > 0
                      ? listener->Accept(Left(end))
                      : absl::StatusOr<StreamSocket>(absl::DeadlineExceededError(""));
    if (!socket.ok()) break;
    const auto who = transport::ShakeHands(*socket, HandshakeOf(place), /*is_listener=*/true);
    if (who.ok() && *who > 0 && *who < static_cast<int>(place.world_size)) {
      guests[*who] = *std::move(socket);
    }
  }
  std::vector<uint32_t> missing;
  for (uint32_t rank = 1; rank < place.world_size; ++rank) {
    if (!guests.contains(static_cast<int>(rank))) missing.push_back(rank);
  }
  if (!missing.empty()) {
    return Unreachable(absl::StrCat("rank ", absl::StrJoin(missing, ", "),
                                    " did not come to the rendezvous at ", place.address,
                                    " within ", limit.count(), " ms"));
  }
  for (const auto& [rank, socket] : guests) {
    const absl::Status sent = socket.SendBytes({&kGo, 1});
    if (!sent.ok()) return Unreachable(absl::StrCat("rank ", rank, " left the rendezvous"));
  }
  // Guests hang up first: whoever does keeps the port busy for a while.
  for (const auto& [rank, socket] : guests) {
    char byte = 0;
    socket.SetReceiveLimit(kGoLimit);
    (void)socket.ReceiveBytes(&byte, 1);
  }
  return absl::OkStatus();
}

absl::Status Visit(const RendezvousPlace& place, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  const auto failed = [&](const absl::Status& why) {
    return Unreachable(absl::StrCat("rank ", place.rank, " can't reach rank 0 at ", place.address,
                                    ": ", why.message()));
  };
  const auto socket = StreamSocket::Connect(place.address, limit);
  if (!socket.ok()) return failed(socket.status());
  const auto who = transport::ShakeHands(*socket, HandshakeOf(place), /*is_listener=*/false);
  if (!who.ok()) return failed(who.status());
  if (*who != 0) return failed(absl::InternalError(absl::StrCat("rank ", *who, " listens there")));
  socket->SetReceiveLimit(std::max(Left(end), milliseconds(0)) + kGoLimit);
  char byte = 0;
  const absl::Status told = socket->ReceiveBytes(&byte, 1);
  return told.ok() ? told : failed(absl::UnavailableError("not all ranks came"));
}

}  // namespace

absl::Status MeetAtRendezvous(const RendezvousPlace& place, milliseconds limit) {
  if (place.world_size <= 1) return absl::OkStatus();
  return place.rank == 0 ? Host(place, limit) : Visit(place, limit);
}

}  // namespace macrame::runtime::engine
