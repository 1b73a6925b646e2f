#include "agentd/links/planner_links.h"

#include <map>
#include <set>
#include <utility>

#include "proto/backends.h"

namespace macrame::agentd {
namespace {

using Pair = std::pair<std::string, std::string>;

v1::LinkMedium MediumOf(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_THUNDERBOLT:
    case v1::INTERFACE_KIND_BRIDGE:
      return v1::LINK_MEDIUM_THUNDERBOLT;
    case v1::INTERFACE_KIND_ETHERNET:
      return v1::LINK_MEDIUM_ETHERNET;
    case v1::INTERFACE_KIND_WIFI:
      return v1::LINK_MEDIUM_WIFI;
    case v1::INTERFACE_KIND_VPN:
      return v1::LINK_MEDIUM_VPN;
    case v1::INTERFACE_KIND_LOOPBACK:
      return v1::LINK_MEDIUM_LOOPBACK;
    default:
      return v1::LINK_MEDIUM_UNSPECIFIED;
  }
}

// Pairs with a cable or verbs devices that look usable; only these are worth a verdict.
std::set<Pair> PairsWithRdma(const v1::ClusterLinks& links) {
  std::set<Pair> pairs;
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.rdma_usable() != v1::FACT_YES) continue;
    pairs.emplace(link.a().node_id(), link.b().node_id());
    pairs.emplace(link.b().node_id(), link.a().node_id());
  }
  return pairs;
}

// Of pairs with a cable or devices and no RDMA: the decisive reason of the first such link.
std::map<Pair, const v1::Reason*> WhyNoRdma(const v1::ClusterLinks& links,
                                            const std::set<Pair>& with_rdma) {
  std::map<Pair, const v1::Reason*> reasons;
  for (const v1::LinkVerdict& link : links.links()) {
    if (link.rdma_usable() == v1::FACT_YES || link.reasons().empty()) continue;
    const Pair pair = {link.a().node_id(), link.b().node_id()};
    if (with_rdma.contains(pair)) continue;
    reasons.try_emplace(pair, &link.reasons(0));
    reasons.try_emplace({pair.second, pair.first}, &link.reasons(0));
  }
  return reasons;
}

}  // namespace

std::vector<v1::PlannerLink> PlannerLinks(
    const v1::ClusterLinks& links, const std::vector<std::string>& node_ids,
    const std::function<v1::GroupVerdict(const std::string&, const std::string&)>& pair_verdict) {
  std::map<Pair, const v1::NodePath*> paths;
  for (const v1::NodePath& path : links.paths()) {
    paths[{path.from_node_id(), path.to_node_id()}] = &path;
  }
  const std::set<Pair> with_rdma = PairsWithRdma(links);
  const std::map<Pair, const v1::Reason*> why_not = WhyNoRdma(links, with_rdma);
  std::vector<v1::PlannerLink> made;
  for (const std::string& from : node_ids) {
    for (const std::string& to : node_ids) {
      if (from == to) continue;
      v1::PlannerLink link;
      link.set_from_node_id(from);
      link.set_to_node_id(to);
      link.add_backends(NameOf(Backend::kRing));
      if (const auto path = paths.find({from, to}); path != paths.end()) {
        link.set_round_trip_us(path->second->round_trip_us());
        link.set_bandwidth_bytes_per_second(path->second->bandwidth_bytes_per_second());
        link.set_medium(MediumOf(path->second->kind()));
      }
      if (const auto why = why_not.find({from, to}); why != why_not.end()) {
        *link.mutable_rdma_unavailable() = *why->second;
      }
      if (with_rdma.contains({from, to})) {
        const v1::GroupVerdict verdict = pair_verdict(from, to);
        for (const v1::BackendChoice& choice : verdict.choices()) {
          const bool is_rdma = IsRdma(BackendNamed(choice.backend()));
          if (choice.usable() && is_rdma) link.add_backends(choice.backend());
        }
      }
      made.push_back(std::move(link));
    }
  }
  return made;
}

}  // namespace macrame::agentd
