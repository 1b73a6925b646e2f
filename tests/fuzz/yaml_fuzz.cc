// What people and others write in YAML: an agent's configuration, entries of models, a described
// cluster. Each is taken or refused in a sentence.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "agentd/config/config.h"
#include "planner/offline/catalogue_entry.h"
#include "planner/offline/cluster_file.h"

namespace {

void Check(const absl::Status& status) {
  if (!status.ok() && status.message().empty()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  macrame::agentd::LoadedConfig config = macrame::agentd::DefaultConfig();
  const absl::Status applied = macrame::agentd::ApplyYaml(text, "agent.yaml", &config);
  Check(applied);
  if (applied.ok()) Check(macrame::agentd::CheckConfig(config.values));
  Check(macrame::planner::ReadCatalogue(text).status());
  Check(macrame::planner::ReadClusterFile(text).status());
  return 0;
}
