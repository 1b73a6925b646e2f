#include "transport/https_certificate.h"

#include <arpa/inet.h>

#include <algorithm>

#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

std::string IpOf(const ASN1_OCTET_STRING* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const int size = ASN1_STRING_length(address);
  const int family = size == 4 ? AF_INET : size == 16 ? AF_INET6 : AF_UNSPEC;
  if (family == AF_UNSPEC) return "";
  const char* made = ::inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof(text));
  return made == nullptr ? "" : made;
}

}  // namespace

absl::StatusOr<HttpsCertificate> DescribeHttpsCertificate(const std::string& certificate_pem,
                                                          const std::string& key_pem,
                                                          const std::string& authority_pem) {
  Owned<X509> authority = ParseCertificate(authority_pem);
  Owned<X509> certificate = ParseCertificate(certificate_pem);
  Owned<EVP_PKEY> key = ParseKey(key_pem);
  if (authority == nullptr || certificate == nullptr || key == nullptr) {
    return absl::InvalidArgumentError("a certificate or key can't be read");
  }
  Owned<EVP_PKEY> signer(X509_get_pubkey(authority.get()));
  if (X509_check_private_key(certificate.get(), key.get()) != 1 ||
      X509_verify(certificate.get(), signer.get()) != 1) {
    return absl::InvalidArgumentError("certificate, key and authority don't belong together");
  }
  HttpsCertificate described;
  described.dates = DatesOf(certificate_pem).value();
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_IPADD) described.names.push_back(IpOf(name->d.iPAddress));
    if (name->type != GEN_DNS) continue;
    described.names.emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
        static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
  }
  GENERAL_NAMES_free(names);
  std::sort(described.names.begin(), described.names.end());
  return described;
}

}  // namespace macrame::transport
