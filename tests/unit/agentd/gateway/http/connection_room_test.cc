#include "agentd/gateway/http/connection_room.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace macrame::agentd {
namespace {

constexpr ConnectionLimits kLimits{.all_max = 16, .per_address_max = 8, .reserved = 2};

class ConnectionRoomTest : public ::testing::Test {
 protected:
  void Add(const std::string& address, bool is_waiting, int count = 1) {
    for (int i = 0; i < count; ++i) {
      connections_.push_back({address, is_waiting, now_});
      now_ += std::chrono::seconds(1);
    }
  }
  RoomDecision Ask(const std::string& address, bool is_loopback = false) {
    return Admit(connections_, kLimits, address, is_loopback);
  }

  std::vector<ConnectionView> connections_;
  std::chrono::steady_clock::time_point now_{};
};

TEST_F(ConnectionRoomTest, WhoeverComesFirstIsTaken) {
  EXPECT_TRUE(Ask("10.0.0.1").taken);
  Add("10.0.0.1", false, 7);
  const RoomDecision decision = Ask("10.0.0.1");
  EXPECT_TRUE(decision.taken);
  EXPECT_FALSE(decision.leaves.has_value());
}

TEST_F(ConnectionRoomTest, TheLongestIdleLeaves) {
  Add("10.0.0.1", false, 4);
  Add("10.0.0.2", true, 4);
  Add("10.0.0.3", true, 8);
  const RoomDecision decision = Ask("10.0.0.4");
  EXPECT_TRUE(decision.taken);
  EXPECT_EQ(decision.leaves, 4u);
}

TEST_F(ConnectionRoomTest, AFullAddressGivesBackOneOfItsOwn) {
  Add("10.0.0.2", true, 2);
  Add("10.0.0.1", false, 6);
  Add("10.0.0.1", true, 2);
  RoomDecision decision = Ask("10.0.0.1");
  EXPECT_TRUE(decision.taken);
  EXPECT_EQ(decision.leaves, 8u);
  connections_[8].is_waiting = connections_[9].is_waiting = false;
  decision = Ask("10.0.0.1");
  EXPECT_FALSE(decision.taken);
  EXPECT_TRUE(decision.address_is_full);
  EXPECT_TRUE(Ask("10.0.0.3").taken);
}

// Two addresses whose answers take all but the reserve.
TEST_F(ConnectionRoomTest, TheLastPlacesAreForThoseWhoHaveNone) {
  Add("10.0.0.1", false, 7);
  Add("10.0.0.2", false, 7);
  EXPECT_FALSE(Ask("10.0.0.1").taken);
  EXPECT_TRUE(Ask("10.0.0.3").taken);
  EXPECT_TRUE(Ask("127.0.0.1", true).taken);
  Add("10.0.0.3", false, 1);
  Add("127.0.0.1", false, 1);
  EXPECT_FALSE(Ask("10.0.0.4").taken);
  EXPECT_FALSE(Ask("127.0.0.1", true).taken);
}

TEST_F(ConnectionRoomTest, ThisMachineMayHaveAllPlaces) {
  Add("127.0.0.1", false, 15);
  EXPECT_TRUE(Ask("127.0.0.1", true).taken);
}

}  // namespace
}  // namespace macrame::agentd
