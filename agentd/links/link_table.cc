#include "agentd/links/link_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/cordon.h"
#include "agentd/cores/held_domains.h"
#include "agentd/cores/state_keys.h"
#include "agentd/links/support_list.h"
#include "agentd/node/heartbeat_sender.h"
#include "agentd/node/node_views.h"
#include "discovery/probe/link_facts.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "transport/links/refusals.h"

namespace macrame::agentd {
namespace {

constexpr Duration kOpenMeterTimeout = std::chrono::milliseconds(1500);
constexpr size_t kMeasurementsMax = 1024;
constexpr size_t kOthersMax = 64;

// What verdicts say, without figures that move with every measurement.
std::string SubstanceOf(v1::ClusterLinks links) {
  links.clear_judged_unix_ms();
  links.clear_revision();
  links.clear_changes();
  for (v1::LinkVerdict& link : *links.mutable_links()) {
    link.clear_measurement();
    for (v1::Reason& warning : *link.mutable_warnings()) warning.clear_message();
  }
  for (v1::NodePath& path : *links.mutable_paths()) {
    path.clear_round_trip_us();
    path.clear_bandwidth_bytes_per_second();
    path.clear_rejected();
  }
  for (v1::Reason& warning : *links.mutable_group()->mutable_warnings()) warning.clear_message();
  links.mutable_group()->clear_refusals();
  return links.SerializeAsString();
}

std::string LinkText(const v1::LinkVerdict& link) {
  return absl::StrCat(link.a().hostname(), " ", link.a().interface_name(), " - ",
                      link.b().hostname(), " ", link.b().interface_name());
}

std::string StateText(const v1::LinkVerdict& link) {
  if (link.rdma_usable() == v1::FACT_YES) return "RDMA works";
  return link.reasons().empty() ? "no RDMA" : absl::StrCat("no RDMA: ", link.reasons(0).code());
}

// What changed, for people.
std::vector<std::string> ChangesBetween(const v1::ClusterLinks& before,
                                        const v1::ClusterLinks& now) {
  std::vector<std::string> changes;
  std::map<std::string, std::string> was;
  for (const v1::LinkVerdict& link : before.links()) was[LinkText(link)] = StateText(link);
  for (const v1::LinkVerdict& link : now.links()) {
    const auto known = was.find(LinkText(link));
    if (known == was.end()) {
      changes.push_back(absl::StrCat("link ", LinkText(link), ": ", StateText(link)));
    } else {
      if (known->second != StateText(link)) {
        changes.push_back(absl::StrCat("link ", LinkText(link), ": ", StateText(link),
                                       " (was: ", known->second, ")"));
      }
      was.erase(known);
    }
  }
  for (const auto& [text, state] : was) changes.push_back(absl::StrCat("link ", text, " is gone"));
  if (before.group().verdict() != now.group().verdict()) {
    changes.push_back(absl::StrCat("all live nodes together: ", now.group().verdict(),
                                   before.group().verdict().empty()
                                       ? ""
                                       : absl::StrCat(" (was: ", before.group().verdict(), ")")));
  }
  return changes;
}

}  // namespace

LinkTable::LinkTable(Parts parts, Options options)
    : parts_(std::move(parts)), options_(std::move(options)) {
  own_links_.set_node_id(parts_.own.id().value());
}

LinkTable::~LinkTable() {
  parts_.prober->Stop();
  parts_.measurer->Stop();
}

void LinkTable::Start() {
  ReadSupportLists();
  parts_.prober->Start([this](const v1::LinkFacts& facts) { OnFacts(facts); });
}

void LinkTable::OwnChanged() {
  own_links_.set_revision(std::max(options_.first_revision, own_links_.revision() + 1));
  stale_ = wants_write_ = true;
  parts_.changes.Note(Change::kLinks);
}

void LinkTable::OnFacts(const v1::LinkFacts& facts) {
  *own_links_.mutable_facts() = facts;
  LeaveOutHeldDomains();
  own_links_.mutable_facts()->set_gpu_busy_alone_seconds(gpu_watch_.AloneSeconds());
  OwnChanged();
  RefreshPairs();
}

void LinkTable::Take(const NodeId& from, v1::NodeLinks links) {
  if (others_.size() >= kOthersMax && !others_.contains(from)) return;
  v1::NodeLinks& known = others_[from];
  if (known.revision() == links.revision()) return;
  links.set_node_id(from.value());
  links.mutable_facts()->set_node_id(from.value());  // nobody speaks for another
  const bool facts_changed = !discovery::SameLinkFacts(links.facts(), known.facts());
  // What changed at the other end of a cable changed at this end too, as a rule.
  if (facts_changed && known.revision() != 0) peer_changed_ = true;
  known = std::move(links);
  stale_ = wants_write_ = true;
  const auto crashed =
      crash_log_.NoteBoot(from, known.facts().boot_time_unix_seconds(), parts_.dispatcher.Now());
  if (crashed.has_value()) NoteCrash(from, *crashed);
  if (facts_changed) RefreshPairs();
}

// News within the interval is not forgotten but waits: this end may follow later than the peer's.
void LinkTable::ProbeBecauseOfPeer() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (!peer_changed_ || (probed_for_peer_ && now - *probed_for_peer_ < kPeerProbeInterval)) return;
  peer_changed_ = false;
  probed_for_peer_ = now;
  parts_.prober->ProbeNow([] {});
}

