#include "discovery/parsers/panic_report_parser.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "discovery/base/plain_text.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

using nlohmann::json;

constexpr size_t kHeaderBytesMax = 4096;
constexpr char kKernelPanic[] = "210";
// More than what the kernel says takes before its clock, which stands some 30 lines below.
constexpr size_t kSaidBytesMax = size_t{64} << 10;
// A report is written at the next start. One that is found later than this tells another clock.
constexpr uint64_t kReportDelayMsMax = uint64_t{7} * 24 * 3600 * 1000;
// The kernel's clock and that of the next start are set apart.
constexpr uint64_t kClockSlackMs = 60'000;

std::string TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A number of just so many digits at `at`.
std::optional<int> Digits(std::string_view text, size_t at, size_t count) {
  if (at + count > text.size()) return std::nullopt;
  int number = 0;
  for (const char digit : text.substr(at, count)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  return number;
}

// "2026-11-20 10:11:12.00 +0100"
std::optional<uint64_t> ParseTimestamp(std::string_view text) {
  const auto year = Digits(text, 0, 4), month = Digits(text, 5, 2), day = Digits(text, 8, 2);
  const auto hour = Digits(text, 11, 2), minute = Digits(text, 14, 2), second = Digits(text, 17, 2);
  const size_t zone = text.rfind(' ');
  if (!year || !month || !day || !hour || !minute || !second || zone == text.npos) {
    return std::nullopt;
  }
  const auto zone_hours = Digits(text, zone + 2, 2), zone_minutes = Digits(text, zone + 4, 2);
  if (!zone_hours || !zone_minutes || (text[zone + 1] != '+' && text[zone + 1] != '-')) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *year < 1971 || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const int64_t east = (text[zone + 1] == '+' ? 60 : -60) * (*zone_hours * 60 + *zone_minutes);
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const int64_t seconds = days * 86'400 + *hour * 3600 + *minute * 60 + *second - east;
  return static_cast<uint64_t>(seconds) * 1000;
}

// What stands behind `"key" : "`, up to where it is cut; nullopt when there is none.
std::optional<std::string_view> StringBehind(std::string_view body, std::string_view key) {
  size_t at = body.find(key);
  if (at == body.npos) return std::nullopt;
  at = body.find_first_not_of(" \t", at + key.size());
  if (at == body.npos || body[at] != ':') return std::nullopt;
  at = body.find_first_not_of(" \t", at + 1);
  if (at == body.npos || body[at] != '"') return std::nullopt;
  return body.substr(at + 1, kSaidBytesMax);
}

// The first line of a JSON string that may be cut. Escapes of other characters are left as they
// are.
std::string FirstLine(std::string_view said) {
  std::string line;
  for (size_t i = 0; i < said.size() && line.size() < kPanicTextBytesMax; ++i) {
    if (said[i] == '"' || said[i] == '\n') break;
    if (said[i] != '\\') {
      line += said[i];
      continue;
    }
    ++i;
    if (i == said.size() || said[i] == 'n' || said[i] == 'r') break;
    if (std::string_view("\"\\/t").find(said[i]) == std::string_view::npos) line += '\\';
    line += said[i] == 't' ? ' ' : said[i];
  }
  return ToPlainText(Trim(line), kPanicTextBytesMax);
}

// "  Calendar: 0x6aa7f1cb 0x000025dd": seconds and microseconds of the kernel's own clock.
std::optional<uint64_t> CalendarMs(std::string_view said) {
  constexpr std::string_view kLabel = "Calendar: 0x";
  constexpr size_t kHexDigits = 8;
  const size_t at = said.find(kLabel);
  if (at == said.npos || at + kLabel.size() + kHexDigits > said.size()) return std::nullopt;
  uint64_t seconds = 0;
  for (const char digit : said.substr(at + kLabel.size(), kHexDigits)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const size_t value = kDigits.find(digit);
    if (value == kDigits.npos) return std::nullopt;
    seconds = seconds * 16 + value;
  }
  return seconds * 1000;
}

}  // namespace

std::optional<PanicReportText> ParsePanicReport(std::string_view report) {
  const size_t end = report.find('\n');
  if (end == report.npos || end > kHeaderBytesMax) return std::nullopt;
  const std::string_view first = report.substr(0, end);
  const json header = json::parse(first.begin(), first.end(), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || TextOf(header, "bug_type") != kKernelPanic) return std::nullopt;
  const std::optional<uint64_t> written = ParseTimestamp(TextOf(header, "timestamp"));
  if (!written) return std::nullopt;
  PanicReportText panic;
  panic.unix_ms = panic.written_unix_ms = *written;
  panic.incident_id = ToPlainText(TextOf(header, "incident_id"), kFactBytesMax);
  const std::string_view body = report.substr(end + 1);
  auto said = StringBehind(body, "\"macOSPanicString\"");
  if (!said) said = StringBehind(body, "\"panicString\"");
  if (!said) return panic;
  panic.text = FirstLine(*said);
  const auto clock = CalendarMs(*said);
  if (clock && *clock <= *written + kClockSlackMs && *clock + kReportDelayMsMax >= *written) {
    panic.unix_ms = *clock;
  }
  return panic;
}

}  // namespace macrame::discovery
