#include "transport/client_hello.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/transport/tls_caller.h"

namespace macrame::transport {
namespace {

TEST(ClientHelloTest, WhoOffersTls13IsLetIn) {
  EXPECT_EQ(JudgeOpening(MakeClientHello(TlsVersion::k13, TlsVersion::k13)), Opening::kTls13);
  EXPECT_EQ(JudgeOpening(MakeClientHello(TlsVersion::k12, TlsVersion::k13)), Opening::kTls13);
}

TEST(ClientHelloTest, OlderVersionsAreNot) {
  EXPECT_EQ(JudgeOpening(MakeClientHello(TlsVersion::k12, TlsVersion::k12)), Opening::kOther);
}

TEST(ClientHelloTest, EveryCutWaitsForMore) {
  const std::string hello = MakeClientHello(TlsVersion::k13, TlsVersion::k13);
  for (size_t cut = 0; cut < hello.size(); ++cut) {
    ASSERT_EQ(JudgeOpening(hello.substr(0, cut)), Opening::kIncomplete) << cut << " bytes";
  }
}

TEST(ClientHelloTest, OtherProtocolsAreToldByTheirFirstByte) {
  EXPECT_EQ(JudgeOpening("GET / HTTP/1.1\r\n"), Opening::kOther);
  EXPECT_EQ(JudgeOpening("PRI * HTTP/2.0\r\n"), Opening::kOther);
  EXPECT_EQ(JudgeOpening("S"), Opening::kOther);
  EXPECT_EQ(JudgeOpening(std::string(32, '\0')), Opening::kOther);
}

TEST(ClientHelloTest, LengthsThatLieAreRefused) {
  std::string hello = MakeClientHello(TlsVersion::k13, TlsVersion::k13);
  hello[3] = '\x7f';  // of the record: more than any has
  EXPECT_EQ(JudgeOpening(hello), Opening::kOther);
  hello = MakeClientHello(TlsVersion::k13, TlsVersion::k13);
  hello[8] = static_cast<char>(hello[8] + 1);  // of the message: longer than its record
  EXPECT_EQ(JudgeOpening(hello), Opening::kOther);
}

TEST(ClientHelloTest, AnyBytesGetAVerdict) {
  std::mt19937_64 random(20261123);
  const std::string hello = MakeClientHello(TlsVersion::k12, TlsVersion::k13);
  size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = hello;
    for (int j = 0; j < 4; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    const std::string cut(damaged.data(), random() % (damaged.size() + 1));
    if (JudgeOpening(cut) == Opening::kOther) ++refused;
  }
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace macrame::transport
