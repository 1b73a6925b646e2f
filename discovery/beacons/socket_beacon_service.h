#pragma once

// BeaconService over UDP: the shell around BeaconCodec, BeaconSchedule and HearingTable.
//
// Two sockets a family: one bound to the beacon port, shared with other agents of this machine
// (SO_REUSEADDR, SO_REUSEPORT), that hears broadcasts and multicasts; and one with a port of its
// own that sends everything and so gets the answers that are meant for this process alone. IPv4
// goes to each interface's directed broadcast address (127.255.255.255 on loopback), IPv6 to the
// link-local group kBeaconGroupV6, seeds get theirs by unicast. Every datagram leaves by the
// interface that it is meant for. Answers are given to members only, so nobody is flooded through
// us.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discovery/beacons/beacon_codec.h"
#include "discovery/beacons/beacon_service.h"
#include "discovery/beacons/hearing_table.h"

namespace macrame::transport {
class AsioDispatcher;
}

namespace macrame::discovery {

class SocketBeaconService final : public BeaconService {
 public:
  // `self`: node id, incarnation, hostname, control port, version and machine are used.
  SocketBeaconService(transport::AsioDispatcher& dispatcher, BeaconServiceOptions options,
                      const v1::NodeIdentity& self, std::optional<BeaconTrust> trust,
                      BeaconServiceCallbacks callbacks);
  ~SocketBeaconService() override;  // on the owner thread, or when it no longer runs

  void Start() override;
  void Stop() override;
  void SetAllPeersConnected(bool connected) override;
  void SetSignsOfLife(bool wanted) override;
  void SetTakesTurns(bool takes_turns) override;
  void Turn() override;
  int Ask(const NodeId& member) override;
  void NotePeerConnected(const NodeId& peer) override;
  const std::vector<Interface>& interfaces() const override;
  std::vector<v1::Reason> Problems() const override;

  // The cluster's secret appeared, changed or went: a new burst.
  absl::Status SetTrust(std::optional<BeaconTrust> trust);
  Hearing HearingOn(const std::string& interface_name) const;
  uint64_t Count(BeaconVerdict verdict) const;
  uint64_t beacons_sent() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace macrame::discovery
