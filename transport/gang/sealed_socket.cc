#include "transport/gang/sealed_socket.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::transport {
namespace {

constexpr size_t kLengthBytes = 4;

std::byte* Bytes(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

}  // namespace

SealedSocket::SealedSocket(GangConnection connection)
    : socket_(std::move(connection.socket)),
      seal_(std::move(connection.seal)),
      open_(std::move(connection.open)) {
  MACRAME_CHECK(seal_.has_value() && open_.has_value()) << "a connection that is not sealed";
}

absl::Status SealedSocket::SendFrame(std::string_view payload) {
  if (!sending_.ok()) return sending_;
  if (payload.size() > kFrameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", payload.size(), " bytes"));
  }
  std::string frame(kLengthBytes + payload.size() + kSealBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) {
    frame[i] = static_cast<char>(payload.size() >> (8 * i) & 0xff);
  }
  std::byte* const bytes = Bytes(frame);
  seal_->Seal({bytes, kLengthBytes},
              {reinterpret_cast<const std::byte*>(payload.data()), payload.size()},
              bytes + kLengthBytes, bytes + kLengthBytes + payload.size());
  sending_ = socket_.SendBytes(frame);
  return sending_;
}

absl::StatusOr<std::string> SealedSocket::ReceiveFrame() {
  if (!receiving_.ok()) return receiving_;
  auto payload = Receive();
  receiving_ = payload.status();
  return payload;
}

absl::StatusOr<std::string> SealedSocket::Receive() {
  std::string length(kLengthBytes, '\0');
  absl::Status status = socket_.ReceiveBytes(length.data(), length.size());
  if (!status.ok()) return status;
  size_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= size_t{static_cast<unsigned char>(length[i])} << (8 * i);
  }
  if (size > kFrameBytesMax)
    return absl::DataLossError(absl::StrCat("a frame of ", size, " bytes"));
  std::string payload(size + kSealBytes, '\0');
  status = socket_.ReceiveBytes(payload.data(), payload.size());
  if (!status.ok()) return status;
  std::byte* const bytes = Bytes(payload);
  status = open_->Open({Bytes(length), kLengthBytes}, {bytes, size}, bytes + size);
  if (!status.ok()) return status;
  payload.resize(size);
  return payload;
}

}  // namespace macrame::transport
