#include "agentd/cores/node_transport.h"

#include "absl/strings/str_cat.h"
#include "proto/backends.h"

namespace macrame::agentd {

std::string NodeTransport(const v1::ClusterLinks& links, const std::string& node,
                          const std::set<std::string>& live) {
  const bool is_judged = links.paths_size() + links.links_size() > 0;
  if (!live.contains(node) || live.size() < 2 || !is_judged) return "";
  const auto other_end = [&](const std::string& a, const std::string& b) {
    const std::string& other = a == node ? b : b == node ? a : node;
    return other != node && live.contains(other) ? other : std::string();
  };
  std::set<std::string> jaccl, verbs, reached;
  for (const v1::LinkVerdict& link : links.links()) {
    const std::string other = other_end(link.a().node_id(), link.b().node_id());
    if (other.empty() || link.rdma_usable() != v1::FACT_YES) continue;
    (link.kind() == v1::LINK_KIND_THUNDERBOLT ? jaccl : verbs).insert(other);
  }
  for (const v1::NodePath& path : links.paths()) {
    const std::string other = other_end(path.from_node_id(), path.to_node_id());
    if (!other.empty()) reached.insert(other);
  }
  const size_t others = live.size() - 1;
  const bool is_jaccl = jaccl.size() >= verbs.size();
  const size_t count = is_jaccl ? jaccl.size() : verbs.size();
  if (count == 0) return reached.empty() ? "none" : NameOf(Backend::kRing);
  const std::string name = NameOf(is_jaccl ? Backend::kJaccl : Backend::kVerbs);
  return count == others ? name : absl::StrCat(name, " ", count, "/", others);
}

}  // namespace macrame::agentd
