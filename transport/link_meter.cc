#include "transport/link_meter.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kPieceBytes = 256 << 10;
// Orders of the caller, each a byte: a message to be sent back; eight bytes of length and so many
// bytes to be swallowed, answered by one.
constexpr char kEcho = 'e', kSwallow = 's';
constexpr int kLoadedRoundTrips = 20;
// On a slow link there are fewer of them: each waits behind a whole piece.
constexpr milliseconds kLoadedTime{300};
// For the token, which is sent at once: who has none must not keep the caller waiting that has it.
constexpr milliseconds kMeterTokenLimit{500};

double MicrosecondsSince(steady_clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begun).count();
}

double Percentile(std::vector<double>& sorted, int percent) {
  return sorted.empty() ? 0 : sorted[(sorted.size() - 1) * static_cast<size_t>(percent) / 100];
}

absl::Status SwallowBytes(const StreamSocket& socket, steady_clock::time_point end) {
  uint64_t left = 0;
  absl::Status status =
      socket.ReceiveBytesBefore(reinterpret_cast<char*>(&left), sizeof(left), end);
  if (!status.ok()) return status;
  if (left > kMeterBytesMax) return absl::InvalidArgumentError("more than a meter takes");
  std::vector<char> piece(kPieceBytes);
  while (left > 0) {
    const size_t count = std::min<uint64_t>(left, piece.size());
    status = socket.ReceiveBytesBefore(piece.data(), count, end);
    if (!status.ok()) return status;
    left -= count;
  }
  return socket.SendBytes(std::string(1, kSwallow));
}

void Answer(const StreamSocket& socket) {
  const auto end = steady_clock::now() + kMeterSessionLimit;
  while (steady_clock::now() < end) {
    const auto soon = std::min(end, steady_clock::now() + kMeterConnectLimit);
    char order = 0;
    if (!socket.ReceiveBytesBefore(&order, 1, soon).ok()) return;
    if (order == kEcho) {
      char message[kMeterMessageBytes];
      if (!socket.ReceiveBytesBefore(message, sizeof(message), soon).ok()) return;
      if (!socket.SendBytes({message, sizeof(message)}).ok()) return;
    } else if (order != kSwallow || !SwallowBytes(socket, end).ok()) {
      return;
    }
  }
}

absl::Status RoundTrip(const StreamSocket& socket) {
  char message[kMeterMessageBytes + 1] = {kEcho};
  const absl::Status sent = socket.SendBytes({message, sizeof(message)});
  return sent.ok() ? socket.ReceiveBytes(message, kMeterMessageBytes) : sent;
}

absl::Status MeasureRoundTrips(const StreamSocket& socket, v1::LinkMeasurement& out) {
  std::vector<double> times;
  const auto end = steady_clock::now() + milliseconds(500);
  for (int i = 0; i < kMeterRoundTrips + 5 && steady_clock::now() < end; ++i) {
    const auto begun = steady_clock::now();
    const absl::Status status = RoundTrip(socket);
    if (!status.ok()) return status;
    if (i >= 5) times.push_back(MicrosecondsSince(begun));  // the first ones warm up
  }
  std::sort(times.begin(), times.end());
  out.set_round_trips(static_cast<uint32_t>(times.size()));
  out.set_round_trip_us_min(times.empty() ? 0 : times.front());
  out.set_round_trip_us_p50(Percentile(times, 50));
  out.set_round_trip_us_p99(Percentile(times, 99));
  return absl::OkStatus();
}

absl::Status Push(const StreamSocket& socket, uint64_t bytes) {
  const std::string piece(kPieceBytes, '\0');
  std::string head(1, kSwallow);
  head.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  absl::Status status = socket.SendBytes(head);
  for (uint64_t left = bytes; status.ok() && left > 0;) {
    const size_t count = std::min<uint64_t>(left, piece.size());
    status = socket.SendBytes({piece.data(), count});
    left -= count;
  }
  char done = 0;
  return status.ok() ? socket.ReceiveBytes(&done, 1) : status;
}

