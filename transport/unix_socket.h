#pragma once

// Unix sockets that belong to one user: where they are, and making way for them.

#include <string>

#include "absl/status/status.h"

namespace macrame::transport {

// Where the agent that 'clusterctl service install' set up serves clusterctl.
inline constexpr char kServiceSocketOfLinux[] = "/run/macrame/agentd.sock";
inline constexpr char kServiceSocketOfMacs[] =
    "/Library/Application Support/Macrame/run/agentd.sock";

// What sockaddr_un holds on macOS, the smaller of our systems, with its closing zero.
inline constexpr size_t kSocketPathBytesMax = 104;

// Where agentd serves clusterctl when nothing else is configured: "~/.macrame/agentd.sock", or
// "/tmp/macrame-<uid>/agentd.sock" where that path would be too long or there is no home.
std::string DefaultSocketPath();
// That of this machine's kind.
std::string ServiceSocketPath();
// Where clusterctl asks when nothing is said: DefaultSocketPath() where something is there, else
// the service's where that is.
std::string SocketToAsk();

// Before binding: checks the length, makes the folder (0700) if it is missing, and removes a socket
// that nobody serves any more. ALREADY_EXISTS when a live process answers there,
// FAILED_PRECONDITION when something that is not a socket is in the way, PERMISSION_DENIED when
// another user could put a socket of its own there.
absl::Status PrepareSocketPath(const std::string& path);

// Before a client speaks: PERMISSION_DENIED unless the socket, its folder and the process behind it
// are this user's or root's, or the service's: at ServiceSocketPath(), whose folder only root can
// have made, and whose owner's the process is. Also when this user may not open it. OK when nothing
// is there: who connects says so. Root may ask anyone.
absl::Status CheckSocketOwner(const std::string& path);

// After binding: mode 0600, so that only this user gets in.
absl::Status RestrictSocket(const std::string& path);

// After RestrictSocket: mode 0660, so that members of the group get in too. INVALID_ARGUMENT when
// there is no such group, or this user may not give its socket to it.
absl::Status ShareSocket(const std::string& path, const std::string& group);

// "unix:/path", as gRPC wants it.
std::string SocketTarget(const std::string& path);

}  // namespace macrame::transport
