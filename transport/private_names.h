#pragma once

// Names of a private network, which nobody owns on the Internet. Pure.

#include <string>

namespace macrame::transport {

// A name of one label, or below .local, .lan, .home, .internal, .home.arpa, .localdomain; or an
// address that is loopback's, link-local, private (RFC 1918, RFC 4193) or shared (RFC 6598).
bool IsPrivateName(const std::string& name);
// IPv4 or IPv6, as text.
bool IsAddress(const std::string& name);

}  // namespace macrame::transport
