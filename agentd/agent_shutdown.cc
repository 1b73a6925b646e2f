// How an agent goes: it drains, tells its members, and ends its ranks.

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "agentd/agent_impl.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr Duration kLeaveTimeout = std::chrono::seconds(1);
// For answers that are ended to be told so.
constexpr Duration kEndedAnswersLimit = std::chrono::seconds(1);
constexpr Duration kEndedAnswersPoll = std::chrono::milliseconds(20);

}  // namespace

void Agent::Impl::SendGoodbyes() {
  v1::LeaveRequest request;
  request.set_node_id(parts_.self.value());
  request.set_incarnation(parts_.own.identity().incarnation());
  for (const NodeId& node : parts_.members.Live()) {
    transport::PeerChannel* channel = parts_.channels.For(node);
    if (channel == nullptr) continue;
    channel->Call(kLeave, request, kLeaveTimeout, [](absl::StatusOr<v1::LeaveResponse>) {});
  }
}

void Agent::Impl::Shutdown(std::function<void()> done) {
  if (on_shutdown_ || stopping_) return;
  on_shutdown_ = std::move(done);
  if (config_.drain_timeout_s == 0) return Stop();
  const MonotonicTime now = dispatcher_.Now();
  departure_.emplace(std::chrono::seconds(config_.drain_timeout_s),
                     parts_.election.Leading(now).has_value(), now);
  parts_.own.SetDraining();
  parts_.leases.Resign();
  parts_.heartbeats.SendToAll();
  parts_.changes.Note(Change::kDeparture);
  StepDeparture();
  if (stopping_) return;
  spdlog::info("told to stop: answers under way have {} s to end; a second signal stops at once",
               config_.drain_timeout_s);
}

DepartureView Agent::Impl::SeeDeparture() {
  DepartureView view;
  view.requests = parts_.router.under_way() + parts_.supervisor->generations();
  if (parts_.gateway != nullptr) view.requests += parts_.gateway->requests();
  const std::vector<v1::RankStatus> all = parts_.views.AllRanks();
  for (const v1::RankStatus& own : parts_.own.ranks()) {
    if (own.phase() > v1::RANK_PHASE_READY) continue;
    view.holds_ranks = true;
    for (const v1::RankStatus& rank : all) {
      const bool is_peer = rank.deployment() == own.deployment() && rank.epoch() == own.epoch();
      view.ranks_busy |= is_peer && rank.requests_running() + rank.requests_queued() > 0;
    }
  }
  view.has_other = parts_.views.HasOther();
  view.has_coordinator = parts_.election.Coordinator(dispatcher_.Now()).has_value();
  return view;
}

void Agent::Impl::StepDeparture() {
  const MonotonicTime now = dispatcher_.Now();
  const DepartureView view = SeeDeparture();
  if (parts_.gateway != nullptr) parts_.gateway->Drain(departure_->Refuses(view, now));
  if (!departure_->IsOver(view, now)) return;
  if (view.requests > 0) {
    spdlog::warn("{} requests are ended: they took longer than drain_timeout_s ({} s)",
                 view.requests, config_.drain_timeout_s);
  }
  Stop();
}

void Agent::Impl::Stop() {
  if (stopping_) return;
  spdlog::info("stopping");
  stopping_ = true;
  if (parts_.gateway != nullptr) parts_.gateway->Drain(/*refuse=*/true);
  const absl::Status why =
      ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeLeft,
                   "this node stops and could not wait for the answer", parts_.self.value());
  parts_.demand.EndAll(why);
  parts_.router.EndAll(why);
  StopWhenTold(dispatcher_.Now() + kEndedAnswersLimit);
}

// Clients are told how their answers ended before their connections do.
void Agent::Impl::StopWhenTold(MonotonicTime latest) {
  const bool waits = parts_.gateway != nullptr && parts_.gateway->requests() > 0;
  if (waits && dispatcher_.Now() < latest) {
    dispatcher_.PostAfter(kEndedAnswersPoll, [this, latest] { StopWhenTold(latest); });
    return;
  }
  parts_.gateway.reset();
  if (parts_.traces != nullptr) parts_.traces->BeginStop();
  parts_.gang_controller.StopLeading();
  // A copy says nothing in the name of the node that it was copied from.
  if (parts_.guard.is_sure()) {
    parts_.leases.Resign();
    SendGoodbyes();
  }
  if (parts_.beacons != nullptr) parts_.beacons->Stop();
  dispatcher_.PostAfter(kShutdownLimit - kEndedAnswersLimit, [this] { FinishShutdown(); });
  parts_.supervisor->ShutDown([this] {
    // The goodbyes are on their way; they need not be answered, but they should get out.
    dispatcher_.PostAfter(std::chrono::milliseconds(150), [this] { FinishShutdown(); });
  });
}

void Agent::Impl::FinishShutdown() {
  if (!on_shutdown_) return;
  std::function<void()> done;
  done.swap(on_shutdown_);
  spdlog::info("stopped");
  done();
}

Agent::Impl::~Impl() {
  stopping_ = true;
  parts_.gateway.reset();
  parts_.beacons.reset();
  parts_.second_engine->Stop();
  parts_.device->Stop();
  parts_.library->Stop();
  parts_.enrolment.Stop();
  // Answers under way end here, while everybody who waits for them is still there.
  parts_.channels.Clear();
  if (parts_.peer_server != nullptr) parts_.peer_server->Stop(Duration::zero());
  parts_.local_server->Stop(Duration::zero());
}

}  // namespace macrame::agentd
