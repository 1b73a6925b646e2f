#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "transport/links/firmware.h"
#include "transport/links/ipv4.h"
#include "transport/links/judge.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"
#include "transport/links/rdma_hardware.h"
#include "transport/links/refusals.h"
#include "transport/links/ring_search.h"

namespace macrame::transport {
namespace {

// The most peers that JACCL's mesh has buffers for, by its source (MLX 0.32).
constexpr uint32_t kMeshNodesMax = 8;
// The first MLX whose jaccl backend is as this release expects it.
constexpr char kJacclMlxVersionMin[] = "0.30.6";

class GroupJudge {
 public:
  GroupJudge(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
             std::span<const std::string> node_ids)
      : snapshot_(snapshot),
        links_(links),
        nodes_(NodesOf(snapshot)),
        ids_(node_ids.begin(), node_ids.end()) {
    for (size_t i = 0; i < ids_.size(); ++i) index_[ids_[i]] = static_cast<int>(i);
  }

  v1::GroupVerdict Judge() {
    rdma_ = Graph([](const v1::LinkVerdict& link) { return link.rdma_usable() == v1::FACT_YES; });
    cables_ = Graph([](const v1::LinkVerdict& link) { return link.kind() != v1::LINK_KIND_IP; });
    thunderbolt_ip_ = Graph([](const v1::LinkVerdict& link) { return CarriesIp(link); });
    all_mac_ = All([](const v1::LinkFacts& facts) { return facts.is_mac() == v1::FACT_YES; });
    verdict_.set_graph(NameOf(GraphOf(cables_)));
    Warn();
    if (ids_.size() <= 1) return Single();
    FindRefusals();
    OfferRdma();
    OfferRing();
    Settle();
    return std::move(verdict_);
  }

 private:
  template <typename Predicate>
  Adjacency Graph(Predicate counts) const {
    Adjacency graph(ids_.size(), std::vector<bool>(ids_.size(), false));
    for (const v1::LinkVerdict& link : links_.links()) {
      const auto a = index_.find(link.a().node_id()), b = index_.find(link.b().node_id());
      if (a == index_.end() || b == index_.end() || a == b || !counts(link)) continue;
      graph[a->second][b->second] = graph[b->second][a->second] = true;
    }
    return graph;
  }

  template <typename Predicate>
  bool All(Predicate holds) const {
    return std::all_of(ids_.begin(), ids_.end(), [&](const std::string& id) {
      const auto node = nodes_.find(id);
      return node != nodes_.end() && holds(node->second->facts());
    });
  }

  // A cable that IP can take: both ends have an address, and nothing says that it does not pass.
  static bool CarriesIp(const v1::LinkVerdict& link) {
    if (link.kind() == v1::LINK_KIND_IP || link.a().ip().empty() || link.b().ip().empty()) {
      return false;
    }
    if (link.measurement().has_failure()) return false;
    // Of self-assigned addresses they are warnings: RDMA does not mind, TCP does.
    const auto leads_elsewhere = [](const v1::Reason& reason) {
      return reason.code() == reasons::kSubnetMismatch || reason.code() == reasons::kRouteWrongIf;
    };
    return std::none_of(link.reasons().begin(), link.reasons().end(), leads_elsewhere) &&
           std::none_of(link.warnings().begin(), link.warnings().end(), leads_elsewhere);
  }

  // Its probe says that it could not list them all: what is not among them may be there.
  bool HasUnknownInterfaces(const std::string& id) const {
    const auto node = nodes_.find(id);
    if (node == nodes_.end()) return false;
    const auto& unknown = node->second->facts().unknown();
    return std::any_of(unknown.begin(), unknown.end(), [](const v1::Reason& reason) {
      return absl::StartsWith(reason.message(), "interfaces: ");
    });
  }

  bool LacksInterfaces() const {
    return std::any_of(ids_.begin(), ids_.end(),
                       [this](const std::string& id) { return HasUnknownInterfaces(id); });
  }

  const std::string& HostOf(const std::string& id) const {
    const auto node = nodes_.find(id);
    return node == nodes_.end() || node->second->facts().hostname().empty()
               ? id
               : node->second->facts().hostname();
  }

  void Reason(std::string_view code, std::string message, const std::string& node_id = "") {
    *verdict_.add_reasons() = MakeReason(code, std::move(message), node_id);
  }

