#pragma once

// One TLS 1.3 connection with a limit in time; of the join port, in frames. Internal to
// enrolment.cc and find_agent.cc. One thread.

#include <openssl/ssl.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/monotonic_time.h"

namespace macrame::transport {

struct FreeSsl {
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
};
using OwnedContext = std::unique_ptr<SSL_CTX, FreeSsl>;

class TlsStream {
 public:
  // Owns `fd`, which is non-blocking. `stopping`, when there is one, ends every wait.
  TlsStream(SSL_CTX* context, int fd, MonotonicTime until, const std::atomic<bool>* stopping);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  absl::Status Accept();
  absl::Status Connect();
  absl::Status SendFrame(const std::string& payload);
  absl::StatusOr<std::string> ReceiveFrame(size_t bytes_max);
  // Until the other side has said something, which is left unread.
  absl::Status AwaitData();
  // A key that only the two ends of this connection know. After the handshake.
  std::string Exported(size_t bytes) const;
  SSL* ssl() const { return ssl_.get(); }

 private:
  template <typename Call>
  absl::Status Drive(const Call& call);
  absl::Status Send(const char* bytes, size_t count);
  absl::Status Receive(char* bytes, size_t count);

  std::unique_ptr<SSL, FreeSsl> ssl_;
  const int fd_;
  const MonotonicTime until_;
  const std::atomic<bool>* const stopping_;
};

// CLOCK_WRONG when `why` (an X509_V_…) is about dates; else OK. `where`: who showed the
// certificate.
absl::Status CheckDates(long why, const std::string& where);

// Now, by the clock that `until` is of.
MonotonicTime TlsNow();
// Waits until `fd` is ready for `events` (poll's). False: the time is over, or `stopping`.
bool WaitForFd(int fd, short events, MonotonicTime until, const std::atomic<bool>* stopping);

}  // namespace macrame::transport
