#pragma once

// How long answers' first tokens and the times between tokens took over the last minutes, by model:
// what the dashboard's chart of latency shows.
//
// Time is cut into slots of kSlotSeconds. At the end of each one a point is made: median and 95th
// percentile of what came in the last kWindowSlots slots. Values are counted in buckets that are 9
// % wide, so a percentile is wrong by 5 % at the most. A model takes 5 KiB and its points, and
// there are kModelsMax at once. Pure; any thread.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>
#include "proto/monotonic_time.h"

namespace macrame::agentd {

enum class Latency { kFirstToken, kInterToken };

class LatencyHistory {
 public:
  // `times`: so many values alike. What comes of one model more than there is room for is left out.
  void Observe(const std::string& model, Latency latency, double seconds, uint64_t times,
               MonotonicTime now);

  // {"slot_seconds", "window_seconds", "span_seconds", "models": [{"model", "first_token": POINTS,
  // "inter_token": POINTS}]}; each point is [seconds before `now`, values, median, 95th
  // percentile], the last two in milliseconds, the oldest first, and none where no value came. Made
  // once a second at the most, whoever asks.
  std::shared_ptr<const std::string> Json(MonotonicTime now);

  static constexpr int64_t kSlotSeconds = 10;
  static constexpr int64_t kWindowSlots = 3;
  static constexpr int64_t kSpanSlots = 60;
  static constexpr size_t kModelsMax = 32;

 private:
  // Eight to each doubling, from kLeastMs on: up to half an hour.
  static constexpr size_t kBuckets = 200;
  struct Slot {
    std::array<uint32_t, kBuckets> counts{};
  };
  struct Point {
    int64_t slot = 0;  // at whose end it was made
    uint64_t count = 0;
    double median_ms = 0;
    double p95_ms = 0;
  };
  class Series {
   public:
    void Add(double seconds, uint64_t times, int64_t slot);
    // Makes the points of all slots before `slot`, and forgets those that are too old.
    void Advance(int64_t slot);
    nlohmann::json Points(MonotonicTime now) const;
    bool IsEmpty() const { return points_.empty() && !Window().has_value(); }

   private:
    std::optional<Point> Window() const;

    int64_t slot_ = 0;  // the one that values go to
    std::array<Slot, kWindowSlots> slots_{};
    std::deque<Point> points_;
  };
  struct Model {
    Series first_token;
    Series inter_token;
  };

  void Advance(int64_t slot);

  std::mutex mutex_;
  std::map<std::string, Model> models_;
  int64_t advanced_to_ = 0;
  std::shared_ptr<const std::string> json_;
  MonotonicTime json_made_at_{};
};

}  // namespace macrame::agentd
