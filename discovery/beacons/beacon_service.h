#pragma once

// Sends and hears beacons on the network. SocketBeaconService (socket_beacon_service.h) does it
// over UDP; a simulation has its own.
//
// Owner thread: the dispatcher's, for every call and callback. Each trouble (port taken, no
// interface, sending refused, a seed that has no address) is logged once, with its remedy, and
// listed by Problems() until it is over. Nothing here is fatal: a node without beacons still has
// its seeds, and one without those its own company.

#include <functional>
#include <string>
#include <vector>

#include "discovery/base/interfaces.h"
#include "discovery/beacons/beacon_schedule.h"
#include "discovery/beacons/heard_beacon.h"
#include "macrame/v1/node.pb.h"

namespace macrame::discovery {

inline constexpr uint16_t kBeaconPort = 8888;
inline constexpr char kBeaconGroupV6[] = "ff12::4d43:524d";
inline constexpr size_t kSeedsMax = 64;
inline constexpr size_t kDatagramsPerTurnMax = 64;
// The same address is answered at most so often.
inline constexpr Duration kAnswerInterval = std::chrono::milliseconds(40);
// A little more, so that both are answered.
inline constexpr Duration kAskAgain = std::chrono::milliseconds(50);
// A member is asked where it was heard so lately, by so many ways.
inline constexpr Duration kAskedWhereHeardFor = std::chrono::seconds(30);
inline constexpr size_t kAskedWaysMax = 4;

struct BeaconServiceOptions {
  uint16_t port = kBeaconPort;
  // On 127.255.255.255 as well: several agents on one machine.
  bool use_loopback = false;
  // Only these interfaces; empty: all that are up. A loopback interface named here is used too.
  std::vector<std::string> interfaces;
  // "10.0.0.7", "mac-studio.lan:8888", "[fd00::7]:8888". Names are resolved anew every 30 s.
  std::vector<std::string> seeds;
  BeaconIntervals intervals;
  Duration interface_poll = std::chrono::seconds(2);
  InterfaceKindLookup kind_of = KindFromName;
};

struct BeaconServiceCallbacks {
  // A member of this cluster: `identity` has its id, incarnation, hostname, port, version and the
  // one address that the beacon came from. interface_name is *this* machine's interface, which is
  // also the zone of a link-local address.
  std::function<void(const v1::NodeIdentity& identity)> on_peer;
  // Whose beacon it was, and what its clock said when it was sent. Before on_peer; may be empty.
  std::function<void(const NodeId& node, uint64_t sent_unix_ms)> on_peer_clock;
  // After on_peer, for the same beacon. May be empty.
  std::function<void(const HeardBeacon& beacon)> on_beacon;
  // Beacon.news of this node, asked for when beacons are sent. May be empty.
  std::function<uint64_t()> news;
  // A node that is none, with the reason; beacons_heard is 1, counting is up to MembershipTable.
  std::function<void(const v1::UnknownNode& unknown_node)> on_unknown_node;
  // Somebody else uses our node id: as in on_peer, with the machine that it names. A beacon proves
  // nothing of it.
  // `is_sign_of_life`: it stands for the node there, and has members; who was refused sends whole
  // beacons alone.
  std::function<void(const v1::NodeIdentity& identity, bool is_sign_of_life)> on_own_id_elsewhere;
  // The interfaces changed: new addresses for the node's identity.
  std::function<void(const std::vector<Interface>& interfaces)> on_interfaces;
};

class BeaconService {
 public:
  virtual ~BeaconService() = default;

  // Begins with a burst. Ok even when something is amiss: see Problems().
  virtual void Start() = 0;
  virtual void Stop() = 0;

  // True while every known member is connected: beacons become rarer.
  virtual void SetAllPeersConnected(bool connected) = 0;
  // True while there are members, who take beacons for signs of life: beside the whole beacons go
  // short ones with the news, by IPv4 alone where an interface has it.
  virtual void SetSignsOfLife(bool wanted) = 0;
  // True: the caller calls Turn() some times a second, and nothing else wakes the owner thread for
  // beacons; what has come in by then is heard in one go. A burst keeps its own times.
  virtual void SetTakesTurns(bool takes_turns) = 0;
  virtual void Turn() = 0;
  // Asks a member for a beacon at the addresses that its last ones came from, twice, kAskAgain
  // apart. How often it is asked that way; 0: none came in lately.
  virtual int Ask(const NodeId& member) = 0;
  // A member's heartbeat came in over gRPC from a node whose beacons were never heard:
  // BEACONS_MISSING.
  virtual void NotePeerConnected(const NodeId& peer) = 0;

  virtual const std::vector<Interface>& interfaces() const = 0;
  virtual std::vector<v1::Reason> Problems() const = 0;
};

}  // namespace macrame::discovery
