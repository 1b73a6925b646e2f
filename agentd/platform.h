#pragma once

// What an agent has of the world outside of it: time, chance, this machine, its ranks, and its
// peers. The agent asks a Platform for each of these parts, so that the same agent runs on a
// machine (machine_platform.h) and in a simulation. What listens for programs and for nodes that
// join (the gateway, the join port), and files besides the state (certificates, the audit log,
// support lists), are its own. Owner thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/links/link_measurer.h"
#include "agentd/node/device_probe.h"
#include "agentd/node/model_library.h"
#include "agentd/node/peer_channels.h"
#include "agentd/node/second_engine_probe.h"
#include "discovery/beacons/beacon_codec.h"
#include "discovery/beacons/beacon_service.h"
#include "discovery/probe/inventory.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/link_prober.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// Each part may hold what the platform holds, and goes before it.
class Platform {
 public:
  virtual ~Platform() = default;

  virtual transport::Dispatcher& dispatcher() = 0;
  // Numbers that nobody can guess, on a machine.
  virtual std::function<uint64_t()> Random() = 0;
  virtual std::unique_ptr<runtime::RankSupervisor> MakeSupervisor(
      runtime::SupervisorOptions options) = 0;
  // Revisions rise from `first_revision`.
  virtual std::unique_ptr<discovery::InventoryProber> MakeInventoryProber(
      discovery::InventoryInputs inputs, uint64_t first_revision) = 0;
  virtual std::unique_ptr<discovery::LinkProber> MakeLinkProber(discovery::LinkInputs inputs,
                                                                Duration interval) = 0;
  virtual std::unique_ptr<LinkMeasurer> MakeLinkMeasurer() = 0;
  virtual std::unique_ptr<ModelLibrary> MakeModelLibrary(std::vector<std::string> folders,
                                                         const std::string& rankd_path) = 0;
  virtual std::unique_ptr<SecondEngineProbe> MakeSecondEngineProbe() = 0;
  virtual std::unique_ptr<DeviceProbe> MakeDeviceProbe() = 0;
  // `self`: node id, incarnation, hostname, control port, version and machine are used.
  virtual std::unique_ptr<discovery::BeaconService> MakeBeaconService(
      discovery::BeaconServiceOptions options, const v1::NodeIdentity& self,
      std::optional<discovery::BeaconTrust> trust, discovery::BeaconServiceCallbacks callbacks) = 0;
  virtual std::unique_ptr<transport::RpcServer> MakeServer() = 0;
  // What calls the others, in the name of `self`.
  virtual PeerChannels::MakeChannel ChannelMaker(const NodeId& self) = 0;
  // A channel to the unix socket that this very agent, `self`, serves.
  virtual std::unique_ptr<transport::PeerChannel> ConnectToSelf(const std::string& socket_path,
                                                                const NodeId& self) = 0;
};

}  // namespace macrame::agentd
