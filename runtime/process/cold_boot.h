#pragma once

// Starts a rank's part of the cold tier (serving/cold/), once it has warmed up.

#include <functional>
#include <memory>

#include "macrame/v1/rank.pb.h"
#include "runtime/process/rank_boot.h"
#include "runtime/serving/cold/cold_tier.h"
#include "runtime/serving/cold/cold_worker.h"

namespace macrame::runtime::engine {

// What decides the bytes of this rank's KV blocks: the model (its fingerprint, and size and date of
// its files, of which the fingerprint reads samples), this build of rankd and MLX's version, the
// rank's place and the gang's shape, and how the layers keep keys and values.
absl::StatusOr<ColdLayout> ColdLayoutOf(const v1::LaunchSpec& spec, const BootedRank& rank);

// Nothing when the spec names no folder or no bytes. Errors are told as kOff, on this thread.
std::unique_ptr<ColdWorker> StartColdWorker(const v1::LaunchSpec& spec, const BootedRank& rank,
                                            std::function<void(ColdEvent)> tell);

// How many blocks rank 0 has written and read at once, by their size on rank 0.
ColdTraits ColdTraitsOf(uint32_t ranks, size_t block_bytes);

void FillKvCacheDisk(const ColdWorker& worker, v1::KvCacheDisk& disk);

}  // namespace macrame::runtime::engine
