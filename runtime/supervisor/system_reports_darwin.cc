#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/supervisor/system_reports.h"

namespace macrame::runtime {

// A user's process has its report in the user's own folder, a daemon in the system's.
std::vector<std::string> CrashReportFolders() {
  const std::string folder = "/Library/Logs/DiagnosticReports";
  std::vector<std::string> folders = {folder};
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    const passwd* user = getpwuid(getuid());
    home = user == nullptr ? nullptr : user->pw_dir;
  }
  if (home != nullptr && *home == '/') folders.push_back(home + folder);
  return folders;
}

std::vector<std::string> StackSampler() { return {"/usr/bin/sample"}; }

}  // namespace macrame::runtime
