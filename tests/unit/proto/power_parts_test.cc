#include "proto/power_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(PowerParts, AreToldInOneOrderWhoeverToldThem) {
  v1::NodeLoad load;
  EXPECT_EQ(CoversText(load.power_parts()), "");
  load.add_power_parts(v1::POWER_PART_MEMORY);
  load.add_power_parts(v1::POWER_PART_PACKAGE);
  load.add_power_parts(v1::POWER_PART_PACKAGE);
  EXPECT_EQ(CoversText(load.power_parts()), "package+memory");
  EXPECT_THAT(PartsOf(load.power_parts()),
              testing::ElementsAre(v1::POWER_PART_PACKAGE, v1::POWER_PART_MEMORY));
  EXPECT_EQ(CoversText({v1::POWER_PART_CPU, v1::POWER_PART_GPU, v1::POWER_PART_ANE}),
            "cpu+gpu+ane");
  EXPECT_EQ(CoversText({v1::POWER_PART_MACHINE}), "machine");
}

TEST(PowerParts, WhatANewerAgentCoversIsOther) {
  v1::NodeLoad load;
  load.add_power_parts(static_cast<v1::PowerPart>(77));
  EXPECT_EQ(CoversText(load.power_parts()), "other");
}

}  // namespace
}  // namespace macrame
