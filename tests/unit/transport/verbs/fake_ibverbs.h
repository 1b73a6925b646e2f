#pragma once

// libibverbs without a kernel: devices, queue pairs and a cable between any two of them, in the
// memory of one process. Built as libibverbs.so.1, so that the product's own loader finds it in a
// test that is linked with it. It holds its callers to the contract: states in their order, memory
// that is registered, numbers of packets that agree, objects released before what they stand on.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace macrame::tests {

// Where a device refuses its service.
enum class VerbsFault {
  kNone,
  kOpen,
  kQueryPort,
  kProtectionDomain,
  kMemory,
  kCompletionChannel,
  kCompletionQueue,
  kQueuePair,
  kToInit,
  kToReceive,
  kToSend,
};

struct FakeVerbsDevice {
  std::string name;
  // In the order of the device's table; "" is an empty place, "fe80" a link-local one.
  std::vector<std::string> gids;
  int port_state = 4;  // IBV_PORT_ACTIVE
  int mtu = 5;         // IBV_MTU_4096
  int width = 2;       // 4X
  int link_layer = 2;  // IBV_LINK_LAYER_ETHERNET
  uint64_t guid = 0x0200000000000001;
  VerbsFault fault = VerbsFault::kNone;
  int fault_errno = 12;  // ENOMEM
  bool fails_sends = false;
  int lost_message = -1;  // this message that it sends (from 0) is lost without a word
};

// Of the whole process; any thread. Reset() before and after each test.
class FakeVerbs {
 public:
  static void Reset();
  static void Add(const FakeVerbsDevice& device);
  // The list of devices can't be had, with this errno; 0: it can.
  static void RefuseList(int error);
  // A running device begins to refuse, or to lose a message, as `device` says.
  static void Change(const FakeVerbsDevice& device);
  // What a device announces to who has it open: an ibv_event_type, for its port.
  static void Announce(const std::string& device, int event_type, int port = 1);

  // Objects that were made and not released, by what they are: "context", "pd", "mr", "channel",
  // "cq", "qp". Empty: none.
  static std::map<std::string, int> Held();
  // What callers did against the contract, one line each.
  static std::vector<std::string> Complaints();
  // Messages that came while no receive was posted.
  static int Overruns();
  static int MessagesSent();
};

}  // namespace macrame::tests
