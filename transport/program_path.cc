#include "transport/program_path.h"

#include <filesystem>
#include <system_error>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace macrame::transport {

std::string ProgramBesideThis(const std::string& name) {
  std::error_code error;
#ifdef __APPLE__
  std::string path(4096, '\0');
  uint32_t size = static_cast<uint32_t>(path.size());
  if (_NSGetExecutablePath(path.data(), &size) != 0) return name;
  const std::filesystem::path program =
      std::filesystem::canonical(std::string(path.c_str()), error);
#else
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
#endif
  if (error) return name;
  return (program.parent_path() / name).string();
}

}  // namespace macrame::transport