uint64_t LinkTable::KnownRevision(const NodeId& node) const {
  const auto found = others_.find(node);
  return found == others_.end() ? 0 : found->second.revision();
}

void LinkTable::Forget(const NodeId& node) {
  others_.erase(node);
  // Its channel is gone, and with it the answer that was waited for.
  if (asked_ == node) measuring_ = false;
  stale_ = wants_write_ = true;
  RefreshPairs();
}

void LinkTable::NoteMember(const NodeId& node, bool is_back) {
  stale_ = wants_write_ = true;
  const auto known = others_.find(node);
  if (!is_back || known == others_.end() || !CallsFirst(parts_.own.id(), node)) return;
  schedule_.AddPairs(PairsBetween(own_links_.facts(), known->second.facts(), options_.allow_vpn));
  schedule_.RetryFailed(node.value());
}

// Of each two nodes one measures; so each has about half of its peers to measure, one by one.
void LinkTable::RefreshPairs() {
  std::vector<LinkPair> pairs;
  for (const auto& [id, links] : others_) {
    if (!CallsFirst(parts_.own.id(), id) || !parts_.members.IsAlive(id)) continue;
    for (LinkPair& pair : PairsBetween(own_links_.facts(), links.facts(), options_.allow_vpn)) {
      pairs.push_back(std::move(pair));
    }
  }
  schedule_.SetPairs(pairs);
  std::set<LinkPair> present(pairs.begin(), pairs.end());
  auto* kept = own_links_.mutable_measurements();
  for (int i = kept->size() - 1; i >= 0; --i) {
    const v1::LinkMeasurement& measured = kept->Get(i);
    LinkPair key;
    key.to_node_id = measured.to_node_id();
    key.from_ip = measured.from_ip();
    key.to_ip = measured.to_ip();
    if (!present.contains(key)) kept->DeleteSubrange(i, 1);
  }
}

void LinkTable::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (now - support_list_read_ >= kSupportListInterval) ReadSupportLists();
  if (!gpu_watched_at_ || now - *gpu_watched_at_ >= kGpuWatchInterval) WatchGpu();
  ProbeBecauseOfPeer();
  StartMeasurement();
  // What came before this node led was not looked at by a coordinator.
  const bool leads = parts_.election.Leading(now).has_value();
  if (!std::exchange(led_, leads) && leads) wants_write_ = true;
  if (wants_write_ && now - judged_at_ >= kJudgeInterval) {
    judged_at_ = now;
    JudgeAsCoordinator();
  }
  std::vector<std::function<void()>> through;
  std::erase_if(waiting_, [&](Waiting& waiting) {
    if (!schedule_.IsIdle() && now < waiting.until) return false;
    through.push_back(std::move(waiting.done));
    return true;
  });
  for (const auto& done : through) done();
}

