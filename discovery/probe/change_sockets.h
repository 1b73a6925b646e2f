#pragma once

// The system's own announcements of changed interfaces, addresses and devices, by platform.

#include <vector>

#include "transport/stream_socket.h"

namespace macrame::discovery {

// Opened, non-blocking, readable when something changed. Those that can't be had are left out.
std::vector<transport::StreamSocket> OpenChangeSockets();

}  // namespace macrame::discovery
