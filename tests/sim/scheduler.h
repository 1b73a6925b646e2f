#pragma once

// The time of a simulation, and the processes that live in it: one thread runs what is due, in an
// order that one seed draws.

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "transport/dispatcher.h"

namespace macrame::agentd::sim {

using Us = int64_t;  // microseconds of the simulation's own clock

// Chance, from one seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Next() { return random_(); }
  Us Between(Us low, Us high) {
    return low + static_cast<Us>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double probability) {
    return static_cast<double>(random_() % 1'000'000) < probability * 1'000'000;
  }

 private:
  std::mt19937_64 random_;
};

class Scheduler {
 public:
  Us now() const { return now_; }
  void After(Us delay, std::function<void()> run) {
    queue_.push({now_ + delay, ++order_, std::move(run)});
  }
  // Runs the next thing that is due by `until`. False: nothing is, and it is `until`.
  bool RunNext(Us until);

 private:
  struct Event {
    Us at;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  Us now_ = 0;
  uint64_t order_ = 0;
  std::priority_queue<Event> queue_;
};

// One run of an agent on a machine: what reaches it, what waits while it is paused, and what is
// dropped once it is gone. A process that crashes in the middle of something goes on to the end of
// it; whatever it would do to others or to its disk asks `is_alive` first.
class Process {
 public:
  Process(int machine, uint64_t run) : machine(machine), run(run) {}

  // Now, when it goes on, or never.
  void Do(std::function<void()> task);
  void Pause() { is_paused_ = true; }
  void Resume();
  void Die();
  bool is_alive() const { return is_alive_; }
  bool is_paused() const { return is_paused_; }

  const int machine;
  const uint64_t run;

 private:
  bool is_alive_ = true;
  bool is_paused_ = false;
  std::vector<std::function<void()>> inbox_;
};
using ProcessPtr = std::shared_ptr<Process>;

// A machine's own clocks: none agrees with another.
struct MachineClock {
  Us offset = 0;
  double rate = 1;
  int64_t wall_skew_ms = 0;
  MonotonicTime At(Us now) const {
    return MonotonicTime(Duration(offset + static_cast<Us>(static_cast<double>(now) * rate)));
  }
};

// Of one process. Its tasks and timers run through Process::Do.
class SimDispatcher final : public transport::Dispatcher {
 public:
  SimDispatcher(Scheduler& scheduler, Dice& dice, ProcessPtr process, const MachineClock& clock)
      : scheduler_(scheduler), dice_(dice), process_(std::move(process)), clock_(clock) {}

  MonotonicTime Now() const override { return clock_.At(scheduler_.now()); }
  uint64_t UnixMs() const override;
  void Post(Task task) override;
  TimerId PostAfter(Duration delay, Task task) override;
  TimerId PostAt(MonotonicTime at, Task task) override {
    return PostAfter(at - Now(), std::move(task));
  }
  MonotonicTime NextGridPoint() const override;
  void Cancel(TimerId id) override { timers_->erase(id); }
  bool IsOwnerThread() const override { return true; }

 private:
  Scheduler& scheduler_;
  Dice& dice_;
  const ProcessPtr process_;
  const MachineClock clock_;
  TimerId last_timer_ = 0;
  std::shared_ptr<std::set<TimerId>> timers_ = std::make_shared<std::set<TimerId>>();
};

}  // namespace macrame::agentd::sim