  v1::GroupVerdict Single() {
    verdict_.set_verdict(NameOf(Verdict::kSingle));
    for (const std::string& id : ids_) verdict_.add_node_ids(id);
    return std::move(verdict_);
  }

  void Warn() {
    std::set<std::string> builds;
    std::vector<const v1::LinkFacts*> all_facts;
    std::set<std::pair<std::string, std::string>> seen;
    const auto add = [&](const v1::Reason& warning) {
      if (seen.emplace(warning.code(), warning.message()).second) {
        *verdict_.add_warnings() = warning;
      }
    };
    for (const std::string& id : ids_) {
      const auto node = nodes_.find(id);
      if (node == nodes_.end()) continue;
      const v1::LinkFacts& facts = node->second->facts();
      all_facts.push_back(&facts);
      for (const v1::Reason& warning : NodeWarnings(facts, snapshot_.now_unix_ms())) add(warning);
      if (facts.is_mac() == v1::FACT_YES && !facts.os_build().empty()) {
        builds.insert(facts.os_build());
      }
    }
    for (const v1::LinkVerdict& link : links_.links()) {
      if (!index_.contains(link.a().node_id()) && !index_.contains(link.b().node_id())) continue;
      for (const v1::Reason& warning : link.warnings()) add(warning);
    }
    if (builds.size() > 1) {
      add(MakeReason(reasons::kOsMismatch,
                     absl::StrCat("builds of macOS differ: ", absl::StrJoin(builds, ", "))));
    }
    for (const v1::Reason& warning : OldFirmware(all_facts)) add(warning);
  }

  void FindRefusals() {
    const std::set<std::string> own(ids_.begin(), ids_.end());
    for (const v1::TransportRefusal& refusal : snapshot_.refusals()) {
      const bool concerns = std::all_of(refusal.node_ids().begin(), refusal.node_ids().end(),
                                        [&](const std::string& id) { return own.contains(id); });
      if (refusal.node_ids().empty() || !concerns) continue;
      if (TriggerToRetry(refusal, snapshot_).has_value()) continue;
      *verdict_.add_refusals() = refusal;
    }
  }

  const v1::TransportRefusal* RefusalOf(const std::string& backend) const {
    for (const v1::TransportRefusal& refusal : verdict_.refusals()) {
      if (refusal.backend() == backend) return &refusal;
    }
    return nullptr;
  }

  std::string MissingPairs(const Adjacency& graph) const {
    std::vector<std::string> missing;
    for (size_t i = 0; i < ids_.size(); ++i) {
      for (size_t j = i + 1; j < ids_.size(); ++j) {
        if (!graph[i][j]) missing.push_back(absl::StrCat(HostOf(ids_[i]), " - ", HostOf(ids_[j])));
      }
    }
    return absl::StrJoin(missing, ", ");
  }

  v1::Reason MeshIncomplete(const Adjacency& graph) const {
    const std::string missing = MissingPairs(graph);
    v1::Reason reason = MakeReason(reasons::kMeshIncomplete,
                                   absl::StrCat("no link of their own between: ", missing));
    reason.set_remedy(absl::StrCat("a cable for each of: ", missing));
    return reason;
  }

  // Whether the links of `graph` are of one kind that the backend can drive.
  bool CoveredBy(v1::LinkKind kind, bool ring_only) const {
    const Adjacency graph = Graph([&](const v1::LinkVerdict& link) {
      return link.rdma_usable() == v1::FACT_YES && link.kind() == kind;
    });
    return ring_only ? FindRing(graph).has_value() : IsComplete(graph);
  }

  v1::BackendChoice* Offer(Backend backend, Topology topology) {
    v1::BackendChoice* choice = verdict_.add_choices();
    choice->set_backend(NameOf(backend));
    choice->set_topology(NameOf(topology));
    choice->set_usable(true);
    return choice;
  }

  static void Deny(v1::BackendChoice* choice, const v1::Reason& why) {
    choice->set_usable(false);
    *choice->add_reasons() = why;
  }

  void DenyRefused(v1::BackendChoice* choice) const {
    const v1::TransportRefusal* refusal = RefusalOf(choice->backend());
    if (refusal == nullptr) return;
    Deny(choice, refusal->reason());
    Deny(choice, MakeReason(reasons::kRefusalRemembered,
                            absl::StrCat(choice->backend(), " was refused before (",
                                         refusal->reason().code(), ") and nothing changed since")));
  }

