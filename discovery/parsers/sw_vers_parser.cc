#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {

SwVers ParseSwVers(std::string_view text) {
  SwVers versions;
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, ":", name, value)) continue;
    if (name == "ProductName") versions.name = std::string(value);
    if (name == "ProductVersion") versions.version = std::string(value);
    if (name == "BuildVersion") versions.build = std::string(value);
  }
  return versions;
}

}  // namespace macrame::discovery
