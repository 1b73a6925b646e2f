#include "cli/duration.h"

#include "absl/strings/numbers.h"

namespace macrame::cli {

std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text,
                                                       std::chrono::hours longest) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = text.substr(digits);
  int64_t count = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &count)) return std::nullopt;
  const int64_t factor = unit == "ms"                  ? 1
                         : unit.empty() || unit == "s" ? 1000
                         : unit == "m"                 ? 60'000
                         : unit == "h"                 ? 3'600'000
                         : unit == "d"                 ? 86'400'000
                                                       : 0;
  const int64_t most = std::chrono::milliseconds(longest).count();
  if (factor == 0 || count <= 0 || count > most / factor) return std::nullopt;
  return std::chrono::milliseconds(count * factor);
}

CLI::Validator IsDuration() {
  return CLI::Validator(
      [](std::string& text) {
        return ParseDuration(text).has_value()
                   ? std::string()
                   : "'" + text + "' is no length of time up to 24h; write 90s, 10m or 1h";
      },
      "DURATION");
}

CLI::Validator IsLongDuration() {
  return CLI::Validator(
      [](std::string& text) {
        return ParseDuration(text, kLongDurationMax).has_value()
                   ? std::string()
                   : "'" + text + "' is no length of time up to ten years; write 12h or 30d";
      },
      "DURATION");
}

uint64_t NowUnixMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

uint64_t UnixMsBefore(const std::string& text, std::chrono::hours most) {
  const uint64_t now = NowUnixMs();
  const auto length = static_cast<uint64_t>(ParseDuration(text, most).value().count());
  return length < now ? now - length : 0;
}

}  // namespace macrame::cli
