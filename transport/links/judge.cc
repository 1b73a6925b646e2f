#include "transport/links/judge.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"

namespace macrame::transport {
namespace {

// Nodes joined by cables whose both ends are members of bridges: from three on they may be a loop.
bool BridgesLoop(const v1::ClusterLinks& links, const NodesById& nodes) {
  const auto is_member = [&](const v1::LinkEnd& end) {
    const auto node = nodes.find(end.node_id());
    if (node == nodes.end()) return false;
    const v1::LinkInterface* interface = FindInterface(node->second->facts(), end.interface_name());
    if (interface == nullptr || interface->bridge().empty()) return false;
    for (const v1::NetworkBridge& bridge : node->second->facts().bridges()) {
      if (bridge.name() == interface->bridge()) return bridge.is_up() != v1::FACT_NO;
    }
    return true;
  };
  std::map<std::string, std::string> root;  // union of nodes; an edge inside one closes a loop
  const auto find = [&](std::string id) {
    while (root.contains(id) && root[id] != id) id = root[id];
    return id;
  };
  std::set<std::pair<std::string, std::string>> pairs;
  for (const v1::LinkVerdict& link : links.links()) {
    if (!is_member(link.a()) || !is_member(link.b())) continue;
    if (!pairs.emplace(link.a().node_id(), link.b().node_id()).second) continue;
    const std::string a = find(link.a().node_id()), b = find(link.b().node_id());
    if (a == b) return true;
    root[a] = b;
  }
  return false;
}

void WarnOfLoops(v1::ClusterLinks& links, const NodesById& nodes) {
  if (!BridgesLoop(links, nodes)) return;
  for (v1::LinkVerdict& link : *links.mutable_links()) {
    const bool in_bridge =
        std::any_of(link.warnings().begin(), link.warnings().end(),
                    [](const v1::Reason& warning) { return warning.code() == "BRIDGE_MEMBER"; });
    if (!in_bridge) continue;
    *link.add_warnings() = MakeReason(
        "BRIDGE_LOOP_RISK", "bridges and cables of these Macs close a loop", link.a().node_id());
  }
}

// The mesh takes the first cable of a pair; others stay idle.
void WarnOfSecondCables(v1::ClusterLinks& links) {
  std::set<std::pair<std::string, std::string>> seen;
  for (v1::LinkVerdict& link : *links.mutable_links()) {
    if (link.rdma_usable() != v1::FACT_YES || link.kind() != v1::LINK_KIND_THUNDERBOLT) continue;
    if (seen.emplace(link.a().node_id(), link.b().node_id()).second) continue;
    *link.add_warnings() = MakeReason(
        "SECOND_CABLE_UNUSED",
        absl::StrCat("a further cable between ", link.a().hostname(), " and ", link.b().hostname(),
                     " (", link.a().interface_name(), "): the mesh uses one"),
        link.a().node_id());
  }
}

}  // namespace

NodesById NodesOf(const v1::LinkSnapshot& snapshot) {
  NodesById nodes;
  for (const v1::NodeLinks& node : snapshot.nodes()) {
    const auto [found, added] = nodes.emplace(node.node_id(), &node);
    if (!added && node.revision() > found->second->revision()) found->second = &node;
  }
  return nodes;
}

v1::ClusterLinks JudgeLinks(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks* previous) {
  const NodesById nodes = NodesOf(snapshot);
  v1::ClusterLinks links;
  links.set_judged_unix_ms(snapshot.now_unix_ms());
  for (v1::LinkVerdict& link : JudgeThunderbolt(nodes)) *links.add_links() = std::move(link);
  for (v1::LinkVerdict& link : JudgeVerbs(nodes)) *links.add_links() = std::move(link);
  WarnOfLoops(links, nodes);
  WarnOfSecondCables(links);
  for (v1::NodePath& path : ChoosePaths(snapshot, nodes, previous)) {
    *links.add_paths() = std::move(path);
  }
  std::vector<std::string> ids;
  for (const auto& [id, node] : nodes) ids.push_back(id);
  *links.mutable_group() = JudgeGroup(snapshot, links, ids);
  return links;
}

std::vector<v1::DeviceRow> DeviceMatrix(const v1::ClusterLinks& links,
                                        std::span<const std::string> node_ids, bool only_usable) {
  std::map<std::string, int> index;
  for (size_t i = 0; i < node_ids.size(); ++i) index[node_ids[i]] = static_cast<int>(i);
  std::vector<v1::DeviceRow> rows(node_ids.size());
  for (v1::DeviceRow& row : rows) {
    for (size_t i = 0; i < node_ids.size(); ++i) row.add_cells();
  }
  const auto device_of = [](const v1::LinkVerdict& link, const v1::LinkEnd& end) {
    const bool may_name = link.kind() == v1::LINK_KIND_THUNDERBOLT && end.rdma_device().empty() &&
                          !end.interface_name().empty();
    return may_name ? absl::StrCat("rdma_", end.interface_name()) : end.rdma_device();
  };
  for (const v1::LinkVerdict& link : links.links()) {
    if (only_usable && link.rdma_usable() != v1::FACT_YES) continue;
    const auto a = index.find(link.a().node_id()), b = index.find(link.b().node_id());
    if (a == index.end() || b == index.end()) continue;
    const std::string from_a = device_of(link, link.a()), from_b = device_of(link, link.b());
    if (from_a.empty() || from_b.empty()) continue;
    rows[a->second].mutable_cells(b->second)->add_devices(from_a);
    rows[b->second].mutable_cells(a->second)->add_devices(from_b);
  }
  return rows;
}

}  // namespace macrame::transport