// Doubles the amount until the time is up, so that a slow link is not blocked for long.
absl::Status MeasureBandwidth(const StreamSocket& socket, v1::LinkMeasurement& out) {
  const auto end = steady_clock::now() + kMeterBandwidthTime;
  uint64_t total = 0, bytes = 256 << 10;
  double best = 0;
  while (steady_clock::now() < end && total + bytes <= kMeterBytesMax) {
    const auto begun = steady_clock::now();
    const absl::Status status = Push(socket, bytes);
    if (!status.ok()) return status;
    const double us = MicrosecondsSince(begun);
    best = std::max(best, static_cast<double>(bytes) / us * 1e6);
    total += bytes;
    if (us < 50'000) bytes *= 2;
  }
  out.set_bandwidth_bytes_per_second(best);
  out.set_bytes_total(total);
  return absl::OkStatus();
}

// Round trips between pushes of data: what a small message waits behind large ones.
absl::Status MeasureLoaded(const StreamSocket& socket, v1::LinkMeasurement& out) {
  std::vector<double> times;
  const auto end = steady_clock::now() + kLoadedTime;
  for (int i = 0; i < kLoadedRoundTrips && (i == 0 || steady_clock::now() < end); ++i) {
    const uint64_t bytes = kPieceBytes;
    const std::string piece(kPieceBytes, '\0');
    std::string head(1, kSwallow);
    head.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    absl::Status status = socket.SendBytes(head);
    if (status.ok()) status = socket.SendBytes(piece);
    if (!status.ok()) return status;
    const auto begun = steady_clock::now();
    char message[kMeterMessageBytes + 1] = {kEcho};
    status = socket.SendBytes({message, sizeof(message)});
    if (status.ok()) status = socket.ReceiveBytes(message, sizeof(message));
    if (!status.ok()) return status;
    times.push_back(MicrosecondsSince(begun));
  }
  std::sort(times.begin(), times.end());
  out.set_loaded_round_trip_us_p50(Percentile(times, 50));
  out.set_loaded_round_trip_us_p99(Percentile(times, 99));
  return absl::OkStatus();
}

}  // namespace

LinkMeter::~LinkMeter() {
  const std::lock_guard lock(mutex_);
  for (const auto& session : sessions_) {
    session->listener.ShutDown();
    const std::lock_guard inner(session->mutex);
    if (session->caller != nullptr) session->caller->ShutDown();
  }
  for (const auto& session : sessions_) session->thread.join();
}

absl::StatusOr<LinkMeter::Offer> LinkMeter::Open(const std::string& ip) {
  const std::lock_guard lock(mutex_);
  sessions_.remove_if([](const std::unique_ptr<Session>& session) {
    {
      const std::lock_guard inner(session->mutex);
      if (!session->ended) return false;
    }
    session->thread.join();
    return true;
  });
  if (sessions_.size() >= kMetersOpenMax) {
    return absl::ResourceExhaustedError(absl::StrCat(kMetersOpenMax, " meters are open"));
  }
  auto listener = StreamSocket::Listen(absl::StrCat(ip, ":0"));
  if (!listener.ok()) return listener.status();
  auto session = std::make_unique<Session>();
  session->listener = *std::move(listener);
  session->token.resize(kMeterTokenBytes);
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(session->token.data()), kMeterTokenBytes);
  MACRAME_CHECK(made == 1) << "the system gives no random bytes";
  const Offer offer{session->listener.LocalPort(), session->token};
  Session* raw = session.get();
  sessions_.push_back(std::move(session));
  raw->thread = std::thread([raw] {
    Serve(*raw);
    const std::lock_guard inner(raw->mutex);
    raw->ended = true;
  });
  return offer;
}

void LinkMeter::Serve(Session& session) {
  const auto end = steady_clock::now() + kMeterLife;
  while (steady_clock::now() < end) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    auto caller = session.listener.Accept(left);
    if (!caller.ok()) return;
    {
      const std::lock_guard lock(session.mutex);
      session.caller = &*caller;
    }
    char shown[kMeterTokenBytes];
    const auto soon = steady_clock::now() + kMeterTokenLimit;
    const bool known = caller->ReceiveBytesBefore(shown, sizeof(shown), soon).ok() &&
                       CRYPTO_memcmp(shown, session.token.data(), kMeterTokenBytes) == 0;
    if (known) Answer(*caller);
    const std::lock_guard lock(session.mutex);
    session.caller = nullptr;
    if (known) return;
  }
}

v1::LinkMeasurement MeasureLink(const MeterTarget& target) {
  v1::LinkMeasurement out;
  out.set_from_ip(target.from_ip);
  out.set_to_ip(target.to_ip);
  const auto failed = [&](const absl::Status& why) {
    *out.mutable_failure() = MakeReason(reasons::kLinkUnreachable,
                                        absl::StrCat("nothing passes from ", target.from_ip, " to ",
                                                     target.to_ip, ": ", why.message()));
    return out;
  };
  auto socket = StreamSocket::Connect(absl::StrCat(target.to_ip, ":", target.port),
                                      kMeterConnectLimit, target.from_ip);
  if (!socket.ok()) return failed(socket.status());
  socket->SetReceiveLimit(kMeterConnectLimit);
  absl::Status status = socket->SendBytes(target.token);
  if (status.ok()) status = MeasureRoundTrips(*socket, out);
  if (status.ok() && target.bandwidth) status = MeasureBandwidth(*socket, out);
  if (status.ok() && target.bandwidth) status = MeasureLoaded(*socket, out);
  return status.ok() ? out : failed(status);
}

}  // namespace macrame::transport
