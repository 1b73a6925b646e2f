#pragma once

// Addresses of connections in one form. Pure.

#include <boost/asio/ip/address.hpp>

namespace macrame::agentd {

// The address; IPv4 as such also where a dual-stack socket shows it as a mapped one.
inline boost::asio::ip::address PlainAddress(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return ip::make_address_v4(ip::v4_mapped, address.to_v6());
}

}  // namespace macrame::agentd
