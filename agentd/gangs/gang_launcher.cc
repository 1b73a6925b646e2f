#include "agentd/gangs/gang_launcher.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "transport/gang/secret_bytes.h"
#include "transport/links/judge.h"
#include "transport/links/mlx_settings.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

constexpr size_t kGangSecretBytes = 32;
constexpr absl::string_view kEverywhere = "0.0.0.0:";

// The failure with the node that it happened on.
absl::Status OnNode(const absl::Status& status, const v1::Assignment& assignment,
                    std::string_view doing) {
  v1::Reason reason = ReasonOf(status);
  if (reason.node_id().empty()) reason.set_node_id(assignment.node_id());
  reason.set_message(absl::StrCat(absl::string_view(doing.data(), doing.size()), " rank ",
                                  assignment.rank(), " on ", assignment.hostname(), ": ",
                                  reason.message()));
  return ReasonStatus(status.code(), reason);
}

}  // namespace

struct GangLauncher::Launching {
  GangOrder order;
  Done done;
  size_t waiting = 0;
  absl::Status failure = absl::OkStatus();
  std::vector<v1::ReserveResponse> reserved;  // by rank
  transport::SecretBytes secret;
};

void GangLauncher::Launch(GangOrder order, Done done) {
  auto launching = std::make_shared<Launching>();
  launching->order = std::move(order);
  launching->done = std::move(done);
  launching->secret = transport::RandomBytes(kGangSecretBytes);
  const v1::Plan& plan = launching->order.plan;
  if (plan.assignments_size() == 0) {
    return launching->done(absl::InvalidArgumentError("the plan has no ranks"));
  }
  launching->waiting = plan.assignments_size();
  launching->reserved.resize(plan.assignments_size());
  for (int rank = 0; rank < plan.assignments_size(); ++rank) {
    v1::ReserveRequest request;
    *request.mutable_fence() = launching->order.fence;
    request.set_deployment(launching->order.deployment);
    request.set_epoch(launching->order.epoch);
    *request.mutable_assignment() = plan.assignments(rank);
    *request.mutable_model() = launching->order.model;
    request.set_hold_ms(options_.hold_ms);
    if (rank == 0 && plan.has_draft_model()) *request.mutable_draft_model() = plan.draft_model();
    calls_.Reserve(NodeId(plan.assignments(rank).node_id()), request,
                   [this, launching, rank](absl::StatusOr<v1::ReserveResponse> response) {
                     OnReserved(launching, rank, std::move(response));
                   });
  }
}

void GangLauncher::OnReserved(const std::shared_ptr<Launching>& launching, int rank,
                              absl::StatusOr<v1::ReserveResponse> response) {
  if (response.ok()) {
    launching->reserved[rank] = std::move(*response);
  } else if (launching->failure.ok()) {
    launching->failure =
        OnNode(response.status(), launching->order.plan.assignments(rank), "reserving for");
  }
  if (--launching->waiting > 0) return;
  if (!launching->failure.ok()) return launching->done(launching->failure);
  const absl::Status reachable = CheckAddresses(*launching);
  if (!reachable.ok()) return launching->done(reachable);
  StartRanks(launching);
}

absl::Status GangLauncher::CheckAddresses(const Launching& launching) const {
  const v1::Plan& plan = launching.order.plan;
  for (int from = 0; from < plan.assignments_size(); ++from) {
    for (int to = 0; to < plan.assignments_size(); ++to) {
      if (!AddressFor(launching, from, to, launching.reserved[to].ring_address()).empty()) continue;
      return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoRing,
                          absl::StrCat("no way is known from ", plan.assignments(from).hostname(),
                                       " to ", plan.assignments(to).hostname()),
                          plan.assignments(from).node_id());
    }
  }
  return absl::OkStatus();
}

void GangLauncher::StartRanks(const std::shared_ptr<Launching>& launching) {
  const v1::Plan& plan = launching->order.plan;
  launching->waiting = plan.assignments_size();
  for (int rank = 0; rank < plan.assignments_size(); ++rank) {
    v1::LaunchRequest request;
    *request.mutable_fence() = launching->order.fence;
    *request.mutable_spec() = SpecOf(*launching, rank);
    calls_.Launch(NodeId(plan.assignments(rank).node_id()), request,
                  [launching, rank](absl::StatusOr<v1::LaunchResponse> response) {
                    if (!response.ok() && launching->failure.ok()) {
                      launching->failure = OnNode(
                          response.status(), launching->order.plan.assignments(rank), "starting");
                    }
                    if (--launching->waiting == 0) launching->done(launching->failure);
                  });
    transport::Wipe(*request.mutable_spec()->mutable_gang_secret());
  }
}

