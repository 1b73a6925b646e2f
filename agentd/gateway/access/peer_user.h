#pragma once

// Which user of this machine is at the other end of a loopback connection: what comes over loopback
// may be anybody's who has an account here. Any thread.

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace macrame::agentd {

// Whether this system tells it. Linux does, in /proc/net/tcp; macOS in what lsof reads (libproc),
// an interface that may change: where a connection of this process to itself is not found there,
// whoever has an account is taken for the agent's user. Never run on a Mac.
bool TellsPeerUsers();

// The user of the process that made the connection whose other end we hold, at `own`. Nullopt:
// there is no open connection of these two, or the system does not tell; on macOS, unless we are
// root, of other users' connections.
std::optional<uint32_t> UserOfPeer(const boost::asio::ip::tcp::endpoint& peer,
                                   const boost::asio::ip::tcp::endpoint& own);

// The same in the text of a table as Linux has it in /proc/net/tcp and tcp6. Pure. Only established
// connections count: of one that its process has closed, the kernel says that it is root's.
std::optional<uint32_t> UserInSocketTable(std::string_view table,
                                          const boost::asio::ip::tcp::endpoint& peer,
                                          const boost::asio::ip::tcp::endpoint& own);

// Whom the agent obeys on its socket: its own user, root, and members of `group` (socket_group;
// empty: none).
bool IsObeyedUser(uint32_t user, const std::string& group);

}  // namespace macrame::agentd
