#include "tests/sim/sim_ranks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "tests/sim/sim_network.h"

namespace macrame::agentd::sim {
namespace {

constexpr Us kPhaseMin = 10'000;
constexpr Us kPhaseMax = 200'000;
constexpr uint32_t kRankPort = 5000;

absl::Status NotSimulated() { return absl::UnimplementedError("no answers are simulated"); }

}  // namespace

absl::StatusOr<v1::ReserveResponse> SimSupervisor::Reserve(const v1::ReserveRequest& request,
                                                           const std::string& local_ip,
                                                           const runtime::NodeMemory&) {
  RankHost& host = parts_.host;
  if (host.is_shutting_down || !parts_.process->is_alive()) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeLeft,
                        "this agent is shutting down", node_id_);
  }
  const Us now = parts_.scheduler.now();
  std::erase_if(host.reserved, [now](const auto& entry) { return entry.second <= now; });
  const std::tuple key(request.deployment(), request.epoch(), request.assignment().rank());
  int taken = 0;
  for (const SimRank& rank : host.ranks) {
    if (rank.status.deployment() != request.deployment() ||
        rank.status.phase() > v1::RANK_PHASE_STOPPING) {
      continue;
    }
    if (rank.status.epoch() == request.epoch() &&
        rank.status.rank() == request.assignment().rank()) {
      return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kSnapshotStale,
                          "this rank runs already", node_id_);
    }
    ++taken;
  }
  for (const auto& [other, until] : host.reserved) {
    taken += std::get<0>(other) == request.deployment() && other != key;
  }
  if (taken >= parts_.room()) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
                        "the memory is not free", node_id_);
  }
  host.reserved[key] = now + Us{request.hold_ms()} * 1000;
  v1::ReserveResponse response;
  response.set_ring_address(absl::StrCat(local_ip, ":", kRankPort));
  if (request.assignment().rank() == 0) {
    response.set_step_address(absl::StrCat(local_ip, ":", kRankPort + 1));
  }
  response.set_model_path(request.model().path());
  return response;
}

absl::StatusOr<v1::LaunchResponse> SimSupervisor::Launch(const v1::LaunchSpec& spec) {
  RankHost& host = parts_.host;
  v1::LaunchResponse response;
  response.set_pid(1);
  for (const SimRank& rank : host.ranks) {
    const bool is_same = rank.status.deployment() == spec.deployment() &&
                         rank.status.epoch() == spec.epoch() && rank.status.rank() == spec.rank();
    if (is_same && !IsOver(rank)) return response;
  }
  const bool is_reserved = host.reserved.erase({spec.deployment(), spec.epoch(), spec.rank()}) > 0;
  if (!is_reserved || !parts_.process->is_alive()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kReservationLapsed,
                        "nothing is reserved for this rank", node_id_);
  }
  const LaunchFacts facts = parts_.on_launch(spec);
  SimRank rank;
  rank.spec = spec;
  rank.status.set_deployment(spec.deployment());
  rank.status.set_epoch(spec.epoch());
  rank.status.set_rank(spec.rank());
  rank.status.set_node_id(node_id_);
  rank.status.set_phase(v1::RANK_PHASE_STAGING);
  rank.status.set_pid(1);
  rank.started_by = facts.fence;
  rank.wanted_at = facts.wanted_at;
  rank.next_phase_at = parts_.scheduler.now() + parts_.dice.Between(kPhaseMin, kPhaseMax);
  for (int other = 0; other < spec.ring_addresses_size(); ++other) {
    const std::string& address = spec.ring_addresses(other);
    rank.peers.push_back(other == static_cast<int>(spec.rank())
                             ? parts_.process->machine
                             : MachineAt(address.substr(0, address.rfind(':'))));
  }
  host.ranks.push_back(std::move(rank));
  parts_.dispatcher.Post(host.on_change);
  return response;
}

