#pragma once

// Frames over a connection between two ranks, each a sealed record (record_cipher.h) behind its
// length. What was altered, repeated, left out or put in another order on the way ends the
// connection: DATA_LOSS, and no frame comes after it. That one end closed is UNAVAILABLE.
//
// One thread sends, one receives, any may shut down.

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/gang/gang_connection.h"
#include "transport/stream_socket.h"

namespace macrame::transport {

class SealedSocket {
 public:
  SealedSocket() = default;
  // Of a link that is sealed.
  explicit SealedSocket(GangConnection connection);

  // At most kFrameBytesMax.
  absl::Status SendFrame(std::string_view payload);
  absl::StatusOr<std::string> ReceiveFrame();

  void SetReceiveLimit(std::chrono::milliseconds limit) const { socket_.SetReceiveLimit(limit); }
  void ShutDown() const { socket_.ShutDown(); }
  void Close() { socket_.Close(); }
  bool open() const { return socket_.open(); }
  int fd() const { return socket_.fd(); }

 private:
  absl::StatusOr<std::string> Receive();

  StreamSocket socket_;
  std::optional<RecordCipher> seal_, open_;
  absl::Status sending_, receiving_;  // what ended it
};

}  // namespace macrame::transport
