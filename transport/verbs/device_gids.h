#pragma once

// The GIDs of an opened device that peers can be met under. Linux only.

#include <filesystem>
#include <string>
#include <vector>

#include "transport/verbs/gid_choice.h"
#include "transport/verbs/verbs_library.h"

namespace macrame::transport {

inline constexpr char kSysInfiniband[] = "/sys/class/infiniband";
inline constexpr int kDeviceGidsMax = 32;
inline constexpr int kDevicePort = 1;  // RoCE adapters with two ports show as two devices

// Without the empty places of the table and without those of RoCE version 1, which `sys`
// (kSysInfiniband) tells apart.
std::vector<Gid> DeviceGids(const VerbsLibrary& library, ibv_context* context,
                            const std::string& device, const std::string& sys);

// The first line of a file; empty when it can't be read.
std::string FirstLineOf(const std::filesystem::path& path);

}  // namespace macrame::transport
