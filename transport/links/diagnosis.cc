#include "transport/links/diagnosis.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "transport/links/conclusion.h"
#include "transport/links/finding_texts.h"
#include "transport/links/judge.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"
#include "transport/links/refusals.h"

namespace macrame::transport {
namespace {

// Failures that something lower down may explain.
bool IsDownstream(const std::string& code) {
  static const std::set<std::string> codes = {
      reasons::kPortDown,        reasons::kCoordinator,       reasons::kConnectFailed,
      reasons::kPeerLost,        reasons::kRankExited,        reasons::kRankKilled,
      reasons::kPhaseDeadline,   reasons::kInitStalled,       reasons::kRankStalled,
      reasons::kNoIpv4Gid,       reasons::kResourceExhausted, reasons::kMatrixWrong,
      reasons::kGroupMismatch,   reasons::kNoRdmaDevice,      reasons::kRendezvousUnreachable,
      reasons::kCollectiveFailed};
  return codes.contains(code);
}

class Doctor {
 public:
  Doctor(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
         std::span<const std::string> node_ids)
      : snapshot_(snapshot), links_(links), nodes_(NodesOf(snapshot)) {
    for (const auto& [id, node] : nodes_) {
      const bool asked =
          node_ids.empty() || std::find(node_ids.begin(), node_ids.end(), id) != node_ids.end();
      if (asked) ids_.push_back(id);
    }
    group_ = JudgeGroup(snapshot_, links_, ids_);
  }

  v1::Diagnosis Examine(std::span<const v1::Reason> run_failures) {
    out_.set_made_unix_ms(snapshot_.now_unix_ms());
    *out_.mutable_group() = group_;
    FindLinkFaults();
    FindWarnings();
    FindUnknowns();
    FindRunFailures(run_failures);
    SortFindings();
    RuleOut();
    Conclude();
    return std::move(out_);
  }

  // The reason of the lowest layer that fails on a link among the nodes, or keeps all of them
  // together off RDMA; null: none.
  const v1::Reason* LowestCause() const {
    const v1::Reason* best = nullptr;
    for (const v1::LinkVerdict& link : links_.links()) {
      if (!Concerns(link) || link.rdma_usable() != v1::FACT_NO) continue;
      for (const v1::Reason& reason : link.reasons()) {
        const Layer layer = LayerOf(reason.code());
        if (layer == Layer::kNone) continue;
        if (best == nullptr || layer < LayerOf(best->code())) best = &reason;
      }
    }
    for (const v1::Reason& reason : group_.reasons()) {
      if (!IsGroupVeto(reason.code())) continue;
      if (best == nullptr || LayerOf(reason.code()) < LayerOf(best->code())) best = &reason;
    }
    return best;
  }

 private:
  bool Holds(const std::string& id) const {
    return std::find(ids_.begin(), ids_.end(), id) != ids_.end();
  }
  bool Concerns(const v1::LinkVerdict& link) const {
    return Holds(link.a().node_id()) && (link.b().node_id().empty() || Holds(link.b().node_id()));
  }
  const v1::LinkFacts* FactsOf(const std::string& id) const {
    const auto node = nodes_.find(id);
    return node == nodes_.end() ? nullptr : &node->second->facts();
  }

  static std::string LinkText(const v1::LinkVerdict& link) {
    const auto end = [](const v1::LinkEnd& one) {
      const std::string socket = one.socket() == 0 ? "" : absl::StrCat(" socket ", one.socket());
      const std::string interface =
          one.interface_name().empty() ? "" : absl::StrCat(" (", one.interface_name(), ")");
      return absl::StrCat(one.hostname().empty() ? "?" : one.hostname(), socket, interface);
    };
    return absl::StrCat(end(link.a()), " - ", end(link.b()));
  }

  // One finding for each cause and node, however many links it spoils.
  v1::Finding& FindingOf(const v1::Reason& reason, v1::Severity severity) {
    const std::string key = absl::StrCat(reason.code(), "/", reason.node_id());
    const auto known = index_.find(key);
    if (known != index_.end()) {
      v1::Finding& found = *out_.mutable_findings(known->second);
      found.set_severity(std::max(found.severity(), severity));
      return found;
    }
    index_[key] = out_.findings_size();
    v1::Finding& finding = *out_.add_findings();
    finding.set_severity(severity);
    *finding.mutable_reason() = reason;
    const FindingText text = TextOf(reason.code());
    finding.set_symptom(text.symptom.empty() ? reason.message() : std::string(text.symptom));
    const ReasonCode* code = FindReasonCode(reason.code());
    finding.set_cause(!text.cause.empty() ? std::string(text.cause)
                      : code != nullptr   ? std::string(code->meaning)
                                          : reason.message());
    finding.set_layer(std::string(LayerName(LayerOf(reason.code()))));
    for (const std::string_view step : text.steps) finding.add_steps(std::string(step));
    if (finding.steps().empty() && !reason.remedy().empty()) finding.add_steps(reason.remedy());
    AddEvidence(reason, finding);
    return finding;
  }

