#pragma once

// One channel for each other node, made when first asked for. Owner thread.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "macrame/v1/node.pb.h"
#include "proto/ids.h"
#include "transport/peer_channel.h"
#include "transport/socket_address.h"
#include "transport/trust.h"

namespace macrame::agentd {

// More addresses of one node than this are not tried: each that does not answer costs a second.
inline constexpr size_t kAddressesTriedMax = 6;

class PeerChannels {
 public:
  // A channel to `node`; `tls_name` as GrpcChannel has it (transport/grpc_channel.h).
  using MakeChannel = std::function<std::unique_ptr<transport::PeerChannel>(
      const NodeId& node, std::shared_ptr<grpc::ChannelCredentials> credentials,
      std::string tls_name)>;

  explicit PeerChannels(MakeChannel make) : make_(std::move(make)) {}

  // From now on peers are called with mutual TLS, each held to the node id in its certificate. A
  // second time: with a new certificate; calls under way go on.
  void UseTls(const transport::NodeCredentials& credentials);
  // --insecure-dev.
  void UsePlain();
  bool ready() const { return credentials_ != nullptr; }

  // Where `node` is reached, best first. False when there is nothing that could be called.
  bool SetAddresses(const NodeId& node, const std::vector<v1::NodeAddress>& addresses,
                    uint32_t control_port);
  // Null while there are no credentials, and for who is revoked. Belongs to this object; gone after
  // Forget.
  transport::PeerChannel* For(const NodeId& node);
  // Calls to it that are under way end here and now, UNAVAILABLE.
  void Forget(const NodeId& node);
  // They are forgotten, and not called any more; For is null.
  void SetRevoked(std::set<NodeId> nodes);
  // At the end: calls under way end without a word.
  void Clear();

 private:
  const MakeChannel make_;
  bool plain_ = false;
  std::set<NodeId> revoked_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::map<NodeId, std::unique_ptr<transport::PeerChannel>> channels_;
};

using transport::HostPort;

}  // namespace macrame::agentd
