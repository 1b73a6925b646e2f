#include "transport/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

constexpr char kExportLabel[] = "EXPORTER-macrame-join";
// A wait looks so often whether its listener stops.
constexpr int kStopPollMs = 50;
constexpr size_t kLengthBytes = 4;

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;  // SO_NOSIGPIPE is set instead
#endif

int FdOf(BIO* bio) { return *static_cast<const int*>(BIO_get_data(bio)); }

int ReadSocket(BIO* bio, char* out, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(FdOf(bio), out, static_cast<size_t>(count), 0);
  if (got < 0 && BIO_sock_non_fatal_error(errno) != 0) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int WriteSocket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(FdOf(bio), bytes, static_cast<size_t>(count), kSendFlags);
  if (sent < 0 && BIO_sock_non_fatal_error(errno) != 0) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// OpenSSL's own kind writes in a way that ends a process, by SIGPIPE, when the other side is gone.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "macrame socket");
    MACRAME_CHECK(made != nullptr && BIO_meth_set_read(made, &ReadSocket) == 1 &&
                  BIO_meth_set_write(made, &WriteSocket) == 1 &&
                  BIO_meth_set_ctrl(made, &ControlSocket) == 1);
    return made;
  }();
  return method;
}

}  // namespace

MonotonicTime TlsNow() {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

bool WaitForFd(int fd, short events, MonotonicTime until, const std::atomic<bool>* stopping) {
  while (stopping == nullptr || !*stopping) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TlsNow()).count();
    if (left <= 0) return false;
    pollfd watched{fd, events, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(std::min<int64_t>(left, kStopPollMs)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

absl::Status CheckDates(long why, const std::string& where) {
  if (why != X509_V_ERR_CERT_NOT_YET_VALID && why != X509_V_ERR_CERT_HAS_EXPIRED) {
    return absl::OkStatus();
  }
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kClockWrong,
                      absl::StrCat("the certificate of ", where, " is ",
                                   why == X509_V_ERR_CERT_HAS_EXPIRED ? "expired" : "not valid yet",
                                   " by this machine's clock: one of the two clocks is wrong"));
}

TlsStream::TlsStream(SSL_CTX* context, int fd, MonotonicTime until,
                     const std::atomic<bool>* stopping)
    : ssl_(SSL_new(context)), fd_(fd), until_(until), stopping_(stopping) {
  BIO* bio = BIO_new(SocketMethod());
  MACRAME_CHECK(ssl_ != nullptr && bio != nullptr);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
  // It reads `fd_`, which lives as long.
  BIO_set_data(bio, const_cast<int*>(&fd_));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes it over
}

TlsStream::~TlsStream() {
  // "No more": without it the last frame might be lost with the connection.
  ERR_clear_error();
  if (SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  ::close(fd_);
}

template <typename Call>
absl::Status TlsStream::Drive(const Call& call) {
  while (true) {
    ERR_clear_error();
    const int got = call();
    if (got > 0) return absl::OkStatus();
    const int why = SSL_get_error(ssl_.get(), got);
    const short events = why == SSL_ERROR_WANT_READ    ? POLLIN
                         : why == SSL_ERROR_WANT_WRITE ? POLLOUT
                                                       : 0;
    if (events == 0) {
      const unsigned long error = ERR_peek_error();
      const char* text = error == 0 ? nullptr : ERR_reason_error_string(error);
      return absl::UnavailableError(text == nullptr ? "the connection was closed" : text);
    }
    if (!WaitForFd(fd_, events, until_, stopping_)) {
      return absl::DeadlineExceededError("the other side did not go on in time");
    }
  }
}

absl::Status TlsStream::Accept() {
  return Drive([this] { return SSL_accept(ssl_.get()); });
}

absl::Status TlsStream::Connect() {
  return Drive([this] { return SSL_connect(ssl_.get()); });
}

absl::Status TlsStream::Send(const char* bytes, size_t count) {
  return Drive([&] { return SSL_write(ssl_.get(), bytes, static_cast<int>(count)); });
}

absl::Status TlsStream::Receive(char* bytes, size_t count) {
  size_t done = 0;
  while (done < count) {
    int got = 0;
    const absl::Status status = Drive([&] {
      got = SSL_read(ssl_.get(), bytes + done, static_cast<int>(count - done));
      return got;
    });
    if (!status.ok()) return status;
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status TlsStream::SendFrame(const std::string& payload) {
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) {
    frame.push_back(static_cast<char>((payload.size() >> shift) & 0xff));
  }
  frame += payload;
  return Send(frame.data(), frame.size());
}

absl::StatusOr<std::string> TlsStream::ReceiveFrame(size_t bytes_max) {
  unsigned char length[kLengthBytes];
  absl::Status status = Receive(reinterpret_cast<char*>(length), sizeof(length));
  if (!status.ok()) return status;
  size_t size = 0;
  for (const unsigned char byte : length) size = size << 8 | byte;
  if (size > bytes_max) return absl::InvalidArgumentError("a frame is too long");
  std::string payload(size, '\0');
  if (size > 0) status = Receive(payload.data(), size);
  if (!status.ok()) return status;
  return payload;
}

absl::Status TlsStream::AwaitData() {
  char first = 0;
  return Drive([&] { return SSL_peek(ssl_.get(), &first, 1); });
}

std::string TlsStream::Exported(size_t bytes) const {
  std::string key(bytes, '\0');
  MACRAME_CHECK(SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(key.data()),
                                           key.size(), kExportLabel, sizeof(kExportLabel) - 1,
                                           nullptr, 0, 0) == 1);
  return key;
}

}  // namespace macrame::transport
