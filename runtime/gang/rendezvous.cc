#include "runtime/gang/rendezvous.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/gang/gang_connection.h"
#include "transport/gang/gang_listener.h"
#include "transport/gang/sealed_socket.h"
#include "transport/stream_socket.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using transport::SealedSocket;
using transport::StreamSocket;

constexpr milliseconds kGoLimit{5000};  // from the last arrival to everybody's going on
constexpr std::string_view kGo = "go";

absl::Status Unreachable(std::string message) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRendezvousUnreachable,
                      std::move(message));
}

transport::GangMember MemberOf(const RendezvousPlace& place) {
  return {transport::GangChannel::kRendezvous, place.rank, place.world_size, place.epoch,
          place.secret};
}

absl::Status Host(const RendezvousPlace& place, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  const auto listener = place.listen_fd >= 0 ? StreamSocket::ListenAt(place.listen_fd)
                                             : StreamSocket::Listen(place.address);
  if (!listener.ok()) return listener.status();
  std::map<uint32_t, SealedSocket> guests;
  transport::GangListener callers(*listener, MemberOf(place), {place.member_ips, {}});
  while (guests.size() + 1 < place.world_size) {
    auto connection = callers.Accept(end);
    if (!connection.ok()) break;
    const uint32_t rank = connection->rank;
    guests[rank] = SealedSocket(*std::move(connection));
  }
  std::vector<uint32_t> missing;
  for (uint32_t rank = 1; rank < place.world_size; ++rank) {
    if (!guests.contains(rank)) missing.push_back(rank);
  }
  if (!missing.empty()) {
    return Unreachable(absl::StrCat("rank ", absl::StrJoin(missing, ", "),
                                    " did not come to the rendezvous at ", place.address,
                                    " within ", limit.count(), " ms", callers.Refused()));
  }
  for (auto& [rank, socket] : guests) {
    const absl::Status sent = socket.SendFrame(kGo);
    if (!sent.ok()) return Unreachable(absl::StrCat("rank ", rank, " left the rendezvous"));
  }
  // Guests hang up first: whoever does keeps the port busy for a while.
  for (auto& [rank, socket] : guests) {
    socket.SetReceiveLimit(kGoLimit);
    socket.ReceiveFrame().IgnoreError();
  }
  return absl::OkStatus();
}

absl::Status Visit(const RendezvousPlace& place, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  const auto failed = [&](const absl::Status& why) {
    return Unreachable(absl::StrCat("rank ", place.rank, " can't reach rank 0 at ", place.address,
                                    ": ", why.message()));
  };
  auto connection = transport::CallGang(MemberOf(place), {place.address, /*rank=*/0}, end);
  if (!connection.ok()) return failed(connection.status());
  SealedSocket socket(*std::move(connection));
  socket.SetReceiveLimit(
      std::max(std::chrono::duration_cast<milliseconds>(end - steady_clock::now()),
               milliseconds(0)) +
      kGoLimit);
  const auto told = socket.ReceiveFrame();
  if (told.ok() && *told == kGo) return absl::OkStatus();
  return failed(absl::UnavailableError("not all ranks came"));
}

}  // namespace

absl::Status MeetAtRendezvous(const RendezvousPlace& place, milliseconds limit) {
  if (place.world_size <= 1) {
    StreamSocket(place.listen_fd).Close();
    return absl::OkStatus();
  }
  return place.rank == 0 ? Host(place, limit) : Visit(place, limit);
}

}  // namespace macrame::runtime::engine
