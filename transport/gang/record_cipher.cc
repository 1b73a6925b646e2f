#include "transport/gang/record_cipher.h"

#include <openssl/kdf.h>

#include <cstring>
#include <utility>

#include "proto/check.h"

namespace macrame::transport {
namespace {

constexpr size_t kKeyBytes = 32;

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
const unsigned char* Bytes(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* Bytes(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

// What fails here is the library itself (no memory, no such cipher): nothing can go on.
void Must(int result, const char* what) { MACRAME_CHECK(result == 1) << "OpenSSL: " << what; }

}  // namespace

SecretBytes DeriveKey(const SecretBytes& secret, std::string_view salt, std::string_view info,
                      size_t size) {
  const std::unique_ptr<EVP_PKEY_CTX, void (*)(EVP_PKEY_CTX*)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), &EVP_PKEY_CTX_free);
  MACRAME_CHECK(context != nullptr) << "OpenSSL: no HKDF";
  EVP_PKEY_CTX* hkdf = context.get();
  Must(EVP_PKEY_derive_init(hkdf), "HKDF");
  Must(EVP_PKEY_CTX_set_hkdf_md(hkdf, EVP_sha256()), "HKDF with SHA-256");
  Must(EVP_PKEY_CTX_set1_hkdf_salt(hkdf, Bytes(salt), static_cast<int>(salt.size())),
       "HKDF's salt");
  Must(EVP_PKEY_CTX_set1_hkdf_key(hkdf, secret.data(), static_cast<int>(secret.size())),
       "HKDF's key");
  Must(EVP_PKEY_CTX_add1_hkdf_info(hkdf, Bytes(info), static_cast<int>(info.size())),
       "HKDF's info");
  SecretBytes key(size);
  size_t made = size;
  Must(EVP_PKEY_derive(hkdf, key.data(), &made), "HKDF's key");
  MACRAME_CHECK(made == size) << "HKDF gave " << made << " bytes";
  return key;
}

RecordCipher::RecordCipher(Use use, SecretBytes secret, uint64_t records_per_key)
    : use_(use),
      secret_(std::move(secret)),
      records_per_key_(records_per_key),
      context_(EVP_CIPHER_CTX_new()) {
  MACRAME_CHECK(context_ != nullptr && secret_.size() == kTrafficSecretBytes)
      << "a traffic secret of " << secret_.size() << " bytes";
  UseSecret();
}

void RecordCipher::UseSecret() {
  const SecretBytes key = DeriveKey(secret_, "", "macrame record key", kKeyBytes);
  const SecretBytes start = DeriveKey(secret_, "", "macrame record nonce", kNonceBytes);
  std::memcpy(start_, start.data(), kNonceBytes);
  Must(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr,
                         use_ == Use::kSeal ? 1 : 0),
       "AES-256-GCM");
  number_ = 0;
}

void RecordCipher::Begin(std::span<const std::byte> beside) {
  if (number_ == records_per_key_) {
    secret_ = DeriveKey(secret_, "", "macrame next secret", kTrafficSecretBytes);
    UseSecret();
  }
  unsigned char nonce[kNonceBytes];
  std::memcpy(nonce, start_, kNonceBytes);
  for (size_t i = 0; i < 8; ++i) {
    nonce[kNonceBytes - 1 - i] ^= static_cast<unsigned char>(number_ >> (8 * i) & 0xff);
  }
  ++number_;
  Must(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce, -1), "a nonce");
  int done = 0;
  if (beside.empty()) return;
  Must(EVP_CipherUpdate(context_.get(), nullptr, &done, Bytes(beside.data()),
                        static_cast<int>(beside.size())),
       "what is beside a record");
}

void RecordCipher::Seal(std::span<const std::byte> beside, std::span<const std::byte> plain,
                        std::byte* out, std::byte* seal) {
  MACRAME_CHECK(use_ == Use::kSeal && plain.size() <= kRecordBytesMax)
      << "a record of " << plain.size() << " bytes";
  Begin(beside);
  int done = 0;
  if (!plain.empty()) {
    Must(EVP_CipherUpdate(context_.get(), Bytes(out), &done, Bytes(plain.data()),
                          static_cast<int>(plain.size())),
         "sealing");
  }
  unsigned char none[kSealBytes];  // GCM ends without further bytes
  Must(EVP_CipherFinal_ex(context_.get(), none, &done), "sealing");
  Must(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kSealBytes, seal), "a seal");
}

absl::Status RecordCipher::Open(std::span<const std::byte> beside, std::span<std::byte> record,
                                const std::byte* seal) {
  MACRAME_CHECK(use_ == Use::kOpen && record.size() <= kRecordBytesMax)
      << "a record of " << record.size() << " bytes";
  Begin(beside);
  int done = 0;
  if (!record.empty()) {
    Must(EVP_CipherUpdate(context_.get(), Bytes(record.data()), &done, Bytes(record.data()),
                          static_cast<int>(record.size())),
         "opening");
  }
  unsigned char copy[kSealBytes];  // OpenSSL takes it as something that it could write to
  std::memcpy(copy, seal, kSealBytes);
  Must(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kSealBytes, copy), "a seal");
  unsigned char none[kSealBytes];
  if (EVP_CipherFinal_ex(context_.get(), none, &done) == 1) return absl::OkStatus();
  return absl::DataLossError(
      "what came was altered, repeated, left out or put in another order on the way");
}

}  // namespace macrame::transport
