#include "agentd/gateway/http/body_budget.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace macrame::agentd {
namespace {

constexpr size_t kBodiesMin = 4;

bool IsLarge(size_t bytes) { return bytes > kSmallBodyBytes; }

double Rate(size_t bytes, std::chrono::steady_clock::duration span) {
  return static_cast<double>(bytes) / std::chrono::duration<double>(span).count();
}

}  // namespace

BodyBudget::BodyBudget(size_t bytes_max, size_t body_bytes_max)
    : bytes_max_(std::max(bytes_max, kBodiesMin * body_bytes_max)) {}

size_t BodyBudget::HeldBy(const std::string& client) const {
  const auto found = held_by_.find(client);
  return found == held_by_.end() ? 0 : found->second;
}

bool BodyBudget::Fits(const Body& body) const {
  if (body.bytes <= kTinyBodyBytes) return true;
  const auto fits = [&](size_t held, size_t max) {
    return held + body.bytes <= (IsLarge(body.bytes) ? max / 4 * 3 : max);
  };
  if (held_ + body.bytes > bytes_max_) return false;
  if (IsLarge(body.bytes) && !fits(held_by_large_, bytes_max_)) return false;
  if (body.sender.is_keyless && !fits(held_by_keyless_, bytes_max_ / 2)) return false;
  return fits(HeldBy(body.sender.client), client_max());
}

void BodyBudget::Give(Body* body, size_t bytes) {
  const size_t before = body->has_room ? body->bytes : 0;
  const auto change = [&](size_t* sum) { *sum = *sum - before + bytes; };
  change(&held_);
  change(&held_by_[body->sender.client]);
  if (held_by_[body->sender.client] == 0) held_by_.erase(body->sender.client);
  if (body->sender.is_keyless) change(&held_by_keyless_);
  if (IsLarge(before)) held_by_large_ -= before;
  if (IsLarge(bytes)) held_by_large_ += bytes;
  waiting_.erase(body->id);
  body->has_room = true;
  body->bytes = bytes;
  body->span_begun = now_;
}

void BodyBudget::GiveRoom() {
  while (!waiting_.empty()) {
    Body* next = nullptr;
    const auto order = [&](const Body& body) {
      return std::tuple(body.sender.is_keyless, HeldBy(body.sender.client));
    };
    for (const Id id : waiting_) {
      Body& body = bodies_.at(id);
      if (!Fits(body)) continue;
      if (next == nullptr || order(body) < order(*next)) next = &body;
    }
    if (next == nullptr) return;
    Give(next, next->bytes);
    given_.push_back(next->id);
  }
}

std::vector<BodyBudget::Id> BodyBudget::TakeGiven() { return std::exchange(given_, {}); }

BodyBudget::Id BodyBudget::Ask(const Sender& sender, size_t bytes, Time now) {
  now_ = now;
  Body& body = bodies_[++last_id_];
  body.id = last_id_;
  body.sender = sender;
  body.bytes = bytes;
  waiting_.insert(body.id);
  // Those before it still fit no more than they did.
  if (Fits(body)) Give(&body, bytes);
  return last_id_;
}

void BodyBudget::NoteReceived(Id id, size_t bytes, Time now) {
  now_ = now;
  Body& body = bodies_.at(id);
  body.span_received += bytes - std::min(bytes, body.received);
  body.received = bytes;
}

void BodyBudget::NoteWhole(Id id, size_t bytes) {
  Body& body = bodies_.at(id);
  body.is_whole = true;
  if (body.has_room && bytes < body.bytes) Give(&body, bytes);
  GiveRoom();
}

void BodyBudget::Release(Id id) {
  const auto found = bodies_.find(id);
  if (found == bodies_.end()) return;
  if (found->second.has_room) {
    Give(&found->second, 0);
  } else {
    waiting_.erase(id);
  }
  bodies_.erase(found);
  GiveRoom();
}

bool BodyBudget::IsTooSlow(Id id, Time now) {
  now_ = now;
  Body& body = bodies_.at(id);
  if (!body.has_room || body.is_whole) return false;
  const auto span = now - body.span_begun;
  const bool others_wait = !waiting_.empty();
  if (span < (others_wait ? kBodyFloorSpanWhileOthersWait : kBodyFloorSpan)) return false;
  const size_t floor = others_wait ? kBodyFloorWhileOthersWait : kBodyFloor;
  if (Rate(body.span_received, span) < static_cast<double>(floor)) return true;
  body.span_begun = now;
  body.span_received = 0;
  return false;
}

}  // namespace macrame::agentd
