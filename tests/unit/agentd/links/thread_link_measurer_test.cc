#include "agentd/links/thread_link_measurer.h"

#include <gtest/gtest.h>

#include <optional>

#include "transport/asio_dispatcher.h"

namespace macrame::agentd {
namespace {

constexpr Duration kLimit = std::chrono::seconds(10);

TEST(ThreadLinkMeasurer, MeasuresAnOwnAddressAndTellsTheOwnerThread) {
  transport::AsioDispatcher dispatcher;
  ThreadLinkMeasurer measurer(dispatcher);
  const auto offer = measurer.Open("127.0.0.1");
  ASSERT_TRUE(offer.ok()) << offer.status();
  std::optional<v1::LinkMeasurement> measured;
  ASSERT_TRUE(measurer.Measure({"127.0.0.1", "127.0.0.1", offer->port, offer->token, false},
                               [&](v1::LinkMeasurement figures) {
                                 EXPECT_TRUE(dispatcher.IsOwnerThread());
                                 measured = std::move(figures);
                                 dispatcher.Stop();
                               }));
  dispatcher.PostAfter(kLimit, [&] { dispatcher.Stop(); });
  dispatcher.Run();
  ASSERT_TRUE(measured.has_value()) << "nothing was told in time";
  EXPECT_FALSE(measured->has_failure()) << measured->failure().message();
  EXPECT_GT(measured->round_trip_us_p50(), 0);
}

TEST(ThreadLinkMeasurer, TellsNothingOnceItIsStopped) {
  transport::AsioDispatcher dispatcher;
  ThreadLinkMeasurer measurer(dispatcher);
  bool is_told = false;
  // Nobody listens there.
  ASSERT_TRUE(measurer.Measure({"127.0.0.1", "127.0.0.1", 1, "", false},
                               [&](const v1::LinkMeasurement&) { is_told = true; }));
  measurer.Stop();
  EXPECT_FALSE(measurer.Measure({"127.0.0.1", "127.0.0.1", 1, "", false},
                                [&](const v1::LinkMeasurement&) { is_told = true; }));
  dispatcher.PostAfter(std::chrono::milliseconds(50), [&] { dispatcher.Stop(); });
  dispatcher.Run();
  EXPECT_FALSE(is_told);
}

}  // namespace
}  // namespace macrame::agentd
