#include <fstream>
#include <sstream>

#include "agentd/gateway/access/peer_user.h"

namespace macrame::agentd {

bool TellsPeerUsers() { return true; }

std::optional<uint32_t> UserOfPeer(const boost::asio::ip::tcp::endpoint& peer,
                                   const boost::asio::ip::tcp::endpoint& own) {
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ostringstream table;
    table << std::ifstream(path).rdbuf();
    if (const auto user = UserInSocketTable(table.str(), peer, own)) return user;
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
