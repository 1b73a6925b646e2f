#pragma once

// Unix sockets that belong to one user: where they are, and making way for them.

#include <string>

#include "absl/status/status.h"

namespace macrame::transport {

// What sockaddr_un holds on macOS, the smaller of our systems, with its closing zero.
inline constexpr size_t kSocketPathBytesMax = 104;

// Where agentd serves clusterctl when nothing else is configured: "~/.macrame/agentd.sock", or
// "/tmp/macrame-<uid>/agentd.sock" where that path would be too long or there is no home.
std::string DefaultSocketPath();

// Before binding: checks the length, makes the folder (0700) if it is missing, and removes a socket
// that nobody serves any more. ALREADY_EXISTS when a live process answers there,
// FAILED_PRECONDITION when something that is not a socket is in the way, PERMISSION_DENIED when
// another user could put a socket of its own there.
absl::Status PrepareSocketPath(const std::string& path);

// Before a client speaks: PERMISSION_DENIED unless the socket, its folder and the process behind it
// are this user's or root's. OK when nothing is there: who connects says so. Root may ask anyone.
absl::Status CheckSocketOwner(const std::string& path);

// After binding: mode 0600, so that only this user gets in.
absl::Status RestrictSocket(const std::string& path);

// "unix:/path", as gRPC wants it.
std::string SocketTarget(const std::string& path);

}  // namespace macrame::transport
