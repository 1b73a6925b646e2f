#include <sys/sysctl.h>
#include <sys/types.h>

#include <string>

#include "runtime/supervisor/process_identity.h"

namespace macrame::runtime {

std::string ProcessIdentity(pid_t pid) {
  int name[4] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, static_cast<int>(pid)};
  struct kinfo_proc info {};
  size_t size = sizeof(info);
  if (sysctl(name, 4, &info, &size, nullptr, 0) != 0 || size == 0) return "";
  if (info.kp_proc.p_pid != pid || info.kp_proc.p_stat == SZOMB) return "";
  return std::to_string(info.kp_proc.p_starttime.tv_sec) + ":" +
         std::to_string(info.kp_proc.p_starttime.tv_usec);
}

}  // namespace macrame::runtime
