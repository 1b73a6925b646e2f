#include "agentd/gateway/gateway_state.h"

#include <chrono>

namespace macrame::agentd {

void BodyRooms::WakeGiven() {
  for (const BodyBudget::Id id : budget_.TakeGiven()) {
    if (const auto found = timers_.find(id); found != timers_.end()) found->second->cancel();
  }
}

BodyPlace::BodyPlace(std::shared_ptr<GatewayState> state, const BodyBudget::Sender& sender,
                     size_t bytes)
    : state_(std::move(state)),
      id_(state_->bodies.budget().Ask(sender, bytes, std::chrono::steady_clock::now())) {
  state_->bodies.WakeGiven();
}

BodyPlace::~BodyPlace() {
  state_->bodies.budget().Release(id_);
  state_->bodies.WakeGiven();
}

void BodyPlace::NoteReceived(size_t bytes) {
  state_->bodies.budget().NoteReceived(id_, bytes, std::chrono::steady_clock::now());
}

void BodyPlace::NoteWhole(size_t bytes) {
  state_->bodies.budget().NoteWhole(id_, bytes);
  state_->bodies.WakeGiven();
}

bool BodyPlace::IsTooSlow() {
  return state_->bodies.budget().IsTooSlow(id_, std::chrono::steady_clock::now());
}

}  // namespace macrame::agentd