void LinkTable::StartMeasurement() {
  if (measuring_) return;
  if (waiting_.empty() && parts_.is_busy()) return;
  const MonotonicTime now = parts_.dispatcher.Now();
  const std::optional<LinkPair> pair = schedule_.Next(now);
  if (!pair.has_value()) return;
  transport::PeerChannel* channel = parts_.channels.For(NodeId(pair->to_node_id));
  if (channel == nullptr) return schedule_.Done(*pair, false, now);
  measuring_ = true;
  asked_ = NodeId(pair->to_node_id);
  v1::OpenMeterRequest request;
  request.set_ip(pair->to_ip);
  channel->Call(kOpenMeter, request, kOpenMeterTimeout,
                [this, pair = *pair](absl::StatusOr<v1::OpenMeterResponse> offer) {
                  asked_.reset();
                  if (offer.ok()) return RunMeasurement(pair, *offer);
                  // The peer itself does not answer, or has that address no more: nothing is known
                  // of the link.
                  measuring_ = false;
                  schedule_.Done(pair, false, parts_.dispatcher.Now());
                });
}

void LinkTable::RunMeasurement(const LinkPair& pair, const v1::OpenMeterResponse& offer) {
  transport::MeterTarget target;
  target.from_ip = pair.from_ip;
  target.to_ip = pair.to_ip;
  target.port = static_cast<int>(offer.port());
  target.token = offer.token();
  measuring_ = parts_.measurer->Measure(target, [this, pair](v1::LinkMeasurement measured) {
    TakeMeasurement(pair, std::move(measured));
  });
}

void LinkTable::TakeMeasurement(const LinkPair& pair, v1::LinkMeasurement measured) {
  measuring_ = false;
  schedule_.Done(pair, !measured.has_failure(), parts_.dispatcher.Now());
  measured.set_from_node_id(parts_.own.id().value());
  measured.set_to_node_id(pair.to_node_id);
  measured.set_from_interface(pair.from_interface);
  measured.set_to_interface(pair.to_interface);
  measured.set_kind(pair.kind);
  measured.set_measured_unix_ms(parts_.dispatcher.UnixMs());
  if (measured.has_failure()) measured.set_failures_total(1);
  for (v1::LinkMeasurement& known : *own_links_.mutable_measurements()) {
    if (known.to_node_id() != measured.to_node_id() || known.from_ip() != measured.from_ip() ||
        known.to_ip() != measured.to_ip()) {
      continue;
    }
    measured.set_bytes_total(measured.bytes_total() + known.bytes_total());
    measured.set_failures_total(measured.failures_total() + known.failures_total());
    known = measured;
    return OwnChanged();
  }
  if (own_links_.measurements_size() < static_cast<int>(kMeasurementsMax)) {
    *own_links_.add_measurements() = measured;
  }
  OwnChanged();
}

void LinkTable::NoteLostNode(const NodeId& node, const std::string& backend) {
  crash_log_.NoteLost(node, backend, parts_.dispatcher.Now());
}

v1::NodeCrashes LinkTable::CrashesOf(const NodeId& node) const {
  const auto& known = parts_.replicator.desired().crashes();
  const auto found = known.find(node.value());
  v1::NodeCrashes crashes = found == known.end() ? v1::NodeCrashes() : found->second;
  crashes.set_node_id(node.value());
  return crashes;
}

void LinkTable::NoteCrash(const NodeId& node, const std::string& backend) {
  if (!parts_.election.Leading(parts_.dispatcher.Now()).has_value()) return;
  v1::NodeCrashes crashes = CrashesOf(node);
  AddCrash(crashes, backend, parts_.dispatcher.UnixMs());
  WriteCrashes(crashes, /*has_new=*/true);
}

// Coordinator. Of a panic that nobody saw the gang's record is all that tells what ran.
void LinkTable::NotePanics(const v1::LinkFacts& facts) {
  const NodeId node(facts.node_id());
  std::string backend;
  for (const auto& [replica, record] : parts_.replicator.desired().gangs()) {
    const auto& assignments = record.plan().assignments();
    const bool holds =
        std::any_of(assignments.begin(), assignments.end(),
                    [&node](const v1::Assignment& one) { return one.node_id() == node.value(); });
    if (holds) backend = record.plan().backend();
  }
  v1::NodeCrashes crashes = CrashesOf(node);
  const PanicsTaken taken = TakePanics({facts.panics().begin(), facts.panics().end()}, backend,
                                       parts_.dispatcher.UnixMs(), crashes);
  if (taken.changed) WriteCrashes(crashes, taken.has_new);
}

