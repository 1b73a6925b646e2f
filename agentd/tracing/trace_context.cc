#include "agentd/tracing/trace_context.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

constexpr size_t kVersionDigits = 2;
constexpr size_t kFlagDigits = 2;
constexpr size_t kStateKeyBytesMax = 256, kStateValueBytesMax = 256;

bool IsLowerHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(absl::string_view digits) {
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c == '0'; });
}

// Consumes so many digits, and the dash behind them.
bool ConsumeHex(absl::string_view* text, size_t digits, bool has_dash, absl::string_view* out) {
  if (text->size() < digits + (has_dash ? 1 : 0)) return false;
  *out = text->substr(0, digits);
  if (!IsLowerHex(*out) || (has_dash && (*text)[digits] != '-')) return false;
  text->remove_prefix(digits + (has_dash ? 1 : 0));
  return true;
}

bool IsStateKey(absl::string_view key) {
  if (key.empty() || key.size() > kStateKeyBytesMax) return false;
  const char first = key[0];
  if (!absl::ascii_islower(static_cast<unsigned char>(first)) &&
      !absl::ascii_isdigit(static_cast<unsigned char>(first))) {
    return false;
  }
  return std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '*' ||
           c == '/' || c == '@';
  });
}

bool IsStateValue(absl::string_view value) {
  if (value.empty() || value.size() > kStateValueBytesMax || value.back() == ' ') return false;
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= 0x20 && c <= 0x7e && c != ',' && c != '='; });
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(const std::vector<absl::string_view>& headers) {
  if (headers.size() != 1) return std::nullopt;
  absl::string_view text = headers.front();
  absl::string_view version, trace, span, flags;
  if (!ConsumeHex(&text, kVersionDigits, true, &version) ||
      !ConsumeHex(&text, kTraceIdDigits, true, &trace) ||
      !ConsumeHex(&text, kSpanIdDigits, true, &span) ||
      !ConsumeHex(&text, kFlagDigits, false, &flags)) {
    return std::nullopt;
  }
  if (version == "ff" || IsZero(trace) || IsZero(span)) return std::nullopt;
  const bool may_go_on = version != "00" && !text.empty() && text[0] == '-';
  if (!text.empty() && !may_go_on) return std::nullopt;
  uint32_t bits = 0;
  if (!absl::SimpleHexAtoi(flags, &bits)) return std::nullopt;
  TraceContext context;
  context.trace_id = std::string(trace);
  context.parent_id = std::string(span);
  context.flags = bits & (kTraceSampled | kTraceRandom);
  return context;
}

std::string ParseTracestate(const std::vector<absl::string_view>& headers) {
  std::string state;
  std::set<absl::string_view> keys;
  for (const absl::string_view header : headers) {
    for (absl::string_view member : absl::StrSplit(header, ',')) {
      member = absl::StripAsciiWhitespace(member);
      if (member.empty()) continue;
      const size_t equals = member.find('=');
      if (equals == absl::string_view::npos) return "";
      const absl::string_view key = member.substr(0, equals);
      if (!IsStateKey(key) || !IsStateValue(member.substr(equals + 1))) return "";
      if (!keys.insert(key).second || keys.size() > kTracestateMembersMax) return "";
      absl::StrAppend(&state, state.empty() ? "" : ",", member);
      if (state.size() > kTracestateBytesMax) return "";
    }
  }
  return state;
}

std::string TraceparentOf(absl::string_view trace_id, absl::string_view span_id, uint32_t flags) {
  return absl::StrCat("00-", trace_id, "-", span_id, "-", absl::Hex(flags, absl::kZeroPad2));
}

bool IsInRatio(absl::string_view trace_id, double ratio) {
  if (ratio >= 1) return true;
  if (!(ratio > 0) || trace_id.size() != kTraceIdDigits) return false;
  uint64_t low = 0;
  if (!absl::SimpleHexAtoi(trace_id.substr(kTraceIdDigits / 2), &low)) return false;
  // 63 bits, as the samplers of OpenTelemetry take them.
  return low >> 1 < static_cast<uint64_t>(ratio * 9223372036854775808.0);
}

}  // namespace macrame::agentd