  void AddEvidence(const v1::Reason& reason, v1::Finding& finding) {
    const v1::LinkFacts* facts = FactsOf(reason.node_id());
    const std::string host = facts == nullptr ? "" : facts->hostname();
    if (!reason.evidence().empty()) {
      Add(reason.node_id(), host, SourceOf(reason.code()), reason.evidence(),
          finding.add_evidence());
    }
    if (facts == nullptr) return;
    if (reason.code() == reasons::kTb4Controller || reason.code() == reasons::kNoRdmaDevice) {
      for (const v1::KernelLine& line : facts->kernel_lines()) {
        if (line.code() == "QUEUE_PAIR_FAILED" || line.text() == reason.evidence()) continue;
        Add(reason.node_id(), host, "kernel log", line.text(), finding.add_evidence());
      }
      if (facts->rdma_devices_listed() == v1::FACT_YES) {
        Add(reason.node_id(), host, "ibv_devices", DeviceList(*facts), finding.add_evidence());
      }
    }
  }

  static std::string DeviceList(const v1::LinkFacts& facts) {
    std::vector<std::string> names;
    for (const v1::RdmaDevice& device : facts.rdma_devices()) names.push_back(device.name());
    return names.empty() ? "no device listed" : absl::StrJoin(names, ", ");
  }

  static void Add(const std::string& node_id, const std::string& host, std::string source,
                  std::string text, v1::Evidence* evidence) {
    evidence->set_node_id(node_id);
    evidence->set_hostname(host);
    evidence->set_source(std::move(source));
    evidence->set_text(std::move(text));
  }

  // What is not known is no fault, whatever hangs on it.
  static v1::Severity SeverityOf(const v1::Reason& reason, v1::Severity of_a_fault) {
    const bool is_unknown =
        reason.code() == reasons::kFactUnknown || reason.code() == reasons::kPeerUnknown;
    return is_unknown ? v1::SEVERITY_INFO : of_a_fault;
  }

  // A link that can't do RDMA is degraded when IP still passes, else an error; a machine that is no
  // Mac and has no verbs device lacks nothing.
  void FindLinkFaults() {
    for (const v1::LinkVerdict& link : links_.links()) {
      if (!Concerns(link)) continue;
      *out_.add_links() = link;
      if (link.rdma_usable() == v1::FACT_YES) continue;
      const bool reached = link.b().node_id().empty() ||
                           PathBetween(links_, link.a().node_id(), link.b().node_id()) != nullptr;
      const bool is_old = std::any_of(
          link.reasons().begin(), link.reasons().end(),
          [](const v1::Reason& reason) { return reason.code() == reasons::kTb4Controller; });
      for (const v1::Reason& reason : link.reasons()) {
        // The old controller is what slows the link: another cable changes nothing.
        if (is_old && reason.code() == reasons::kLink40g) continue;
        const v1::Severity severity = reached ? v1::SEVERITY_DEGRADED : v1::SEVERITY_ERROR;
        FindingOf(reason, SeverityOf(reason, severity)).add_subjects(LinkText(link));
      }
    }
    const bool is_none = VerdictNamed(out_.group().verdict()) == Verdict::kNone;
    for (const v1::Reason& reason : out_.group().reasons()) {
      if (!is_none && !IsGroupVeto(reason.code())) continue;
      const v1::Severity severity = is_none ? v1::SEVERITY_ERROR : v1::SEVERITY_DEGRADED;
      FindingOf(reason, SeverityOf(reason, severity));
    }
    for (const v1::TransportRefusal& refusal : snapshot_.refusals()) {
      const bool ours = std::all_of(refusal.node_ids().begin(), refusal.node_ids().end(),
                                    [this](const std::string& id) { return Holds(id); });
      if (!ours) continue;
      *out_.add_refusals() = refusal;
      v1::Finding& finding = FindingOf(refusal.reason(), v1::SEVERITY_DEGRADED);
      if (refusal.has_symptom()) {
        Add(refusal.reason().node_id(), "", "first seen as", refusal.symptom().message(),
            finding.add_evidence());
      }
    }
  }

