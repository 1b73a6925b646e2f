#include <fstream>
#include <sstream>
#include <string>

#include "runtime/supervisor/process_identity.h"

namespace macrame::runtime {

std::string ProcessIdentity(pid_t pid) {
  std::ifstream stat_file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat_file, line)) return "";
  // The name is in parentheses and may hold anything; the state is the first field after it, the
  // start time, in clock ticks since the machine started, the 20th.
  const size_t after_name = line.rfind(')');
  if (after_name == std::string::npos) return "";
  std::istringstream fields(line.substr(after_name + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) {
    if (!(fields >> field)) return "";
    if (i == 0 && (field == "Z" || field == "X")) return "";  // gone but for its exit code
  }
  std::ifstream boot_file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(boot_file, boot);
  return boot + ":" + field;
}

}  // namespace macrame::runtime
