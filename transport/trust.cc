#include "transport/trust.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::transport {
namespace {

constexpr long kSecondsPerDay = 24 * 60 * 60;
constexpr long kAuthorityDays = 20 * 365;
// Made anew at each start of the agent; long because nothing renews it in a running one yet.
constexpr long kNodeDays = 5 * 365;
// Clocks of machines without NTP differ; a certificate made "in the future" must still be accepted.
constexpr long kClockSkewDays = 2;
constexpr std::string_view kTlsNameSuffix = ".macrame";

struct Free {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> ReadBio(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Drain(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string CertificatePem(X509* certificate) {
  Owned<BIO> bio(BIO_new(BIO_s_mem()));
  MACRAME_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return Drain(bio.get());
}

std::string KeyPem(EVP_PKEY* key) {
  Owned<BIO> bio(BIO_new(BIO_s_mem()));
  MACRAME_CHECK(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) ==
                1);
  return Drain(bio.get());
}

Owned<X509> ParseCertificate(const std::string& pem) {
  return Owned<X509>(PEM_read_bio_X509(ReadBio(pem).get(), nullptr, nullptr, nullptr));
}

Owned<EVP_PKEY> ParseKey(const std::string& pem) {
  return Owned<EVP_PKEY>(PEM_read_bio_PrivateKey(ReadBio(pem).get(), nullptr, nullptr, nullptr));
}

void SetSerial(X509* certificate) {
  const std::string random = RandomBytes(16);
  Owned<BIGNUM> number(BN_bin2bn(reinterpret_cast<const unsigned char*>(random.data()),
                                 static_cast<int>(random.size()), nullptr));
  BN_clear_bit(number.get(), 127);  // positive, as the standard wants it
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate));
}

void SetName(X509_NAME* name, const std::string& common_name) {
  X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>("Macrame"), -1, -1, 0);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

Owned<X509> NewCertificate(EVP_PKEY* key, long days) {
  Owned<X509> certificate(X509_new());
  MACRAME_CHECK(certificate != nullptr);
  X509_set_version(certificate.get(), X509_VERSION_3);
  SetSerial(certificate.get());
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kClockSkewDays * kSecondsPerDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days * kSecondsPerDay);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

absl::Status CheckClusterName(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kClusterNameBytesMax &&
                    name.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-_.") == std::string::npos;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' can't be a cluster's name: 1 to ", kClusterNameBytesMax,
                   " letters, digits, '-', '_' and '.' are accepted"));
}

}  // namespace

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  MACRAME_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) == 1)
      << "the system gives no random bytes";
  return bytes;
}

std::string HexEncode(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    text.push_back(kDigits[static_cast<unsigned char>(byte) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(byte) & 15]);
  }
  return text;
}

std::string NodeTlsName(const NodeId& node_id) {
  return absl::StrCat(node_id.value(),
                      absl::string_view(kTlsNameSuffix.data(), kTlsNameSuffix.size()));
}

NodeId NodeIdFromTlsName(std::string_view name) {
  if (!name.ends_with(kTlsNameSuffix)) return NodeId();
  name.remove_suffix(kTlsNameSuffix.size());
  return IsValidNodeId(name) ? NodeId(std::string(name)) : NodeId();
}

absl::StatusOr<ClusterSecret> CreateClusterSecret(const std::string& cluster_name) {
  absl::Status name_status = CheckClusterName(cluster_name);
  if (!name_status.ok()) return name_status;
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  MACRAME_CHECK(key != nullptr) << "no P-256 key could be made";
  Owned<X509> certificate = NewCertificate(key.get(), kAuthorityDays);
  SetName(X509_get_subject_name(certificate.get()),
          absl::StrCat("cluster ", cluster_name, " authority"));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  const bool made =
      AddExtension(certificate.get(), certificate.get(), NID_basic_constraints,
                   "critical,CA:TRUE,pathlen:0") &&
      AddExtension(certificate.get(), certificate.get(), NID_key_usage,
                   "critical,keyCertSign,cRLSign") &&
      AddExtension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash") &&
      X509_sign(certificate.get(), key.get(), EVP_sha256()) != 0;
  if (!made) return absl::InternalError("the cluster's certificate could not be made");
  ClusterSecret secret;
  secret.cluster_id = HexEncode(RandomBytes(16));
  secret.cluster_name = cluster_name;
  secret.authority_certificate_pem = CertificatePem(certificate.get());
  secret.authority_key_pem = KeyPem(key.get());
  secret.beacon_key = RandomBytes(kBeaconKeyBytes);
  return secret;
}

absl::StatusOr<std::string> ClusterFingerprint(const ClusterSecret& secret) {
  Owned<X509> certificate = ParseCertificate(secret.authority_certificate_pem);
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("the cluster's certificate can't be read");
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  MACRAME_CHECK(X509_digest(certificate.get(), EVP_sha256(), digest, &size) == 1);
  return std::string(reinterpret_cast<const char*>(digest), kClusterFingerprintBytes);
}

absl::StatusOr<NodeCredentials> MakeNodeCredentials(const ClusterSecret& secret,
                                                    const NodeId& node_id) {
  Owned<X509> authority = ParseCertificate(secret.authority_certificate_pem);
  Owned<EVP_PKEY> authority_key = ParseKey(secret.authority_key_pem);
  if (authority == nullptr || authority_key == nullptr ||
      X509_check_private_key(authority.get(), authority_key.get()) != 1 ||
      X509_check_ca(authority.get()) != 1) {
    return absl::InvalidArgumentError(
        "the cluster secret's certificate and key can't be read or don't belong together; copy the "
        "secret file from another node again");
  }
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  MACRAME_CHECK(key != nullptr) << "no P-256 key could be made";
  Owned<X509> certificate = NewCertificate(key.get(), kNodeDays);
  SetName(X509_get_subject_name(certificate.get()), node_id.value());
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(authority.get()));
  X509* issuer = authority.get();
  const bool made =
      AddExtension(certificate.get(), issuer, NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(certificate.get(), issuer, NID_key_usage, "critical,digitalSignature") &&
      AddExtension(certificate.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
      AddExtension(certificate.get(), issuer, NID_subject_alt_name,
                   absl::StrCat("DNS:", NodeTlsName(node_id))) &&
      AddExtension(certificate.get(), issuer, NID_authority_key_identifier, "keyid") &&
      X509_sign(certificate.get(), authority_key.get(), EVP_sha256()) != 0;
  if (!made) return absl::InternalError("the node's certificate could not be made");
  NodeCredentials node;
  node.node_id = node_id;
  node.certificate_pem = CertificatePem(certificate.get());
  node.key_pem = KeyPem(key.get());
  node.authority_certificate_pem = secret.authority_certificate_pem;
  return node;
}

}  // namespace macrame::transport