// What a person lifted since is not laid on again unless the machine crashed again.
void LinkTable::WriteCrashes(const v1::NodeCrashes& crashes, bool has_new) {
  const NodeId node(crashes.node_id());
  const v1::Reason why = CrashReason(crashes, HostnameOf(node));
  const std::string value = crashes.SerializeAsString();
  parts_.replicator.Write(absl::StrCat(kCrashPrefix, node.value()), value,
                          [](const absl::Status&) {});
  // Not while the state is closed: what is not known afterwards would be found again and again.
  if (CrashesOf(node).SerializeAsString() != value) return;
  spdlog::warn("{}", why.message());
  if (!has_new || !IsQuarantined(crashes)) return;
  for (const Backend rdma : {Backend::kJaccl, Backend::kVerbs}) {
    Remember(transport::MakeRefusal(Snapshot(), {node.value()}, NameOf(rdma), why, why));
  }
  if (WantsCordon(crashes)) CordonCrashed(node);
}

// Unless that leaves nobody to serve: a power cut restarts all.
void LinkTable::CordonCrashed(const NodeId& node) {
  const DesiredState& desired = parts_.replicator.desired();
  std::set<NodeId> live = parts_.members.Live();
  live.insert(parts_.own.id());
  const bool others_serve = std::any_of(live.begin(), live.end(), [&](const NodeId& other) {
    return other != node && desired.FindCordon(other.value()) == nullptr;
  });
  if (!others_serve || desired.FindCordon(node.value()) != nullptr) return;
  v1::SetCordonRequest request;
  request.set_node_id(node.value());
  request.set_order(v1::CORDON_ORDER_CORDON);
  const auto change = DecideCordon(request, nullptr, parts_.dispatcher.UnixMs());
  if (!change.has_value()) return;
  spdlog::warn("{} is cordoned: it crashed twice within an hour, and not over RDMA",
               HostnameOf(node));
  parts_.replicator.Set(absl::StrCat(kCordonPrefix, node.value()), change->value,
                        [](const absl::Status&) {});
}

std::vector<v1::Reason> LinkTable::CrashReasons() const {
  std::vector<v1::Reason> reasons;
  for (const auto& [node, crashes] : parts_.replicator.desired().crashes()) {
    if (crashes.crashes().empty()) continue;
    reasons.push_back(CrashReason(crashes, HostnameOf(NodeId(node))));
  }
  return reasons;
}

std::string LinkTable::HostnameOf(const NodeId& node) const {
  const auto known = others_.find(node);
  const std::string& name =
      known == others_.end() ? own_links_.facts().hostname() : known->second.facts().hostname();
  const bool is_known = known != others_.end() || node == parts_.own.id();
  return is_known && !name.empty() ? name : ShortId(node);
}

// True when that changes what is told.
bool LinkTable::LeaveOutHeldDomains() {
  v1::LinkFacts& own = *own_links_.mutable_facts();
  const int32_t before = own.protection_domains();
  own.set_protection_domains(DomainsUnaccounted(parts_.prober->facts(), domain_holders_));
  return own.protection_domains() != before;
}

// What a rank held counts as held until a probe after its end: only then a rest is a leak.
void LinkTable::NoteDomainHolders(uint32_t holders) {
  if (own_links_.facts().node_id().empty() || holders == domain_holders_) {
    domain_holders_ = std::max(domain_holders_, holders);
    return;
  }
  if (holders > domain_holders_) {
    domain_holders_ = holders;
    if (LeaveOutHeldDomains()) OwnChanged();
    return;
  }
  if (std::exchange(counts_again_, true)) return;
  parts_.prober->ProbeNow([this] {
    counts_again_ = false;
    domain_holders_ = DomainHolders(parts_.own.ranks());
    if (LeaveOutHeldDomains()) OwnChanged();
  });
}