  // Why links fell out of the RDMA graph, each cause of each node once, decisive ones first.
  std::vector<v1::Reason> LinkReasons() const {
    std::vector<v1::Reason> found;
    std::set<std::pair<std::string, std::string>> seen;
    for (const v1::LinkVerdict& link : links_.links()) {
      // A verbs device without an address has nobody at its other end.
      const bool is_open = link.kind() == v1::LINK_KIND_VERBS && link.b().node_id().empty();
      if (!index_.contains(link.a().node_id())) continue;
      if (!is_open && !index_.contains(link.b().node_id())) continue;
      if (link.rdma_usable() == v1::FACT_YES) continue;
      for (const v1::Reason& reason : link.reasons()) {
        if (seen.emplace(reason.code(), reason.node_id()).second) found.push_back(reason);
      }
    }
    std::stable_sort(found.begin(), found.end(), [](const v1::Reason& a, const v1::Reason& b) {
      const Layer x = LayerOf(a.code()), y = LayerOf(b.code());
      return (x == Layer::kNone ? 100 : static_cast<int>(x)) <
             (y == Layer::kNone ? 100 : static_cast<int>(y));
    });
    return found;
  }

  void OfferRdma() {
    const Backend backend = all_mac_ ? Backend::kJaccl : Backend::kVerbs;
    const v1::LinkKind kind = all_mac_ ? v1::LINK_KIND_THUNDERBOLT : v1::LINK_KIND_VERBS;
    v1::BackendChoice* mesh = Offer(backend, Topology::kMesh);
    const uint32_t mesh_max =
        snapshot_.mesh_nodes_max() == 0 ? kMeshNodesMax : snapshot_.mesh_nodes_max();
    if (!CoveredBy(kind, /*ring_only=*/false)) DenyMesh(mesh);
    if (mesh->usable() && ids_.size() > mesh_max) {
      Deny(mesh, MakeReason(reasons::kTooManyPeers,
                            absl::StrCat(ids_.size(), " nodes; the mesh takes ", mesh_max)));
    }
    v1::BackendChoice* ring = Offer(backend, Topology::kRing);
    mesh = verdict_.mutable_choices(verdict_.choices_size() - 2);  // the list may have moved
    if (ids_.size() < 3) {
      Deny(ring, MakeReason(reasons::kNotChosen, "two nodes need no ring"));
    } else if (!CoveredBy(kind, /*ring_only=*/true)) {
      const std::vector<v1::Reason> why = LinkReasons();
      for (const v1::Reason& reason : why) Deny(ring, reason);
      if (why.empty()) {
        Deny(ring, MakeReason(reasons::kNoRing, "the RDMA links make no ring through all nodes"));
      }
    }
    for (v1::BackendChoice* choice : {mesh, ring}) {
      DenyRefused(choice);
      if (!all_mac_) continue;
      DenyOldMlx(choice);
      const std::optional<v1::Reason> mismatch = FrameMismatch();
      if (mismatch.has_value()) Deny(choice, *mismatch);
    }
  }

  void DenyMesh(v1::BackendChoice* mesh) const {
    std::vector<v1::Reason> why = LinkReasons();
    for (const v1::Reason& reason : why) Deny(mesh, reason);
    if (!IsComplete(cables_)) Deny(mesh, MeshIncomplete(cables_));
    if (mesh->usable()) {
      Deny(mesh, MakeReason(reasons::kMeshIncomplete, "not every pair of nodes has an RDMA link"));
    }
  }

  void DenyOldMlx(v1::BackendChoice* choice) const {
    for (const std::string& id : ids_) {
      const auto node = nodes_.find(id);
      if (node == nodes_.end()) continue;
      const std::string& version = node->second->facts().mlx_version();
      if (version.empty() || CompareVersions(version, kJacclMlxVersionMin) >= 0) continue;
      Deny(choice, MakeReason(reasons::kMlxOld,
                              absl::StrCat("MLX ", version, " on ", HostOf(id), "; jaccl needs ",
                                           kJacclMlxVersionMin),
                              id));
    }
  }

