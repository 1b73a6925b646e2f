#pragma once

// One direction of a sealed connection: records are encrypted and authenticated with AES-256-GCM,
// in the way of TLS 1.3's record layer. Each record's nonce is the key's own start value with the
// record's number in it, and numbers are never sent: a record that was altered, repeated, left out
// or put in another place does not open.
//
// Keys come from a traffic secret. After kRecordsPerKey records both sides go on to the next one by
// themselves (AES-GCM hides less the more one key has sealed), and the old one is wiped.

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::transport {

inline constexpr size_t kTrafficSecretBytes = 32;
inline constexpr size_t kSealBytes = 16;  // that a record is longer than what is in it
inline constexpr size_t kRecordBytesMax = 1 << 20;
// Of 64 KiB each, 64 GiB: 2^32 blocks of AES, far from where TLS 1.3 (RFC 8446, 5.5) draws its
// line.
inline constexpr uint64_t kRecordsPerKey = 1 << 20;

// HKDF with SHA-256 (RFC 5869): `size` bytes, at most 255 * 32.
SecretBytes DeriveKey(const SecretBytes& secret, std::string_view salt, std::string_view info,
                      size_t size);

class RecordCipher {
 public:
  enum class Use { kSeal, kOpen };
  // `secret` has kTrafficSecretBytes.
  RecordCipher(Use use, SecretBytes secret, uint64_t records_per_key = kRecordsPerKey);
  RecordCipher(RecordCipher&&) = default;
  RecordCipher& operator=(RecordCipher&&) = default;

  // Encrypts `plain` to `out`, which has as many bytes and may be the same memory; kSealBytes go to
  // `seal`. `beside` is not encrypted, but must be the same when the record is opened.
  void Seal(std::span<const std::byte> beside, std::span<const std::byte> plain, std::byte* out,
            std::byte* seal);
  // Decrypts `record` where it lies. DATA_LOSS: it is not the one that was sealed next; what lies
  // there then must not be used, and neither must this cipher.
  absl::Status Open(std::span<const std::byte> beside, std::span<std::byte> record,
                    const std::byte* seal);

 private:
  static constexpr size_t kNonceBytes = 12;
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  void UseSecret();
  // Sets the nonce of the next record, and counts it.
  void Begin(std::span<const std::byte> beside);

  Use use_;
  SecretBytes secret_;
  uint64_t records_per_key_;
  uint64_t number_ = 0;  // of the next record under this key
  unsigned char start_[kNonceBytes] = {};
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

}  // namespace macrame::transport
