#include "runtime/serving/preparation_lanes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/text/text_worker.h"

namespace macrame::runtime::engine {
namespace {

// Of a call that must be made the arguments are held to the tool's schema.
bool NeedsGrammar(const v1::GenerateRequest& request) {
  const v1::ToolChoiceKind choice = request.tools().choice();
  return request.has_structure() || choice == v1::TOOL_CHOICE_KIND_REQUIRED ||
         choice == v1::TOOL_CHOICE_KIND_NAMED ||
         absl::StrContains(request.tools().tools_json(), "\"strict\"");
}

bool IsTame(const v1::GenerateRequest& request) {
  const auto is_tame = [](const v1::ChatMessage& message) {
    return text::IsTame(message.content()) && text::IsTame(message.reasoning());
  };
  return text::IsTame(request.prompt()) && text::IsTame(request.tools().tools_json()) &&
         std::all_of(request.messages().begin(), request.messages().end(), is_tame);
}

}  // namespace

Lane LaneOf(const v1::GenerateRequest& request) {
  if (request.ByteSizeLong() > kShortRequestBytesMax || !IsTame(request)) return Lane::kLong;
  return NeedsGrammar(request) ? Lane::kStructure : Lane::kShort;
}

std::string_view LaneKeyOf(const v1::GenerateRequest& request) {
  const std::string_view key = request.fairness_key();
  return key.substr(0, key.find('/'));
}

bool PreparationLanes::Add(Lane lane, std::string_view key, size_t bytes,
                           std::function<void(bool in_time)> work) {
  bytes = std::max<size_t>(bytes, 1);  // each piece counts in what its key holds
  const auto held = held_.find(key);
  const size_t others = held_.size() - (held == held_.end() ? 0 : 1);
  const Share share{held == held_.end() ? 0 : held->second, bytes_, others, kPreparingBytesMax};
  if (lane == Lane::kLong && !share.Fits(bytes)) return false;
  bytes_ += bytes;
  held_[std::string(key)] += bytes;
  const LaneQueue::WorkId id = ++last_id_;
  LaneState& state = StateOf(lane);
  state.waiting[id] = {std::string(key), bytes, dispatcher_.Now() + kPreparationWaitMax,
                       std::move(work)};
  state.queue.Add(key, id);
  Begin(lane);
  return true;
}

std::optional<size_t> PreparationLanes::IdleThread(Lane lane) {
  LaneState& state = StateOf(lane);
  if (!state.idle.empty()) {
    const size_t thread = state.idle.back();
    state.idle.pop_back();
    return thread;
  }
  if (state.threads.size() == kLaneThreads[static_cast<size_t>(lane)]) return std::nullopt;
  state.threads.push_back(std::make_unique<transport::WorkerThread>());
  return state.threads.size() - 1;
}

void PreparationLanes::Begin(Lane lane) {
  LaneState& state = StateOf(lane);
  while (const auto thread = IdleThread(lane)) {
    const auto id = state.queue.Next();
    if (!id.has_value()) return state.idle.push_back(*thread);
    const auto found = state.waiting.find(*id);
    Work work = std::move(found->second);
    state.waiting.erase(found);
    const MonotonicTime begun = dispatcher_.Now();
    state.threads[*thread]->Add([this, lane, thread = *thread, work = std::move(work), begun,
                                 alive = std::weak_ptr<bool>(is_alive_)] {
      work.run(begun <= work.last);
      dispatcher_.Post([this, lane, thread, key = work.key, bytes = work.bytes, begun, alive] {
        if (alive.expired()) return;
        OnDone(lane, thread, key, bytes, dispatcher_.Now() - begun);
      });
    });
  }
}

void PreparationLanes::OnDone(Lane lane, size_t thread, const std::string& key, size_t bytes,
                              Duration taken) {
  bytes_ -= bytes;
  const auto held = held_.find(key);
  held->second -= bytes;
  if (held->second == 0) held_.erase(held);
  LaneState& state = StateOf(lane);
  state.idle.push_back(thread);
  state.queue.Done(key, taken);
  Begin(lane);
}

}  // namespace macrame::runtime::engine
