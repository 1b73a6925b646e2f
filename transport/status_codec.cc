#include "transport/status_codec.h"

#include "proto/reasons.h"

namespace macrame::transport {
namespace {

// What a byte takes in grpc-message, where all but plain ASCII is percent-encoded.
size_t EncodedBytes(char byte) { return byte < ' ' || byte > '~' || byte == '%' ? 3 : 1; }
size_t OneByte(char) { return 1; }

// Cut to kReasonTextBytesMax, at a character's begin: half a character would make the message
// unparsable.
void CutText(std::string* text, size_t (*bytes_of)(char) = &OneByte) {
  size_t end = 0;
  for (size_t bytes = 0; end < text->size(); ++end) {
    bytes += bytes_of((*text)[end]);
    if (bytes > kReasonTextBytesMax) break;
  }
  if (end == text->size()) return;
  while (end > 0 && (static_cast<unsigned char>((*text)[end]) & 0xC0) == 0x80) --end;
  text->resize(end);
  text->append("…");
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  CutText(&message, &EncodedBytes);
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const auto payload =
      status.GetPayload(absl::string_view(kReasonPayloadUrl.data(), kReasonPayloadUrl.size()));
  if (!payload.has_value()) return grpc::Status(code, message);
  v1::Reason reason = ReasonOf(status);
  CutText(reason.mutable_message());
  CutText(reason.mutable_remedy());
  CutText(reason.mutable_evidence());
  return grpc::Status(code, message, reason.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // gRPC and Abseil number their codes alike; anything else came from a broken peer.
  const int code = static_cast<int>(status.error_code());
  const auto known =
      code >= 1 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
  absl::Status result(known, status.error_message());
  v1::Reason reason;
  const std::string details = status.error_details();
  if (!details.empty() && reason.ParseFromString(details) && !reason.code().empty()) {
    result.SetPayload(absl::string_view(kReasonPayloadUrl.data(), kReasonPayloadUrl.size()),
                      absl::Cord(details));
  }
  return result;
}

bool IsConnectionRefused(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable &&
         (status.message().find("Connection refused") != absl::string_view::npos ||
          status.message().find("No such file or directory") != absl::string_view::npos);
}

bool IsHandshakeFailure(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable || IsConnectionRefused(status)) return false;
  // How gRPC, from 1.51 on, words a handshake that this side ended, and one that the other did.
  for (const absl::string_view words : {"andshake", "ertificate", "Socket closed",
                                        "onnection reset", "roken pipe", "Endpoint read failed"}) {
    if (status.message().find(words) != absl::string_view::npos) return true;
  }
  return false;
}

}  // namespace macrame::transport