  void FindWarnings() {
    for (const v1::Reason& warning : out_.group().warnings()) {
      const bool serves = VerdictNamed(out_.group().verdict()) != Verdict::kNone;
      if (warning.code() == reasons::kCoordinator && serves) continue;
      FindingOf(warning, SeverityOf(warning, v1::SEVERITY_WARNING));
    }
    for (const v1::NodePath& path : links_.paths()) {
      if (!Holds(path.from_node_id()) || !Holds(path.to_node_id())) continue;
      for (const v1::Reason& rejected : path.rejected()) {
        if (rejected.code() == reasons::kLinkUnreachable) FindingOf(rejected, v1::SEVERITY_WARNING);
      }
      if (path.kind() == v1::INTERFACE_KIND_WIFI) FindCableBeside(path);
    }
  }

  // Wi-Fi carries what a cable between the same two machines could.
  void FindCableBeside(const v1::NodePath& path) {
    for (const v1::LinkVerdict& link : links_.links()) {
      const bool same =
          (link.a().node_id() == path.from_node_id() && link.b().node_id() == path.to_node_id()) ||
          (link.b().node_id() == path.from_node_id() && link.a().node_id() == path.to_node_id());
      if (!same || link.kind() != v1::LINK_KIND_THUNDERBOLT) continue;
      v1::Reason reason = MakeReason(
          reasons::kWrongPath,
          absl::StrCat(LinkText(link), " is cabled, yet traffic between the two goes over Wi-Fi"),
          path.from_node_id());
      reason.set_remedy("'clusterctl net plan' gives the cable addresses");
      FindingOf(reason, v1::SEVERITY_WARNING).add_subjects(LinkText(link));
      return;
    }
  }

  void FindUnknowns() {
    for (const std::string& id : ids_) {
      const v1::LinkFacts* facts = FactsOf(id);
      for (const v1::Reason& unknown : facts->unknown()) {
        v1::Reason reason = unknown;
        reason.set_message(absl::StrCat(facts->hostname(), ": ", unknown.message()));
        const std::string key = absl::StrCat(reason.code(), "/", id, "/", unknown.message());
        if (!index_.emplace(key, out_.findings_size()).second) continue;
        v1::Finding& finding = *out_.add_findings();
        finding.set_severity(v1::SEVERITY_INFO);
        *finding.mutable_reason() = reason;
        finding.set_symptom("a fact could not be found out; nothing was concluded from that");
        finding.set_cause(reason.message());
      }
    }
  }

  void FindRunFailures(std::span<const v1::Reason> failures) {
    const v1::Reason* cause = LowestCause();
    for (const v1::Reason& failure : failures) {
      if (cause != nullptr && IsDownstream(failure.code())) {
        v1::Finding& finding = FindingOf(*cause, v1::SEVERITY_DEGRADED);
        Add(failure.node_id(), "", "a gang failed with",
            failure.evidence().empty() ? failure.message() : failure.evidence(),
            finding.add_evidence());
        continue;
      }
      v1::Finding& finding = FindingOf(failure, v1::SEVERITY_WARNING);
      if (failure.code() == reasons::kNodeCrashed) AddWhatWasSeen(failure, finding);
    }
  }

  // A machine's own panic report is a finding already: what others saw of it stands beside it.
  void AddWhatWasSeen(const v1::Reason& failure, v1::Finding& finding) {
    if (finding.reason().message() == failure.message()) return;
    const v1::LinkFacts* facts = FactsOf(failure.node_id());
    Add(failure.node_id(), facts == nullptr ? "" : facts->hostname(), "the coordinator",
        failure.message(), finding.add_evidence());
    finding.add_steps(failure.remedy());
  }

  // Worst first; at the same severity the lowest layer first, because the others may follow from
  // it.
  void SortFindings() {
    auto* findings = out_.mutable_findings();
    std::stable_sort(findings->begin(), findings->end(),
                     [](const v1::Finding& a, const v1::Finding& b) {
                       if (a.severity() != b.severity()) return a.severity() > b.severity();
                       const Layer x = LayerOf(a.reason().code()), y = LayerOf(b.reason().code());
                       return (x == Layer::kNone ? 100 : static_cast<int>(x)) <
                              (y == Layer::kNone ? 100 : static_cast<int>(y));
                     });
  }