  // Macs whose frames differ in size; unset when they do not, or are not known to. Those that are
  // too old for RDMA have a reason of their own.
  std::optional<v1::Reason> FrameMismatch() const {
    std::vector<std::string> small, large, evidence;
    std::string first_small;
    for (const std::string& id : ids_) {
      const auto node = nodes_.find(id);
      if (node == nodes_.end()) continue;
      const v1::LinkFacts& facts = node->second->facts();
      const std::string& version = facts.os_version();
      if (version.empty() || CompareVersions(version, kRdmaOsVersionMin) < 0) continue;
      const bool is_small = CompareVersions(version, kLargeFramesOsVersionMin) < 0;
      if (is_small && small.empty()) first_small = id;
      (is_small ? small : large).push_back(absl::StrCat(HostOf(id), " (", version, ")"));
      evidence.push_back(absl::StrCat(HostOf(id), ": ", version, " (", facts.os_build(), ")"));
    }
    if (small.empty() || large.empty()) return std::nullopt;
    v1::Reason reason =
        MakeReason(reasons::kOsFrameMismatch,
                   absl::StrCat("macOS before ", kLargeFramesOsVersionMin, " on ",
                                absl::StrJoin(small, ", "), ", and ", kLargeFramesOsVersionMin,
                                " or later on ", absl::StrJoin(large, ", "),
                                ": MLX sends RDMA frames of different sizes on the two"),
                   first_small);
    reason.set_evidence(absl::StrJoin(evidence, ", "));
    return reason;
  }

  // A ring over IP needs only that each rank reaches each other by some address.
  void OfferRing() {
    v1::BackendChoice* ring = Offer(Backend::kRing, Topology::kMesh);
    v1::InterfaceKind worst = v1::INTERFACE_KIND_THUNDERBOLT;
    std::vector<std::string> unreached, unknown;
    for (const std::string& a : ids_) {
      for (const std::string& b : ids_) {
        if (a == b) continue;
        const v1::NodePath* path = PathBetween(links_, a, b);
        if (path == nullptr && (HasUnknownInterfaces(a) || HasUnknownInterfaces(b))) {
          unknown.push_back(absl::StrCat(HostOf(a), " - ", HostOf(b)));
        } else if (path == nullptr) {
          unreached.push_back(absl::StrCat(HostOf(a), " - ", HostOf(b)));
        } else if (path->kind() == v1::INTERFACE_KIND_WIFI) {
          worst = v1::INTERFACE_KIND_WIFI;
        } else if (path->kind() != v1::INTERFACE_KIND_THUNDERBOLT &&
                   worst != v1::INTERFACE_KIND_WIFI) {
          worst = v1::INTERFACE_KIND_ETHERNET;
        }
      }
    }
    ip_everywhere_ = unreached.empty();
    thunderbolt_ring_ = FindRing(thunderbolt_ip_);
    if (!ip_everywhere_ && !thunderbolt_ring_.has_value()) {
      Deny(ring, MakeReason(reasons::kNoRing,
                            absl::StrCat("nothing leads from: ", absl::StrJoin(unreached, ", "))));
      return;
    }
    // A launch finds out; what is unknown is no "no".
    if (!unknown.empty()) {
      *verdict_.add_warnings() = UnknownInterfaces(
          absl::StrCat("whether a way leads from ", absl::StrJoin(unknown, ", "), " is not known"));
    }
    ring->set_topology(NameOf(ip_everywhere_ ? Topology::kMesh : Topology::kRing));
    const bool over_thunderbolt = thunderbolt_ring_.has_value();
    verdict_.set_ring_over(over_thunderbolt                   ? "thunderbolt"
                           : worst == v1::INTERFACE_KIND_WIFI ? "wifi"
                                                              : "ethernet");
  }

  // Over RDMA, if it can be used.
  const v1::BackendChoice* RdmaChoice(Topology topology) const {
    for (const v1::BackendChoice& choice : verdict_.choices()) {
      const bool is_this =
          IsRdma(BackendNamed(choice.backend())) && TopologyNamed(choice.topology()) == topology;
      if (is_this && choice.usable()) return &choice;
    }
    return nullptr;
  }

  // RDMA needs a rank 0 that all others reach over TCP. Good links without it are worth as much as
  // none: what the group is without RDMA is settled instead.
  void Settle() {
    const int warned = verdict_.warnings_size();
    SettleByChoices();
    if (HasRendezvous()) return;
    if (LacksInterfaces()) {
      *verdict_.add_warnings() = UnknownInterfaces(
          "where the ranks can meet is not known; a launch tries the way by "
          "which they reach each other");
      return;
    }
    const bool was_rdma =
        RdmaChoice(Topology::kMesh) != nullptr || RdmaChoice(Topology::kRing) != nullptr;
    if (was_rdma) {
      verdict_.mutable_warnings()->DeleteSubrange(warned, verdict_.warnings_size() - warned);
      verdict_.clear_node_ids();
      verdict_.clear_device_matrix();
      verdict_.clear_ring_addresses();
      verdict_.clear_reasons();
    }
    NoRendezvous();
    if (was_rdma) SettleByChoices();
  }

