#pragma once

// A TCP connection of a gang: bytes or length-prefixed frames, blocking, with limits. Under the
// step channel and the TCP wire. One thread at a time, but for ShutDown.

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::transport {

inline constexpr size_t kFrameBytesMax = 64 * 1024;  // longer ones end the connection

// Owns a file descriptor.
class StreamSocket {
 public:
  StreamSocket() = default;
  explicit StreamSocket(int fd) : fd_(fd) {}
  StreamSocket(StreamSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StreamSocket& operator=(StreamSocket&& other) noexcept;
  ~StreamSocket() { Close(); }

  // `address` is "ip:port" or "[ip6]:port", else INVALID_ARGUMENT. PORT_TAKEN when another program
  // listens there.
  static absl::StatusOr<StreamSocket> Listen(const std::string& address);
  // Listens on a socket that is bound already, and takes it over.
  static absl::StatusOr<StreamSocket> ListenAt(int bound_fd);
  // Tries again until `limit` has passed, since the other side may not be up yet.
  // `source_ip`: the own address that it leaves from; empty: the system's choice.
  static absl::StatusOr<StreamSocket> Connect(const std::string& address,
                                              std::chrono::milliseconds limit,
                                              const std::string& source_ip = "");
  // DEADLINE_EXCEEDED when nobody came.
  absl::StatusOr<StreamSocket> Accept(std::chrono::milliseconds limit) const;

  absl::Status SendBytes(std::string_view bytes) const;
  absl::Status ReceiveBytes(char* out, size_t count) const;
  // All of it before `end`, however it drips in. DEADLINE_EXCEEDED: it did not come.
  absl::Status ReceiveBytesBefore(char* out, size_t count,
                                  std::chrono::steady_clock::time_point end) const;
  // At most kFrameBytesMax.
  absl::Status SendFrame(std::string_view payload) const;
  absl::StatusOr<std::string> ReceiveFrame() const;

  // For the two above; zero: none. Set during handshakes.
  void SetReceiveLimit(std::chrono::milliseconds limit) const;
  // Ends both directions: blocked calls of other threads return. The descriptor stays.
  void ShutDown() const;
  void Close();

  // Gives the descriptor up to the caller.
  int Release() { return std::exchange(fd_, -1); }
  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // The port that Listen got when it was asked for port 0.
  int LocalPort() const;
  // The other side's address without its port, IPv4 as such; empty when there is none.
  std::string PeerIp() const;
  // The address that it is bound to, in the same way.
  std::string LocalIp() const;

 private:
  int fd_ = -1;
};

}  // namespace macrame::transport
