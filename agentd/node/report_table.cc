#include "agentd/node/report_table.h"

#include <utility>

#include "agentd/cores/node_news.h"

namespace macrame::agentd {
namespace {

bool SameRanks(const std::vector<v1::RankStatus>& a, const std::vector<v1::RankStatus>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].deployment() != b[i].deployment() || a[i].epoch() != b[i].epoch() ||
        a[i].rank() != b[i].rank() || a[i].phase() != b[i].phase() ||
        a[i].bytes_loaded() != b[i].bytes_loaded()) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool ReportTable::Take(const NodeId& from, v1::HeartbeatRequest request, MonotonicTime now) {
  if (reports_.size() >= kReportsMax && !reports_.contains(from)) return false;
  NodeReport& report = reports_[from];
  const uint64_t incarnation = request.identity().incarnation();
  if (std::pair(incarnation, request.sequence()) < std::pair(report.incarnation, report.sequence)) {
    return false;
  }
  report.incarnation = incarnation;
  report.sequence = request.sequence();
  report.news = NewsOf(request);
  std::vector<v1::RankStatus> ranks;
  for (v1::RankStatus& rank : *request.mutable_ranks()) {
    if (ranks.size() == kRanksPerReportMax) break;
    rank.set_node_id(from.value());  // nobody speaks for another's ranks
    ranks.push_back(std::move(rank));
  }
  bool changed = !SameRanks(ranks, report.ranks);
  report.ranks = std::move(ranks);
  report.load = std::move(*request.mutable_load());
  report.coordinator = request.coordinator();
  report.state_digest = request.state_digest();
  changed |= report.state_failure.code() != request.state_failure().code();
  report.state_failure = request.state_failure();
  changed |= report.draining != request.draining();
  report.draining = request.draining();
  std::set<NodeId> undialled;
  for (const std::string& id : request.undialled_node_ids()) {
    if (undialled.size() < kReportsMax && IsValidNodeId(id)) undialled.insert(NodeId(id));
  }
  changed |= undialled != report.undialled;
  report.undialled = std::move(undialled);
  report.at = now;
  if (request.has_inventory() && request.inventory().revision() != report.inventory.revision()) {
    report.inventory = std::move(*request.mutable_inventory());
    report.inventory.set_node_id(from.value());
    changed = true;
  }
  return changed;
}

const NodeReport* ReportTable::Find(const NodeId& node) const {
  const auto found = reports_.find(node);
  return found == reports_.end() ? nullptr : &found->second;
}

std::set<NodeId> ReportTable::Failing() const {
  std::set<NodeId> failing;
  for (const auto& [node, report] : reports_) {
    if (!report.state_failure.code().empty()) failing.insert(node);
  }
  return failing;
}

uint64_t ReportTable::NewsHeard(const NodeId& node) const {
  const NodeReport* report = Find(node);
  return report == nullptr ? 0 : report->news;
}

uint64_t ReportTable::KnownRevision(const NodeId& node) const {
  const NodeReport* report = Find(node);
  return report == nullptr ? 0 : report->inventory.revision();
}

}  // namespace macrame::agentd
