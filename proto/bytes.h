#pragma once

// An amount of memory or disk. Inside the product amounts are whole bytes; people see GiB.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace macrame {

inline constexpr uint64_t kBytesPerGiB = uint64_t{1} << 30;

class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(uint64_t count) : count_(count) {}
  static constexpr Bytes GiB(uint64_t n) { return Bytes(n << 30); }

  constexpr uint64_t count() const { return count_; }
  constexpr auto operator<=>(const Bytes&) const = default;

  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  // Never below zero: what is asked is "how much is left".
  friend constexpr Bytes operator-(Bytes a, Bytes b) {
    return Bytes(a.count_ > b.count_ ? a.count_ - b.count_ : 0);
  }
  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }

 private:
  uint64_t count_ = 0;
};

// "512 B", "4.1 MiB", "36.0 GiB": three significant digits or so, for people.
std::string FormatBytes(Bytes bytes);

}  // namespace macrame
