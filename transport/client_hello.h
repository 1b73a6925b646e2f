#pragma once

// What a caller's first bytes say, before a TLS library sees them. Pure; any thread.
//
// Agents speak TLS 1.3 alone, but gRPC 1.51 lets its C++ users ask for no lowest version. A server
// whose library knows 1.3 takes it wherever it is offered, and a third party on the way can't take
// the offer out (RFC 8446, 4.1.3: the server's random value says so, and the transcript is signed);
// so those that offer it are let in, and no others.

#include <cstddef>
#include <string_view>

namespace macrame::transport {

// As much as has to be seen: a record of TLS with its header.
inline constexpr size_t kOpeningBytesMax = 5 + 16384;

enum class Opening {
  kIncomplete,  // as a ClientHello it goes on
  kTls13,       // a ClientHello that offers TLS 1.3
  kOther,       // an older one, or none
};

// `bytes` are what came so far. A ClientHello that is cut into several records is kOther: no
// library does that below 16 KiB.
Opening JudgeOpening(std::string_view bytes);

// The alert that tells a caller why it is not let in: fatal, protocol_version.
std::string_view ProtocolVersionAlert();

}  // namespace macrame::transport
