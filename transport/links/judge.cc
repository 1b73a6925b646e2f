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
    const bool in_bridge = std::any_of(
        link.warnings().begin(), link.warnings().end(),
        [](const v1::Reason& warning) { return warning.code() == reasons::kBridgeMember; });
    if (!in_bridge) continue;
    *link.add_warnings() =
        MakeReason(reasons::kBridgeLoopRisk, "bridges and cables of these Macs close a loop",
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
  for (v1::NodePath& path : ChoosePaths(snapshot, nodes, previous)) {
    *links.add_paths() = std::move(path);
  }
  std::vector<std::string> ids;
  for (const auto& [id, node] : nodes) ids.push_back(id);
  *links.mutable_group() = JudgeGroup(snapshot, links, ids);
  return links;
}

}  // namespace macrame::transport
