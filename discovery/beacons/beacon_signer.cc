#include "discovery/beacons/beacon_signer.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>

#include "proto/check.h"

namespace macrame::discovery {
namespace {

struct FreeMac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
};

}  // namespace

// A context keeps its key: initialised without one it starts over under the same.
struct BeaconSigner::Context {
  Context() = default;
  ~Context() { EVP_MAC_CTX_free(mac); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  EVP_MAC_CTX* mac = nullptr;
};

BeaconSigner::BeaconSigner(std::string_view key) : context_(std::make_unique<Context>()) {
  const std::unique_ptr<EVP_MAC, FreeMac> hmac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  MACRAME_CHECK(hmac != nullptr) << "OpenSSL without HMAC";
  context_->mac = EVP_MAC_CTX_new(hmac.get());
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 2> options = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end()};
  const int made = EVP_MAC_init(context_->mac, reinterpret_cast<const unsigned char*>(key.data()),
                                key.size(), options.data());
  MACRAME_CHECK(made == 1) << "HMAC-SHA-256";
}

BeaconSigner::~BeaconSigner() = default;
BeaconSigner::BeaconSigner(BeaconSigner&&) noexcept = default;
BeaconSigner& BeaconSigner::operator=(BeaconSigner&&) noexcept = default;

std::string BeaconSigner::Tag(std::string_view bytes) {
  std::string tag(kBeaconTagBytes, '\0');
  size_t length = 0;
  EVP_MAC_CTX* mac = context_->mac;
  const bool made =
      EVP_MAC_init(mac, nullptr, 0, nullptr) == 1 &&
      EVP_MAC_update(mac, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) ==
          1 &&
      EVP_MAC_final(mac, reinterpret_cast<unsigned char*>(tag.data()), &length, tag.size()) == 1;
  MACRAME_CHECK(made && length == kBeaconTagBytes) << "HMAC-SHA-256";
  return tag;
}

bool BeaconSigner::TagFits(std::string_view bytes, std::string_view tag) {
  const std::string expected = Tag(bytes);
  return tag.size() == expected.size() &&
         CRYPTO_memcmp(tag.data(), expected.data(), expected.size()) == 0;
}

}  // namespace macrame::discovery
