#pragma once

// The messages between this rank and one other, over one TCP connection, both ways at once and
// without waiting. Internal to transport/collectives.
//
// A message is a header of 16 bytes (its number and length, so that ranks that got out of step are
// found out instead of adding the wrong numbers) and its bytes. Over a sealed connection the bytes
// go as records of kWireRecordBytes and a seal behind each, the first bound to the header; even an
// empty message has one. They are encrypted on the way to a buffer of one record, and decrypted
// where they are received.

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/gang/gang_connection.h"

namespace macrame::transport {

inline constexpr size_t kWireRecordBytes = 64 << 10;

class PeerLink {
 public:
  void Adopt(GangConnection connection) { connection_ = std::move(connection); }
  bool open() const { return connection_.socket.open(); }
  bool is_private() const { return !connection_.seal.has_value(); }
  const StreamSocket& socket() const { return connection_.socket; }

  // Memory must stay until the message is through.
  void QueueSend(std::span<const std::byte> bytes);
  void QueueReceive(std::span<std::byte> bytes);
  bool has_sends() const { return !sends_.empty(); }
  bool has_receives() const { return !receives_.empty(); }

  // Moves what can be moved at once, and gives the bytes that went over the connection.
  // UNAVAILABLE: the other side is gone. DATA_LOSS: what came is out of step or was altered.
  absl::StatusOr<size_t> PumpSend();
  absl::StatusOr<size_t> PumpReceive();

 private:
  struct Header {
    uint32_t mark;
    uint32_t number;  // of the message on this connection
    uint64_t bytes;
  };
  static constexpr size_t kHeaderBytes = sizeof(Header);
  static_assert(kHeaderBytes == 16);

  // A message on its way, header first.
  struct Message {
    Header header{};
    size_t header_done = 0;
    std::byte* data = nullptr;  // of a send it is only read
    size_t bytes = 0;
    size_t done = 0;
    // Sealed: of the record that begins at `done`.
    size_t record_done = 0;    // bytes of it and its seal that have come
    bool has_records = false;  // at least one went or came whole

    size_t Record() const { return std::min(bytes - done, kWireRecordBytes); }
    bool through() const { return has_records && done == bytes; }
  };

  void SealNext(Message& message);
  absl::StatusOr<size_t> PumpSendSealed(Message& message);
  absl::Status CheckHeader(const Message& message) const;
  absl::Status OpenRecord(Message& message);
  // Bytes that passed; 0: none can now.
  absl::StatusOr<size_t> Pass(bool sends, iovec* pieces, int count);

  GangConnection connection_;
  std::deque<Message> sends_, receives_;
  uint32_t sent_ = 0, received_ = 0;  // messages so far
  std::vector<std::byte> sealed_;     // what of a record goes over the connection
  size_t sealed_done_ = 0, sealed_size_ = 0;
  std::byte seal_[kSealBytes] = {};  // of the record that is coming
};

}  // namespace macrame::transport
