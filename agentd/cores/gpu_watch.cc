#include "agentd/cores/gpu_watch.h"

namespace macrame::agentd {

void GpuWatch::Note(double busy_ratio, bool ranks_run, MonotonicTime now) {
  const bool was_busy = is_busy_ && now - noted_at_ <= kGpuReadingGap;
  noted_at_ = now;
  if (ranks_run) ran_at_ = now;
  is_busy_ = busy_ratio >= kGpuBusyRatio;
  if (is_busy_ && !was_busy) {
    may_be_ours_ = ran_at_.has_value() && now - *ran_at_ <= kGpuReadingAge;
    alone_since_.reset();
  }
  if (!is_busy_ || ranks_run || !may_be_ours_) {
    alone_since_.reset();
  } else if (!alone_since_.has_value()) {
    alone_since_ = now;
  }
}

uint32_t GpuWatch::AloneSeconds() const {
  if (!alone_since_.has_value()) return 0;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(noted_at_ - *alone_since_).count();
  if (seconds < kGpuAloneSecondsMin) return 0;
  uint32_t told = kGpuAloneSecondsMin;
  while (told <= UINT32_MAX / 2 && int64_t{told} * 2 <= seconds) told *= 2;
  return told;
}

}  // namespace macrame::agentd