  void SettleByChoices() {
    const v1::BackendChoice* mesh = RdmaChoice(Topology::kMesh);
    const v1::BackendChoice* ring = RdmaChoice(Topology::kRing);
    std::vector<int> order(ids_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    if (mesh != nullptr) {
      verdict_.set_verdict(NameOf(all_mac_ ? Verdict::kJacclMesh : Verdict::kVerbs));
    } else if (ring != nullptr) {
      verdict_.set_verdict(NameOf(all_mac_ ? Verdict::kJacclRing : Verdict::kVerbs));
      order = *FindRing(rdma_);
      for (const v1::Reason& reason : verdict_.choices(0).reasons()) {
        if (reason.code() == reasons::kMeshIncomplete || reason.code() == reasons::kTooManyPeers) {
          *verdict_.add_reasons() = reason;
        }
      }
    } else {
      SettleRingOnly(&order);
    }
    for (const int i : order) verdict_.add_node_ids(ids_[i]);
    FillMatrix(/*ring=*/mesh == nullptr && ring != nullptr,
               /*usable=*/mesh != nullptr || ring != nullptr);
    FillAddresses();
  }

  void SettleRingOnly(std::vector<int>* order) {
    const bool has_ring = verdict_.choices(verdict_.choices_size() - 1).usable();
    verdict_.set_verdict(NameOf(has_ring ? Verdict::kRingOnly : Verdict::kNone));
    if (thunderbolt_ring_.has_value()) *order = *thunderbolt_ring_;
    std::set<std::string> seen;
    const auto add = [&](const v1::Reason& reason) {
      if (seen.insert(absl::StrCat(reason.code(), " ", reason.node_id())).second) {
        *verdict_.add_reasons() = reason;
      }
    };
    for (const v1::TransportRefusal& refusal : verdict_.refusals()) add(refusal.reason());
    for (const v1::Reason& reason : LinkReasons()) add(reason);
    ForChoiceReasons([&](const v1::Reason& reason) {
      if (IsGroupVeto(reason.code())) add(reason);
    });
    ExplainRing(has_ring, add);
    // Nothing is wrong with a link, and yet they do not serve all together: say what a choice says.
    ForChoiceReasons([&](const v1::Reason& reason) {
      if (verdict_.reasons().empty() && reason.code() != reasons::kNotChosen) add(reason);
    });
  }

  template <typename Take>
  void ForChoiceReasons(const Take& take) const {
    for (const v1::BackendChoice& choice : verdict_.choices()) {
      for (const v1::Reason& reason : choice.reasons()) take(reason);
    }
  }

  // Why there is no ring, or none over cables.
  template <typename Add>
  void ExplainRing(bool has_ring, const Add& add) {
    const bool has_cables =
        std::any_of(cables_.begin(), cables_.end(), [](const std::vector<bool>& row) {
          return std::find(row.begin(), row.end(), true) != row.end();
        });
    if (!has_ring) {
      // Which nodes nothing leads between.
      for (const v1::Reason& reason : verdict_.choices(verdict_.choices_size() - 1).reasons()) {
        add(reason);
      }
    } else if (!thunderbolt_ring_.has_value() && has_cables && !LacksInterfaces()) {
      add(MakeReason(reasons::kNoRing, "the Thunderbolt links make no ring through all nodes"));
    }
    if (!IsComplete(cables_) && (!has_ring || has_cables)) add(MeshIncomplete(cables_));
    if (!has_cables) ExplainNoCables(add);
  }

  // A cable to a Mac without the hardware gives no RDMA, whatever it costs.
  bool HasPartnerForRdma(const std::string& own) const {
    return std::any_of(ids_.begin(), ids_.end(), [&](const std::string& id) {
      const auto node = nodes_.find(id);
      return id != own && node != nodes_.end() && node->second->facts().is_mac() == v1::FACT_YES &&
             HasRdmaHardware(node->second->facts()) != v1::FACT_NO;
    });
  }

  template <typename Add>
  void ExplainNoCables(Add add) const {
    for (const std::string& id : ids_) {
      const auto node = nodes_.find(id);
      if (node == nodes_.end()) continue;
      const v1::LinkFacts& facts = node->second->facts();
      if (facts.is_mac() == v1::FACT_YES) {
        if (facts.has_thunderbolt() == v1::FACT_NO) {
          add(MakeReason(reasons::kNoThunderbolt, absl::StrCat(HostOf(id), " shows no Thunderbolt"),
                         id));
        } else if (HasRdmaHardware(facts) == v1::FACT_NO && !facts.ports().empty()) {
          add(MakeReason(reasons::kTb4Controller,
                         absl::StrCat("no Thunderbolt controller of ", HostOf(id),
                                      " is Thunderbolt 5; macOS refuses RDMA on them"),
                         id));
        } else if (facts.has_thunderbolt() == v1::FACT_YES && HasPartnerForRdma(id)) {
          v1::Reason reason =
              MakeReason(reasons::kNoPeer,
                         absl::StrCat("no cable of ", HostOf(id), " leads to another node"), id);
          if (HasRdmaHardware(facts) == v1::FACT_UNKNOWN) {
            reason.set_remedy(
                "see first whether its ports are Thunderbolt 5; then a Thunderbolt 5 "
                "cable from Mac to Mac gives RDMA");
          }
          add(reason);
        }
      } else if (facts.verbs_library_missing()) {
        add(MakeReason(reasons::kVerbsLibraryMissing,
                       absl::StrCat(HostOf(id), " has no libibverbs"), id));
      } else if (facts.rdma_devices_listed() == v1::FACT_YES && facts.rdma_devices().empty()) {
        add(MakeReason(reasons::kNoVerbsDevice, absl::StrCat(HostOf(id), " has no verbs device"),
                       id));
      }
    }
  }

  void FillMatrix(bool ring, bool usable) {
    const std::vector<std::string> by_rank(verdict_.node_ids().begin(), verdict_.node_ids().end());
    for (v1::DeviceRow& row : usable ? GroupMatrix(links_, by_rank, ring)
                                     : DeviceMatrix(links_, by_rank, /*only_usable=*/false)) {
      *verdict_.add_device_matrix() = std::move(row);
    }
    if (usable) WarnOfUnusedCables(by_rank, ring);
  }

  // Further cables between ranks that the matrix joins by others.
  void WarnOfUnusedCables(const std::vector<std::string>& by_rank, bool ring) {
    std::map<std::string, int> rank_of;
    for (size_t i = 0; i < by_rank.size(); ++i) rank_of[by_rank[i]] = static_cast<int>(i);
    for (const v1::LinkVerdict& link : links_.links()) {
      if (link.rdma_usable() != v1::FACT_YES || link.kind() != v1::LINK_KIND_THUNDERBOLT) continue;
      const auto a = rank_of.find(link.a().node_id()), b = rank_of.find(link.b().node_id());
      if (a == rank_of.end() || b == rank_of.end()) continue;
      const auto& taken = verdict_.device_matrix(a->second).cells(b->second).devices();
      const bool is_taken =
          std::find(taken.begin(), taken.end(), link.a().rdma_device()) != taken.end();
      if (taken.empty() || is_taken) continue;
      const std::string uses =
          !ring ? std::string("the mesh uses one")
                : absl::StrCat("the ring uses ", taken.size(), " between each two neighbours");
      *verdict_.add_warnings() =
          MakeReason(reasons::kSecondCableUnused,
                     absl::StrCat("a further cable between ", link.a().hostname(), " (",
                                  link.a().interface_name(), ") and ", link.b().hostname(), " (",
                                  link.b().interface_name(), ") is not used: ", uses),
                     link.a().node_id());
    }
  }

  bool HasRendezvous() const {
    return !verdict_.rendezvous_ip().empty() || !verdict_.rendezvous_ips().empty();
  }

  void FillAddresses() {
    const bool is_met = TurnUntil([this](const auto& by_rank) { return MeetAtOne(by_rank); });
    if (!is_met) TurnUntil([this](const auto& by_rank) { return MeetOverCables(by_rank); });
    FillRingAddresses();
  }

  // Ranks turn until `meet` says that the others reach the first.
  template <typename Meet>
  bool TurnUntil(Meet meet) {
    std::vector<std::string> by_rank(verdict_.node_ids().begin(), verdict_.node_ids().end());
    for (size_t turn = 0; turn < by_rank.size(); ++turn) {
      if (meet(by_rank)) {
        if (turn > 0) Rotate(static_cast<int>(turn));
        return true;
      }
      std::rotate(by_rank.begin(), by_rank.begin() + 1, by_rank.end());
    }
    return false;
  }

  // An address of rank 0 that every other rank reaches: on the LAN first, because a cable reaches
  // one neighbour only.
  bool MeetAtOne(const std::vector<std::string>& by_rank) {
    const std::optional<std::string> ip = Rendezvous(by_rank);
    if (ip.has_value()) verdict_.set_rendezvous_ip(*ip);
    return ip.has_value();
  }

  // Without a LAN, the neighbours of rank 0 call it each at the end of its own cable.
  bool MeetOverCables(const std::vector<std::string>& by_rank) {
    std::vector<std::string> ips = {"0.0.0.0"};
    for (size_t i = 1; i < by_rank.size(); ++i) {
      const v1::NodePath* path = PathBetween(links_, by_rank[i], by_rank[0]);
      if (path == nullptr) return false;
      ips.push_back(path->to_ip());
    }
    *verdict_.mutable_rendezvous_ips() = {ips.begin(), ips.end()};
    return true;
  }

  v1::Reason UnknownInterfaces(const std::string& what) const {
    std::vector<std::string> hosts;
    std::string first;
    for (const std::string& id : ids_) {
      if (!HasUnknownInterfaces(id)) continue;
      if (first.empty()) first = id;
      hosts.push_back(HostOf(id));
    }
    v1::Reason reason = MakeReason(reasons::kFactUnknown,
                                   absl::StrCat(what, ": the interfaces of ",
                                                absl::StrJoin(hosts, ", "), " could not be read"),
                                   first);
    reason.set_remedy("'clusterctl links recheck'; if it stays so, run 'ifconfig' there");
    return reason;
  }

  void NoRendezvous() {
    const v1::Reason why =
        MakeReason(reasons::kCoordinator, "no node is known to be reached by all others");
    *verdict_.add_warnings() = why;
    for (v1::BackendChoice& choice : *verdict_.mutable_choices()) {
      if (IsRdma(BackendNamed(choice.backend())) && choice.usable()) Deny(&choice, why);
    }
  }

  void Rotate(int turn) {
    auto* ids = verdict_.mutable_node_ids();
    std::rotate(ids->begin(), ids->begin() + turn, ids->end());
    auto* rows = verdict_.mutable_device_matrix();
    std::rotate(rows->begin(), rows->begin() + turn, rows->end());
    for (v1::DeviceRow& row : *rows) {
      std::rotate(row.mutable_cells()->begin(), row.mutable_cells()->begin() + turn,
                  row.mutable_cells()->end());
    }
  }

  std::optional<std::string> Rendezvous(const std::vector<std::string>& by_rank) const {
    const auto zero = nodes_.find(by_rank[0]);
    if (zero == nodes_.end()) return std::nullopt;
    std::vector<std::pair<int, std::string>> reachable;
    for (const v1::LinkInterface& interface : zero->second->facts().interfaces()) {
      for (const v1::NodeAddress& address : interface.addresses()) {
        const auto ip = ParseIpv4(address.ip());
        if (!ip || IsNoHost(*ip) || IsLoopback(*ip)) continue;
        if (interface.kind() == v1::INTERFACE_KIND_BRIDGE) continue;
        if (interface.kind() == v1::INTERFACE_KIND_VPN && !snapshot_.allow_vpn()) continue;
        const bool all = std::all_of(by_rank.begin() + 1, by_rank.end(), [&](const auto& id) {
          return Reaches(id, by_rank[0], interface, *ip, address.prefix_length());
        });
        if (all) reachable.emplace_back(RendezvousRank(interface, *ip), address.ip());
      }
    }
    if (reachable.empty()) return OneMachine(by_rank);
    return std::min_element(reachable.begin(), reachable.end())->second;
  }

  // All agents on one machine meet on its loopback.
  std::optional<std::string> OneMachine(const std::vector<std::string>& by_rank) const {
    for (size_t i = 1; i < by_rank.size(); ++i) {
      const v1::NodePath* path = PathBetween(links_, by_rank[i], by_rank[0]);
      if (path == nullptr || path->kind() != v1::INTERFACE_KIND_LOOPBACK) return std::nullopt;
    }
    return "127.0.0.1";
  }

  static int RendezvousRank(const v1::LinkInterface& interface, uint32_t ip) {
    const int local = IsLinkLocal(ip) ? 10 : 0;
    switch (interface.kind()) {
      case v1::INTERFACE_KIND_ETHERNET:
        return local;
      case v1::INTERFACE_KIND_WIFI:
        return local + 1;
      case v1::INTERFACE_KIND_THUNDERBOLT:
        return local + 2;
      default:
        return local + 3;
    }
  }

  // Measured, or not measured yet but in one subnet.
  bool Reaches(const std::string& from, const std::string& to, const v1::LinkInterface& interface,
               uint32_t ip, uint32_t prefix_length) const {
    const auto node = nodes_.find(from);
    if (node == nodes_.end()) return false;
    const Ipv4Subnet subnet = SubnetOf(ip, prefix_length);
    for (const v1::LinkInterface& own : node->second->facts().interfaces()) {
      if (own.is_up() == v1::FACT_NO || own.kind() == v1::INTERFACE_KIND_BRIDGE) continue;
      for (const v1::NodeAddress& address : own.addresses()) {
        const auto own_ip = ParseIpv4(address.ip());
        if (!own_ip || *own_ip == ip) continue;
        const v1::LinkMeasurement* measured =
            FindMeasurement(nodes_, from, address.ip(), to, Ipv4Text(ip));
        if (measured != nullptr && !measured->has_failure()) return true;
        // All self-assigned addresses look like one subnet, and a cable has two ends.
        const bool is_any_cables =
            IsLinkLocal(ip) && interface.kind() == v1::INTERFACE_KIND_THUNDERBOLT;
        if (measured == nullptr && !is_any_cables &&
            SubnetOf(*own_ip, address.prefix_length()) == subnet &&
            interface.is_up() != v1::FACT_NO) {
          return true;
        }
      }
    }
    return false;
  }

  // Towards the previous rank, as MLX's ring listens: over the cable where the ring has one.
  void FillRingAddresses() {
    const int count = verdict_.node_ids_size();
    for (int rank = 0; rank < count; ++rank) {
      const std::string& own = verdict_.node_ids(rank);
      const std::string& previous = verdict_.node_ids((rank + count - 1) % count);
      v1::RankAddresses* addresses = verdict_.add_ring_addresses();
      for (const v1::LinkVerdict& link : links_.links()) {
        if (!CarriesIp(link)) continue;
        if (link.a().node_id() == own && link.b().node_id() == previous) {
          addresses->add_ips(link.a().ip());
        } else if (link.b().node_id() == own && link.a().node_id() == previous) {
          addresses->add_ips(link.b().ip());
        }
      }
      const v1::NodePath* path = PathBetween(links_, previous, own);
      if (addresses->ips().empty() && path != nullptr) addresses->add_ips(path->to_ip());
    }
    EvenRingAddresses();
  }

  // MLX's ring wants as many connections to the left as to the right, which is the same number all
  // the way round (ring.cpp). A rank without any is left so: an export of it says what is missing.
  void EvenRingAddresses() {
    int least = 0;
    for (const v1::RankAddresses& rank : verdict_.ring_addresses()) {
      if (rank.ips().empty()) continue;
      least = least == 0 ? rank.ips_size() : std::min(least, rank.ips_size());
    }
    for (v1::RankAddresses& rank : *verdict_.mutable_ring_addresses()) {
      if (rank.ips_size() <= least) continue;
      rank.mutable_ips()->DeleteSubrange(least, rank.ips_size() - least);
    }
  }

  const v1::LinkSnapshot& snapshot_;
  const v1::ClusterLinks& links_;
  const NodesById nodes_;
  const std::vector<std::string> ids_;
  std::map<std::string, int> index_;
  Adjacency rdma_, cables_, thunderbolt_ip_;
  std::optional<std::vector<int>> thunderbolt_ring_;
  bool all_mac_ = false;
  bool ip_everywhere_ = false;
  v1::GroupVerdict verdict_;
};

}  // namespace

v1::GroupVerdict JudgeGroup(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                            std::span<const std::string> node_ids) {
  return GroupJudge(snapshot, links, node_ids).Judge();
}

}  // namespace macrame::transport
