// Certificates of persons and of gateways: what the cluster's authority signs beside nodes'.

#include <gtest/gtest.h>

#include <algorithm>

#include "transport/https_certificate.h"
#include "transport/private_names.h"
#include "transport/trust.h"
#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

constexpr int64_t kNow = 1'800'000'000;

bool MayBe(const std::string& certificate_pem, int purpose) {
  Owned<X509> certificate = ParseCertificate(certificate_pem);
  return X509_check_purpose(certificate.get(), purpose, 0) == 1;
}

TEST(PersonCertificate, NamesAKeyAndServesNobody) {
  const ClusterSecret secret = *CreateClusterSecret("lab", kNow);
  const auto pair = MakePersonCredentials(secret, "0123456789ab", kNow, kNow + 86400);
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_TRUE(MayBe(pair->certificate_pem, X509_PURPOSE_SSL_CLIENT));
  EXPECT_FALSE(MayBe(pair->certificate_pem, X509_PURPOSE_SSL_SERVER));
  EXPECT_EQ(DatesOf(pair->certificate_pem)->not_after_s, kNow + 86400);
  const std::string name = "0123456789ab.key.macrame";
  EXPECT_EQ(X509_check_host(ParseCertificate(pair->certificate_pem).get(), name.data(), name.size(),
                            0, nullptr),
            1);
  EXPECT_EQ(KeyIdFromTlsName(name), "0123456789ab");
  EXPECT_EQ(NodeIdFromTlsName(name), NodeId()) << "it is no node";
}

TEST(PersonCertificate, IsMadeForKeysAlone) {
  const ClusterSecret secret = *CreateClusterSecret("lab", kNow);
  for (const char* id : {"", "0123456789a", "0123456789abc", "0123456789aB", "0123456789a,",
                         "0123456789ab.key.macrame,DNS:x"}) {
    EXPECT_FALSE(MakePersonCredentials(secret, id, kNow, kNow + 60).ok()) << id;
  }
  EXPECT_FALSE(MakePersonCredentials(secret, "0123456789ab", kNow, kNow).ok()) << "without an end";
  for (const char* name :
       {"0123456789ab.macrame", "key.macrame", ".key.macrame", "0123456789ab.key.macrame.",
        "0123456789abcdef0123456789abcdef.macrame", "x0123456789ab.key.macrame"}) {
    EXPECT_EQ(KeyIdFromTlsName(name), "") << name;
  }
}

TEST(HttpsCertificate, HasItsNamesAndNoNode) {
  const ClusterSecret secret = *CreateClusterSecret("lab", kNow);
  const CertificateRequest request = MakeCertificateRequest();
  const std::vector<std::string> names = {"mini-2", "mini-2.local", "192.168.1.7", "fd00::7",
                                          "::1"};
  const auto certificate = SignHttpsRequest(secret, names, request.request_der, kNow);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_TRUE(MayBe(*certificate, X509_PURPOSE_SSL_SERVER));
  EXPECT_FALSE(MayBe(*certificate, X509_PURPOSE_SSL_CLIENT)) << "nobody calls a node with it";
  const auto described =
      DescribeHttpsCertificate(*certificate, request.key_pem, secret.authority_certificate_pem);
  ASSERT_TRUE(described.ok()) << described.status();
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(described->names, sorted);
  EXPECT_EQ(described->dates.not_after_s, kNow + kNodeCertificateS);
  const ClusterSecret other = *CreateClusterSecret("lab", kNow);
  EXPECT_FALSE(
      DescribeHttpsCertificate(*certificate, request.key_pem, other.authority_certificate_pem)
          .ok());
  EXPECT_FALSE(DescribeHttpsCertificate(*certificate, MakeCertificateRequest().key_pem,
                                        secret.authority_certificate_pem)
                   .ok());
}

TEST(HttpsCertificate, IsRefusedForTheInternetsNames) {
  const ClusterSecret secret = *CreateClusterSecret("lab", kNow);
  const std::string request = MakeCertificateRequest().request_der;
  const auto sign = [&](std::vector<std::string> names) {
    return SignHttpsRequest(secret, names, request, kNow).ok();
  };
  EXPECT_TRUE(sign({"mini"}));
  EXPECT_FALSE(sign({}));
  EXPECT_FALSE(sign({"mini", "www.example.com"}));
  EXPECT_FALSE(sign({"mini,DNS:www.example.com"}));
  EXPECT_FALSE(sign({"8.8.8.8"}));
  EXPECT_FALSE(sign({"0123456789abcdef0123456789abcdef.macrame"})) << "a node's own name";
  EXPECT_FALSE(sign(std::vector<std::string>(kHttpsNamesMax + 1, "mini")));
  EXPECT_FALSE(SignHttpsRequest(secret, {"mini"}, "no request", kNow).ok());
}

TEST(PrivateNames, AreThoseThatNobodyOwns) {
  for (const char* name :
       {"mini", "Mini-2.local", "a.b.lan", "x.home.arpa", "x.internal", "x.localdomain", "10.1.2.3",
        "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.3.4", "100.64.0.1", "127.0.0.9",
        "::1", "fe80::1", "fd12::1", "localhost"}) {
    EXPECT_TRUE(IsPrivateName(name)) << name;
  }
  for (const char* name : {"",
                           ".",
                           "mini.",
                           ".local",
                           "a..local",
                           "-a.local",
                           "a-.local",
                           "x.com",
                           "local.com",
                           "xlocal.com",
                           "notlan.example",
                           "172.32.0.1",
                           "172.15.0.1",
                           "192.169.0.1",
                           "100.128.0.1",
                           "11.0.0.1",
                           "2001:db8::1",
                           "fec0::1",
                           "10.1.2",
                           "10.1.2.3.4",
                           "1",
                           "a b",
                           "a*.local",
                           "*.local",
                           "münchen.local"}) {
    EXPECT_FALSE(IsPrivateName(name)) << name;
  }
  EXPECT_FALSE(IsPrivateName(std::string(64, 'a')));
  EXPECT_TRUE(IsPrivateName(std::string(63, 'a') + ".local"));
  EXPECT_FALSE(IsPrivateName(std::string(300, 'a') + ".local"));
}

}  // namespace
}  // namespace macrame::transport
