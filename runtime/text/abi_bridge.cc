#include "runtime/text/abi_bridge.h"

#include <utility>

#include "proto/reasons.h"

namespace macrame::runtime::text {

std::string TakeString(MacrameTextBytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  macrame_text_bytes_free(bytes);
  return text;
}

std::vector<int32_t> TakeIds(MacrameTextIds ids) {
  std::vector<int32_t> out(ids.data, ids.data + ids.size);
  macrame_text_ids_free(ids);
  return out;
}

absl::Status TakeStatus(MacrameTextStatus status, MacrameTextBytes error,
                        const FailureReasons& reasons) {
  if (status == 0) return absl::OkStatus();
  std::string message = error.data == nullptr ? "the text library failed" : TakeString(error);
  const auto code = static_cast<absl::StatusCode>(status);
  switch (code) {
    case absl::StatusCode::kAborted:
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kTemplateRefused,
                          std::move(message));
    case absl::StatusCode::kInvalidArgument:
      return ReasonStatus(code, reasons.arguments, std::move(message));
    case absl::StatusCode::kOutOfRange:
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kPromptTooLong,
                          std::move(message));
    case absl::StatusCode::kUnavailable:
      return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueFull,
                          std::move(message));
    case absl::StatusCode::kNotFound:
      return ReasonStatus(code, reasons.missing, std::move(message));
    case absl::StatusCode::kInternal:
      return ReasonStatus(code, reasons::kInternal, std::move(message));
    default:
      return ReasonStatus(code, reasons.broken, std::move(message));
  }
}

}  // namespace macrame::runtime::text
