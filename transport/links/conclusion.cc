#include "transport/links/conclusion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "transport/links/link_ends.h"
#include "transport/links/rdma_hardware.h"

namespace macrame::transport {
namespace {

constexpr size_t kPairsNamedMax = 3;

std::string RingText(const std::string& over) {
  if (over == "thunderbolt") return "TCP over the Thunderbolt cables";
  if (over == "wifi") return "TCP over Wi-Fi";
  return "TCP over the local network";
}

const std::string& NameOf(const v1::LinkFacts& facts) {
  return facts.hostname().empty() ? facts.node_id() : facts.hostname();
}

// "a and b, a and c", at most kPairsNamedMax of them.
std::string PairsText(const std::vector<std::string>& pairs) {
  if (pairs.size() <= kPairsNamedMax) return absl::StrJoin(pairs, ", ");
  const std::vector<std::string> named(pairs.begin(), pairs.begin() + kPairsNamedMax);
  const size_t more = pairs.size() - kPairsNamedMax;
  return absl::StrCat(absl::StrJoin(named, ", "), " and ", more, " more pair",
                      more == 1 ? "" : "s");
}

// What nodes without a link that fails lack for RDMA.
class Lack {
 public:
  Lack(std::span<const v1::LinkFacts* const> nodes, const v1::ClusterLinks& links)
      : nodes_(nodes), links_(links) {
    for (const v1::LinkFacts* facts : nodes_) {
      const v1::Fact has = HasRdmaHardware(*facts);
      (has == v1::FACT_NO                ? without_
       : has == v1::FACT_UNKNOWN         ? unknown_
       : facts->is_mac() == v1::FACT_YES ? macs_
                                         : others_)
          .push_back(facts);
    }
  }

  bool NobodyHasHardware() const { return without_.size() == nodes_.size(); }

  // Clauses joined by semicolons; empty: there is nothing to be said.
  std::string Text() {
    SayWithout();
    SayUnknown();
    SayPairs();
    SayCables();
    SayVerbs();
    return absl::StrJoin(clauses_, "; ");
  }

 private:
  static std::string Names(const std::vector<const v1::LinkFacts*>& list) {
    std::vector<std::string> names;
    for (const v1::LinkFacts* facts : list) names.push_back(NameOf(*facts));
    return absl::StrJoin(names, ", ");
  }

  void SayWithout() {
    if (without_.empty()) return;
    clauses_.push_back(absl::StrCat(Names(without_), without_.size() == 1 ? " has" : " have",
                                    " no hardware for RDMA"));
  }

  void SayUnknown() {
    for (const v1::LinkFacts* facts : unknown_) {
      clauses_.push_back(absl::StrCat(
          "whether ", NameOf(*facts), " has hardware for RDMA is not known",
          facts->verbs_library_missing() ? ", because libibverbs is not installed there" : ""));
    }
  }

  // Of several links between two nodes the best one; null: none joins them.
  const v1::LinkVerdict* Between(const v1::LinkFacts& x, const v1::LinkFacts& y) const {
    const v1::LinkVerdict* best = nullptr;
    for (const v1::LinkVerdict& link : links_.links()) {
      if (link.kind() == v1::LINK_KIND_IP) continue;
      const std::string &a = link.a().node_id(), &b = link.b().node_id();
      const bool joins =
          (a == x.node_id() && b == y.node_id()) || (b == x.node_id() && a == y.node_id());
      if (!joins) continue;
      if (best == nullptr || link.rdma_usable() == v1::FACT_YES) best = &link;
    }
    return best;
  }

  // Pairs that a link joins: where RDMA works though not all have it, and where that is not known.
  void SayPairs() {
    std::vector<std::string> works;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (size_t j = i + 1; j < nodes_.size(); ++j) {
        const v1::LinkVerdict* link = Between(*nodes_[i], *nodes_[j]);
        if (link == nullptr) continue;
        const std::string pair = absl::StrCat(NameOf(*nodes_[i]), " and ", NameOf(*nodes_[j]));
        if (link->rdma_usable() == v1::FACT_YES) works.push_back(pair);
        if (link->rdma_usable() != v1::FACT_UNKNOWN) continue;
        clauses_.push_back(absl::StrCat(
            "whether RDMA works between ", pair, " is not known",
            link->reasons().empty() ? "" : absl::StrCat(" (", link->reasons(0).message(), ")")));
      }
    }
    if (!works.empty()) {
      clauses_.push_back(absl::StrCat("RDMA works between ", PairsText(works)));
    }
  }

