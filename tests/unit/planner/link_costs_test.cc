#include "planner/link_costs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr Fabric kTcp;
constexpr Fabric kMesh{Backend::kJaccl, Topology::kMesh};
constexpr double kMessageBytes = 16384;

// A path from one node to another and back.
struct Listed {
  std::vector<std::string> backends = {"ring"};
  v1::LinkMedium medium = v1::LINK_MEDIUM_ETHERNET;
  double round_trip_us = 0;
  double bandwidth = 0;
  double rdma_round_trip_us = 0;
  double rdma_bandwidth = 0;
};

class LinkCostsTest : public testing::Test {
 protected:
  LinkCostsTest() {
    for (const char* id : {"aaaa", "bbbb", "cccc"}) *request_.add_nodes() = Node(id, 64 * kGiB);
  }
  void List(const std::string& a, const std::string& b, const Listed& listed) {
    const int before = request_.links_size();
    AddLink(a, b, listed.backends, listed.medium, &request_);
    for (int i = before; i < request_.links_size(); ++i) {
      v1::PlannerLink& link = *request_.mutable_links(i);
      link.set_round_trip_us(listed.round_trip_us);
      link.set_bandwidth_bytes_per_second(listed.bandwidth);
      link.set_rdma_round_trip_us(listed.rdma_round_trip_us);
      link.set_rdma_bandwidth_bytes_per_second(listed.rdma_bandwidth);
    }
  }
  LinkCosts Costs() {
    candidates_.clear();
    for (const v1::PlannerNode& node : request_.nodes()) candidates_.push_back(CandidateOf(node));
    return LinkCosts(request_, candidates_);
  }
  double HopUs(const Fabric& fabric, size_t from, size_t to) {
    const std::vector<size_t> here = {from}, there = {to};
    CostParameters none;
    none.tcp_hop_us = none.rdma_hop_us = 0;
    return Costs().HopUs(fabric, here, there, kMessageBytes, none);
  }

  v1::PlanRequest request_;
  std::vector<Candidate> candidates_;
};

double CarryUs(double one_way_us, double bandwidth) {
  return one_way_us + kMessageBytes / bandwidth * 1e6;
}

