#pragma once

// Bytes that nobody should find in memory once they have been used: they are overwritten when their
// holder goes, also in each copy.

#include <string>
#include <string_view>
#include <utility>

#include "transport/wipe.h"

namespace macrame::transport {

class SecretBytes {
 public:
  SecretBytes() = default;
  explicit SecretBytes(size_t size) : bytes_(size, '\0') {}
  SecretBytes(std::string bytes) : bytes_(std::move(bytes)) {}  // NOLINT: a secret is one at once
  ~SecretBytes() { Wipe(bytes_); }
  SecretBytes(const SecretBytes&) = default;
  SecretBytes& operator=(const SecretBytes& other) {
    if (this != &other) {
      Wipe(bytes_);
      bytes_ = other.bytes_;
    }
    return *this;
  }
  // The source is left empty and wiped: a short string's bytes are copied by a move.
  SecretBytes(SecretBytes&& other) noexcept : bytes_(std::move(other.bytes_)) {
    Wipe(other.bytes_);
  }
  SecretBytes& operator=(SecretBytes&& other) noexcept {
    if (this != &other) {
      Wipe(bytes_);
      bytes_ = std::move(other.bytes_);
      Wipe(other.bytes_);
    }
    return *this;
  }

  std::string_view view() const { return bytes_; }
  const unsigned char* data() const {
    return reinterpret_cast<const unsigned char*>(bytes_.data());
  }
  unsigned char* data() { return reinterpret_cast<unsigned char*>(bytes_.data()); }
  size_t size() const { return bytes_.size(); }

 private:
  std::string bytes_;
};

}  // namespace macrame::transport
