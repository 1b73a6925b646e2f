#pragma once

// What one machine says of its ports, devices and interfaces (v1::LinkFacts), collected by asking:
// read-only, without privileges, each question with a limit. What could not be found out is
// unknown, with the command or file that owed it in `unknown`; nothing is concluded from silence.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "discovery/probe/command_runner.h"
#include "macrame/v1/link.pb.h"
#include "proto/ids.h"

namespace macrame::discovery {

struct LinkInputs {
  NodeId node_id;
  std::string hostname;
  std::string mlx_version;  // that rank processes are built with
};

// The commands, spelled once: captures are listed under CommandLine() of these.
Command ThunderboltCommand();
Command ThunderboltTextCommand();
Command ThunderboltSocketsCommand();
Command PlatformUuidCommand();
Command ServiceOrderCommand();
Command IfconfigCommand();
Command RoutesCommand();
Command RdmaCtlCommand();
Command IbvDevicesCommand();
Command IbvDevinfoCommand();
Command ClassCountCommand();
Command KextsCommand();
Command KernelLogCommand();
Command PowerCommand();
Command SysctlLinksCommand();
Command SharingDevicesCommand();

v1::LinkFacts CollectMacLinks(CommandRunner& runner, const LinkInputs& inputs);

// The verbs devices of this machine; sets `library_missing` when there is no libibverbs. nullopt
// when they could not be listed.
using VerbsLister =
    std::function<std::optional<std::vector<v1::RdmaDevice>>(bool* library_missing)>;

// Files below `root` ("" on a live machine), addresses from the system. `verbs` may be empty.
v1::LinkFacts CollectLinuxLinks(const std::string& root, const LinkInputs& inputs,
                                const VerbsLister& verbs);

// True when nothing differs that anybody would act on: the time, the outputs and words that change
// with every asking are left out.
bool SameLinkFacts(const v1::LinkFacts& a, const v1::LinkFacts& b);

// A name for a machine that says nothing about it: SHA-256 of `serial`, in hexadecimal, 16 digits.
std::string HardwareId(const std::string& serial);

// The folder whose executables stand for the system's commands (environment
// MACRAME_COMMANDS_FOLDER); empty: the system's own. When it holds `sw_vers` the machine is taken
// for a Mac.
std::string CommandsFolder();
bool IsMacByCommands();
// Runs the system's commands, or what stands for them.
std::unique_ptr<ProcessCommandRunner> MakeCommandRunner();

}  // namespace macrame::discovery
