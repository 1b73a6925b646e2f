#pragma once

// Power and energy as people read them, always with what they cover. Pure.

#include <string>

#include "cli/format/message_json.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// "74 W package+gpu"; "-" where it is not known.
std::string PowerText(const v1::NodeLoad& load);
// "61 °C"; "-" where it is not known.
std::string TemperatureText(const v1::NodeLoad& load);
// Whether any node that is up tells its power; its temperature.
bool AnyPower(const v1::ClusterStatus& status);
bool AnyTemperature(const v1::ClusterStatus& status);
// "0.42 J", "1.3 kJ", "2.1 MJ"
std::string Joules(double joules);
// "0.8 Wh", "1.2 kWh"
std::string WattHours(double joules);
// What a model measured of its energy, and what its plan had said; empty where nothing was.
std::string EnergyLines(const v1::DeploymentStatus& deployment);
// The same for programs; null where nothing was measured.
Json EnergyJson(const v1::DeploymentStatus& deployment);

}  // namespace macrame::cli