void SimSupervisor::Stop(SimRank& rank) {
  rank.status.set_phase(v1::RANK_PHASE_STOPPING);
  rank.status.set_requests_running(0);
  rank.next_phase_at = parts_.scheduler.now() + parts_.dice.Between(kPhaseMin, kPhaseMax);
}

uint32_t SimSupervisor::StopRanks(const std::string& deployment, uint64_t up_to_epoch,
                                  const std::string& why, bool, uint64_t from_epoch) {
  if (!parts_.process->is_alive()) return 0;
  v1::StopRanksRequest order;
  order.set_deployment(deployment);
  order.set_from_epoch(from_epoch);
  order.set_up_to_epoch(up_to_epoch);
  order.set_why(why);
  parts_.on_stop(order);
  const auto is_meant = [&](const std::string& name, uint64_t epoch) {
    return (deployment.empty() || name == deployment) && epoch >= from_epoch &&
           epoch <= up_to_epoch;
  };
  RankHost& host = parts_.host;
  std::erase_if(host.reserved, [&](const auto& entry) {
    return is_meant(std::get<0>(entry.first), std::get<1>(entry.first));
  });
  std::erase_if(host.ranks, [&](const SimRank& rank) {
    return rank.status.phase() == v1::RANK_PHASE_FAILED &&
           is_meant(rank.status.deployment(), rank.status.epoch());
  });
  uint32_t told = 0;
  for (SimRank& rank : host.ranks) {
    if (IsOver(rank) || !is_meant(rank.status.deployment(), rank.status.epoch())) continue;
    Stop(rank);
    ++told;
  }
  if (told > 0) parts_.dispatcher.Post(host.on_change);
  return told;
}

std::vector<v1::RankStatus> SimSupervisor::Statuses() const {
  std::vector<v1::RankStatus> statuses;
  for (const SimRank& rank : parts_.host.ranks) statuses.push_back(rank.status);
  return statuses;
}

runtime::RankSupervisor::GenerateId SimSupervisor::Generate(const v1::GenerateRequest&,
                                                            ChunkCallback, DoneCallback on_done) {
  parts_.dispatcher.Post([on_done = std::move(on_done)] { on_done(NotSimulated()); });
  return 1;
}

// As if the group summed rightly, over the links of ranks that are ready.
void SimSupervisor::VerifyGroup(const std::string& deployment, const v1::VerifyGroupRequest&,
                                std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) {
  absl::StatusOr<v1::VerifyGroupResponse> answer = ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kNotReady, "no such rank is ready here", node_id_);
  for (const SimRank& rank : parts_.host.ranks) {
    if (rank.status.deployment() != deployment || rank.status.phase() != v1::RANK_PHASE_READY) {
      continue;
    }
    answer = v1::VerifyGroupResponse();
    answer->set_group_size(static_cast<uint32_t>(rank.peers.size()));
    answer->set_sum_correct(true);
  }
  parts_.dispatcher.Post([done = std::move(done), answer] { done(answer); });
}

void SimSupervisor::TraceRanks(const v1::TraceRankRequest& request,
                               std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) {
  v1::TraceRankResponse response;
  for (const SimRank& rank : parts_.host.ranks) {
    if (rank.status.deployment() != request.deployment() || IsOver(rank)) continue;
    v1::RankTrace& trace = *response.add_ranks();
    trace.set_rank(rank.status.rank());
    trace.set_node_id(node_id_);
  }
  parts_.dispatcher.PostAfter(std::chrono::milliseconds(request.duration_ms()),
                              [done = std::move(done), response] { done(response); });
}

void SimSupervisor::ShutDown(std::function<void()> done) {
  parts_.host.is_shutting_down = true;
  for (SimRank& rank : parts_.host.ranks) {
    if (!IsOver(rank)) Stop(rank);
  }
  parts_.dispatcher.PostAfter(Duration(kPhaseMax), std::move(done));
}

}  // namespace macrame::agentd::sim
