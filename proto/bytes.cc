#include "proto/bytes.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace macrame {

std::string FormatBytes(Bytes bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double amount = static_cast<double>(bytes.count());
  size_t unit = 0;
  // From here on a tenth would be rounded to 1024.0 of the unit.
  constexpr double kNextUnit = 1023.95;
  while (amount >= (unit == 0 ? 1024 : kNextUnit) && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes.count(), " B");
  return absl::StrFormat("%.1f %s", amount, kUnits[unit]);
}

absl::StatusOr<Bytes> ParseBytes(std::string_view text) {
  struct Unit {
    const char* name;
    double factor;
  };
  static constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                                   {"b", 1},
                                                   {"kib", 1024.0},
                                                   {"mib", 1024.0 * 1024},
                                                   {"gib", 1024.0 * 1024 * 1024},
                                                   {"tib", 1024.0 * 1024 * 1024 * 1024},
                                                   {"kb", 1e3},
                                                   {"mb", 1e6},
                                                   {"gb", 1e9},
                                                   {"tb", 1e12}}};
  const std::string trimmed(
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  const size_t digits = trimmed.find_first_not_of("0123456789.");
  const std::string number = trimmed.substr(0, digits);
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(
      digits == std::string::npos ? std::string() : trimmed.substr(digits)));
  double amount = 0;
  if (!number.empty() && absl::SimpleAtod(number, &amount) && std::isfinite(amount)) {
    for (const Unit& known : kUnits) {
      if (unit != known.name) continue;
      const double bytes = amount * known.factor;
      if (bytes >= static_cast<double>(std::numeric_limits<uint64_t>::max())) break;
      return Bytes(static_cast<uint64_t>(bytes));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", std::string(text), "' is not an amount of memory; write for example 512MiB or 1.5GiB"));
}

}  // namespace macrame
