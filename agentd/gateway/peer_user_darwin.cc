#include "agentd/gateway/peer_user.h"

namespace macrame::agentd {

bool TellsPeerUsers() { return false; }

std::optional<uint32_t> UserOfPeer(const boost::asio::ip::tcp::endpoint&,
                                   const boost::asio::ip::tcp::endpoint&) {
  return std::nullopt;
}

}  // namespace macrame::agentd
