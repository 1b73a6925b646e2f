#include "proto/bytes.h"

#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(Bytes, PeopleSeeBinaryUnits) {
  EXPECT_EQ(FormatBytes(Bytes(0)), "0 B");
  EXPECT_EQ(FormatBytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(FormatBytes(Bytes::KiB(1)), "1.0 KiB");
  EXPECT_EQ(FormatBytes(Bytes(4404019)), "4.2 MiB");
  EXPECT_EQ(FormatBytes(Bytes::GiB(512)), "512.0 GiB");
  EXPECT_EQ(FormatBytes(Bytes::GiB(1536)), "1.5 TiB");
}

TEST(Bytes, ParsingKeepsBinaryAndDecimalUnitsApart) {
  EXPECT_EQ(ParseBytes("4096").value(), Bytes(4096));
  EXPECT_EQ(ParseBytes("64KiB").value(), Bytes::KiB(64));
  EXPECT_EQ(ParseBytes(" 1.5 GiB ").value(), Bytes::MiB(1536));
  EXPECT_EQ(ParseBytes("2GB").value(), Bytes(2000000000));
  EXPECT_EQ(ParseBytes("10gib").value(), Bytes::GiB(10));
}

TEST(Bytes, WhatIsNotAnAmountIsRefusedByName) {
  for (const char* text : {"", "GiB", "-1", "1 parsec", "1e400", "0x10", "nan", "99999999 TiB"}) {
    const auto parsed = ParseBytes(text);
    EXPECT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("is not an amount of memory"), std::string::npos);
  }
}

TEST(Bytes, WhatIsLeftIsNeverNegative) {
  EXPECT_EQ(Bytes(5) - Bytes(7), Bytes(0));
  EXPECT_EQ(Bytes(7) - Bytes(5), Bytes(2));
}

}  // namespace
}  // namespace macrame
