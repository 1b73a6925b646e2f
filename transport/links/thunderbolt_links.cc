#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"

namespace macrame::transport {
namespace {

// macOS and its verbs give small messages over a Thunderbolt 5 link in about this time; a link that
// takes much longer is busy or misrouted. Round trip of a TCP message of 64 bytes, microseconds.
constexpr double kThunderboltRoundTripHighUs = 300;

struct PortAt {
  const v1::LinkFacts* facts;
  const v1::ThunderboltPort* port;
};
using PortsByDomain = std::map<std::string, PortAt>;

PortsByDomain PortsOf(const NodesById& nodes) {
  PortsByDomain ports;
  for (const auto& [id, node] : nodes) {
    for (const v1::ThunderboltPort& port : node->facts().ports()) {
      if (!port.domain_uuid().empty())
        ports.emplace(port.domain_uuid(), PortAt{&node->facts(), &port});
    }
  }
  return ports;
}

const v1::ThunderboltPeer* PeerNamed(const v1::ThunderboltPort& port, const std::string& domain) {
  for (const v1::ThunderboltPeer& peer : port.peers()) {
    if (peer.domain_uuid() == domain) return &peer;
  }
  return nullptr;
}

// Both ends' reasons, the lowest layer first; "off at the peer" is the same thing as "off here" of
// the other end and said once.
void MergeReasons(const EndVerdict& a, const EndVerdict& b, v1::LinkVerdict& link) {
  std::vector<v1::Reason> all = a.reasons;
  all.insert(all.end(), b.reasons.begin(), b.reasons.end());
  std::stable_sort(all.begin(), all.end(), [](const v1::Reason& x, const v1::Reason& y) {
    return LayerOf(x.code()) < LayerOf(y.code());
  });
  const auto off_here = [&](const std::string& node_id) {
    return std::any_of(all.begin(), all.end(), [&](const v1::Reason& reason) {
      return reason.code() == reasons::kRdmaDisabledLocal && reason.node_id() == node_id;
    });
  };
  std::set<std::pair<std::string, std::string>> seen;
  std::set<std::string> of_the_link;
  for (const v1::Reason& reason : all) {
    if (reason.code() == reasons::kRdmaDisabledPeer && off_here(reason.node_id())) continue;
    // Speed and what stands in between are the cable's, seen from both ends.
    const bool is_the_links = LayerOf(reason.code()) == Layer::kSpeed ||
                              reason.code() == reasons::kPeerBehindDock ||
                              reason.code() == reasons::kSubnetMismatch;
    if (is_the_links && !of_the_link.insert(reason.code()).second) continue;
    if (!seen.emplace(reason.code(), reason.node_id()).second) continue;
    *link.add_reasons() = reason;
  }
}

void Conclude(const EndVerdict& a, const EndVerdict& b, v1::LinkVerdict& link) {
  MergeReasons(a, b, link);
  for (const EndVerdict* end : {&a, &b}) {
    for (const v1::Reason& warning : end->warnings) *link.add_warnings() = warning;
  }
  if (link.reasons_size() > 0) {
    link.set_rdma_usable(v1::FACT_NO);
    link.set_lowest_failing_layer(std::string(LayerName(LayerOf(link.reasons(0).code()))));
    return;
  }
  if (a.unknown.empty() && b.unknown.empty()) {
    link.set_rdma_usable(v1::FACT_YES);
    return;
  }
  link.set_rdma_usable(v1::FACT_UNKNOWN);
  for (const EndVerdict* end : {&a, &b}) {
    for (const v1::Reason& unknown : end->unknown) *link.add_reasons() = unknown;
  }
}

void AddMeasurement(const NodesById& nodes, v1::LinkVerdict& link) {
  const v1::LinkMeasurement* measured =
      FindMeasurement(nodes, link.a().node_id(), link.a().ip(), link.b().node_id(), link.b().ip());
  if (measured == nullptr) return;
  *link.mutable_measurement() = *measured;
  if (measured->has_failure()) {
    *link.add_warnings() = measured->failure();
  } else if (measured->round_trip_us_p50() > kThunderboltRoundTripHighUs) {
    *link.add_warnings() =
        MakeReason(reasons::kLatencyHigh,
                   absl::StrCat("a TCP round trip over ", link.a().interface_name(), " of ",
                                link.a().hostname(), " takes ",
                                static_cast<int>(measured->round_trip_us_p50()), " us; up to ",
                                static_cast<int>(kThunderboltRoundTripHighUs), " is usual"),
                   link.a().node_id());
  }
}

v1::LinkVerdict JudgeJoined(const NodesById& nodes, const PortAt& a, const PortAt& b,
                            const v1::ThunderboltPeer* b_seen_by_a,
                            const v1::ThunderboltPeer* a_seen_by_b) {
  v1::LinkVerdict link;
  link.set_kind(v1::LINK_KIND_THUNDERBOLT);
  link.set_speed_gbps(std::min(a.port->speed_gbps(), b.port->speed_gbps()));
  EndVerdict from_a = JudgeEnd(*a.facts, *a.port, b_seen_by_a, b.facts, b.port);
  EndVerdict from_b = JudgeEnd(*b.facts, *b.port, a_seen_by_b, a.facts, a.port);
  const EndVerdict as_found = from_a;
  DropWhatTheOtherEndExplains(from_b, from_a);
  DropWhatTheOtherEndExplains(as_found, from_b);
  *link.mutable_a() = from_a.end;
  *link.mutable_b() = from_b.end;
  Conclude(from_a, from_b, link);
  AddMeasurement(nodes, link);
  return link;
}

// The peer's own probe does not see us: one of the two is out of date, so nothing is concluded; and
// that nobody is there is not said, because somebody is seen from the other end.
void MarkOneSided(v1::LinkVerdict& link) {
  const auto drop = [](google::protobuf::RepeatedPtrField<v1::Reason>& list) {
    list.erase(
        std::remove_if(list.begin(), list.end(),
                       [](const v1::Reason& reason) { return reason.code() == reasons::kNoPeer; }),
        list.end());
  };
  drop(*link.mutable_reasons());
  drop(*link.mutable_a()->mutable_reasons());
  drop(*link.mutable_b()->mutable_reasons());
  link.set_rdma_usable(v1::FACT_UNKNOWN);
  link.set_lowest_failing_layer(
      link.reasons().empty() ? "" : std::string(LayerName(LayerOf(link.reasons(0).code()))));
  *link.add_reasons() =
      MakeReason(reasons::kConflictingFacts,
                 absl::StrCat(link.a().hostname(), " and ", link.b().hostname(),
                              " do not both see this cable; their probes are of different times"),
                 link.a().node_id());
}

v1::LinkVerdict JudgeOneEnded(const v1::LinkFacts& facts, const v1::ThunderboltPort& port,
                              const v1::ThunderboltPeer& peer) {
  v1::LinkVerdict link;
  link.set_kind(v1::LINK_KIND_THUNDERBOLT);
  link.set_speed_gbps(port.speed_gbps());
  const EndVerdict end = JudgeEnd(facts, port, &peer, nullptr, nullptr);
  *link.mutable_a() = end.end;
  link.mutable_b()->set_hostname(peer.device_name());
  Conclude(end, EndVerdict{}, link);
  return link;
}

bool Before(const v1::LinkVerdict& x, const v1::LinkVerdict& y) {
  const auto key = [](const v1::LinkVerdict& link) {
    return std::make_tuple(link.a().node_id(), link.b().node_id(), link.a().socket(),
                           link.b().socket(), link.a().interface_name());
  };
  return key(x) < key(y);
}

}  // namespace

std::vector<v1::LinkVerdict> JudgeThunderbolt(const NodesById& nodes) {
  const PortsByDomain ports = PortsOf(nodes);
  std::vector<v1::LinkVerdict> links;
  std::set<std::pair<std::string, std::string>> done;  // domains, lower first
  for (const auto& [id, node] : nodes) {
    for (const v1::ThunderboltPort& port : node->facts().ports()) {
      for (const v1::ThunderboltPeer& peer : port.peers()) {
        const auto other = ports.find(peer.domain_uuid());
        const bool is_member = !peer.domain_uuid().empty() && other != ports.end() &&
                               other->second.facts->node_id() != id;
        if (!is_member) {
          links.push_back(JudgeOneEnded(node->facts(), port, peer));
          continue;
        }
        const auto pair = std::minmax(port.domain_uuid(), peer.domain_uuid());
        if (!done.insert({pair.first, pair.second}).second) continue;
        const v1::ThunderboltPeer* back = PeerNamed(*other->second.port, port.domain_uuid());
        const PortAt here{&node->facts(), &port}, there = other->second;
        // Nodes are walked by rising id, but the lower one may not see the cable.
        const bool here_first = id < there.facts->node_id();
        v1::LinkVerdict link = here_first ? JudgeJoined(nodes, here, there, &peer, back)
                                          : JudgeJoined(nodes, there, here, back, &peer);
        if (back == nullptr) MarkOneSided(link);
        links.push_back(std::move(link));
      }
    }
  }
  std::sort(links.begin(), links.end(), Before);
  return links;
}

}  // namespace macrame::transport
