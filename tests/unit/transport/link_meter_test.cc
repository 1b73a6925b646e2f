#include "transport/link_meter.h"

#include <gtest/gtest.h>

namespace macrame::transport {
namespace {

TEST(LinkMeter, MeasuresTheLoopback) {
  LinkMeter meter;
  const auto offer = meter.Open("127.0.0.1");
  ASSERT_TRUE(offer.ok()) << offer.status();
  const v1::LinkMeasurement measured =
      MeasureLink({"127.0.0.1", "127.0.0.1", offer->port, offer->token, true});
  EXPECT_FALSE(measured.has_failure()) << measured.failure().message();
  EXPECT_EQ(measured.round_trips(), static_cast<uint32_t>(kMeterRoundTrips));
  EXPECT_GT(measured.round_trip_us_min(), 0);
  EXPECT_LE(measured.round_trip_us_min(), measured.round_trip_us_p50());
  EXPECT_LE(measured.round_trip_us_p50(), measured.round_trip_us_p99());
  EXPECT_GT(measured.bandwidth_bytes_per_second(), 1e6);
  EXPECT_LE(measured.bytes_total(), kMeterBytesMax);
}

TEST(LinkMeter, WhoLacksTheTokenGetsNothing) {
  LinkMeter meter;
  const auto offer = meter.Open("127.0.0.1");
  ASSERT_TRUE(offer.ok());
  const v1::LinkMeasurement measured = MeasureLink(
      {"127.0.0.1", "127.0.0.1", offer->port, std::string(kMeterTokenBytes, 'x'), true});
  EXPECT_EQ(measured.failure().code(), "LINK_UNREACHABLE");
  // And does not take the place of the one that it is meant for.
  EXPECT_FALSE(
      MeasureLink({"127.0.0.1", "127.0.0.1", offer->port, offer->token, false}).has_failure());
}

TEST(LinkMeter, NothingAtTheOtherEndIsAFailureInTime) {
  const v1::LinkMeasurement measured = MeasureLink({"127.0.0.1", "127.0.0.1", 1, "", true});
  EXPECT_EQ(measured.failure().code(), "LINK_UNREACHABLE");
}

TEST(LinkMeter, AnAddressThatIsNotOwnIsRefused) {
  LinkMeter meter;
  EXPECT_FALSE(meter.Open("192.0.2.77").ok());
}

TEST(LinkMeter, OnlySoManyAreOpen) {
  LinkMeter meter;
  for (size_t i = 0; i < kMetersOpenMax; ++i) EXPECT_TRUE(meter.Open("127.0.0.1").ok());
  EXPECT_EQ(meter.Open("127.0.0.1").status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace macrame::transport
