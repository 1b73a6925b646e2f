#include <utility>

#include "proto/reason_codes.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

constexpr std::pair<std::string_view, Layer> kCodes[] = {
    {reasons::kNotMac, Layer::kOs},
    {reasons::kOsTooOld, Layer::kOs},
    {reasons::kOsFrameMismatch, Layer::kOs},
    {reasons::kVirtual, Layer::kOs},
    {reasons::kRdmaCtlMissing, Layer::kOs},
    {reasons::kVerbsLibraryMissing, Layer::kOs},
    {reasons::kMlxOld, Layer::kOs},
    {reasons::kNoThunderbolt, Layer::kController},
    {reasons::kTb4Controller, Layer::kController},
    {reasons::kRdmaDisabledLocal, Layer::kEnablement},
    {reasons::kRdmaDisabledPeer, Layer::kEnablement},
    {reasons::kNoRdmaDevice, Layer::kDevice},
    {reasons::kNoVerbsDevice, Layer::kDevice},
    {reasons::kNoProtectionDomain, Layer::kDevice},
    {reasons::kResourceExhausted, Layer::kDevice},
    {reasons::kPortMap, Layer::kDevice},
    {reasons::kNoPeer, Layer::kPeer},
    {reasons::kPeerUnknown, Layer::kPeer},
    {reasons::kPeerBehindDock, Layer::kPeer},
    {reasons::kMeshIncomplete, Layer::kPeer},
    {reasons::kNoRing, Layer::kPeer},
    {reasons::kLink40g, Layer::kSpeed},
    {reasons::kAsymmetricLink, Layer::kSpeed},
    {reasons::kPortDown, Layer::kPort},
    {reasons::kNoIpv4, Layer::kAddress},
    {reasons::kNoIpv4Gid, Layer::kAddress},
    {reasons::kGidIndexShifted, Layer::kAddress},
    {reasons::kSubnetMismatch, Layer::kAddress},
    {reasons::kRouteWrongIf, Layer::kAddress},
    {reasons::kBridgeMember, Layer::kAddress},
    {reasons::kBridgeLoopRisk, Layer::kAddress},
    {reasons::kInternetSharing, Layer::kAddress},
    {reasons::kAddressCollision, Layer::kAddress},
    {reasons::kCoordinator, Layer::kRendezvous},
    {reasons::kRendezvousUnreachable, Layer::kRendezvous},
    {reasons::kLocalNetworkPrivacy, Layer::kRendezvous},
    {reasons::kLinkUnreachable, Layer::kRendezvous},
    {reasons::kConnectFailed, Layer::kRendezvous},
    {reasons::kMatrixWrong, Layer::kQueuePair},
    {reasons::kInitStalled, Layer::kQueuePair},
    {reasons::kMlxUse, Layer::kQueuePair},
    {reasons::kMlxInternal, Layer::kQueuePair},
    {reasons::kGroupMismatch, Layer::kCollective},
    {reasons::kPeerLost, Layer::kCollective},
    {reasons::kCollectiveFailed, Layer::kCollective},
    {reasons::kFastSynchSuspended, Layer::kCollective},
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