  // What people look for first, and what shows that it is not the matter.
  void RuleOut() {
    if (LowestCause() == nullptr) return;
    for (const std::string& id : ids_) RuleOutOn(*FactsOf(id));
    for (const v1::LinkVerdict& link : links_.links()) {
      if (!Concerns(link) || link.kind() != v1::LINK_KIND_THUNDERBOLT) continue;
      const bool passes = link.has_measurement() && !link.measurement().has_failure();
      if (!passes) continue;
      Exclude("plain networking over the Thunderbolt cable", link.a().node_id(),
              link.a().hostname(), "measured",
              absl::StrCat(LinkText(link), ": ",
                           static_cast<int>(link.measurement().round_trip_us_p50()),
                           " us round trip over TCP"));
    }
    std::vector<std::string> met_at = {out_.group().rendezvous_ip()};
    for (int rank = 1; rank < out_.group().rendezvous_ips_size(); ++rank) {
      met_at.push_back(out_.group().rendezvous_ips(rank));
    }
    if (!met_at.back().empty()) {
      met_at.erase(std::remove(met_at.begin(), met_at.end(), ""), met_at.end());
      Exclude("a rendezvous address that nobody can reach (0.0.0.0)", "", "", "the verdict",
              absl::StrCat("rank 0 would meet the others at ", absl::StrJoin(met_at, ", ")));
    }
  }

  void RuleOutOn(const v1::LinkFacts& facts) {
    if (facts.is_mac() != v1::FACT_YES) return;
    const std::string& id = facts.node_id();
    const std::string& host = facts.hostname();
    if (CompareVersions(facts.os_version(), kRdmaOsVersionMin) >= 0) {
      Exclude("a macOS that is too old", id, host, "sw_vers",
              absl::StrCat(facts.os_version(), " (", facts.os_build(), ")"));
    }
    if (facts.rdma_enabled() == v1::FACT_YES) {
      Exclude("RDMA not being enabled", id, host, "rdma_ctl status", "enabled");
    }
    if (facts.rdma_family_kext() == v1::FACT_YES && facts.rdma_driver_kext() == v1::FACT_YES) {
      Exclude("a missing kernel extension or a bad install", id, host, "kmutil showloaded",
              "com.apple.iokit.IORDMAFamily and com.apple.driver.AppleThunderboltRDMA are loaded");
    }
    if (facts.internet_sharing() == v1::FACT_NO && facts.interfaces_size() > 0) {
      Exclude("Internet Sharing", id, host, "ifconfig", "no bridge100");
    }
  }

  void Exclude(std::string hypothesis, const std::string& id, const std::string& host,
               std::string source, std::string text) {
    v1::RuledOut* entry = nullptr;
    for (v1::RuledOut& known : *out_.mutable_ruled_out()) {
      if (known.hypothesis() == hypothesis) entry = &known;
    }
    if (entry == nullptr) {
      entry = out_.add_ruled_out();
      entry->set_hypothesis(std::move(hypothesis));
    }
    Add(id, host, std::move(source), std::move(text), entry->add_evidence());
  }

  void Conclude() {
    for (const std::string& id : ids_) *out_.add_facts() = *FactsOf(id);
    std::vector<const v1::LinkFacts*> facts;
    for (const std::string& id : ids_) facts.push_back(FactsOf(id));
    const v1::Reason* cause = LowestCause();
    // Good links, and a backend that is not tried again on them.
    if (cause == nullptr && !group_.refusals().empty()) cause = &group_.refusals(0).reason();
    if (cause != nullptr) {
      out_.set_lowest_failing_layer(std::string(LayerName(LayerOf(cause->code()))));
    }
    out_.set_conclusion(ConclusionOf(out_.group(), cause, facts, links_));
    const Verdict verdict = VerdictNamed(out_.group().verdict());
    if (verdict != Verdict::kRingOnly || cause == nullptr) return;
    for (const std::string_view trigger : RetryTriggers()) {
      out_.add_retry_triggers(std::string(trigger));
    }
  }

  const v1::LinkSnapshot& snapshot_;
  const v1::ClusterLinks& links_;
  const NodesById nodes_;
  std::vector<std::string> ids_;
  v1::GroupVerdict group_;
  std::map<std::string, int> index_;
  v1::Diagnosis out_;
};

}  // namespace

v1::Diagnosis Diagnose(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                       std::span<const std::string> node_ids,
                       std::span<const v1::Reason> run_failures) {
  return Doctor(snapshot, links, node_ids).Examine(run_failures);
}

v1::Reason RootCause(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                     std::span<const std::string> node_ids, const v1::Reason& symptom) {
  if (!IsDownstream(symptom.code())) return symptom;
  const Doctor doctor(snapshot, links, node_ids);
  const v1::Reason* cause = doctor.LowestCause();
  return cause == nullptr ? symptom : *cause;
}

}  // namespace macrame::transport
