#include "transport/connection_gate.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime(std::chrono::milliseconds(ms)); }

TEST(ConnectionGate, OneAddressGetsItsShareAndAnotherStillGetsIn) {
  ConnectionGate gate;
  size_t admitted = 0;
  for (int i = 0; i < 300; ++i) admitted += gate.Admit("10.0.0.9", At(i));
  EXPECT_EQ(admitted, kUnprovenPerAddressMax);
  EXPECT_TRUE(gate.Admit("10.0.0.8", At(300)));
  EXPECT_FALSE(gate.Admit("10.0.0.9", At(4900)));
  EXPECT_TRUE(gate.Admit("10.0.0.9", At(5400))) << "those before it had their time";
}

TEST(ConnectionGate, AFloodFromAFewAddressesKeepsNobodyElseOut) {
  for (const int addresses : {3, 4, 5, 8, 16}) {
    ConnectionGate gate;
    for (int i = 0; i < 2000; ++i) gate.Admit(absl::StrCat("10.0.0.", i % addresses), At(i));
    size_t others = 0;
    for (int i = 0; i < 8; ++i) others += gate.Admit(absl::StrCat("10.0.9.", i), At(2000));
    EXPECT_EQ(others, 8u) << addresses;
  }
}

TEST(ConnectionGate, WhereTheServerBoundsThemItselfMoreMayCome) {
  ConnectionGate gate;
  gate.SetUnprovenMax(512);
  size_t admitted = 0;
  for (int i = 0; i < 2000; ++i) admitted += gate.Admit(absl::StrCat("10.1.", i), At(1));
  EXPECT_EQ(admitted, 512u);
}

TEST(ConnectionGate, AFloodFromManyAddressesKeepsNoMemberOut) {
  ConnectionGate gate;
  gate.SetKnown({"10.0.0.2"});
  size_t admitted = 0;
  for (int i = 0; i < 2000; ++i)
    admitted += gate.Admit(absl::StrCat("10.1.", i / 250, ".", i % 250), At(1));
  EXPECT_EQ(admitted, kUnprovenMax);
  EXPECT_FALSE(gate.Admit("10.0.0.3", At(2)));
  for (size_t i = 0; i < kUnprovenPerMemberMax; ++i) EXPECT_TRUE(gate.Admit("10.0.0.2", At(3)));
  EXPECT_FALSE(gate.Admit("10.0.0.2", At(4))) << "a member has a bound too";
  EXPECT_TRUE(gate.Admit("10.0.0.3", At(5002)));
}

// Each IPv6 host has a /64 network of addresses.
TEST(ConnectionGate, AFloodFromOneIp6NetworkGetsTheShareOfOneAddress) {
  ConnectionGate gate;
  gate.SetKnown({"2001:db8:1:2::5"});
  size_t admitted = 0;
  for (int i = 16; i < 2000; ++i) {
    admitted += gate.Admit(absl::StrCat("2001:db8:1:2::", absl::Hex(i)), At(1));
  }
  EXPECT_EQ(admitted, kUnprovenPerAddressMax);
  EXPECT_TRUE(gate.Admit("2001:db8:1:3::1", At(2)));
  EXPECT_TRUE(gate.Admit("10.0.0.3", At(2)));
  // A member of that network has its own allowance.
  for (size_t i = 0; i < kUnprovenPerMemberMax; ++i) {
    EXPECT_TRUE(gate.Admit("2001:db8:1:2::5", At(3)));
  }
  EXPECT_TRUE(gate.Admit("2001:db8:1:2::6", At(5002))) << "those before it had their time";
}

TEST(ConnectionGate, WhoBecomesKnownMeanwhileIsCountedRight) {
  ConnectionGate gate;
  for (size_t i = 0; i < kUnprovenPerAddressMax; ++i) EXPECT_TRUE(gate.Admit("a", At(0)));
  gate.SetKnown({"a"});
  EXPECT_TRUE(gate.Admit("a", At(1)));
  gate.SetKnown({});
  for (int i = 0; i < 1000; ++i) gate.Admit(absl::StrCat("b", i), At(10'000));
  size_t admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += gate.Admit(absl::StrCat("c", i), At(20'000));
  EXPECT_EQ(admitted, kUnprovenMax) << "nothing of before is left in the count";
}

}  // namespace
}  // namespace macrame::transport
