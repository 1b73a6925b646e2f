#include <nlohmann/json.hpp>

#include "discovery/parsers/power_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

constexpr int kGpusMax = 64;
constexpr size_t kMacmonLineBytesMax = size_t{64} << 10;
// By which the machine must draw more than its chip: macmon adds in single precision.
constexpr double kMachineOverChip = 1.0001;

std::optional<double> Plausible(std::optional<double> watts) {
  if (!watts || !(*watts >= 0) || *watts > kWattsMax) return std::nullopt;
  return watts;
}

// "8916 mW", "3.35W"
std::optional<double> ParsePower(std::string_view value) {
  double scale = 1;
  if (value.ends_with("mW")) {
    scale = 1e-3;
    value.remove_suffix(2);
  } else if (value.ends_with("W")) {
    value.remove_suffix(1);
  } else {
    return std::nullopt;
  }
  const auto number = ParseReal(Trim(value));
  return number ? Plausible(*number * scale) : std::nullopt;
}

struct MacPowers {
  std::optional<double> combined, package, cpu, gpu, ane, memory;
};

void ReadPower(std::string_view name, std::string_view value, MacPowers& powers) {
  if (name == "Combined Power (CPU + GPU + ANE)") powers.combined = ParsePower(value);
  if (name == "Package Power") powers.package = ParsePower(value);
  if (name == "Intel energy model derived package power (CPUs+GT+SA)") {
    powers.package = ParsePower(value);
  }
  if (name == "CPU Power") powers.cpu = ParsePower(value);
  // It stands in the samples of the processor and of the GPU: the same figure.
  if (name == "GPU Power") powers.gpu = ParsePower(value);
  if (name == "ANE Power") powers.ane = ParsePower(value);
  if (name == "DRAM Power") powers.memory = ParsePower(value);
}

PartsPower SumOf(const MacPowers& powers) {
  PartsPower sum;
  const auto add = [&sum](v1::PowerPart part, const std::optional<double>& watts) {
    if (!watts) return;
    sum.parts.push_back(part);
    sum.watts += *watts;
  };
  if (powers.combined) {
    sum = {{v1::POWER_PART_CPU, v1::POWER_PART_GPU, v1::POWER_PART_ANE}, *powers.combined};
  } else if (powers.package) {
    add(v1::POWER_PART_PACKAGE, powers.package);
  } else {
    add(v1::POWER_PART_CPU, powers.cpu);
    add(v1::POWER_PART_GPU, powers.gpu);
    add(v1::POWER_PART_ANE, powers.ane);
  }
  add(v1::POWER_PART_MEMORY, powers.memory);
  return sum;
}

std::optional<double> WattsOf(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return Plausible(found->get<double>());
}

}  // namespace

std::optional<uint64_t> CounterStep(uint64_t before, uint64_t after, uint64_t range) {
  if (after >= before) return after - before;
  if (range < before) return std::nullopt;
  return range - before + after;
}

std::optional<PartsPower> ParsePowermetrics(std::string_view text) {
  MacPowers powers;
  for (const std::string_view line : WholeLines(text)) {
    if (line.starts_with("*** Sampled system activity")) powers = MacPowers();
    std::string_view name, value;
    if (SplitOnce(line, ":", name, value)) ReadPower(name, value, powers);
  }
  PartsPower sum = SumOf(powers);
  if (sum.parts.empty() || sum.watts > kWattsMax) return std::nullopt;
  return sum;
}

bool WantsSuperuser(std::string_view stderr_text) {
  return stderr_text.find("superuser") != stderr_text.npos;
}

std::optional<PartsPower> ParseMacmon(std::string_view text) {
  const auto lines = WholeLines(text);
  if (lines.empty() || lines.back().size() > kMacmonLineBytesMax) return std::nullopt;
  const nlohmann::json sample =
      nlohmann::json::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  if (!sample.is_object()) return std::nullopt;
  MacPowers powers;
  powers.cpu = WattsOf(sample, "cpu_power");
  powers.gpu = WattsOf(sample, "gpu_power");
  powers.ane = WattsOf(sample, "ane_power");
  if (powers.cpu == 0.0) powers.cpu.reset();
  const PartsPower chip = SumOf(powers);
  const auto machine = WattsOf(sample, "sys_power");
  if (machine && *machine > chip.watts * kMachineOverChip) {
    return PartsPower{{v1::POWER_PART_MACHINE}, *machine};
  }
  if (!(chip.watts > 0) || chip.watts > kWattsMax) return std::nullopt;
  return chip;
}

std::optional<double> ParseNvidiaWatts(std::string_view text) {
  double sum = 0;
  int gpus = 0;
  for (const std::string_view line : WholeLines(text)) {
    if (Trim(line).empty()) continue;
    const auto watts = Plausible(ParseReal(Trim(line)));
    if (!watts || ++gpus > kGpusMax) return std::nullopt;
    sum += *watts;
  }
  return gpus == 0 ? std::nullopt : Plausible(sum);
}

}  // namespace macrame::discovery
