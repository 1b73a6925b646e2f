#include "transport/collectives/peer_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

constexpr uint32_t kHeaderMark = 0x4d43524d;  // "MRCM"

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
#else
constexpr int kSendFlags = MSG_DONTWAIT;  // SO_NOSIGPIPE is set instead
#endif

}  // namespace

void PeerLink::QueueSend(std::span<const std::byte> bytes) {
  Message message;
  message.header = {kHeaderMark, sent_++, bytes.size()};
  message.data = const_cast<std::byte*>(bytes.data());
  message.bytes = bytes.size();
  sends_.push_back(message);
}

void PeerLink::QueueReceive(std::span<std::byte> bytes) {
  Message message;
  message.data = bytes.data();
  message.bytes = bytes.size();
  receives_.push_back(message);
}

absl::StatusOr<size_t> PeerLink::Pass(bool sends, iovec* pieces, int count) {
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(count);
  const int fd = connection_.socket.fd();
  const ssize_t passed =
      sends ? sendmsg(fd, &message, kSendFlags) : recvmsg(fd, &message, MSG_DONTWAIT);
  if (passed > 0) return static_cast<size_t>(passed);
  if (passed == 0 && !sends) return absl::UnavailableError("it closed the connection");
  if (passed == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
  return absl::UnavailableError(std::strerror(errno));
}

absl::Status PeerLink::CheckHeader(const Message& message) const {
  const Header& header = message.header;
  if (header.mark == kHeaderMark && header.number == received_ && header.bytes == message.bytes) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("message ", header.number, " of ", header.bytes,
                                          " bytes came, ", received_, " of ", message.bytes,
                                          " was expected"));
}

absl::StatusOr<size_t> PeerLink::PumpSend() {
  size_t all = 0;
  while (!sends_.empty()) {
    Message& message = sends_.front();
    if (!is_private()) {
      const auto passed = PumpSendSealed(message);
      if (!passed.ok()) return passed;
      all += *passed;
      if (!message.through() || sealed_done_ < sealed_size_) return all;
    } else {
      iovec pieces[2];
      int count = 0;
      const size_t header_left = kHeaderBytes - message.header_done;
      if (header_left > 0) {
        pieces[count++] = {reinterpret_cast<char*>(&message.header) + message.header_done,
                           header_left};
      }
      if (message.done < message.bytes) {
        pieces[count++] = {message.data + message.done, message.bytes - message.done};
      }
      const auto passed = Pass(/*sends=*/true, pieces, count);
      if (!passed.ok()) return passed;
      all += *passed;
      const size_t of_header = std::min(*passed, header_left);
      message.header_done += of_header;
      message.done += *passed - of_header;
      if (message.header_done < kHeaderBytes || message.done < message.bytes) return all;
    }
    sends_.pop_front();
  }
  return all;
}

void PeerLink::SealNext(Message& message) {
  const size_t size = message.Record();
  const bool is_first = !message.has_records;
  const size_t begin = is_first ? kHeaderBytes : 0;
  sealed_size_ = begin + size + kSealBytes;
  sealed_done_ = 0;
  if (sealed_.size() < sealed_size_) sealed_.resize(kHeaderBytes + kWireRecordBytes + kSealBytes);
  if (is_first) std::memcpy(sealed_.data(), &message.header, kHeaderBytes);
  std::byte* const out = sealed_.data() + begin;
  connection_.seal->Seal({sealed_.data(), begin}, {message.data + message.done, size}, out,
                         out + size);
  message.done += size;
  message.has_records = true;
}

absl::StatusOr<size_t> PeerLink::PumpSendSealed(Message& message) {
  if (sealed_done_ == sealed_size_) SealNext(message);
  iovec piece{sealed_.data() + sealed_done_, sealed_size_ - sealed_done_};
  const auto passed = Pass(/*sends=*/true, &piece, 1);
  if (passed.ok()) sealed_done_ += *passed;
  return passed;
}

absl::StatusOr<size_t> PeerLink::PumpReceive() {
  size_t all = 0;
  while (!receives_.empty()) {
    Message& message = receives_.front();
    const size_t record = is_private() ? message.bytes - message.done : message.Record();
    const size_t seal = is_private() ? 0 : kSealBytes;
    const size_t header_left = kHeaderBytes - message.header_done;
    const size_t data_done = std::min(message.record_done, record);
    iovec pieces[3];
    int count = 0;
    if (header_left > 0) {
      pieces[count++] = {reinterpret_cast<char*>(&message.header) + message.header_done,
                         header_left};
    }
    if (data_done < record) {
      pieces[count++] = {message.data + message.done + data_done, record - data_done};
    }
    const size_t seal_done = message.record_done - data_done;
    if (seal_done < seal) pieces[count++] = {seal_ + seal_done, seal - seal_done};
    const auto passed = Pass(/*sends=*/false, pieces, count);
    if (!passed.ok()) return passed;
    all += *passed;
    const size_t of_header = std::min(*passed, header_left);
    message.header_done += of_header;
    message.record_done += *passed - of_header;
    if (of_header > 0 && message.header_done == kHeaderBytes) {
      const absl::Status in_step = CheckHeader(message);
      if (!in_step.ok()) return in_step;
    }
    if (message.header_done < kHeaderBytes || message.record_done < record + seal) return all;
    const absl::Status opened = OpenRecord(message);
    if (!opened.ok()) return opened;
    if (!message.through()) return all;
    ++received_;
    receives_.pop_front();
  }
  return all;
}

// The record that begins at `done` is there.
absl::Status PeerLink::OpenRecord(Message& message) {
  const size_t size = is_private() ? message.bytes - message.done : message.Record();
  absl::Status opened;
  if (!is_private()) {
    const std::span<const std::byte> header(reinterpret_cast<const std::byte*>(&message.header),
                                            message.has_records ? 0 : kHeaderBytes);
    opened = connection_.open->Open(header, {message.data + message.done, size}, seal_);
  }
  message.done += size;
  message.record_done = 0;
  message.has_records = true;
  return opened;
}

}  // namespace macrame::transport
