#include <arpa/inet.h>
#include <libproc.h>
#include <sys/proc_info.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cstring>
#include <vector>

#include "agentd/gateway/access/peer_user.h"
#include "agentd/gateway/base/plain_address.h"

namespace macrame::agentd {
namespace {

using boost::asio::ip::tcp;

bool IsAt(const tcp::endpoint& endpoint, int port, bool is_v4, const in4in6_addr& v4,
          const in6_addr& v6) {
  if (ntohs(static_cast<uint16_t>(port)) != endpoint.port()) return false;
  const boost::asio::ip::address address = PlainAddress(endpoint.address());
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    const bool is_mapped = !is_v4 && IN6_IS_ADDR_V4MAPPED(&v6);
    const void* held = is_mapped ? static_cast<const void*>(&v6.s6_addr[12])
                                 : static_cast<const void*>(&v4.i46a_addr4);
    return (is_v4 || is_mapped) && std::memcmp(bytes.data(), held, bytes.size()) == 0;
  }
  const auto bytes = address.to_v6().to_bytes();
  return !is_v4 && std::memcmp(bytes.data(), v6.s6_addr, bytes.size()) == 0;
}

// Whether the process holds the open connection from `local` to `remote`.
bool Holds(pid_t process, const tcp::endpoint& local, const tcp::endpoint& remote) {
  const int needed = proc_pidinfo(process, PROC_PIDLISTFDS, 0, nullptr, 0);
  if (needed <= 0) return false;
  std::vector<proc_fdinfo> descriptors(static_cast<size_t>(needed) / sizeof(proc_fdinfo) + 16);
  const int bytes = static_cast<int>(descriptors.size() * sizeof(proc_fdinfo));
  const int got = proc_pidinfo(process, PROC_PIDLISTFDS, 0, descriptors.data(), bytes);
  descriptors.resize(got > 0 ? static_cast<size_t>(got) / sizeof(proc_fdinfo) : 0);
  for (const proc_fdinfo& descriptor : descriptors) {
    if (descriptor.proc_fdtype != PROX_FDTYPE_SOCKET) continue;
    socket_fdinfo info;
    const int read = proc_pidfdinfo(process, descriptor.proc_fd, PROC_PIDFDSOCKETINFO, &info,
                                    static_cast<int>(sizeof info));
    if (read != static_cast<int>(sizeof info) || info.psi.soi_kind != SOCKINFO_TCP) continue;
    const tcp_sockinfo& tcp_info = info.psi.soi_proto.pri_tcp;
    const in_sockinfo& in = tcp_info.tcpsi_ini;
    const bool is_v4 = (in.insi_vflag & INI_IPV4) != 0;
    if (tcp_info.tcpsi_state == TSI_S_ESTABLISHED &&
        IsAt(local, in.insi_lport, is_v4, in.insi_laddr.ina_46, in.insi_laddr.ina_6) &&
        IsAt(remote, in.insi_fport, is_v4, in.insi_faddr.ina_46, in.insi_faddr.ina_6)) {
      return true;
    }
  }
  return false;
}

// A connection of this process to itself: is its user told?
bool FindsItself() {
  try {
    boost::asio::io_context io;
    tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    tcp::socket socket(io);
    socket.connect(acceptor.local_endpoint());
    return UserOfPeer(socket.local_endpoint(), socket.remote_endpoint()) == getuid();
  } catch (const boost::system::system_error&) {
    return false;
  }
}

}  // namespace

bool TellsPeerUsers() {
  static const bool tells = FindsItself();
  return tells;
}

// Who is not root sees the connections of its own user's processes alone: another's are not found.
std::optional<uint32_t> UserOfPeer(const tcp::endpoint& peer, const tcp::endpoint& own) {
  const int count = proc_listallpids(nullptr, 0);
  if (count <= 0) return std::nullopt;
  std::vector<pid_t> processes(static_cast<size_t>(count) + 64);
  const int bytes = static_cast<int>(processes.size() * sizeof(pid_t));
  const int got = proc_listallpids(processes.data(), bytes);
  processes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  for (const pid_t process : processes) {
    proc_bsdshortinfo facts;
    const int read =
        proc_pidinfo(process, PROC_PIDT_SHORTBSDINFO, 0, &facts, static_cast<int>(sizeof facts));
    if (read != static_cast<int>(sizeof facts) || !Holds(process, peer, own)) continue;
    return facts.pbsi_uid;
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
