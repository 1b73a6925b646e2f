#include "transport/trust.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/rand.h>

#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/check.h"
#include "transport/private_names.h"
#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

constexpr int64_t kAuthorityS = 20 * 365 * kSecondsPerDay;
// Clocks of machines without NTP differ; a certificate made "in the future" must still be accepted.
constexpr int64_t kClockSkewS = 2 * kSecondsPerDay;
constexpr std::string_view kTlsNameSuffix = ".macrame";
constexpr std::string_view kKeyTlsNameSuffix = ".key.macrame";

std::string KeyTlsName(const std::string& key_id) {
  return key_id + std::string(kKeyTlsNameSuffix);
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

Owned<X509> NewCertificate(EVP_PKEY* key, int64_t unix_s, int64_t valid_for_s) {
  Owned<X509> certificate(X509_new());
  MACRAME_CHECK(certificate != nullptr);
  X509_set_version(certificate.get(), X509_VERSION_3);
  SetSerial(certificate.get());
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), static_cast<time_t>(unix_s - kClockSkewS));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), static_cast<time_t>(unix_s + valid_for_s));
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

std::string KeyIdFromTlsName(std::string_view name) {
  if (!name.ends_with(kKeyTlsNameSuffix)) return "";
  name.remove_suffix(kKeyTlsNameSuffix.size());
  const bool is_id = name.size() == kKeyIdDigits &&
                     name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return is_id ? std::string(name) : "";
}

