#include "proto/bytes.h"

#include <array>

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

}  // namespace macrame
