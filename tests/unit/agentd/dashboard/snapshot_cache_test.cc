#include "agentd/dashboard/snapshot_cache.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace macrame::agentd::dashboard {
namespace {

using std::chrono::milliseconds;

const SnapshotCache::Time kStart{std::chrono::hours(1)};

v1::ClusterStatus Status(double tokens_per_second, uint64_t age_ms = 0) {
  v1::ClusterStatus status;
  status.set_cluster_name("lab");
  status.mutable_aggregate_load()->set_tokens_per_second(tokens_per_second);
  v1::NodeStatus& node = *status.add_nodes();
  node.set_state(v1::NODE_STATE_ALIVE);
  node.set_last_heartbeat_age_ms(age_ms);
  return status;
}

TEST(SnapshotCache, OneQuestionServesAllForItsTime) {
  SnapshotCache cache;
  EXPECT_EQ(cache.latest(), nullptr);
  EXPECT_TRUE(cache.ShouldAsk(kStart));
  EXPECT_FALSE(cache.ShouldAsk(kStart + milliseconds(10)));
  cache.Take(Status(1), kStart + milliseconds(20));
  EXPECT_TRUE(cache.IsFresh(kStart + milliseconds(900)));
  EXPECT_FALSE(cache.ShouldAsk(kStart + milliseconds(900)));
  EXPECT_TRUE(cache.ShouldAsk(kStart + milliseconds(921)));
}

TEST(SnapshotCache, AQuestionWithoutAnAnswerIsGivenUp) {
  SnapshotCache cache;
  EXPECT_TRUE(cache.ShouldAsk(kStart));
  EXPECT_FALSE(cache.ShouldAsk(kStart + SnapshotCache::kPatience - milliseconds(1)));
  EXPECT_TRUE(cache.ShouldAsk(kStart + SnapshotCache::kPatience));
}

TEST(SnapshotCache, TheJsonIsOneLineOfTheStatus) {
  SnapshotCache cache;
  cache.Take(Status(2.5), kStart);
  const Snapshot& snapshot = *cache.latest();
  EXPECT_EQ(snapshot.json.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(snapshot.json);
  EXPECT_EQ(json["cluster_name"], "lab");
  EXPECT_EQ(json["aggregate_load"]["tokens_per_second"], 2.5);
  EXPECT_EQ(json["nodes"][0]["state"], "alive");
}

TEST(SnapshotCache, WhatIsNotNewKeepsItsRevision) {
  SnapshotCache cache;
  cache.Take(Status(1, 10), kStart);
  const auto first = cache.latest();
  cache.Take(Status(1, 700), kStart + milliseconds(1000));
  EXPECT_EQ(cache.latest(), first);
  cache.Take(Status(2, 700), kStart + milliseconds(2000));
  EXPECT_EQ(cache.latest()->revision, first->revision + 1);
  EXPECT_NE(cache.latest()->etag, first->etag);
}

TEST(SnapshotCache, HowLongANodeIsGoneIsNew) {
  SnapshotCache cache;
  v1::ClusterStatus status = Status(1, 5000);
  status.mutable_nodes(0)->set_state(v1::NODE_STATE_DEAD);
  cache.Take(status, kStart);
  const uint64_t before = cache.latest()->revision;
  status.mutable_nodes(0)->set_last_heartbeat_age_ms(6000);
  cache.Take(status, kStart + milliseconds(1000));
  EXPECT_EQ(cache.latest()->revision, before + 1);
}

}  // namespace
}  // namespace macrame::agentd::dashboard