absl::StatusOr<ClusterSecret> CreateClusterSecret(const std::string& cluster_name, int64_t unix_s) {
  absl::Status name_status = CheckClusterName(cluster_name);
  if (!name_status.ok()) return name_status;
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  MACRAME_CHECK(key != nullptr) << "no P-256 key could be made";
  Owned<X509> certificate = NewCertificate(key.get(), unix_s, kAuthorityS);
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

absl::StatusOr<std::string> CertificateDigest(const std::string& certificate_pem) {
  Owned<X509> certificate = ParseCertificate(certificate_pem);
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("the cluster's certificate can't be read");
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  MACRAME_CHECK(X509_digest(certificate.get(), EVP_sha256(), digest, &size) == 1);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

absl::StatusOr<std::string> ClusterFingerprint(const std::string& authority_certificate_pem) {
  absl::StatusOr<std::string> digest = CertificateDigest(authority_certificate_pem);
  if (digest.ok()) digest->resize(kClusterFingerprintBytes);
  return digest;
}

absl::StatusOr<std::string> ClusterFingerprint(const ClusterSecret& secret) {
  return ClusterFingerprint(secret.authority_certificate_pem);
}

absl::StatusOr<CertificateDates> DatesOf(const std::string& certificate_pem) {
  Owned<X509> certificate = ParseCertificate(certificate_pem);
  if (certificate == nullptr) return absl::InvalidArgumentError("a certificate can't be read");
  const auto seconds = [](const ASN1_TIME* time) -> int64_t {
    std::tm parts{};
    if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
    return static_cast<int64_t>(::timegm(&parts));
  };
  return CertificateDates{seconds(X509_get0_notBefore(certificate.get())),
                          seconds(X509_get0_notAfter(certificate.get()))};
}

namespace {

// The authority's two halves, once they are known to belong together.
struct Authority {
  Owned<X509> certificate;
  Owned<EVP_PKEY> key;
};

absl::StatusOr<Authority> AuthorityOf(const ClusterSecret& secret) {
  Authority authority{ParseCertificate(secret.authority_certificate_pem),
                      ParseKey(secret.authority_key_pem)};
  if (authority.certificate == nullptr || authority.key == nullptr ||
      X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1 ||
      X509_check_ca(authority.certificate.get()) != 1) {
    return absl::InvalidArgumentError(
        "the cluster secret's certificate and key can't be read or don't belong together; copy the "
        "secret file from another node again");
  }
  return authority;
}

// What a certificate says of its holder, and what it may be used for.
struct Subject {
  std::string name;
  std::string alternative_names;  // as OpenSSL's configuration has them
  const char* usage;              // of the extended key usage
};

Subject SubjectOf(const NodeId& node_id) {
  return {node_id.value(), absl::StrCat("DNS:", NodeTlsName(node_id)), "serverAuth,clientAuth"};
}

absl::StatusOr<std::string> Certify(const Authority& authority, EVP_PKEY* key,
                                    const Subject& subject, int64_t unix_s,
                                    int64_t valid_for_s = kNodeCertificateS) {
  Owned<X509> certificate = NewCertificate(key, unix_s, valid_for_s);
  SetName(X509_get_subject_name(certificate.get()), subject.name);
  X509* issuer = authority.certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  const bool made =
      AddExtension(certificate.get(), issuer, NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(certificate.get(), issuer, NID_key_usage, "critical,digitalSignature") &&
      AddExtension(certificate.get(), issuer, NID_ext_key_usage, subject.usage) &&
      AddExtension(certificate.get(), issuer, NID_subject_alt_name, subject.alternative_names) &&
      AddExtension(certificate.get(), issuer, NID_authority_key_identifier, "keyid") &&
      X509_sign(certificate.get(), authority.key.get(), EVP_sha256()) != 0;
  if (!made) {
    return absl::InternalError(absl::StrCat("no certificate could be made for ", subject.name));
  }
  return CertificatePem(certificate.get());
}

bool IsP256(EVP_PKEY* key) {
  char group[64] = "";
  size_t size = 0;
  return key != nullptr && EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, group, sizeof(group), &size) == 1 &&
         std::string_view(group) == "prime256v1";
}

absl::StatusOr<std::string> SignRequest(const ClusterSecret& secret, const Subject& subject,
                                        const std::string& request_der, int64_t unix_s) {
  const auto* der = reinterpret_cast<const unsigned char*>(request_der.data());
  Owned<X509_REQ> request;
  if (request_der.size() <= kCertificateRequestBytesMax) {
    request.reset(d2i_X509_REQ(nullptr, &der, static_cast<long>(request_der.size())));
  }
  Owned<EVP_PKEY> key(request == nullptr ? nullptr : X509_REQ_get_pubkey(request.get()));
  // Its signature proves that whoever asks has the key.
  if (!IsP256(key.get()) || X509_REQ_verify(request.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("the request for a certificate is malformed");
  }
  absl::StatusOr<Authority> authority = AuthorityOf(secret);
  if (!authority.ok()) return authority.status();
  return Certify(*authority, key.get(), subject, unix_s);
}

// What a revocation's signature covers.
std::string RevocationText(const std::string& cluster_id, const NodeId& node_id, uint64_t unix_ms) {
  return absl::StrCat("macrame revocation 1\n", cluster_id, "\n", node_id.value(), "\n", unix_ms);
}

}  // namespace

absl::StatusOr<NodeCredentials> MakeNodeCredentials(const ClusterSecret& secret,
                                                    const NodeId& node_id, int64_t unix_s) {
  absl::StatusOr<Authority> authority = AuthorityOf(secret);
  if (!authority.ok()) return authority.status();
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  MACRAME_CHECK(key != nullptr) << "no P-256 key could be made";
  absl::StatusOr<std::string> certificate =
      Certify(*authority, key.get(), SubjectOf(node_id), unix_s);
  if (!certificate.ok()) return certificate.status();
  NodeCredentials node;
  node.node_id = node_id;
  node.certificate_pem = *std::move(certificate);
  node.key_pem = KeyPem(key.get());
  node.authority_certificate_pem = secret.authority_certificate_pem;
  return node;
}

CertificateRequest MakeCertificateRequest() {
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  MACRAME_CHECK(key != nullptr) << "no P-256 key could be made";
  Owned<X509_REQ> request(X509_REQ_new());
  MACRAME_CHECK(request != nullptr && X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
                X509_REQ_sign(request.get(), key.get(), EVP_sha256()) != 0);
  unsigned char* der = nullptr;
  const int size = i2d_X509_REQ(request.get(), &der);
  MACRAME_CHECK(size > 0);
  CertificateRequest made;
  made.key_pem = KeyPem(key.get());
  made.request_der.assign(reinterpret_cast<const char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return made;
}

absl::StatusOr<std::string> SignCertificateRequest(const ClusterSecret& secret,
                                                   const NodeId& node_id,
                                                   const std::string& request_der, int64_t unix_s) {
  if (!IsValidNodeId(node_id.value())) return absl::InvalidArgumentError("that is no node id");
  return SignRequest(secret, SubjectOf(node_id), request_der, unix_s);
}

absl::StatusOr<KeyPair> MakePersonCredentials(const ClusterSecret& secret,
                                              const std::string& key_id, int64_t unix_s,
                                              int64_t until_unix_s) {
  const bool is_key = !key_id.empty() && KeyIdFromTlsName(KeyTlsName(key_id)) == key_id;
  if (!is_key || until_unix_s <= unix_s) {
    return absl::InvalidArgumentError("a person's certificate needs a key's id, and an end");
  }
  absl::StatusOr<Authority> authority = AuthorityOf(secret);
  if (!authority.ok()) return authority.status();
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  MACRAME_CHECK(key != nullptr) << "no P-256 key could be made";
  const Subject subject{key_id, absl::StrCat("DNS:", KeyTlsName(key_id)), "clientAuth"};
  absl::StatusOr<std::string> certificate =
      Certify(*authority, key.get(), subject, unix_s, until_unix_s - unix_s);
  if (!certificate.ok()) return certificate.status();
  KeyPair pair;
  pair.certificate_pem = *std::move(certificate);
  pair.key_pem = KeyPem(key.get());
  return pair;
}

absl::StatusOr<std::string> SignHttpsRequest(const ClusterSecret& secret,
                                             const std::vector<std::string>& names,
                                             const std::string& request_der, int64_t unix_s) {
  if (names.empty() || names.size() > kHttpsNamesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a certificate for HTTPS has 1 to ", kHttpsNamesMax, " names"));
  }
  std::vector<std::string> alternatives;
  for (const std::string& name : names) {
    if (!IsPrivateName(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name.substr(0, 64), "' is no name of a private network"));
    }
    alternatives.push_back(absl::StrCat(IsAddress(name) ? "IP:" : "DNS:", name));
  }
  return SignRequest(secret, {names[0], absl::StrJoin(alternatives, ","), "serverAuth"},
                     request_der, unix_s);
}

absl::Status CheckNodeCredentials(const NodeCredentials& node) {
  Owned<X509> authority = ParseCertificate(node.authority_certificate_pem);
  Owned<X509> certificate = ParseCertificate(node.certificate_pem);
  Owned<EVP_PKEY> key = ParseKey(node.key_pem);
  if (authority == nullptr || certificate == nullptr || key == nullptr) {
    return absl::InvalidArgumentError("a certificate or key can't be read");
  }
  const std::string name = NodeTlsName(node.node_id);
  if (X509_check_private_key(certificate.get(), key.get()) != 1 ||
      X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr) != 1) {
    return absl::InvalidArgumentError("the certificate is not that of this node's key and id");
  }
  Owned<EVP_PKEY> signer(X509_get_pubkey(authority.get()));
  if (X509_check_ca(authority.get()) != 1 || X509_verify(certificate.get(), signer.get()) != 1) {
    return absl::InvalidArgumentError("the certificate is not one of this cluster's authority");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SignRevocation(const ClusterSecret& secret, const NodeId& node_id,
                                           uint64_t unix_ms) {
  absl::StatusOr<Authority> authority = AuthorityOf(secret);
  if (!authority.ok()) return authority.status();
  const std::string text = RevocationText(secret.cluster_id, node_id, unix_ms);
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  size_t size = 0;
  std::string signature;
  bool made = EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr,
                                 authority->key.get()) == 1 &&
              EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1;
  signature.resize(size);
  made = made && EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                                &size, bytes, text.size()) == 1;
  if (!made) return absl::InternalError("the revocation could not be signed");
  signature.resize(size);
  return signature;
}

bool IsRevocationSigned(const std::string& authority_certificate_pem, const std::string& cluster_id,
                        const NodeId& node_id, uint64_t unix_ms, const std::string& signature) {
  Owned<X509> authority = ParseCertificate(authority_certificate_pem);
  if (authority == nullptr) return false;
  const std::string text = RevocationText(cluster_id, node_id, unix_ms);
  Owned<EVP_PKEY> key(X509_get_pubkey(authority.get()));
  Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  return EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                          text.size()) == 1;
}

int64_t SystemUnixSeconds() { return static_cast<int64_t>(std::time(nullptr)); }

ClusterSecret::~ClusterSecret() {
  Wipe(authority_key_pem);
  Wipe(beacon_key);
}

NodeCredentials::~NodeCredentials() { Wipe(key_pem); }

KeyPair::~KeyPair() { Wipe(key_pem); }

NodeMembership::~NodeMembership() { Wipe(beacon_key); }

CertificateRequest::~CertificateRequest() { Wipe(key_pem); }

}  // namespace macrame::transport
