#pragma once

// The orders that the dashboard's page gives to the cluster, and its questions about keys and the
// audit log: those of clusterctl, as its messages. The agent carries them out; tests note them.

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "macrame/v1/access.pb.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

// Who gives one, for the audit log.
struct Orderer {
  std::string key_id;  // empty: without a key, from this machine's own page
  std::string address;
};

using ClusterOrder = std::variant<v1::PlanModelRequest, v1::LoadModelRequest,
                                  v1::UnloadModelRequest, v1::SetCordonRequest, v1::ListKeysRequest,
                                  v1::CreateKeyRequest, v1::RevokeKeyRequest, v1::ReadAuditRequest>;

// The answer of the order's RPC; of a load, which goes on, its first progress.
using OrderAnswer = absl::StatusOr<std::shared_ptr<const google::protobuf::Message>>;
// `done` once, from any thread; never when the agent ends before.
using GiveOrder =
    std::function<void(Orderer who, ClusterOrder order, std::function<void(OrderAnswer)> done)>;

}  // namespace macrame::agentd
