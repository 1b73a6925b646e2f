#include "transport/link_meter.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

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

std::string Place(int port) { return absl::StrCat("127.0.0.1:", port); }

using std::chrono::steady_clock;

// Whoever drips in bytes that are no token keeps the one that has it waiting, but not for long.
TEST(LinkMeter, ACallerWithoutATokenDoesNotHoldTheMeter) {
  LinkMeter meter;
  const auto offer = meter.Open("127.0.0.1");
  ASSERT_TRUE(offer.ok());
  const auto unknown_peer = StreamSocket::Connect(Place(offer->port), std::chrono::seconds(5));
  ASSERT_TRUE(unknown_peer.ok());
  std::thread dripping([&] {
    for (size_t i = 0; i + 1 < kMeterTokenBytes && unknown_peer->SendBytes("x").ok(); ++i) {
      pollfd gone{unknown_peer->fd(), POLLIN, 0};
      if (poll(&gone, 1, 100) > 0) return;
    }
  });
  const auto begun = steady_clock::now();
  const v1::LinkMeasurement measured =
      MeasureLink({"127.0.0.1", "127.0.0.1", offer->port, offer->token, false});
  EXPECT_FALSE(measured.has_failure()) << measured.failure().message();
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(2));
  dripping.join();
}

TEST(LinkMeter, OrdersThatItDoesNotKnowOrCannotTakeEndTheSession) {
  const uint64_t too_much = kMeterBytesMax + 1;
  const std::string huge(reinterpret_cast<const char*>(&too_much), sizeof(too_much));
  for (const std::string& order : {std::string("x"), std::string(1, '\0'), "s" + huge}) {
    LinkMeter meter;
    const auto offer = meter.Open("127.0.0.1");
    ASSERT_TRUE(offer.ok());
    const auto caller = StreamSocket::Connect(Place(offer->port), std::chrono::seconds(5));
    ASSERT_TRUE(caller.ok() && caller->SendBytes(offer->token + order).ok());
    char byte = 0;
    const absl::Status end =
        caller->ReceiveBytesBefore(&byte, 1, steady_clock::now() + std::chrono::seconds(5));
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  }
}

TEST(LinkMeter, ATokenIsGoodForOneSession) {
  LinkMeter meter;
  const auto offer = meter.Open("127.0.0.1");
  ASSERT_TRUE(offer.ok());
  const MeterTarget target{"127.0.0.1", "127.0.0.1", offer->port, offer->token, false};
  EXPECT_FALSE(MeasureLink(target).has_failure());
  EXPECT_EQ(MeasureLink(target).failure().code(), "LINK_UNREACHABLE");
}

TEST(LinkMeter, EndingItEndsSessionsThatWait) {
  auto meter = std::make_unique<LinkMeter>();
  const auto idle = meter->Open("127.0.0.1"), held = meter->Open("127.0.0.1");
  ASSERT_TRUE(idle.ok() && held.ok());
  const auto caller = StreamSocket::Connect(Place(held->port), std::chrono::seconds(5));
  ASSERT_TRUE(caller.ok() && caller->SendBytes(held->token).ok());
  const auto begun = steady_clock::now();
  meter.reset();
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(3));
}

// A meter at the end of a link that takes long for large messages and answers all the same.
void AnswerSlowly(const StreamSocket& listener) {
  const auto caller = listener.Accept(std::chrono::seconds(5));
  ASSERT_TRUE(caller.ok());
  std::vector<char> bytes(kMeterBytesMax);
  ASSERT_TRUE(caller->ReceiveBytes(bytes.data(), 5).ok());  // the token
  for (char order = 0; caller->ReceiveBytes(&order, 1).ok();) {
    if (order == 'e') {
      ASSERT_TRUE(caller->ReceiveBytes(bytes.data(), kMeterMessageBytes).ok());
      if (!caller->SendBytes({bytes.data(), kMeterMessageBytes}).ok()) return;
      continue;
    }
    uint64_t size = 0;
    ASSERT_TRUE(caller->ReceiveBytes(reinterpret_cast<char*>(&size), sizeof(size)).ok());
    ASSERT_TRUE(caller->ReceiveBytes(bytes.data(), size).ok());
    poll(nullptr, 0, 250);  // a megabyte a second
    if (!caller->SendBytes("s").ok()) return;
  }
}

TEST(LinkMeter, ASlowLinkIsMeasuredInTime) {
  const StreamSocket listener = StreamSocket::Listen("127.0.0.1:0").value();
  std::thread meter([&] { AnswerSlowly(listener); });
  const auto begun = steady_clock::now();
  const v1::LinkMeasurement measured =
      MeasureLink({"127.0.0.1", "127.0.0.1", listener.LocalPort(), "token", true});
  EXPECT_LT(steady_clock::now() - begun, std::chrono::milliseconds(2500)) << "some two seconds";
  EXPECT_FALSE(measured.has_failure()) << measured.failure().message();
  EXPECT_LT(measured.bandwidth_bytes_per_second(), 1.1e6);
  EXPECT_GT(measured.loaded_round_trip_us_p50(), 240e3);
  meter.join();
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
