#include "proto/message_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "macrame/v1/cluster.pb.h"

namespace macrame {
namespace {

using Json = nlohmann::ordered_json;

TEST(MessageJson, FieldsAreThereWithTheirTypes) {
  v1::NodeStatus node;
  node.mutable_inventory()->set_memory_total_bytes(uint64_t{1} << 40);
  node.set_state(v1::NODE_STATE_SUSPECT);
  const Json json = MessageToJson(node);
  EXPECT_EQ(json["inventory"]["memory_total_bytes"], uint64_t{1} << 40);
  EXPECT_EQ(json["state"], "suspect");
  EXPECT_EQ(json["is_self"], false);
  EXPECT_FALSE(json.contains("load"));
  EXPECT_TRUE(json["inventory"]["disks"].is_array());
}

TEST(MessageJson, OddValuesStayValidJson) {
  v1::NodeLoad load;
  load.set_power_watts(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(MessageToJson(load)["power_watts"].is_null());
  EXPECT_EQ(MessageToJson(load)["memory_pressure"], "unknown");
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_state_digest("\x01\xFF");
  EXPECT_EQ(MessageToJson(heartbeat)["state_digest"], "01ff");
}

TEST(MessageJson, EnumWordsLoseTheirPrefix) {
  v1::PlacementOptions placement;
  placement.set_parallelism(v1::PARALLELISM_TENSOR);
  EXPECT_EQ(MessageToJson(placement)["parallelism"], "tensor");
  v1::RankStatus rank;
  rank.set_phase(v1::RANK_PHASE_WARMING_UP);
  EXPECT_EQ(MessageToJson(rank)["phase"], "warming_up");
}

}  // namespace
}  // namespace macrame
