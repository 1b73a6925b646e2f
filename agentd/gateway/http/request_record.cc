#include "agentd/gateway/http/request_record.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace macrame::agentd {
namespace {

constexpr std::array<absl::string_view, 8> kMethods = {"GET",    "HEAD",  "POST",    "PUT",
                                                       "DELETE", "PATCH", "OPTIONS", "TRACE"};
constexpr size_t kClientWordBytesShown = 128;

double Ms(RequestRecord::Clock::duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

// What the client chose, in single quotes: LogGuard counts lines that differ in quoted words alone
// as one kind. No quote stands within, so that none of it is outside.
std::string InSingleQuotes(absl::string_view text) {
  const std::string escaped = absl::CHexEscape(text.substr(0, kClientWordBytesShown));
  return absl::StrCat("'", absl::StrReplaceAll(escaped, {{"\\'", "\\x27"}}), "'");
}

}  // namespace

std::string MethodName(absl::string_view method) {
  const bool known = std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
  return known ? std::string(method) : "other";
}

std::optional<std::chrono::nanoseconds> FirstByteOverhead(const RequestRecord& record) {
  if (!record.read || !record.handed_on || !record.first_piece || !record.first_byte) {
    return std::nullopt;
  }
  const auto before = *record.handed_on - *record.read;
  const auto after = *record.first_byte - *record.first_piece;
  return std::max<std::chrono::nanoseconds>(before + after, std::chrono::nanoseconds(0));
}

std::string AccessLine(const RequestRecord& record) {
  std::string line = absl::StrFormat("%s %s %d sent=%d received=%d total_ms=%.1f", record.method,
                                     record.route, record.status, record.bytes_sent,
                                     record.bytes_received, Ms(record.ended - record.begun));
  if (record.first_byte.has_value()) {
    absl::StrAppendFormat(&line, " first_byte_ms=%.1f", Ms(*record.first_byte - record.begun));
  }
  absl::StrAppend(&line, " client=", record.client_address,
                  " request_id=", InSingleQuotes(record.request_id));
  if (!record.model.empty()) absl::StrAppend(&line, " model=", InSingleQuotes(record.model));
  if (!record.trace_id.empty()) absl::StrAppend(&line, " trace_id=", record.trace_id);
  if (record.client_gone) absl::StrAppend(&line, " client_gone");
  return line;
}

bool IsProbe(absl::string_view route) {
  return route == "/health" || route == "/metrics" || route == "/version";
}

}  // namespace macrame::agentd
