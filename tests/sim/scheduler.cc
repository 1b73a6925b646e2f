#include "tests/sim/scheduler.h"

#include <algorithm>
#include <utility>

namespace macrame::agentd::sim {
namespace {

constexpr uint64_t kUnixMsAtStart = 1'790'000'000'000;
constexpr Duration kGrid = std::chrono::milliseconds(250);
// A thread is not woken at the very instant.
constexpr Us kLateMax = 1'000;

}  // namespace

bool Scheduler::RunNext(Us until) {
  if (queue_.empty() || queue_.top().at > until) {
    now_ = std::max(now_, until);
    return false;
  }
  // Taken out at once, so that it need not be copied.
  Event event = std::move(const_cast<Event&>(queue_.top()));
  queue_.pop();
  now_ = event.at;
  event.run();
  return true;
}

void Process::Do(std::function<void()> task) {
  if (!is_alive_) return;
  if (is_paused_) {
    inbox_.push_back(std::move(task));
  } else {
    task();
  }
}

void Process::Resume() {
  is_paused_ = false;
  for (auto& task : std::exchange(inbox_, {})) Do(std::move(task));
}

void Process::Die() {
  is_alive_ = false;
  is_paused_ = false;
  inbox_.clear();  // what runs now was taken out of it
}

uint64_t SimDispatcher::UnixMs() const {
  return kUnixMsAtStart + static_cast<uint64_t>(scheduler_.now() / 1000 + clock_.wall_skew_ms);
}

void SimDispatcher::Post(Task task) {
  scheduler_.After(0, [process = process_, task = std::move(task)] { process->Do(task); });
}

transport::Dispatcher::TimerId SimDispatcher::PostAfter(Duration delay, Task task) {
  const TimerId id = ++last_timer_;
  timers_->insert(id);
  const double wait = static_cast<double>(std::max<Us>(delay.count(), 0)) / clock_.rate;
  scheduler_.After(static_cast<Us>(wait) + dice_.Between(1, kLateMax),
                   [process = process_, timers = timers_, id, task = std::move(task)] {
                     process->Do([timers, id, task] {
                       if (timers->erase(id) > 0) task();
                     });
                   });
  return id;
}

MonotonicTime SimDispatcher::NextGridPoint() const {
  const Duration since = Now().time_since_epoch();
  return MonotonicTime(since - since % kGrid + kGrid);
}

}  // namespace macrame::agentd::sim