// A rank may start and end between two looks of Tick: changes of ranks count as looks, too.
void LinkTable::WatchGpu() {
  gpu_watched_at_ = parts_.dispatcher.Now();
  const double busy_ratio = parts_.own.load().gpu_busy_ratio();
  gpu_watch_.Note(busy_ratio, RunningRanks(parts_.own.ranks()) > 0, *gpu_watched_at_);
  v1::LinkFacts& own = *own_links_.mutable_facts();
  const uint32_t before = own.gpu_busy_alone_seconds(), seconds = gpu_watch_.AloneSeconds();
  if (own.node_id().empty() || seconds == before) return;
  if (before == 0) {
    spdlog::warn("the GPU has been busy for {} s although no rank runs here any more", seconds);
  }
  own.set_gpu_busy_alone_seconds(seconds);
  OwnChanged();
}

void LinkTable::NoteRanks(const std::vector<v1::RankStatus>& ranks) {
  NoteDomainHolders(DomainHolders(ranks));
  WatchGpu();
  static constexpr std::string_view kTroubles[] = {reasons::kConnectFailed, reasons::kPeerLost,
                                                   reasons::kInitStalled,
                                                   reasons::kRendezvousUnreachable};
  for (const v1::RankStatus& rank : ranks) {
    if (std::find(std::begin(kTroubles), std::end(kTroubles), rank.failure().code()) ==
        std::end(kTroubles)) {
      continue;
    }
    if (doubted_.size() > kOthersMax) doubted_.clear();
    uint64_t& epoch = doubted_[rank.deployment()];
    if (rank.epoch() <= epoch) continue;
    epoch = rank.epoch();
    schedule_.Hurry("");
    parts_.prober->ProbeNow({});
  }
}

v1::LinkSnapshot LinkTable::Snapshot() const {
  v1::LinkSnapshot snapshot;
  if (!own_links_.facts().node_id().empty()) *snapshot.add_nodes() = own_links_;
  // Also those that are late with their heartbeats: their cables are still there.
  const std::set<NodeId> live = parts_.members.Live();
  for (const auto& [id, links] : others_) {
    if (live.contains(id)) *snapshot.add_nodes() = links;
  }
  for (v1::TransportRefusal& refusal : Refusals()) *snapshot.add_refusals() = std::move(refusal);
  *snapshot.mutable_support_list() = support_list_;
  snapshot.set_mesh_nodes_max(options_.rdma_nodes_max);
  snapshot.set_allow_vpn(options_.allow_vpn);
  snapshot.set_now_unix_ms(parts_.dispatcher.UnixMs());
  return snapshot;
}

v1::LinkSnapshot LinkTable::Absent() const {
  v1::LinkSnapshot absent;
  const std::set<NodeId> live = parts_.members.Live();
  for (const auto& [id, links] : others_) {
    if (!live.contains(id)) *absent.add_nodes() = links;
  }
  return absent;
}

const v1::ClusterLinks& LinkTable::links() {
  if (!stale_) return judged_;
  stale_ = false;
  const v1::ClusterLinks previous = std::move(judged_);
  judged_ = transport::JudgeLinks(Snapshot(), &previous);
  ++judgement_;
  return judged_;
}

v1::GroupVerdict LinkTable::Group(const std::vector<std::string>& node_ids) {
  return transport::JudgeGroup(Snapshot(), links(), node_ids);
}

std::vector<v1::TransportRefusal> LinkTable::Refusals() const {
  std::vector<v1::TransportRefusal> refusals;
  for (const auto& [key, refusal] : parts_.replicator.desired().refusals()) {
    if (refusals.size() < kRefusalsMax) refusals.push_back(refusal);
  }
  return refusals;
}

v1::LinksView LinkTable::View() {
  v1::LinksView view;
  *view.mutable_links() = links();
  const v1::LinkSnapshot snapshot = Snapshot();
  for (const v1::NodeLinks& node : snapshot.nodes()) *view.add_nodes() = node;
  for (v1::TransportRefusal& refusal : Refusals()) *view.add_refusals() = std::move(refusal);
  return view;
}

