#include "planner/rdma_advice.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

constexpr size_t kLacksMax = 6;  // that one sentence names

using Lacks = std::vector<std::string>;
using Pair = std::pair<std::string, std::string>;

std::map<Pair, const v1::Reason*> LinkReasons(const v1::PlanRequest& request) {
  std::map<Pair, const v1::Reason*> reasons;
  for (const v1::PlannerLink& link : request.links()) {
    if (link.rdma_unavailable().code().empty()) continue;
    reasons.try_emplace({link.from_node_id(), link.to_node_id()}, &link.rdma_unavailable());
    reasons.try_emplace({link.to_node_id(), link.from_node_id()}, &link.rdma_unavailable());
  }
  return reasons;
}

bool HasRdma(const GangJudge& judge, size_t a, size_t b) {
  const LinkCosts& links = judge.links();
  return links.HasRdma(a, b, Backend::kJaccl) || links.HasRdma(a, b, Backend::kVerbs);
}

// `only_known`: without the links of which nobody said why.
Lacks LacksOf(const v1::PlanRequest& request, const GangJudge& judge,
              const std::vector<size_t>& nodes, bool only_known) {
  const auto node_of = [&](size_t node) -> const v1::PlannerNode& {
    return *judge.candidates()[node].node;
  };
  const std::map<Pair, const v1::Reason*> of_links = LinkReasons(request);
  Lacks of_nodes, links, bare;
  std::set<size_t> told;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = i + 1; j < nodes.size(); ++j) {
      if (HasRdma(judge, nodes[i], nodes[j])) continue;
      bool known = false;
      for (const size_t node : {nodes[i], nodes[j]}) {
        const v1::Reason& why = node_of(node).rdma_unavailable();
        if (why.code().empty()) continue;
        known = true;
        if (!told.insert(node).second) continue;
        of_nodes.push_back(absl::StrCat(NodeName(node_of(node)), ": ", why.message()));
      }
      if (known) continue;
      const std::string pair =
          absl::StrCat(NodeName(node_of(nodes[i])), " and ", NodeName(node_of(nodes[j])));
      const auto why = of_links.find({node_of(nodes[i]).node_id(), node_of(nodes[j]).node_id()});
      if (why != of_links.end()) {
        links.push_back(absl::StrCat(pair, ": ", why->second->message()));
      } else {
        bare.push_back(pair);
      }
    }
  }
  Lacks lacks = std::move(of_nodes);
  lacks.insert(lacks.end(), links.begin(), links.end());
  if (!bare.empty() && !only_known) {
    const size_t more = bare.size() > kLacksMax ? bare.size() - kLacksMax : 0;
    bare.resize(bare.size() - more);
    lacks.push_back(absl::StrCat(
        "no link for RDMA between ", absl::StrJoin(bare, ", "),
        more > 0 ? absl::StrCat(" and ", more, more == 1 ? " more pair" : " more pairs") : ""));
  }
  if (lacks.size() > kLacksMax) {
    const size_t more = lacks.size() - kLacksMax;
    lacks.resize(kLacksMax);
    lacks.push_back(absl::StrCat("and ", more, " more"));
  }
  return lacks;
}

}  // namespace

std::vector<std::string> RdmaLacks(const v1::PlanRequest& request, const GangJudge& judge,
                                   const std::vector<size_t>& nodes) {
  return LacksOf(request, judge, nodes, /*only_known=*/false);
}

std::optional<v1::Reason> WhyNoRdma(const v1::PlanRequest& request, const GangJudge& judge,
                                    const Gang& taken) {
  if (taken.ranks() == 1 || taken.fabric.is_rdma() ||
      BackendNamed(request.placement().transport()) == Backend::kRing) {
    return {};
  }
  std::vector<size_t> nodes;
  for (const GangStage& stage : taken.stages) {
    nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
  }
  const Lacks lacks = LacksOf(request, judge, nodes, /*only_known=*/true);
  if (lacks.empty()) return {};
  v1::Reason reason = MakeReason(
      reasons::kRdmaUnavailable,
      absl::StrCat("it goes over TCP, for RDMA is not to be had: ", absl::StrJoin(lacks, "; ")));
  reason.clear_remedy();  // nothing has failed
  return reason;
}

v1::Reason RdmaRefusal(const v1::PlanRequest& request, const v1::Plan& without,
                       const std::string& path) {
  std::vector<Candidate> candidates;
  std::vector<size_t> nodes;
  for (const v1::Assignment& part : without.assignments()) {
    for (const v1::PlannerNode& node : request.nodes()) {
      if (node.node_id() != part.node_id()) continue;
      nodes.push_back(candidates.size());
      candidates.push_back(CandidateOf(node));
    }
  }
  const LinkCosts links(request, candidates);
  const GangJudge judge(request.model(), candidates, links, {}, {});
  Lacks lacks = RdmaLacks(request, judge, nodes);
  if (lacks.empty()) {
    lacks.push_back(absl::StrCat("no set of nodes that hold it is a mesh of at most ",
                                 links.mesh_ranks_max(), ", or a ring, of ",
                                 request.placement().transport(), " links"));
  }
  v1::Reason reason = MakeReason(
      reasons::kRdmaUnavailable,
      absl::StrCat(request.placement().transport(), " was asked for, and the nodes that hold ",
                   request.model().name(), " lack it: ", absl::StrJoin(lacks, "; ")));
  const uint32_t ranks = without.world_size();
  const std::string leave_out = absl::StrCat(
      "leave out --transport: ",
      ranks == 1 ? "one node holds it" : absl::StrCat("over TCP ", ranks, " nodes hold it"));
  reason.set_remedy(path.empty() ? leave_out
                                 : absl::StrCat(path, " would make it fit; or ", leave_out));
  return reason;
}

}  // namespace macrame::planner
