#include "discovery/probe/link_facts.h"
#include "discovery/probe/linux_probe.h"
#include "discovery/probe/mac_probe.h"
#include "discovery/probe/node_probe.h"

namespace macrame::discovery {

std::unique_ptr<NodeProbe> MakeNodeProbe(const std::string& root, CommandRunner& runner) {
  // A folder of commands that answer for a Mac makes this machine one.
  if (IsMacByCommands()) return std::make_unique<MacProbe>(runner);
  return std::make_unique<LinuxProbe>(root, &runner);
}

v1::InterfaceKind QuickInterfaceKind(const std::string& root, const std::string& name) {
  const v1::InterfaceKind kind = KindFromSysfs(root, name);
  return kind == v1::INTERFACE_KIND_UNSPECIFIED ? KindFromName(name) : kind;
}

}  // namespace macrame::discovery
