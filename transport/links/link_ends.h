#pragma once

// One end of a Thunderbolt link, judged by itself: the rows "new enough macOS, Thunderbolt 5
// controller, RDMA on here, peer, RDMA on there, 80 Gb/s, port up, address and GID", in this order.
// Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "transport/links/judge.h"

namespace macrame::transport {

// The oldest macOS that has RDMA over Thunderbolt, after Apple's technical note TN3205.
inline constexpr char kRdmaOsVersionMin[] = "26.2";
// The first macOS on which JACCL's frames grow with the message: buffer_size_from_message in its
// rdma.h (MLX 0.30.6 and later) asks the running macOS and takes 4 KiB below 26.3, and from there
// on up to 512 KiB for messages of 8 KiB and more. Sender and receiver each ask their own macOS,
// and nothing is negotiated: a Mac below and one above count and size the frames of one message
// differently, in the mesh as in the ring.
inline constexpr char kLargeFramesOsVersionMin[] = "26.3";
// The only GID index that JACCL names as its own when it brings a queue pair up (MLX 0.32).
inline constexpr uint32_t kJacclGidIndex = 1;
inline constexpr uint32_t kThunderbolt5Gbps = 80;

struct EndVerdict {
  // What fails, lowest layer first; what merely follows from a lower failure is left out.
  std::vector<v1::Reason> reasons;
  // What could not be found out and might fail; empty: everything was known.
  std::vector<v1::Reason> unknown;
  std::vector<v1::Reason> warnings;
  v1::LinkEnd end;
};

// `peer_facts` and `peer_port` are null when the peer runs no agent of this cluster; `peer` is null
// when nothing is plugged in.
EndVerdict JudgeEnd(const v1::LinkFacts& facts, const v1::ThunderboltPort& port,
                    const v1::ThunderboltPeer* peer, const v1::LinkFacts* peer_facts,
                    const v1::ThunderboltPort* peer_port);

// Of a cable between two members: takes out of `verdict` what follows from the other end, which a
// remedy here could not change.
void DropWhatTheOtherEndExplains(const EndVerdict& other, EndVerdict& verdict);

// Warnings that hold for a whole node, whatever its links. `now_unix_ms` 0: not known.
std::vector<v1::Reason> NodeWarnings(const v1::LinkFacts& facts, uint64_t now_unix_ms);

// The most protection domains that a rank of one RDMA group holds on this machine: JACCL opens a
// device for each connection, once in a mesh and twice in a ring of two ranks (MLX 0.32).
int DomainsOfOneGroup(const v1::LinkFacts& facts);

// -1, 0, 1; by numbers, not by text: "26.10" is newer than "26.2". Missing parts are 0.
int CompareVersions(std::string_view a, std::string_view b);

const v1::LinkInterface* FindInterface(const v1::LinkFacts& facts, const std::string& name);
const v1::RdmaDevice* FindDevice(const v1::LinkFacts& facts, const std::string& name);
// "mini-1 socket 2 (en3)"
std::string PortText(const v1::LinkFacts& facts, const v1::ThunderboltPort& port);

}  // namespace macrame::transport
