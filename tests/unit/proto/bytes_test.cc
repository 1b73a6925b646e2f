#include "proto/bytes.h"

#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(Bytes, PeopleSeeBinaryUnits) {
  EXPECT_EQ(FormatBytes(Bytes(0)), "0 B");
  EXPECT_EQ(FormatBytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(FormatBytes(Bytes(1024)), "1.0 KiB");
  EXPECT_EQ(FormatBytes(Bytes(4404019)), "4.2 MiB");
  EXPECT_EQ(FormatBytes(Bytes::GiB(512)), "512.0 GiB");
  EXPECT_EQ(FormatBytes(Bytes::GiB(1536)), "1.5 TiB");
}

TEST(Bytes, WhatIsLeftIsNeverNegative) {
  EXPECT_EQ(Bytes(5) - Bytes(7), Bytes(0));
  EXPECT_EQ(Bytes(7) - Bytes(5), Bytes(2));
}

}  // namespace
}  // namespace macrame