TEST_F(LinkCostsTest, RdmaIsCostedAsMeasuredAndTcpByItsOwnMeasurement) {
  List("aaaa", "bbbb",
       {{"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, 280, 2.5e9, /*rdma*/ 40, 5e9});
  EXPECT_DOUBLE_EQ(HopUs(kMesh, 0, 1), CarryUs(20, 5e9));
  EXPECT_DOUBLE_EQ(HopUs(kTcp, 0, 1), CarryUs(140, 2.5e9));
}

// The same way there and back: only over a Thunderbolt cable is that all there is.
TEST_F(LinkCostsTest, SoftwareCountsAtCollectivesThatAreNotOverACable) {
  List("aaaa", "bbbb", {{"ring"}, v1::LINK_MEDIUM_THUNDERBOLT, 100, 3e9});
  List("aaaa", "cccc", {{"ring"}, v1::LINK_MEDIUM_ETHERNET, 100, 3e9});
  List("bbbb", "cccc", {{"ring"}, v1::LINK_MEDIUM_LOOPBACK, 100, 3e9});
  const CostParameters parameters;
  const LinkCosts costs = Costs();
  const auto collective = [&](size_t a, size_t b) {
    return costs.CollectiveUs(kTcp, std::vector<size_t>{a, b}, kMessageBytes, parameters);
  };
  EXPECT_DOUBLE_EQ(collective(0, 2) - collective(0, 1), parameters.tcp_collective_us);
  EXPECT_DOUBLE_EQ(collective(1, 2), collective(0, 2));
}

TEST_F(LinkCostsTest, WhatWasNotMeasuredOfRdmaIsTypicalWhateverTcpTakes) {
  List("aaaa", "bbbb", {{"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, 280, 2.5e9});
  EXPECT_DOUBLE_EQ(HopUs(kMesh, 0, 1), CarryUs(kTypicalRdma.one_way_us, kTypicalRdma.bandwidth));
  request_.mutable_links(0)->set_rdma_round_trip_us(40);
  EXPECT_DOUBLE_EQ(HopUs(kMesh, 0, 1), CarryUs(20, kTypicalRdma.bandwidth));
}

TEST_F(LinkCostsTest, ASlowCableSlowsTheWholeMesh) {
  for (const auto& [a, b] : {std::pair("aaaa", "bbbb"), {"aaaa", "cccc"}, {"bbbb", "cccc"}}) {
    List(a, b, {{"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, 0, 0, 10, 8e9});
  }
  const std::vector<size_t> all = {0, 1, 2};
  const CostParameters parameters;
  const double before = Costs().CollectiveUs(kMesh, all, kMessageBytes, parameters);
  request_.mutable_links(2)->set_rdma_round_trip_us(100);  // one way of one of the three
  EXPECT_DOUBLE_EQ(Costs().CollectiveUs(kMesh, all, kMessageBytes, parameters) - before, 45);
}

TEST_F(LinkCostsTest, OfTwoPathsEachFabricTakesTheBetterInWhateverOrderTheyAreListed) {
  std::vector<Listed> paths = {
      {{"ring"}, v1::LINK_MEDIUM_ETHERNET, 200, 0.117e9},                            // the LAN
      {{"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, 300, 3e9, 30, 6e9},           // a cable
      {{"ring", "jaccl", "verbs"}, v1::LINK_MEDIUM_THUNDERBOLT, 300, 2e9, 18, 4e9},  // another
      {{}, v1::LINK_MEDIUM_WIFI},                                                    // no path
  };
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    request_.clear_links();
    for (const size_t i : order) List("aaaa", "bbbb", paths[i]);
    EXPECT_DOUBLE_EQ(HopUs(kTcp, 0, 1), CarryUs(150, 3e9));
    EXPECT_DOUBLE_EQ(HopUs(kMesh, 0, 1), CarryUs(9, 4e9)) << "16 KiB: latency counts for more";
    EXPECT_TRUE(Costs().HasRdma(0, 1, Backend::kVerbs));
    EXPECT_TRUE(Costs().Reaches(0, 1));
    EXPECT_EQ(Costs().RdmaNeighbours(0, Backend::kJaccl), std::vector<size_t>{1});
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(LinkCostsTest, OneGoodPathIsEnoughToReachANode) {
  List("aaaa", "bbbb", {{}, v1::LINK_MEDIUM_ETHERNET});
  EXPECT_FALSE(Costs().Reaches(0, 1));
  EXPECT_TRUE(Costs().Reaches(0, 2)) << "the snapshot says nothing of the pair: the LAN";
  List("aaaa", "bbbb", {{"ring"}, v1::LINK_MEDIUM_THUNDERBOLT});
  EXPECT_TRUE(Costs().Reaches(0, 1));
}

TEST_F(LinkCostsTest, ACableForRdmaAloneCarriesNoTcp) {
  List("aaaa", "bbbb", {{"jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT});
  const std::vector<size_t> pair = {0, 1};
  EXPECT_TRUE(Costs().Allows(kMesh, pair));
  EXPECT_FALSE(Costs().Allows(kTcp, pair));
}

// 40 GiB on two machines: over a cable as fast as it should be a tensor split is the best.
TEST_F(LinkCostsTest, ACableThatWasMeasuredToBeSlowIsNotPlannedOn) {
  request_.mutable_nodes()->RemoveLast();
  for (v1::PlannerNode& node : *request_.mutable_nodes()) node.set_chip("Apple M3 Ultra");
  *request_.mutable_model() = LargeModel("model", 80 * kGiB, 60);
  List("aaaa", "bbbb", {{"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, 0, 0, 14, 8e9});
  EXPECT_EQ(PlanModel(request_).plan().tp(), 2u);
  for (v1::PlannerLink& link : *request_.mutable_links()) link.set_rdma_round_trip_us(2000);
  const v1::Plan slow = PlanModel(request_).plan();
  EXPECT_EQ(slow.backend(), "ring") << "120 collectives a token of a millisecond each are too many";
}

}  // namespace
}  // namespace macrame::planner
