#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "discovery/probe/change_sockets.h"

namespace macrame::discovery {
namespace {

constexpr uint32_t kKernelEvents =
    1;  // the group of kobject events: RDMA devices come and go there

void Open(int protocol, uint32_t groups, std::vector<transport::StreamSocket>& sockets) {
  transport::StreamSocket opened(
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  if (!opened.open()) return;
  if (bind(opened.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  sockets.push_back(std::move(opened));
}

}  // namespace

std::vector<transport::StreamSocket> OpenChangeSockets() {
  std::vector<transport::StreamSocket> sockets;
  Open(NETLINK_ROUTE, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, sockets);
  Open(NETLINK_KOBJECT_UEVENT, kKernelEvents, sockets);
  return sockets;
}

}  // namespace macrame::discovery
