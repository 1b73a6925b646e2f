#include "agentd/state/lease_client.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"

namespace macrame::agentd {

namespace {

// No answer of the node itself, which would say why.
bool IsUnreached(const absl::Status& status) {
  return (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) &&
         ReasonOf(status).code() == reasons::kInternal;
}

}  // namespace

LeaseClient::LeaseClient(transport::Dispatcher& dispatcher, Election& election, StateStore& store,
                         StateReplicator& replicator, PeerChannels& channels, Duration timeout,
                         Callbacks callbacks)
    : dispatcher_(dispatcher),
      election_(election),
      store_(store),
      replicator_(replicator),
      channels_(channels),
      timeout_(timeout),
      callbacks_(std::move(callbacks)) {}

void LeaseClient::Tick() {
  WatchDisk();
  Carry(election_.OnTick(dispatcher_.Now()));
}

void LeaseClient::WatchDisk() {
  const MonotonicTime now = dispatcher_.Now();
  if (now - tried_at_ >= kDiskTroubleLimit) {
    tried_at_ = now;
    const std::optional<GrantRecord> unsaved = election_.Unsaved();
    if (unsaved.has_value() && store_.SaveGrant(*unsaved).ok()) {
      spdlog::info("the grant of a lease is on disk; this node votes again");
      Carry(election_.OnPersisted(now));
    }
  }
  if (!store_.failure().has_value()) {
    failing_since_.reset();
    if (!std::exchange(unable_, false)) return;
    spdlog::info("the state can be written to disk again");
    Carry(election_.OnDiskTrouble(std::nullopt, now));
    return;
  }
  if (!failing_since_.has_value()) failing_since_ = now;
  if (unable_ || now - *failing_since_ < kDiskTroubleLimit) return;
  unable_ = true;
  spdlog::error("{}", store_.failure()->message());
  Carry(election_.OnDiskTrouble(store_.failure(), now));
}

void LeaseClient::OnMemberList(const std::set<NodeId>& listed) {
  Carry(election_.OnMemberList(listed, dispatcher_.Now()));
}

void LeaseClient::OnMembersChanged(const std::set<NodeId>& live, const std::set<NodeId>& all) {
  Carry(election_.OnMembershipChanged(live, all, dispatcher_.Now()));
}

void LeaseClient::OnGone(const NodeId& node) { Carry(election_.OnGone(node, dispatcher_.Now())); }

void LeaseClient::OnLeaseRequest(const NodeId& from, const v1::LeaseRequest& request,
                                 LeaseReply reply) {
  Carry(election_.OnLeaseRequest(from, request, dispatcher_.Now()), reply);
}

void LeaseClient::Resign() { Carry(election_.Resign(dispatcher_.Now())); }

void LeaseClient::Carry(ElectionEffects effects, const LeaseReply& reply) {
  for (const ElectionEffect& effect : effects) {
    if (const auto* persist = std::get_if<PersistGrant>(&effect)) {
      if (!Persist(*persist, reply)) return;
    } else if (const auto* answer = std::get_if<AnswerLease>(&effect)) {
      Answer(*answer, reply);
    } else if (const auto* send = std::get_if<SendLeaseRequest>(&effect)) {
      Send(*send);
    } else if (const auto* became = std::get_if<BecameCoordinator>(&effect)) {
      spdlog::info("this node is coordinator, term {}", became->fence.term.value());
      callbacks_.on_became_coordinator(became->fence);
    } else if (const auto* lost = std::get_if<LostCoordination>(&effect)) {
      spdlog::warn("this node is coordinator no more (term {}): {}", lost->fence.term.value(),
                   lost->why.message());
      callbacks_.on_lost_coordination();
    } else if (const auto* obeys = std::get_if<ObeysChanged>(&effect)) {
      if (obeys->coordinator.has_value()) {
        spdlog::info("coordinator is {}, term {}", ShortId(obeys->coordinator->coordinator),
                     obeys->coordinator->term.value());
      } else {
        spdlog::info("no coordinator");
      }
      callbacks_.on_obeys_changed();
    }
  }
}

bool LeaseClient::Persist(const PersistGrant& effect, const LeaseReply& reply) {
  const absl::Status saved = store_.SaveGrant(effect.record);
  if (saved.ok()) return true;
  spdlog::error("the grant of a lease can't be written; until it is, this node does not vote: {}",
                LogText(saved));
  if (reply) reply(saved);
  Carry(election_.OnPersistFailed(dispatcher_.Now()));
  return false;
}

void LeaseClient::Answer(const AnswerLease& effect, const LeaseReply& reply) {
  if (!reply) return;
  v1::LeaseResponse response = effect.response;
  if (effect.with_entries) replicator_.AddAllEntries(response.mutable_entries());
  reply(std::move(response));
}

void LeaseClient::Send(const SendLeaseRequest& effect) {
  if (effect.request.pre_vote() || effect.request.lease_ms() == 0) return SendApart(effect);
  callbacks_.send_lease(effect.to, effect.request,
                        [this, effect](absl::StatusOr<v1::LeaseResponse> response) {
                          if (absl::IsUnimplemented(response.status())) return SendApart(effect);
                          Take(effect, response);
                        });
}

void LeaseClient::SendApart(const SendLeaseRequest& effect) {
  transport::PeerChannel* channel = channels_.For(effect.to);
  if (channel == nullptr) return;
  channel->Call(kRequestLease, effect.request, timeout_,
                [this, effect](absl::StatusOr<v1::LeaseResponse> response) {
                  callbacks_.on_call(effect.to, response.ok() || !IsUnreached(response.status()));
                  Take(effect, response);
                });
}

void LeaseClient::Take(const SendLeaseRequest& effect,
                       const absl::StatusOr<v1::LeaseResponse>& response) {
  if (!response.ok()) return;
  // What this elector holds is merged before its lease counts.
  if (response->entries_size() > 0 && !replicator_.TakeElector(response->entries()).ok()) return;
  Carry(election_.OnLeaseResponse(effect, *response, dispatcher_.Now()));
}

}  // namespace macrame::agentd
