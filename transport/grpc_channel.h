#pragma once

// PeerChannel over gRPC, with mutual TLS or plain: what real processes call each other through.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/peer_channel.h"

namespace macrame::transport {

class GrpcChannel final : public PeerChannel {
 public:
  // `tls_name`: the name that the peer's certificate must carry; empty when `credentials` are
  // plain. `self`: sent along so that, without TLS, the peer knows who calls; TLS peers ignore it.
  GrpcChannel(Dispatcher& dispatcher, std::shared_ptr<grpc::ChannelCredentials> credentials,
              std::string tls_name, NodeId self);
  ~GrpcChannel() override;
  GrpcChannel(const GrpcChannel&) = delete;
  GrpcChannel& operator=(const GrpcChannel&) = delete;

  void SetCredentials(std::shared_ptr<grpc::ChannelCredentials> credentials) override;
  void SetAddresses(std::vector<std::string> addresses) override;
  const std::vector<std::string>& addresses() const override;
  void EndCalls(const absl::Status& status) override;

 private:
  CallHandle CallUnary(std::string_view method, const google::protobuf::MessageLite& request,
                       MessagePtr response, Duration timeout,
                       std::function<void(absl::Status)> done) override;
  CallHandle CallStream(std::string_view method, const google::protobuf::MessageLite& request,
                        MakeMessage make, Duration timeout, std::function<void(absl::Status)> done,
                        HandOver hand_over) override;

  struct Waiter;
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace macrame::transport
