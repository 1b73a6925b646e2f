#include "agentd/gateway/http/gateway_state.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <random>

#include "absl/strings/str_format.h"
#include "transport/memory_release.h"

namespace macrame::agentd {
namespace {

// Requests that end together are one release.
constexpr std::chrono::milliseconds kReleasePauseMs{1000};

}  // namespace

std::string RandomId(const char* prefix) {
  static thread_local std::random_device source;
  std::string id = prefix;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", source());
  return id;
}

void GiveMemoryBackSoon(const std::shared_ptr<GatewayState>& state) {
  if (state->release_pause.has_value() || state->stopping) return;
  state->release_pause.emplace(*state->io, kReleasePauseMs);
  state->release_pause->async_wait([weak = std::weak_ptr<GatewayState>(state)](auto) {
    const std::shared_ptr<GatewayState> state = weak.lock();
    if (state == nullptr) return;
    state->release_pause.reset();
    if (!state->stopping) boost::asio::post(state->reader, transport::ReleaseFreedMemory);
  });
}

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
