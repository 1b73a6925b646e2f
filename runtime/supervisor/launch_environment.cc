#include "runtime/supervisor/launch_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace macrame::runtime {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"PATH",   "HOME", "USER", "LOGNAME",
                                                    "TMPDIR", "LANG", "TZ",   "OMP_NUM_THREADS"};
constexpr std::array<std::string_view, 2> kPrefixes = {"LC_", "MLX_"};
// Another program's gang must not leak into ours, nor a setting that is the agent's to make.
constexpr std::array<std::string_view, 7> kNever = {
    "MLX_RANK",       "MLX_HOSTFILE",   "MLX_IBV_DEVICES",     "MLX_JACCL_COORDINATOR",
    "MLX_JACCL_RING", "MLX_WORLD_SIZE", "MLX_METAL_FAST_SYNCH"};

bool IsPassedOn(std::string_view name) {
  if (std::find(kNever.begin(), kNever.end(), name) != kNever.end()) return false;
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [name](std::string_view prefix) {
    return name.substr(0, prefix.size()) == prefix;
  });
}

}  // namespace

std::vector<std::string> LaunchEnvironment(const char* const* environment, bool fast_synch) {
  std::vector<std::string> out;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos) continue;
    if (IsPassedOn(variable.substr(0, equals))) out.emplace_back(variable);
  }
  if (fast_synch) out.emplace_back("MLX_METAL_FAST_SYNCH=1");
  return out;
}

}  // namespace macrame::runtime
