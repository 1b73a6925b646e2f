#include <fcntl.h>
#include <net/route.h>
#include <sys/socket.h>

#include "discovery/probe/change_sockets.h"

namespace macrame::discovery {

std::vector<transport::StreamSocket> OpenChangeSockets() {
  std::vector<transport::StreamSocket> sockets;
  transport::StreamSocket opened(socket(PF_ROUTE, SOCK_RAW, 0));
  if (!opened.open()) return sockets;
  fcntl(opened.fd(), F_SETFL, O_NONBLOCK);
  fcntl(opened.fd(), F_SETFD, FD_CLOEXEC);
  sockets.push_back(std::move(opened));
  return sockets;
}

}  // namespace macrame::discovery
