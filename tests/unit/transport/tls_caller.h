#pragma once

// A caller with TLS of versions that agents' own gRPC does not offer.

#include <string>

namespace macrame::transport {

enum class TlsVersion { k12, k13 };

// The bytes that OpenSSL opens a connection with, when it offers these versions.
std::string MakeClientHello(TlsVersion lowest, TlsVersion highest);

// Connects to 127.0.0.1 with a certificate and shakes hands: "TLSv1.3" as agreed, or "" when the
// server did not let it in. Waits for 10 s at the most.
std::string AgreedVersion(int port, TlsVersion highest, const std::string& certificate_pem,
                          const std::string& key_pem);

}  // namespace macrame::transport
