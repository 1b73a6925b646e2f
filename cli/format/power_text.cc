#include "cli/format/power_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format/cluster_view.h"
#include "cli/format/text.h"
#include "proto/power_parts.h"

namespace macrame::cli {
namespace {

constexpr double kJoulesPerWattHour = 3600;
constexpr double kJoulesPerKilowattHour = 3.6e6;
constexpr double kMillion = 1e6;

bool HasPower(const v1::NodeLoad& load) {
  return load.power_watts() >= 0 && !load.power_parts().empty();
}

// Three digits at least, none that is noise.
std::string Figure(double value) {
  if (value >= 100) return absl::StrFormat("%.0f", value);
  if (value >= 1) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.2g", value);
}

std::string CoversOf(const v1::ModelEnergy& energy) {
  const std::string covers = CoversText(energy.parts());
  if (!energy.parts_differ()) return covers;
  return covers.empty() ? "its nodes' figures cover different parts"
                        : absl::StrCat(covers, ", on some nodes more");
}

double JoulesPerToken(const v1::ModelEnergy& energy) {
  return energy.joules() / static_cast<double>(energy.generated_tokens());
}

}  // namespace

std::string PowerText(const v1::NodeLoad& load) {
  if (!HasPower(load)) return "-";
  return absl::StrFormat("%.0f W %s", load.power_watts(), CoversText(load.power_parts()));
}

std::string TemperatureText(const v1::NodeLoad& load) {
  if (!load.has_temperature_celsius()) return "-";
  return absl::StrFormat("%.0f °C", load.temperature_celsius());
}

bool AnyPower(const v1::ClusterStatus& status) {
  return std::any_of(status.nodes().begin(), status.nodes().end(),
                     [](const auto& node) { return IsUp(node) && HasPower(node.load()); });
}

bool AnyTemperature(const v1::ClusterStatus& status) {
  return std::any_of(status.nodes().begin(), status.nodes().end(), [](const auto& node) {
    return IsUp(node) && node.load().has_temperature_celsius();
  });
}

std::string Joules(double joules) {
  if (joules >= 1e6) return absl::StrCat(Figure(joules / 1e6), " MJ");
  if (joules >= 1e3) return absl::StrCat(Figure(joules / 1e3), " kJ");
  return absl::StrCat(Figure(joules), " J");
}

std::string WattHours(double joules) {
  const double hours = joules / kJoulesPerWattHour;
  if (hours >= 1000) return absl::StrCat(Figure(hours / 1000), " kWh");
  return absl::StrCat(Figure(hours), " Wh");
}

std::string EnergyLines(const v1::DeploymentStatus& deployment) {
  const v1::ModelEnergy& energy = deployment.energy();
  if (!(energy.joules() > 0)) return "";
  std::string text =
      absl::StrCat("energy, measured (", CoversOf(energy), "): ", Joules(energy.joules()), " for ",
                   energy.generated_tokens(), " tokens generated and ", energy.prompt_tokens(),
                   " of prompts computed\n");
  if (energy.generated_tokens() > 0) {
    const double each = JoulesPerToken(energy);
    absl::StrAppend(&text, "  ", Joules(each), " a token generated, ", Figure(1 / each),
                    " tokens a joule, ", Figure(each * kMillion / kJoulesPerKilowattHour),
                    " kWh a million; prompts took ",
                    Percent(energy.prefill_joules() / energy.joules()), " of it\n");
  }
  if (energy.seconds() > 0) {
    absl::StrAppend(&text, "  ", Figure(energy.joules() / energy.seconds()),
                    " W while its ranks computed\n");
  }
  const v1::Prediction& predicted = deployment.plan().prediction();
  if (predicted.joules_per_token() > 0) {
    absl::StrAppend(&text, "  its plan said ", Joules(predicted.joules_per_token()), " a token, ",
                    Figure(predicted.power_watts()),
                    " W: the table's, of whole machines, for one user\n");
  }
  return text;
}

Json EnergyJson(const v1::DeploymentStatus& deployment) {
  const v1::ModelEnergy& energy = deployment.energy();
  if (!(energy.joules() > 0)) return nullptr;
  Json json = {{"covers", CoversText(energy.parts())},
               {"covers_differ", energy.parts_differ()},
               {"joules", energy.joules()},
               {"prefill_joules", energy.prefill_joules()},
               {"generated_tokens", energy.generated_tokens()},
               {"prompt_tokens", energy.prompt_tokens()},
               {"seconds", energy.seconds()}};
  if (energy.generated_tokens() > 0) json["joules_per_token"] = JoulesPerToken(energy);
  return json;
}

}  // namespace macrame::cli