  void SayCables() {
    std::vector<std::string> missing;
    for (size_t i = 0; i < macs_.size(); ++i) {
      for (size_t j = i + 1; j < macs_.size(); ++j) {
        if (Between(*macs_[i], *macs_[j]) != nullptr) continue;
        missing.push_back(absl::StrCat(NameOf(*macs_[i]), " and ", NameOf(*macs_[j])));
      }
    }
    if (missing.empty()) return;
    const std::string whom = macs_.size() == nodes_.size() ? ""
                             : macs_.size() == 2           ? "those two "
                                                           : "those Macs ";
    if (missing.size() == 1) {
      clauses_.push_back(
          absl::StrCat("a Thunderbolt 5 cable between ", missing[0], " would give ", whom, "RDMA"));
    } else if (macs_.size() <= 3) {
      clauses_.push_back(absl::StrCat("Thunderbolt 5 cables between ", PairsText(missing),
                                      " would give ", whom, "RDMA"));
    } else {
      clauses_.push_back(absl::StrCat("Thunderbolt 5 cables that make a ring or a mesh would give ",
                                      whom.empty() ? "these Macs " : whom,
                                      "RDMA; there is none between ", PairsText(missing)));
    }
    for (const v1::LinkFacts* facts : macs_) SayWhatElse(*facts);
  }

  // A cable alone would not do on a Mac with RDMA off or an older macOS.
  void SayWhatElse(const v1::LinkFacts& facts) {
    const std::string& name = NameOf(facts);
    const bool is_old =
        !facts.os_version().empty() && CompareVersions(facts.os_version(), kRdmaOsVersionMin) < 0;
    if (is_old) {
      clauses_.push_back(absl::StrCat(name, " runs macOS ", facts.os_version(),
                                      ", which is older than ", kRdmaOsVersionMin));
    } else if (facts.rdma_enabled() == v1::FACT_NO) {
      clauses_.push_back(absl::StrCat("RDMA is off on ", name, " ('clusterctl rdma guide ", name,
                                      "' has the steps)"));
    }
  }

  void SayVerbs() {
    std::vector<std::string> apart;
    for (size_t i = 0; i < others_.size(); ++i) {
      for (size_t j = i + 1; j < others_.size(); ++j) {
        if (Between(*others_[i], *others_[j]) != nullptr) continue;
        apart.push_back(absl::StrCat(NameOf(*others_[i]), " and ", NameOf(*others_[j])));
      }
    }
    if (!apart.empty()) {
      clauses_.push_back(absl::StrCat("no subnet joins the RDMA devices of ", PairsText(apart)));
    }
    if (!macs_.empty() && !others_.empty()) {
      clauses_.push_back("Macs and other machines have no RDMA in common");
    }
  }

  const std::span<const v1::LinkFacts* const> nodes_;
  const v1::ClusterLinks& links_;
  std::vector<const v1::LinkFacts*> without_, unknown_, macs_, others_;
  std::vector<std::string> clauses_;
};

std::string RingOnlyText(const v1::GroupVerdict& group, std::span<const v1::LinkFacts* const> nodes,
                         const v1::ClusterLinks& links) {
  const std::string over =
      absl::StrCat("These nodes serve together over ", RingText(group.ring_over()));
  Lack lack(nodes, links);
  if (lack.NobodyHasHardware()) {
    return absl::StrCat(over, "; they have no hardware for RDMA, and nothing is wrong.");
  }
  const std::string text = lack.Text();
  return absl::StrCat(over, ", not over RDMA", text.empty() ? "" : ": ", text, ".");
}

}  // namespace

std::string ConclusionOf(const v1::GroupVerdict& group, const v1::Reason* cause,
                         std::span<const v1::LinkFacts* const> nodes,
                         const v1::ClusterLinks& links) {
  const Verdict verdict = VerdictNamed(group.verdict());
  if (nodes.size() == 1) return "One node: there are no links to judge.";
  const std::string why =
      cause == nullptr ? ""
                       : absl::StrCat(" The cause: ", cause->code(), ", ", cause->message(), ".");
  if (verdict == Verdict::kJacclMesh) return "Every pair of nodes has a link that RDMA works on.";
  if (verdict == Verdict::kJacclRing) {
    return "RDMA works round a ring of these nodes, not between all of them.";
  }
  if (verdict == Verdict::kVerbs) return "RDMA works between these nodes through verbs.";
  if (verdict != Verdict::kRingOnly) return absl::StrCat("These nodes can't serve together.", why);
  if (cause == nullptr) return RingOnlyText(group, nodes, links);
  return absl::StrCat("These nodes serve together over ", RingText(group.ring_over()),
                      ", not over RDMA.", why);
}

}  // namespace macrame::transport