// A rank that listens everywhere is reached by the best way that leads to its node from the one in
// question; nobody is ever handed a wildcard but the rank that listens.
std::string GangLauncher::AddressFor(const Launching& launching, int from, int to,
                                     const std::string& reserved) const {
  if (from == to || !absl::StartsWith(reserved, kEverywhere)) return reserved;
  const v1::Plan& plan = launching.order.plan;
  const v1::NodePath* path = transport::PathBetween(
      links_.links(), plan.assignments(from).node_id(), plan.assignments(to).node_id());
  return path == nullptr ? ""
                         : absl::StrCat(path->to_ip(), ":", reserved.substr(kEverywhere.size()));
}

// The higher rank calls the lower one, so that way decides for both.
bool GangLauncher::IsPrivate(const Launching& launching, int one, int other) const {
  const int caller = std::max(one, other), callee = std::min(one, other);
  const std::string address =
      AddressFor(launching, caller, callee, launching.reserved[callee].ring_address());
  const v1::Plan& plan = launching.order.plan;
  return transport::IsPrivateWay(links_.links(), plan.assignments(caller).node_id(),
                                 plan.assignments(callee).node_id(),
                                 address.substr(0, address.rfind(':')));
}

void GangLauncher::AddPrivateLinks(const Launching& launching, int rank,
                                   v1::LaunchSpec* spec) const {
  for (int other = 0; other < launching.order.plan.assignments_size(); ++other) {
    spec->add_private_links(other != rank && IsPrivate(launching, rank, other));
  }
}

// What jaccl and verbs are told: which device leads to which rank, and where `rank` meets rank 0.
void GangLauncher::AddDevices(const Launching& launching, int rank, v1::LaunchSpec* spec) const {
  std::vector<std::string> by_rank;
  for (const v1::Assignment& assignment : launching.order.plan.assignments()) {
    by_rank.push_back(assignment.node_id());
  }
  const v1::GroupVerdict group = links_.Group(by_rank);
  const v1::Plan& plan = launching.order.plan;
  const bool is_ring = TopologyNamed(plan.backend_topology()) == Topology::kRing;
  for (v1::DeviceRow& row : transport::GroupMatrix(links_.links(), by_rank, is_ring)) {
    *spec->add_device_matrix() = std::move(row);
  }
  const std::string& ring = launching.reserved[0].ring_address();
  const std::string port = ring.substr(ring.rfind(':') + 1);
  // The judge turns ranks until one suits all as the first; a plan's first is the plan's own.
  if (!std::equal(by_rank.begin(), by_rank.end(), group.node_ids().begin(),
                  group.node_ids().end())) {
    spec->set_rendezvous_address(AddressFor(launching, rank, 0, absl::StrCat(kEverywhere, port)));
    return;
  }
  // Where it is not known at which address the ranks can meet, the way that leads there is tried.
  const std::string ip = transport::RendezvousIpOf(group, rank);
  spec->set_rendezvous_address(ip.empty()
                                   ? AddressFor(launching, rank, 0, absl::StrCat(kEverywhere, port))
                                   : absl::StrCat(ip, ":", port));
}

v1::LaunchSpec GangLauncher::SpecOf(const Launching& launching, int rank) const {
  const GangOrder& order = launching.order;
  v1::LaunchSpec spec;
  spec.set_deployment(order.deployment);
  spec.set_epoch(order.epoch);
  spec.set_rank(rank);
  spec.set_world_size(order.plan.world_size());
  spec.set_tp(order.plan.tp());
  spec.set_pp(order.plan.pp());
  spec.set_backend(order.plan.world_size() == 1 ? NameOf(Backend::kSingle) : order.plan.backend());
  *spec.mutable_model() = order.model;
  spec.mutable_model()->set_path(launching.reserved[rank].model_path());
  *spec.mutable_assignment() = order.plan.assignments(rank);
  for (int other = 0; other < order.plan.assignments_size(); ++other) {
    spec.add_ring_addresses(
        AddressFor(launching, rank, other, launching.reserved[other].ring_address()));
  }
  AddPrivateLinks(launching, rank, &spec);
  spec.set_step_address(AddressFor(launching, rank, 0, launching.reserved[0].step_address()));
  spec.set_backend_topology(order.plan.backend_topology());
  if (IsRdma(BackendNamed(spec.backend()))) AddDevices(launching, rank, &spec);
  spec.set_gang_secret(std::string(launching.secret.view()));
  spec.set_context_length(order.plan.context_length());
  spec.set_concurrent_sequences(order.plan.concurrent_sequences());
  spec.set_kv_bits(order.plan.kv_bits());
  spec.set_state_snapshots(order.plan.state_snapshots());
  spec.set_step_timeout_ms(options_.step_timeout_ms);
  spec.set_connect_timeout_ms(options_.connect_timeout_ms);
  spec.set_queued_requests_max(options_.queued_requests_max);
  spec.set_fast_synch_suspended(order.fast_synch_suspended);
  if (rank == 0 && order.plan.has_draft_model()) {
    *spec.mutable_draft_model() = order.plan.draft_model();
  }
  spec.set_entry_node_id(order.plan.assignments(0).node_id());
  return spec;
}

}  // namespace macrame::agentd
