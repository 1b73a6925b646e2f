#include "agentd/node/report_table.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

const NodeId kNode("0123456789abcdef0123456789abcdef");
const MonotonicTime kNow(std::chrono::seconds(100));

v1::HeartbeatRequest Heartbeat(uint64_t revision, v1::RankPhase phase) {
  v1::HeartbeatRequest request;
  request.set_inventory_revision(revision);
  v1::RankStatus& rank = *request.add_ranks();
  rank.set_deployment("tiny");
  rank.set_phase(phase);
  rank.set_node_id("ffffffffffffffffffffffffffffffff");
  return request;
}

TEST(ReportTableTest, TellsWhetherRanksOrInventoryChanged) {
  ReportTable table;
  EXPECT_TRUE(table.Take(kNode, Heartbeat(7, v1::RANK_PHASE_LOADING), kNow));
  EXPECT_FALSE(table.Take(kNode, Heartbeat(7, v1::RANK_PHASE_LOADING), kNow));
  EXPECT_TRUE(table.Take(kNode, Heartbeat(7, v1::RANK_PHASE_READY), kNow));
  v1::HeartbeatRequest with_inventory = Heartbeat(7, v1::RANK_PHASE_READY);
  with_inventory.mutable_inventory()->set_revision(7);
  EXPECT_EQ(table.KnownRevision(kNode), 0u);
  EXPECT_TRUE(table.Take(kNode, with_inventory, kNow));
  EXPECT_EQ(table.KnownRevision(kNode), 7u);
  EXPECT_FALSE(table.Take(kNode, Heartbeat(7, v1::RANK_PHASE_READY), kNow));
  EXPECT_EQ(table.KnownRevision(kNode), 7u) << "a heartbeat without inventory keeps the last one";
}

TEST(ReportTableTest, ThatANodeIsAboutToStopIsNews) {
  ReportTable table;
  v1::HeartbeatRequest heartbeat = Heartbeat(7, v1::RANK_PHASE_READY);
  EXPECT_TRUE(table.Take(kNode, heartbeat, kNow));
  EXPECT_FALSE(table.Find(kNode)->draining);
  heartbeat.set_draining(true);
  EXPECT_TRUE(table.Take(kNode, heartbeat, kNow));
  EXPECT_TRUE(table.Find(kNode)->draining);
  EXPECT_FALSE(table.Take(kNode, heartbeat, kNow));
}

TEST(ReportTableTest, WhatWasOvertakenIsNotLookedAt) {
  ReportTable table;
  v1::HeartbeatRequest later = Heartbeat(1, v1::RANK_PHASE_READY);
  later.set_sequence(9);
  v1::HeartbeatRequest earlier = Heartbeat(1, v1::RANK_PHASE_LOADING);
  earlier.set_sequence(8);
  EXPECT_TRUE(table.Take(kNode, later, kNow));
  EXPECT_FALSE(table.Take(kNode, earlier, kNow));
  EXPECT_EQ(table.Find(kNode)->ranks.at(0).phase(), v1::RANK_PHASE_READY);
  // A new run counts from one again.
  earlier.set_sequence(1);
  earlier.mutable_identity()->set_incarnation(2);
  EXPECT_TRUE(table.Take(kNode, earlier, kNow));
}

TEST(ReportTableTest, NobodySpeaksForAnothersRanks) {
  ReportTable table;
  table.Take(kNode, Heartbeat(1, v1::RANK_PHASE_READY), kNow);
  EXPECT_EQ(table.Find(kNode)->ranks.at(0).node_id(), kNode.value());
}

TEST(ReportTableTest, IsBounded) {
  ReportTable table;
  for (size_t i = 0; i < kReportsMax + 10; ++i) {
    table.Take(NodeId(absl::StrCat("node ", i)), Heartbeat(1, v1::RANK_PHASE_READY), kNow);
  }
  EXPECT_EQ(table.reports().size(), kReportsMax);
  v1::HeartbeatRequest many;
  for (int i = 0; i < kRanksPerReportMax + 10; ++i) many.add_ranks();
  table.Take(NodeId("node 0"), many, kNow);
  EXPECT_EQ(table.Find(NodeId("node 0"))->ranks.size(), static_cast<size_t>(kRanksPerReportMax));
}

}  // namespace
}  // namespace macrame::agentd
