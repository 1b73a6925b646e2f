#include "agentd/metrics/latency_history.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

using nlohmann::json;

constexpr double kLeastMs = 0.05;
constexpr double kPerDoubling = 8;
constexpr std::chrono::seconds kJsonHolds{1};

int64_t SlotOf(MonotonicTime now) {
  return std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()).count() /
         LatencyHistory::kSlotSeconds;
}

double SpanSeconds(Duration span) { return std::chrono::duration<double>(span).count(); }

// A bucket's middle.
double MillisecondsOf(size_t bucket) {
  return kLeastMs * std::exp2((static_cast<double>(bucket) + 0.5) / kPerDoubling);
}

// Three digits are enough to look at; the least value has four places.
double Rounded(double value) {
  double unit = 10'000;
  for (double bound = 0.1; unit > 1 && value >= bound; bound *= 10) unit /= 10;
  return std::round(value * unit) / unit;
}

json PointJson(double age_seconds, uint64_t count, double median_ms, double p95_ms) {
  return json::array(
      {std::round(age_seconds * 10) / 10, count, Rounded(median_ms), Rounded(p95_ms)});
}

}  // namespace

void LatencyHistory::Series::Add(double seconds, uint64_t times, int64_t slot) {
  Advance(slot);
  const double steps = kPerDoubling * std::log2(std::max(seconds * 1000, kLeastMs) / kLeastMs);
  const auto bucket =
      std::min(kBuckets - 1, static_cast<size_t>(std::isfinite(steps) ? std::max(steps, 0.0) : 0));
  slots_[static_cast<size_t>(slot_ % kWindowSlots)].counts[bucket] += static_cast<uint32_t>(times);
}

void LatencyHistory::Series::Advance(int64_t slot) {
  // Behind a window without values there are no points to make.
  for (int64_t steps = 0; slot_ < slot && steps <= kWindowSlots; ++steps) {
    if (std::optional<Point> point = Window()) points_.push_back(*point);
    ++slot_;
    slots_[static_cast<size_t>(slot_ % kWindowSlots)] = {};
  }
  slot_ = std::max(slot_, slot);
  while (!points_.empty() && points_.front().slot < slot_ - kSpanSlots) points_.pop_front();
}

std::optional<LatencyHistory::Point> LatencyHistory::Series::Window() const {
  std::array<uint64_t, kBuckets> counts{};
  Point point{slot_};
  for (const Slot& slot : slots_) {
    for (size_t i = 0; i < kBuckets; ++i) {
      counts[i] += slot.counts[i];
      point.count += slot.counts[i];
    }
  }
  if (point.count == 0) return std::nullopt;
  // The value that stands at this place when all are in order.
  const auto at = [&counts, &point](double share) {
    const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(point.count)));
    uint64_t seen = 0;
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && (seen += counts[bucket]) < wanted) ++bucket;
    return MillisecondsOf(bucket);
  };
  point.median_ms = at(0.5);
  point.p95_ms = at(0.95);
  return point;
}

json LatencyHistory::Series::Points(MonotonicTime now) const {
  json points = json::array();
  for (const Point& point : points_) {
    const MonotonicTime end(std::chrono::seconds((point.slot + 1) * kSlotSeconds));
    points.push_back(PointJson(SpanSeconds(now - end), point.count, point.median_ms, point.p95_ms));
  }
  if (const std::optional<Point> running = Window()) {
    points.push_back(PointJson(0, running->count, running->median_ms, running->p95_ms));
  }
  return points;
}

void LatencyHistory::Advance(int64_t slot) {
  if (slot <= advanced_to_) return;
  advanced_to_ = slot;
  for (auto& [name, model] : models_) {
    model.first_token.Advance(slot);
    model.inter_token.Advance(slot);
  }
  std::erase_if(models_, [](const auto& entry) {
    return entry.second.first_token.IsEmpty() && entry.second.inter_token.IsEmpty();
  });
}

void LatencyHistory::Observe(const std::string& model, Latency latency, double seconds,
                             uint64_t times, MonotonicTime now) {
  const std::lock_guard lock(mutex_);
  Advance(SlotOf(now));
  auto found = models_.find(model);
  if (found == models_.end()) {
    if (models_.size() >= kModelsMax) return;
    found = models_.try_emplace(model).first;
  }
  Series& series =
      latency == Latency::kFirstToken ? found->second.first_token : found->second.inter_token;
  series.Add(seconds, times, advanced_to_);
}

std::shared_ptr<const std::string> LatencyHistory::Json(MonotonicTime now) {
  const std::lock_guard lock(mutex_);
  if (json_ != nullptr && now - json_made_at_ < kJsonHolds) return json_;
  Advance(SlotOf(now));
  json models = json::array();
  for (const auto& [name, model] : models_) {
    models.push_back({{"model", name},
                      {"first_token", model.first_token.Points(now)},
                      {"inter_token", model.inter_token.Points(now)}});
  }
  const json all = {{"slot_seconds", kSlotSeconds},
                    {"window_seconds", kSlotSeconds * kWindowSlots},
                    {"span_seconds", kSlotSeconds * kSpanSlots},
                    {"models", std::move(models)}};
  json_ =
      std::make_shared<const std::string>(all.dump(-1, ' ', false, json::error_handler_t::replace));
  json_made_at_ = now;
  return json_;
}

}  // namespace macrame::agentd
