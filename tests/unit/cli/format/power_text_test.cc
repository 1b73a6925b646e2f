#include "cli/format/power_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/format/access_view.h"
#include "cli/format/cluster_view.h"
#include "cli/format/top_view.h"

namespace macrame::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::ClusterStatus TwoNodes() {
  v1::ClusterStatus status;
  for (const char* name : {"ada", "bess"}) {
    v1::NodeStatus& node = *status.add_nodes();
    node.mutable_identity()->set_node_id(name);
    node.mutable_identity()->set_hostname(name);
    node.set_state(v1::NODE_STATE_ALIVE);
    node.mutable_inventory()->set_memory_total_bytes(uint64_t{64} << 30);
    node.mutable_load()->set_power_watts(-1);
  }
  return status;
}

void Draws(v1::NodeStatus* node, double watts, v1::PowerPart part) {
  node->mutable_load()->set_power_watts(watts);
  node->mutable_load()->add_power_parts(part);
}

TEST(PowerText, NeverWithoutWhatItCovers) {
  v1::NodeLoad load;
  load.set_power_watts(-1);
  EXPECT_EQ(PowerText(load), "-");
  load.set_power_watts(0);
  EXPECT_EQ(PowerText(load), "-") << "an agent that does not say what of";
  load.set_power_watts(74.4);
  load.add_power_parts(v1::POWER_PART_PACKAGE);
  load.add_power_parts(v1::POWER_PART_MEMORY);
  EXPECT_EQ(PowerText(load), "74 W package+memory");
  EXPECT_EQ(TemperatureText(load), "-");
  load.set_temperature_celsius(61.5);
  EXPECT_EQ(TemperatureText(load), "62 °C");
}

TEST(PowerText, StatusHasTheColumnsOnceANodeTells) {
  v1::ClusterStatus status = TwoNodes();
  EXPECT_THAT(StatusView(status, 140, Style()), Not(HasSubstr("POWER")));
  EXPECT_THAT(StatusView(status, 140, Style()), Not(HasSubstr("TEMP")));
  Draws(status.mutable_nodes(1), 31, v1::POWER_PART_PACKAGE);
  status.mutable_nodes(0)->mutable_load()->set_temperature_celsius(50);
  const std::string view = StatusView(status, 140, Style());
  EXPECT_THAT(view, HasSubstr("POWER"));
  EXPECT_THAT(view, HasSubstr("31 W package"));
  EXPECT_THAT(view, HasSubstr("50 °C"));
  EXPECT_THAT(TopView(status, 140, Style()), HasSubstr("31 W package"));
  // What was last said of a node that is not there is no longer so.
  status.mutable_nodes(1)->set_state(v1::NODE_STATE_DEAD);
  EXPECT_THAT(StatusView(status, 140, Style()), Not(HasSubstr("31 W")));
}

v1::DeploymentStatus Measured() {
  v1::DeploymentStatus deployment;
  v1::ModelEnergy& energy = *deployment.mutable_energy();
  energy.set_joules(1800);
  energy.set_prefill_joules(450);
  energy.set_generated_tokens(3600);
  energy.set_prompt_tokens(900);
  energy.set_seconds(60);
  energy.add_parts(v1::POWER_PART_PACKAGE);
  return deployment;
}

TEST(EnergyLines, TellWhatATokenTookAndWhatOf) {
  v1::DeploymentStatus deployment = Measured();
  const std::string text = EnergyLines(deployment);
  EXPECT_THAT(text, HasSubstr("energy, measured (package): 1.8 kJ for 3600 tokens generated"));
  EXPECT_THAT(text, HasSubstr("0.5 J a token generated, 2.0 tokens a joule, 0.14 kWh a million"));
  EXPECT_THAT(text, HasSubstr("prompts took 25% of it"));
  EXPECT_THAT(text, HasSubstr("30.0 W while its ranks computed"));
  EXPECT_THAT(text, Not(HasSubstr("its plan said")));
  deployment.mutable_energy()->set_parts_differ(true);
  EXPECT_THAT(EnergyLines(deployment), HasSubstr("(package, on some nodes more)"));
}

TEST(EnergyLines, TheMeasuredFigureStandsBeforeTheTables) {
  v1::DeploymentStatus deployment = Measured();
  deployment.mutable_plan()->mutable_prediction()->set_power_watts(95);
  deployment.mutable_plan()->mutable_prediction()->set_joules_per_token(3.8);
  const std::string text = EnergyLines(deployment);
  EXPECT_THAT(text,
              HasSubstr("its plan said 3.8 J a token, 95.0 W: the table's, of whole machines"));
  EXPECT_LT(text.find("measured"), text.find("its plan said"));
}

TEST(EnergyLines, WhatWasNotMeasuredIsNotThere) {
  EXPECT_EQ(EnergyLines(v1::DeploymentStatus()), "");
  EXPECT_TRUE(EnergyJson(v1::DeploymentStatus()).is_null());
  v1::DeploymentStatus deployment = Measured();
  deployment.mutable_energy()->set_generated_tokens(0);
  EXPECT_THAT(EnergyLines(deployment), Not(HasSubstr("a token generated,")));
  EXPECT_FALSE(EnergyJson(deployment).contains("joules_per_token"));
  EXPECT_DOUBLE_EQ(EnergyJson(Measured())["joules_per_token"], 0.5);
  EXPECT_EQ(EnergyJson(Measured())["covers"], "package");
}

TEST(WattHours, AsPeopleReadThem) {
  EXPECT_EQ(WattHours(3600), "1.0 Wh");
  EXPECT_EQ(WattHours(90), "0.025 Wh");
  EXPECT_EQ(WattHours(3.6e6 * 12), "12.0 kWh");
  EXPECT_EQ(Joules(0.42), "0.42 J");
  EXPECT_EQ(Joules(2.1e6), "2.1 MJ");
}

TEST(KeysView, ShowsWhatEachKeyTookOverAllGateways) {
  v1::ListKeysResponse keys;
  keys.add_keys()->set_id("0123456789ab");
  keys.add_keys()->set_id("ba9876543210");
  v1::GetKeyEnergyResponse energy;
  EXPECT_THAT(KeysView(keys, energy, 0, 140, Style()), Not(HasSubstr("ENERGY")));
  v1::KeyEnergy& one = *energy.add_keys();
  one.set_key_id("0123456789ab");
  one.set_joules(7200);
  energy.add_keys()->set_joules(360);
  energy.add_missing();
  const std::string view = KeysView(keys, energy, 0, 140, Style());
  EXPECT_THAT(view, HasSubstr("ENERGY"));
  EXPECT_THAT(view, HasSubstr("2.0 Wh"));
  EXPECT_THAT(view, HasSubstr("Requests without a key took 0.1 Wh."));
  EXPECT_THAT(view, HasSubstr("lacks 1 gateway that could not be asked"));
}

}  // namespace
}  // namespace macrame::cli
