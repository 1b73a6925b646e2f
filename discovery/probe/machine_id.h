#pragma once

// Which machine this is, so that a copied disk is told from a restart of the node that it was
// copied from.
//
// A Mac says so itself (IOPlatformUUID). On Linux no one file does: /etc/machine-id travels with
// the disk, and what the firmware knows (DMI's product_uuid) is root's to read, lies on some boards
// and is missing on others. So all that differs is mixed: machine-id, product_uuid or the device
// tree's serial number and, where neither can be read, the permanent addresses of wired interfaces
// that are no USB ones (docks come and go, Wi-Fi invents addresses). Containers of one image on one
// host share all of these; there, where the root's own files lie is mixed in, too.
//
// It need not be stable for ever: a machine whose id changed looks at its next start whether its
// former self still answers, which takes some seconds and a line in the log.

#include <string>

#include "discovery/probe/command_runner.h"
#include "proto/ids.h"

namespace macrame::discovery {

inline constexpr size_t kMachineMarkBytes = 8;
inline constexpr size_t kMachineIdFileBytesMax = 4096;

// From files below `root` ("" on a live machine); empty: nothing there tells this machine from
// others.
std::string LinuxMachineId(const std::string& root);

// NodeIdentity.machine: what `machine_id` makes of a node's id, kMachineMarkBytes long. Nobody
// reads the machine's id from it. Empty for an empty id.
std::string MachineMark(const std::string& machine_id, const NodeId& node);

// Inventory.boot_digest: of the id that a system gives each of its boots (Linux's
// random/boot_id, macOS's kern.bootsessionuuid). Equal on two nodes that run on one machine, in
// containers too. Empty for an empty id.
std::string BootDigest(const std::string& boot_id);

// Of this machine. `id_file`: its content stands for the machine's own id; empty: none. May run one
// command and wait kCommandLimit for it: before an owner thread begins its work.
std::string ThisMachineMark(const std::string& id_file, const NodeId& node);

}  // namespace macrame::discovery
