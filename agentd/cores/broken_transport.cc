#include "agentd/cores/broken_transport.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// Why no verbs link works between two nodes; nothing while one does, or while one may. A device
// without an address has nobody at its other end: it counts when nothing else is between the two.
std::optional<v1::Reason> WhyApart(const v1::ClusterLinks& links, const std::string& a,
                                   const std::string& b) {
  static constexpr std::string_view kCertain[] = {reasons::kNoVerbsDevice, reasons::kPortDown,
                                                  reasons::kNoIpv4Gid};
  std::optional<v1::Reason> between, alone;
  bool has_link = false;
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.kind() != v1::LINK_KIND_VERBS) continue;
    const std::string &from = link.a().node_id(), &to = link.b().node_id();
    const bool joins = (from == a && to == b) || (from == b && to == a);
    const bool is_open = to.empty() && (from == a || from == b);
    if (!joins && !is_open) continue;
    if (joins && link.rdma_usable() != v1::FACT_NO) return std::nullopt;
    has_link = has_link || joins;
    std::optional<v1::Reason>& why = joins ? between : alone;
    for (const v1::Reason& reason : link.reasons()) {
      const bool is_certain =
          std::find(std::begin(kCertain), std::end(kCertain), reason.code()) != std::end(kCertain);
      if (is_certain && !why.has_value()) why = reason;
    }
  }
  return has_link ? between : alone;
}

}  // namespace

std::optional<v1::Reason> WhyBroken(const v1::Plan& plan, const v1::ClusterLinks& links) {
  if (BackendNamed(plan.backend()) != Backend::kVerbs) return std::nullopt;
  const int count = plan.assignments_size();
  const bool is_ring = TopologyNamed(plan.backend_topology()) == Topology::kRing;
  for (int one = 0; one < count; ++one) {
    for (int other = one + 1; other < count; ++other) {
      const bool is_next = other == one + 1 || (one == 0 && other == count - 1);
      if (is_ring && !is_next) continue;
      auto why =
          WhyApart(links, plan.assignments(one).node_id(), plan.assignments(other).node_id());
      if (why.has_value()) return why;
    }
  }
  return std::nullopt;
}

}  // namespace macrame::agentd
