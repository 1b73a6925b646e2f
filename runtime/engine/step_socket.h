#pragma once

// A TCP connection that carries length-prefixed frames, blocking, with limits. The small base of
// the step channel; nothing else uses it.

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::runtime::engine {

// Owns a file descriptor.
class StepSocket {
 public:
  StepSocket() = default;
  explicit StepSocket(int fd) : fd_(fd) {}
  StepSocket(StepSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StepSocket& operator=(StepSocket&& other) noexcept;
  ~StepSocket() { Close(); }

  // `address` is "ip:port" or "[ip6]:port". PORT_TAKEN when another program listens there.
  static absl::StatusOr<StepSocket> Listen(const std::string& address);
  // Tries again until `limit` has passed, since the other side may not be up yet.
  static absl::StatusOr<StepSocket> Connect(const std::string& address,
                                            std::chrono::milliseconds limit);
  // DEADLINE_EXCEEDED when nobody came.
  absl::StatusOr<StepSocket> Accept(std::chrono::milliseconds limit) const;

  absl::Status SendBytes(std::string_view bytes) const;
  absl::Status ReceiveBytes(char* out, size_t count) const;
  // At most kFrameBytesMax.
  absl::Status SendFrame(std::string_view payload) const;
  absl::StatusOr<std::string> ReceiveFrame() const;

  // For the two above; zero: none. Set during handshakes.
  void SetReceiveLimit(std::chrono::milliseconds limit) const;
  // Ends both directions: blocked calls of other threads return. The descriptor stays.
  void ShutDown() const;
  void Close();

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // The port that Listen got when it was asked for port 0.
  int LocalPort() const;

 private:
  int fd_ = -1;
};

}  // namespace macrame::runtime::engine
