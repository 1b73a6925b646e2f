#include "agentd/cores/node_news.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

namespace macrame::agentd {
namespace {

using Change = std::function<void(v1::HeartbeatRequest&)>;

v1::HeartbeatRequest Heartbeat() {
  v1::HeartbeatRequest heartbeat;
  v1::NodeIdentity& identity = *heartbeat.mutable_identity();
  identity.set_incarnation(3);
  identity.set_hostname("ada");
  identity.set_control_port(7700);
  identity.set_gateway_port(8080);
  identity.set_agent_version("1.0");
  identity.add_addresses()->set_ip("10.0.0.1");
  identity.add_addresses()->set_ip("10.0.0.2");
  v1::RankStatus& rank = *heartbeat.add_ranks();
  rank.set_deployment("m");
  rank.set_epoch(1001);
  rank.set_phase(v1::RANK_PHASE_LOADING);
  rank.set_bytes_loaded(5);
  heartbeat.set_inventory_revision(1);
  heartbeat.set_links_revision(2);
  heartbeat.mutable_coordinator()->set_term(4);
  heartbeat.mutable_coordinator()->set_coordinator_id("b");
  heartbeat.add_undialled_node_ids("c");
  return heartbeat;
}

uint64_t After(const Change& change) {
  v1::HeartbeatRequest heartbeat = Heartbeat();
  change(heartbeat);
  return NewsOf(heartbeat);
}

TEST(NodeNews, EachThingThatOthersActOnIsNewsOfItsOwn) {
  using Beat = v1::HeartbeatRequest&;
  const std::map<std::string, Change> changes = {
      {"restarted", [](Beat b) { b.mutable_identity()->set_incarnation(4); }},
      {"renamed", [](Beat b) { b.mutable_identity()->set_hostname("bob"); }},
      {"control port", [](Beat b) { b.mutable_identity()->set_control_port(7701); }},
      {"gateway port", [](Beat b) { b.mutable_identity()->set_gateway_port(8081); }},
      {"upgraded", [](Beat b) { b.mutable_identity()->set_agent_version("1.1"); }},
      {"address", [](Beat b) { b.mutable_identity()->mutable_addresses(1)->set_ip("10.0.0.3"); }},
      {"address gone", [](Beat b) { b.mutable_identity()->mutable_addresses()->RemoveLast(); }},
      {"rank gone", [](Beat b) { b.clear_ranks(); }},
      {"rank of another", [](Beat b) { b.mutable_ranks(0)->set_deployment("n"); }},
      {"launched anew", [](Beat b) { b.mutable_ranks(0)->set_epoch(1002); }},
      {"other rank", [](Beat b) { b.mutable_ranks(0)->set_rank(1); }},
      {"phase", [](Beat b) { b.mutable_ranks(0)->set_phase(v1::RANK_PHASE_READY); }},
      {"loads", [](Beat b) { b.mutable_ranks(0)->set_bytes_loaded(6); }},
      {"failed", [](Beat b) { b.mutable_ranks(0)->mutable_failure()->set_code("RANK_DIED"); }},
      {"inventory", [](Beat b) { b.set_inventory_revision(2); }},
      {"links", [](Beat b) { b.set_links_revision(3); }},
      {"term", [](Beat b) { b.mutable_coordinator()->set_term(5); }},
      {"coordinator", [](Beat b) { b.mutable_coordinator()->set_coordinator_id("a"); }},
      {"disk", [](Beat b) { b.mutable_state_failure()->set_code("DISK_FULL"); }},
      {"draining", [](Beat b) { b.set_draining(true); }},
      {"undialled", [](Beat b) { b.add_undialled_node_ids("d"); }},
      {"dialled", [](Beat b) { b.clear_undialled_node_ids(); }},
  };
  std::map<uint64_t, std::string> seen = {{NewsOf(Heartbeat()), "unchanged"}};
  for (const auto& [name, change] : changes) {
    const auto [place, is_new] = seen.emplace(After(change), name);
    EXPECT_TRUE(is_new) << name << " is told as " << place->second;
  }
}

TEST(NodeNews, WhatChangesAllTheTimeIsNone) {
  const uint64_t news = NewsOf(Heartbeat());
  EXPECT_EQ(After([](auto& b) { b.mutable_load()->set_power_watts(80); }), news);
  EXPECT_EQ(After([](auto& b) { b.set_state_digest("another"); }), news);
  EXPECT_EQ(After([](auto& b) { b.mutable_ranks(0)->set_tokens_generated_total(9); }), news);
  EXPECT_EQ(After([](auto& b) { b.mutable_ranks(0)->set_requests_running(2); }), news);
}

// "ab", "c" is another list than "a", "bc", and an address is no undialled node.
TEST(NodeNews, TextsAreNotRunTogether) {
  const auto addresses = [](const char* first, const char* second) {
    return After([&](auto& b) {
      b.mutable_identity()->mutable_addresses(0)->set_ip(first);
      b.mutable_identity()->mutable_addresses(1)->set_ip(second);
    });
  };
  EXPECT_NE(addresses("10.0.0.11", "0.0.0.2"), addresses("10.0.0.1", "10.0.0.2"));
  EXPECT_NE(addresses("", "x"), addresses("x", ""));
  const auto named = [](const char* host, const char* version) {
    return After([&](auto& b) {
      b.mutable_identity()->set_hostname(host);
      b.mutable_identity()->set_agent_version(version);
    });
  };
  EXPECT_NE(named("ada1", ".0"), named("ada", "1.0"));
}

TEST(NodeNews, IsNeverNothing) {
  EXPECT_NE(NewsOf(v1::HeartbeatRequest()), 0u);
  for (uint64_t i = 0; i < 100'000; ++i) {
    v1::HeartbeatRequest heartbeat;
    heartbeat.set_links_revision(i);
    ASSERT_NE(NewsOf(heartbeat), 0u);
  }
}

}  // namespace
}  // namespace macrame::agentd
