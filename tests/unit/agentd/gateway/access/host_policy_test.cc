#include "agentd/gateway/access/host_policy.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

TEST(HostPolicy, LoopbackTakesOnlyItsOwnNames) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(IsHostAllowed(host, true, {})) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "192.168.1.5", "0.0.0.0", "2130706433", "", "::ffff:7f00:1"}) {
    EXPECT_FALSE(IsHostAllowed(host, true, {})) << host;
  }
  EXPECT_TRUE(IsHostAllowed("mini-1.local", true, {"Mini-1.local"}));
  EXPECT_TRUE(IsHostAllowed("mini-1.local", true, {"mini-1.local:8000"}));
}

TEST(HostPolicy, AStarStandsForEveryNameThatEndsSo) {
  EXPECT_TRUE(IsHostAllowed("app.localhost", true, {"*.localhost"}));
  EXPECT_TRUE(IsHostAllowed("host.docker.internal", true, {"host.docker.internal"}));
  for (const char* host : {"localhost.evil.example", "evillocalhost", "app.localhost.evil"}) {
    EXPECT_FALSE(IsHostAllowed(host, true, {"*.localhost"})) << host;
  }
  EXPECT_FALSE(IsHostAllowed("evil.example", true, {"*", "*."})) << "not every name";
}

TEST(HostPolicy, BeyondLoopbackAddressesPassAndNamesMustBeListed) {
  EXPECT_FALSE(IsHostAllowed("mini-1.local", false, {})) << "any name could be another site's";
  EXPECT_TRUE(IsHostAllowed("mini-1.local", false, {"mini-1.local"}));
  EXPECT_FALSE(IsHostAllowed("evil.example", false, {"mini-1.local"}));
  EXPECT_TRUE(IsHostAllowed("192.168.1.5", false, {}));
  EXPECT_TRUE(IsHostAllowed("localhost", false, {}));
  EXPECT_FALSE(IsHostAllowed("", false, {}));
}

}  // namespace
}  // namespace macrame::agentd
