#include "agentd/node/grpc_channels.h"

#include <utility>

#include "transport/grpc_channel.h"

namespace macrame::agentd {

PeerChannels::MakeChannel GrpcChannels(transport::Dispatcher& dispatcher, NodeId self) {
  return [&dispatcher, self = std::move(self)](
             const NodeId&, std::shared_ptr<grpc::ChannelCredentials> credentials,
             std::string tls_name) -> std::unique_ptr<transport::PeerChannel> {
    return std::make_unique<transport::GrpcChannel>(dispatcher, std::move(credentials),
                                                    std::move(tls_name), self);
  };
}

}  // namespace macrame::agentd
