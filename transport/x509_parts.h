#pragma once

// OpenSSL's objects with an owner, and to and from PEM. Internal to transport/'s trust files. Any
// thread.

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace macrame::transport {

struct FreeX509Part {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(X509_REQ* p) const { X509_REQ_free(p); }
  void operator()(X509_STORE* p) const { X509_STORE_free(p); }
  void operator()(X509_STORE_CTX* p) const { X509_STORE_CTX_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(EVP_MD_CTX* p) const { EVP_MD_CTX_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, FreeX509Part>;

inline Owned<BIO> ReadBio(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Null when it can't be read.
inline Owned<X509> ParseCertificate(const std::string& pem) {
  return Owned<X509>(PEM_read_bio_X509(ReadBio(pem).get(), nullptr, nullptr, nullptr));
}
inline Owned<EVP_PKEY> ParseKey(const std::string& pem) {
  return Owned<EVP_PKEY>(PEM_read_bio_PrivateKey(ReadBio(pem).get(), nullptr, nullptr, nullptr));
}

}  // namespace macrame::transport
