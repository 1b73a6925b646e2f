#include "runtime/supervisor/system_reports.h"

namespace macrame::runtime {

std::vector<std::string> CrashReportFolders() { return {}; }
std::vector<std::string> StackSampler() { return {}; }

}  // namespace macrame::runtime
