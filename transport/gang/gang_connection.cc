#include "transport/gang/gang_connection.h"

#include <openssl/rand.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstPause{25}, kPauseMax{200};  // between two calls

milliseconds LeftUntil(steady_clock::time_point end) {
  return std::max(milliseconds(0),
                  std::chrono::duration_cast<milliseconds>(end - steady_clock::now()));
}

absl::StatusOr<GangConnection> ShakeHands(const GangMember& own, const GangCall& call,
                                          StreamSocket socket, const std::string& nonce,
                                          milliseconds limit) {
  CallerHandshake handshake(own, call.rank, call.is_private, nonce);
  absl::Status status = socket.SendBytes(handshake.hello());
  if (!status.ok()) return status;
  std::string answer(kAnswerBytes, '\0');
  status = socket.ReceiveBytesBefore(answer.data(), answer.size(), steady_clock::now() + limit);
  if (!status.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "whoever listens there does not take this rank for one of its gang: ", status.message()));
  }
  const auto finish = handshake.OnAnswer(answer);
  if (!finish.ok()) return finish.status();
  status = socket.SendBytes(*finish);
  if (!status.ok()) return status;
  return MakeConnection(std::move(socket), handshake.Agreement());
}

}  // namespace

std::string SystemRandomBytes(size_t count) {
  std::string bytes(count, '\0');
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count));
  MACRAME_CHECK(made == 1) << "the system gives no random bytes";
  return bytes;
}

GangConnection MakeConnection(StreamSocket socket, GangAgreement agreement) {
  GangConnection connection;
  connection.rank = agreement.rank;
  connection.socket = std::move(socket);
  if (agreement.is_private) return connection;
  connection.seal.emplace(RecordCipher::Use::kSeal, std::move(agreement.send_secret));
  connection.open.emplace(RecordCipher::Use::kOpen, std::move(agreement.receive_secret));
  return connection;
}

absl::StatusOr<GangConnection> CallGang(const GangMember& own, const GangCall& call,
                                        steady_clock::time_point end,
                                        const RandomBytesSource& random_bytes) {
  absl::Status last;
  milliseconds pause = kFirstPause;
  while (true) {
    auto socket = StreamSocket::Connect(call.address, LeftUntil(end));
    if (absl::IsInvalidArgument(socket.status())) return socket.status();
    // That nobody answered in the last moment says less than what was found before.
    if (!socket.ok()) return last.ok() ? socket.status() : last;
    const milliseconds limit = std::clamp(LeftUntil(end), milliseconds(1), kAnswerLimit);
    auto connection =
        ShakeHands(own, call, *std::move(socket), random_bytes(kHandshakeNonceBytes), limit);
    if (connection.ok()) return connection;
    last = connection.status();
    if (LeftUntil(end) <= pause) return last;
    poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(2 * pause, kPauseMax);
  }
}

}  // namespace macrame::transport
