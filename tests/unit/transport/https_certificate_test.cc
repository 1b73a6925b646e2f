#include "transport/https_certificate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

using Names = std::vector<std::string>;

class HttpsCertificateTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Sign(const Names& names, int64_t unix_s = SystemUnixSeconds()) {
    return SignHttpsRequest(secret_, names, request_.request_der, unix_s);
  }
  absl::StatusOr<HttpsCertificate> Describe(const std::string& certificate) {
    return DescribeHttpsCertificate(certificate, request_.key_pem,
                                    secret_.authority_certificate_pem);
  }

  const ClusterSecret secret_ = CreateClusterSecret("home").value();
  const CertificateRequest request_ = MakeCertificateRequest();
};

TEST_F(HttpsCertificateTest, NamesAndAddressesAreSaidAsTheyWereAskedFor) {
  for (const Names& asked :
       {Names{"localhost"}, Names{"10.0.0.7"}, Names{"fd00::7", "mini.local", "127.0.0.1", "::1"},
        Names{"z.lan", "a.lan", "m.lan"}}) {
    const auto certificate = Sign(asked);
    ASSERT_TRUE(certificate.ok()) << certificate.status();
    const auto described = Describe(*certificate);
    ASSERT_TRUE(described.ok()) << described.status();
    Names sorted = asked;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(described->names, sorted);
  }
}

TEST_F(HttpsCertificateTest, ItHoldsForAWeekAndFromBefore) {
  constexpr int64_t kNow = 1'900'000'000;
  const auto described = Describe(Sign({"localhost"}, kNow).value());
  ASSERT_TRUE(described.ok());
  EXPECT_LT(described->dates.not_before_s, kNow);
  EXPECT_GE(described->dates.not_after_s, kNow + kNodeCertificateS - kSecondsPerDay);
  EXPECT_LE(described->dates.not_after_s, kNow + kNodeCertificateS + kSecondsPerDay);
}

TEST_F(HttpsCertificateTest, AsManyNamesAsAreAllowedAreKept) {
  Names names;
  for (size_t i = 0; i < kHttpsNamesMax; ++i) names.push_back(absl::StrCat("node-", i, ".lan"));
  EXPECT_EQ(Describe(Sign(names).value()).value().names.size(), kHttpsNamesMax);
  names.push_back("one-more.lan");
  EXPECT_EQ(Sign(names).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Sign({}).status().code(), absl::StatusCode::kInvalidArgument);
}

// The names are written into a configuration of OpenSSL, where commas and colons mean something.
TEST_F(HttpsCertificateTest, OnePublicOrMalformedNameSpoilsAllAndIsNamed) {
  for (const char* name : {"example.com", "8.8.8.8", "2001:db8::1", "a.lan,DNS:example.com",
                           "DNS:example.com", "*.lan", "", "a.lan\n", "dirName:x", "@section"}) {
    const auto certificate = Sign({"localhost", name});
    EXPECT_EQ(certificate.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(std::string(certificate.status().message()).find(absl::StrCat("'", name, "'")),
              std::string::npos)
        << certificate.status();
  }
}

TEST_F(HttpsCertificateTest, PartsOfDifferentOwnersAreRefused) {
  const std::string certificate = Sign({"localhost"}).value();
  const CertificateRequest other = MakeCertificateRequest();
  const ClusterSecret other_cluster = CreateClusterSecret("home").value();
  const std::string theirs =
      SignHttpsRequest(other_cluster, {"localhost"}, request_.request_der).value();
  const auto code = [&](const std::string& pem, const std::string& key,
                        const std::string& authority) {
    return DescribeHttpsCertificate(pem, key, authority).status().code();
  };
  const std::string& authority = secret_.authority_certificate_pem;
  EXPECT_EQ(code(certificate, request_.key_pem, authority), absl::StatusCode::kOk);
  EXPECT_EQ(code(certificate, other.key_pem, authority), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(theirs, request_.key_pem, authority), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(certificate, request_.key_pem, other_cluster.authority_certificate_pem),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(certificate, request_.key_pem, certificate), absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpsCertificateTest, WhatIsCutIsRefusedWhereverItIsCut) {
  const std::string certificate = Sign({"localhost"}).value();
  // The last line's end may be missing; all that comes before it may not.
  for (size_t size = 0; size + 30 < certificate.size(); size += 13) {
    EXPECT_FALSE(Describe(certificate.substr(0, size)).ok()) << size;
  }
  for (size_t size = 0; size + 30 < request_.key_pem.size(); size += 13) {
    EXPECT_FALSE(DescribeHttpsCertificate(certificate, request_.key_pem.substr(0, size),
                                          secret_.authority_certificate_pem)
                     .ok())
        << size;
  }
}

// A node's own certificate names the node and no host: as one of a gateway it says nothing.
TEST_F(HttpsCertificateTest, ACertificateOfANodeHasNoNameOfAHostOnANetwork) {
  const NodeId id(std::string(32, 'a'));
  const NodeCredentials node = MakeNodeCredentials(secret_, id).value();
  const auto described =
      DescribeHttpsCertificate(node.certificate_pem, node.key_pem, node.authority_certificate_pem);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->names, Names{NodeTlsName(id)});
}

TEST_F(HttpsCertificateTest, TheAuthorityItselfHasNoNames) {
  const auto described =
      DescribeHttpsCertificate(secret_.authority_certificate_pem, secret_.authority_key_pem,
                               secret_.authority_certificate_pem);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_TRUE(described->names.empty());
}

}  // namespace
}  // namespace macrame::transport