void LinkTable::JudgeAsCoordinator() {
  wants_write_ = false;
  if (!parts_.election.Leading(parts_.dispatcher.Now()).has_value()) return;
  std::vector<v1::LinkFacts> panicked;  // what is written may change who is known
  if (!own_links_.facts().panics().empty()) panicked.push_back(own_links_.facts());
  for (const auto& [id, links] : others_) {
    if (!links.facts().panics().empty()) panicked.push_back(links.facts());
  }
  for (const v1::LinkFacts& facts : panicked) NotePanics(facts);
  const v1::LinkSnapshot snapshot = Snapshot();
  for (const v1::TransportRefusal& refusal : snapshot.refusals()) {
    const std::optional<std::string> trigger = transport::TriggerToRetry(refusal, snapshot);
    if (!trigger.has_value()) continue;
    spdlog::info("{} is looked at again: {}", refusal.backend(), *trigger);
    parts_.replicator.Remove(transport::RefusalKey(refusal), "", [](const absl::Status&) {});
    stale_ = true;
  }
  for (const v1::TransportRefusal& refusal : transport::NewRefusals(Snapshot())) Remember(refusal);
  WriteVerdicts();
}

void LinkTable::WriteVerdicts() {
  const v1::ClusterLinks& now = links();
  const std::string substance = SubstanceOf(now);
  if (substance == written_) return;
  const v1::ClusterLinks before = parts_.replicator.desired().links();
  if (before.revision() > 0 && SubstanceOf(before) == substance) {
    written_ = substance;
    return;
  }
  v1::ClusterLinks fresh = now;
  fresh.set_revision(before.revision() + 1);
  for (std::string& change : ChangesBetween(before, now)) {
    spdlog::info("{}", change);
    fresh.add_changes(std::move(change));
  }
  written_ = substance;
  parts_.replicator.Write(std::string(kLinksKey), fresh.SerializeAsString(),
                          [](const absl::Status&) {});
  parts_.changes.Note(Change::kLinks);
}

void LinkTable::Remember(const v1::TransportRefusal& refusal) {
  spdlog::warn("{} is not tried again on {} node{} until something changes: {}", refusal.backend(),
               refusal.node_ids_size(), refusal.node_ids_size() == 1 ? "" : "s",
               refusal.reason().message());
  parts_.replicator.Write(transport::RefusalKey(refusal), refusal.SerializeAsString(),
                          [](const absl::Status&) {});
  stale_ = wants_write_ = true;
}

std::vector<v1::TransportRefusal> LinkTable::ForgetRefusals(
    const std::vector<std::string>& node_ids) {
  std::vector<v1::TransportRefusal> forgotten;
  for (v1::TransportRefusal& refusal : Refusals()) {
    const bool asked =
        node_ids.empty() ||
        std::any_of(refusal.node_ids().begin(), refusal.node_ids().end(),
                    [&](const std::string& id) {
                      return std::find(node_ids.begin(), node_ids.end(), id) != node_ids.end();
                    });
    if (!asked) continue;
    parts_.replicator.Remove(transport::RefusalKey(refusal), "", [](const absl::Status&) {});
    forgotten.push_back(std::move(refusal));
  }
  stale_ = wants_write_ = true;
  return forgotten;
}

void LinkTable::ReadSupportLists() {
  support_list_read_ = parts_.dispatcher.Now();
  v1::SupportList newest = ShippedSupportList();
  std::string trouble;
  for (const std::string& path : options_.support_lists) {
    const absl::StatusOr<v1::SupportList> list = ReadSupportList(path);
    if (list.ok()) {
      if (list->date() > newest.date()) {
        newest = *list;
      } else {
        trouble = absl::StrCat(path, " is not used: its date, ", list->date(),
                               ", is not after that of the list in force, ", newest.date());
      }
    } else if (!absl::IsNotFound(list.status())) {
      trouble = std::string(list.status().message());
    }
  }
  if (!trouble.empty() && trouble != support_list_trouble_) spdlog::warn("{}", trouble);
  support_list_trouble_ = trouble;
  if (has_read_support_list_ && newest.SerializeAsString() == support_list_.SerializeAsString())
    return;
  has_read_support_list_ = true;
  support_list_ = std::move(newest);
  stale_ = wants_write_ = true;
}

void LinkTable::ProbeNow(std::function<void()> done) { parts_.prober->ProbeNow(std::move(done)); }

void LinkTable::MeasureNow(const std::string& peer, Duration limit, std::function<void()> done) {
  schedule_.Hurry(peer);
  waiting_.push_back({parts_.dispatcher.Now() + limit, std::move(done)});
}

}  // namespace macrame::agentd
