#include "agentd/cores/cordon.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

v1::SetCordonRequest Order(v1::CordonOrder order, uint32_t deadline_ms = 0) {
  v1::SetCordonRequest request;
  request.set_node_id("n");
  request.set_order(order);
  request.set_deadline_ms(deadline_ms);
  return request;
}

v1::Cordon Cordon(bool drain) {
  const auto change =
      DecideCordon(Order(drain ? v1::CORDON_ORDER_DRAIN : v1::CORDON_ORDER_CORDON), nullptr, 7);
  v1::Cordon cordon;
  EXPECT_TRUE(cordon.ParseFromString(change->value));
  return cordon;
}

TEST(Cordon, WhatIsWrittenSaysSinceWhenAndForHowLongAnswersHave) {
  const v1::Cordon cordon = Cordon(false);
  EXPECT_EQ(cordon.node_id(), "n");
  EXPECT_EQ(cordon.since_unix_ms(), 7u);
  EXPECT_FALSE(cordon.drain());
  EXPECT_EQ(Cordon(true).deadline_ms(), kDrainDeadlineDefaultMs);
}

TEST(Cordon, ARepeatedOrderChangesNothing) {
  for (const bool drain : {false, true}) {
    const v1::Cordon present = Cordon(drain);
    const auto order = drain ? v1::CORDON_ORDER_DRAIN : v1::CORDON_ORDER_CORDON;
    EXPECT_FALSE(DecideCordon(Order(order), &present, 99)->response.changed());
  }
  EXPECT_FALSE(DecideCordon(Order(v1::CORDON_ORDER_UNCORDON), nullptr, 9)->response.changed());
}

TEST(Cordon, ADrainedNodeStaysSoWhenItIsCordonedAndKeepsItsDate) {
  const v1::Cordon drained = Cordon(true);
  EXPECT_TRUE(DecideCordon(Order(v1::CORDON_ORDER_CORDON), &drained, 9)->response.cordon().drain());
  const v1::Cordon cordoned = Cordon(false);
  const auto change = DecideCordon(Order(v1::CORDON_ORDER_DRAIN, 500), &cordoned, 9);
  EXPECT_TRUE(change->response.changed());
  EXPECT_EQ(change->response.cordon().since_unix_ms(), 7u);
  EXPECT_EQ(change->response.cordon().deadline_ms(), 500u);
}

TEST(Cordon, UncordoningRemovesIt) {
  const v1::Cordon present = Cordon(true);
  const auto change = DecideCordon(Order(v1::CORDON_ORDER_UNCORDON), &present, 9);
  EXPECT_TRUE(change->response.changed());
  EXPECT_TRUE(change->value.empty());
  EXPECT_FALSE(change->response.has_cordon());
}

TEST(Cordon, NonsenseIsRefused) {
  EXPECT_FALSE(DecideCordon(Order(v1::CORDON_ORDER_UNSPECIFIED), nullptr, 9).has_value());
  EXPECT_FALSE(
      DecideCordon(Order(v1::CORDON_ORDER_DRAIN, kDrainDeadlineMaxMs + 1), nullptr, 9).has_value());
}

}  // namespace
}  // namespace macrame::agentd
