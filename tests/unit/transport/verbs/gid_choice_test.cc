#include "transport/verbs/gid_choice.h"

#include <gtest/gtest.h>

namespace macrame::transport {
namespace {

Gid Mapped(uint8_t index, uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}, index};
}

Gid LinkLocal(uint8_t index) {
  return {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, index};
}

TEST(GidChoice, TellsIpv4MappedOnes) {
  EXPECT_EQ(Ipv4Of(Mapped(1, 10, 0, 1, 2)), 0x0a000102u);
  EXPECT_FALSE(Ipv4Of(LinkLocal(0)).has_value());
  EXPECT_FALSE(Ipv4Of(Mapped(1, 0, 0, 0, 0)).has_value());
  EXPECT_EQ(GidText(Mapped(1, 10, 0, 1, 2).bytes), "0000:0000:0000:0000:0000:ffff:0a00:0102");
}

TEST(GidChoice, TakesThePairOfTheCommonSubnetAtBothEnds) {
  const Gid own[] = {LinkLocal(0), Mapped(1, 192, 168, 1, 5), Mapped(2, 10, 0, 7, 1)};
  const Gid theirs[] = {LinkLocal(0), Mapped(1, 10, 0, 7, 2), Mapped(3, 172, 16, 0, 1)};
  const auto here = ChooseGids(own, theirs);
  const auto there = ChooseGids(theirs, own);
  ASSERT_TRUE(here.has_value() && there.has_value());
  EXPECT_EQ(here->first.index, 2);
  EXPECT_EQ(here->second.index, 1);
  EXPECT_EQ(here->first.bytes, there->second.bytes);
  EXPECT_EQ(here->second.bytes, there->first.bytes);
}

TEST(GidChoice, EqualPrefixesAreSettledTheSameWayAtBothEnds) {
  const Gid own[] = {Mapped(1, 10, 0, 0, 1), Mapped(2, 10, 9, 0, 1)};
  const Gid theirs[] = {Mapped(1, 10, 0, 0, 2), Mapped(2, 10, 9, 0, 2)};
  const auto here = ChooseGids(own, theirs), there = ChooseGids(theirs, own);
  ASSERT_TRUE(here.has_value() && there.has_value());
  EXPECT_EQ(here->first.bytes, there->second.bytes);
  EXPECT_EQ(here->second.bytes, there->first.bytes);
}

TEST(GidChoice, WithoutIpv4ThereIsNoMeeting) {
  const Gid own[] = {LinkLocal(0)};
  const Gid theirs[] = {Mapped(1, 10, 0, 0, 2)};
  EXPECT_FALSE(ChooseGids(own, theirs).has_value());
  EXPECT_FALSE(ChooseGids({}, theirs).has_value());
}

}  // namespace
}  // namespace macrame::transport
