#include "runtime/gang/stall_monitor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

// A process that uses less of one processor rests: threads that wait wake up now and then.
constexpr Duration kUsedPerBeat = kBeatInterval / 50;
// What other threads may read now and then stays below.
constexpr uint64_t kPagesReadPerBeat = 16;

int64_t Ms(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

std::string PlaceOf(const Beat& beat) {
  switch (beat.activity) {
    case RankActivity::kIdle:
      return absl::StrCat("after step ", beat.steps);
    case RankActivity::kComputing:
      return absl::StrCat("computes in step ", beat.steps);
    case RankActivity::kWaiting:
      return absl::StrCat("waits for other ranks in step ", beat.steps);
  }
  return "";
}

// The longest gap of late, of which a hundredth is forgotten with each beat.
Duration LateAfter(Duration late, Duration gap) { return std::max(gap, late - late / 100); }

}  // namespace

bool AwakeClock::Advance(MonotonicTime now) {
  const Duration gap = now - last_;
  last_ = now;
  awake_ += std::clamp(gap, Duration(0), kCountedMax);
  return gap >= kGap;
}

Beat BeatMaker::Make(uint64_t steps, uint64_t marks, RankActivity activity, const Used& used,
                     MonotonicTime now) {
  const bool was_away = clock_.Advance(now);
  // Weights that come back from the disk are progress: nothing that hangs reads them.
  const bool reads = used.pages_read - used_.pages_read >= kPagesReadPerBeat;
  const bool moved = was_away || marks != marks_ || reads;
  const bool worked =
      used.processor - used_.processor >= kUsedPerBeat || used.pages_read != used_.pages_read;
  marks_ = marks;
  used_ = used;
  if (moved) moved_at_ = clock_.now();
  if (moved || worked) worked_at_ = clock_.now();
  Beat beat;
  beat.steps = steps;
  beat.marks = marks;
  beat.activity = activity;
  beat.standing = clock_.now() - moved_at_;
  beat.resting = clock_.now() - worked_at_;
  return beat;
}

StallMonitor::StallMonitor(uint32_t self, uint32_t world_size, bool knows_waits, StallLimits limits,
                           MonotonicTime now)
    : self_(self),
      knows_waits_(knows_waits),
      limits_(limits),
      ranks_(world_size),
      clock_(now),
      checked_at_(now) {
  MACRAME_CHECK(self < world_size) << "rank " << self << " of " << world_size;
}

void StallMonitor::WatchOnly(uint32_t rank) {
  for (uint32_t other = 0; other < ranks_.size(); ++other) {
    ranks_[other].is_watched = other == rank;
  }
}

void StallMonitor::OnBeat(uint32_t rank, const Beat& beat) {
  // A short step may begin and end between two beats.
  if (beat.activity != RankActivity::kIdle || beat.steps != ranks_[rank].beat.steps) {
    stepped_at_ = clock_.now();
  }
  ranks_[rank].beat = beat;
  if (ranks_[rank].was_heard) {
    ranks_[rank].late = LateAfter(ranks_[rank].late, SinceHeard(ranks_[rank]));
  }
  ranks_[rank].heard = clock_.now();
  ranks_[rank].was_heard = true;
}

uint64_t StallMonitor::gang_marks() const {
  uint64_t sum = 0;
  for (const Watched& rank : ranks_) sum += rank.beat.marks;
  return sum;
}

bool StallMonitor::IsListenedFor(uint32_t number) const {
  const bool is_known = self_ == 0 || ranks_[number].was_heard;
  return number != self_ && ranks_[number].is_watched && is_known;
}

// Ranks that have not begun the step that others are in count too: it is theirs as well. Between
// two steps of an answer all are idle for a moment.
bool StallMonitor::IsRunning() const {
  return stepped_at_.has_value() && clock_.now() - *stepped_at_ <= limits_.running_after;
}

Duration StallMonitor::LimitFor(Duration floor) const {
  if (expected_ <= Duration(0)) return limits_.unmeasured;
  const auto slower =
      Duration(static_cast<int64_t>(limits_.slower_max * static_cast<double>(expected_.count())));
  const Duration limit = std::max(floor, slower);
  return limits_.unmeasured > Duration(0) ? std::min(limit, limits_.unmeasured) : limit;
}

Duration StallMonitor::SilenceLimit(const Watched& rank) const {
  if (!IsRunning()) return limits_.idle_silence;
  const Duration late(static_cast<int64_t>(
      limits_.late_max * static_cast<double>(std::max(rank.late, own_late_).count())));
  return std::max(limits_.silence, std::min(late, limits_.late_silence));
}

