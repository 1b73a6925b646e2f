#pragma once

// gRPC credentials: mutual TLS between agents, plain only on unix sockets and with --insecure-dev.

#include <memory>

#include "proto/ids.h"
#include "transport/trust.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace macrame::transport {

// Asks every caller for a certificate of this cluster's authority and refuses those without.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const NodeCredentials& node);

// Shows our certificate and accepts only one of this cluster's authority. Which node it must be is
// the channel's business (PeerChannel sets the name that the certificate has to carry).
std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(const NodeCredentials& node);

// No secrecy, no identity.
std::shared_ptr<grpc::ServerCredentials> PlainServerCredentials();
std::shared_ptr<grpc::ChannelCredentials> PlainChannelCredentials();

}  // namespace macrame::transport
