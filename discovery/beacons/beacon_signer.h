#pragma once

// HMAC-SHA-256 under one key. The key is prepared once: a one-shot HMAC() of OpenSSL 3 spends ten
// times as long on finding its algorithm and preparing the key as on a beacon's 200 bytes, and an
// agent checks a beacon of each peer each half second. Owner thread.

#include <memory>
#include <string>
#include <string_view>

namespace macrame::discovery {

inline constexpr size_t kBeaconTagBytes = 32;

class BeaconSigner {
 public:
  explicit BeaconSigner(std::string_view key);
  ~BeaconSigner();
  BeaconSigner(BeaconSigner&&) noexcept;
  BeaconSigner& operator=(BeaconSigner&&) noexcept;

  std::string Tag(std::string_view bytes);
  // In constant time.
  bool TagFits(std::string_view bytes, std::string_view tag);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace macrame::discovery