std::optional<Stall> StallMonitor::FindSilent() const {
  const Watched* longest = nullptr;
  for (uint32_t number = 0; number < ranks_.size(); ++number) {
    const Watched& rank = ranks_[number];
    if (!IsListenedFor(number) || SinceHeard(rank) < SilenceLimit(rank)) continue;
    if (longest == nullptr || SinceHeard(rank) > SinceHeard(*longest)) longest = &rank;
  }
  if (longest == nullptr) return std::nullopt;
  // Silent since the same beat: they may have one machine, or one link, in common.
  std::vector<uint32_t> silent;
  for (uint32_t number = 0; number < ranks_.size(); ++number) {
    const Watched& rank = ranks_[number];
    const bool along = SinceHeard(*longest) - SinceHeard(rank) <= AwakeClock::kCountedMax;
    if (IsListenedFor(number) && along) silent.push_back(number);
  }
  Stall stall;
  if (silent.size() == 1) stall.rank = silent.front();
  stall.what = absl::StrCat(
      "rank ", absl::StrJoin(silent, ", "), silent.size() == 1 ? " has" : " have",
      " not been heard of for ", Ms(SinceHeard(*longest)),
      " ms: stopped, or its machine sleeps or is cut off; last known: ", PlaceOf(longest->beat));
  return stall;
}

void StallMonitor::NoteBehind() {
  uint64_t newest = 0;
  for (const Watched& rank : ranks_) newest = std::max(newest, rank.beat.steps);
  for (Watched& rank : ranks_) {
    const bool behind = rank.beat.activity == RankActivity::kIdle && rank.beat.steps < newest;
    if (!behind) {
      rank.behind_since.reset();
    } else if (!rank.behind_since.has_value() || rank.beat.marks != rank.behind_marks) {
      rank.behind_since = clock_.now();
      rank.behind_marks = rank.beat.marks;
    }
  }
}

Duration StallMonitor::Overdue(const Watched& rank) const {
  const auto over = [this](Duration still, Duration floor) {
    const Duration limit = LimitFor(floor);
    return limit > Duration(0) ? still - limit : Duration(-1);
  };
  if (rank.behind_since.has_value()) {
    return over(clock_.now() - *rank.behind_since, limits_.resting);
  }
  if (rank.beat.activity != RankActivity::kComputing) return Duration(-1);
  return std::max(over(rank.beat.resting, limits_.resting),
                  over(rank.beat.standing, limits_.standing));
}

// The rank that the others wait for: it computes, or has not begun what they are in, and does not
// get on.
std::optional<Stall> StallMonitor::FindStanding() const {
  std::optional<uint32_t> worst;
  Duration worst_over{-1};
  for (uint32_t number = 0; number < ranks_.size(); ++number) {
    const Duration over = Overdue(ranks_[number]);
    if (over <= worst_over) continue;
    worst = number;
    worst_over = over;
  }
  if (!worst.has_value()) return std::nullopt;
  // One that has not begun the step had nothing to do before the others did.
  const Watched& rank = ranks_[*worst];
  const Duration still =
      rank.behind_since.has_value() ? clock_.now() - *rank.behind_since : rank.beat.standing;
  return Stall{worst, absl::StrCat("rank ", *worst, " makes no progress: for ", Ms(still),
                                   " ms nothing got done; ", Places())};
}

std::optional<Stall> StallMonitor::FindDeadlock() const {
  const bool all_idle = std::all_of(ranks_.begin(), ranks_.end(), [](const Watched& rank) {
    return rank.beat.activity == RankActivity::kIdle;
  });
  if (all_idle) return std::nullopt;
  const Duration limit = LimitFor(limits_.standing);
  if (limit <= Duration(0)) return std::nullopt;
  Duration shortest = Duration::max();
  for (const Watched& rank : ranks_) shortest = std::min(shortest, rank.beat.standing);
  if (shortest < limit) return std::nullopt;
  return Stall{std::nullopt, absl::StrCat("no rank makes progress: for ", Ms(shortest),
                                          " ms nothing got done; ", Places())};
}

std::string StallMonitor::Places() const {
  std::vector<std::string> places;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    places.push_back(absl::StrCat("rank ", rank, " ", PlaceOf(ranks_[rank].beat)));
  }
  return absl::StrJoin(places, ", ");
}

std::optional<Stall> StallMonitor::Check(MonotonicTime now) {
  const Duration gap = now - std::exchange(checked_at_, now);
  // Beyond that the machine slept.
  if (gap < limits_.idle_silence) own_late_ = LateAfter(own_late_, gap);
  if (clock_.Advance(now)) {
    // This side was away: what it did not hear tells nothing.
    for (Watched& rank : ranks_) {
      rank.heard = clock_.now();
      rank.behind_since.reset();
    }
    return std::nullopt;
  }
  NoteBehind();
  if (auto silent = FindSilent(); silent.has_value()) return silent;
  // A follower hears rank 0 alone and judges no more than that.
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const Watched& r) { return r.is_watched; })) {
    return std::nullopt;
  }
  if (knows_waits_ || ranks_.size() == 1) {
    if (auto standing = FindStanding(); standing.has_value()) return standing;
  }
  return FindDeadlock();
}

}  // namespace macrame::runtime::engine
