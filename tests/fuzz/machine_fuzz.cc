// What a Mac's commands say of its hardware, memory and load.

#include <cstdint>
#include <string_view>

#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/power_parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame;
  using namespace macrame::discovery;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& [name, value] : ParseSysctl(text)) {
    ParseSwapUsage(value);
    ParseBootTime(value);
    ParseLoadAverage(value);
  }
  ParseSwVers(text);
  AvailableBytes(ParseVmStat(text), v1::MEMORY_PRESSURE_NORMAL);
  ParseMemoryFreeRatio(text);
  ParseIoregGpu(text);
  ParsePmsetTherm(text);
  ParsePmsetOnBattery(text);
  ParseHardwareOverview(text);
  ParseDisplays(text);
  ParseDf(text);
  ParsePowermetrics(text);
  ParseNvidiaWatts(text);
  return 0;
}
