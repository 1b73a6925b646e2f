#include <utility>

#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

constexpr std::pair<std::string_view, Layer> kCodes[] = {
    {"NOT_MAC", Layer::kOs},
    {"OS_TOO_OLD", Layer::kOs},
    {"OS_FRAME_MISMATCH", Layer::kOs},
    {"VIRTUAL", Layer::kOs},
    {"RDMA_CTL_MISSING", Layer::kOs},
    {"VERBS_LIBRARY_MISSING", Layer::kOs},
    {"MLX_OLD", Layer::kOs},
    {"NO_THUNDERBOLT", Layer::kController},
    {"TB4_CONTROLLER", Layer::kController},
    {"RDMA_DISABLED_LOCAL", Layer::kEnablement},
    {"RDMA_DISABLED_PEER", Layer::kEnablement},
    {"NO_RDMA_DEVICE", Layer::kDevice},
    {"NO_VERBS_DEVICE", Layer::kDevice},
    {"NO_PROTECTION_DOMAIN", Layer::kDevice},
    {"RESOURCE_EXHAUSTED", Layer::kDevice},
    {"PORT_MAP", Layer::kDevice},
    {"NO_PEER", Layer::kPeer},
    {"PEER_UNKNOWN", Layer::kPeer},
    {"PEER_BEHIND_DOCK", Layer::kPeer},
    {"MESH_INCOMPLETE", Layer::kPeer},
    {"NO_RING", Layer::kPeer},
    {"LINK_40G", Layer::kSpeed},
    {"ASYMMETRIC_LINK", Layer::kSpeed},
    {"PORT_DOWN", Layer::kPort},
    {"NO_IPV4", Layer::kAddress},
    {"NO_IPV4_GID", Layer::kAddress},
    {"GID_INDEX_SHIFTED", Layer::kAddress},
    {"SUBNET_MISMATCH", Layer::kAddress},
    {"ROUTE_WRONG_IF", Layer::kAddress},
    {"BRIDGE_MEMBER", Layer::kAddress},
    {"BRIDGE_LOOP_RISK", Layer::kAddress},
    {"INTERNET_SHARING", Layer::kAddress},
    {"ADDRESS_COLLISION", Layer::kAddress},
    {"COORDINATOR", Layer::kRendezvous},
    {"RENDEZVOUS_UNREACHABLE", Layer::kRendezvous},
    {"LOCAL_NETWORK_PRIVACY", Layer::kRendezvous},
    {"LINK_UNREACHABLE", Layer::kRendezvous},
    {"CONNECT_FAILED", Layer::kRendezvous},
    {"MATRIX_WRONG", Layer::kQueuePair},
    {"INIT_STALLED", Layer::kQueuePair},
    {"MLX_USE", Layer::kQueuePair},
    {"MLX_INTERNAL", Layer::kQueuePair},
    {"GROUP_MISMATCH", Layer::kCollective},
    {"PEER_LOST", Layer::kCollective},
    {"COLLECTIVE_FAILED", Layer::kCollective},
    {"FAST_SYNCH_SUSPENDED", Layer::kCollective},
};

}  // namespace

std::string_view LayerName(Layer layer) {
  switch (layer) {
    case Layer::kNone:
      return "";
    case Layer::kOs:
      return "os";
    case Layer::kController:
      return "controller";
    case Layer::kEnablement:
      return "enablement";
    case Layer::kDevice:
      return "device";
    case Layer::kPeer:
      return "peer";
    case Layer::kSpeed:
      return "speed";
    case Layer::kPort:
      return "port";
    case Layer::kAddress:
      return "address";
    case Layer::kRendezvous:
      return "rendezvous";
    case Layer::kQueuePair:
      return "queue_pair";
    case Layer::kCollective:
      return "collective";
  }
  return "";
}

Layer LayerOf(std::string_view reason_code) {
  for (const auto& [code, layer] : kCodes) {
    if (code == reason_code) return layer;
  }
  return Layer::kNone;
}

}  // namespace macrame::transport
