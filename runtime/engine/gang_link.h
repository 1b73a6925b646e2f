#pragma once

// What ties this rank to its gang: the step channel and MLX's collective group, or nothing at all
// when the gang is one rank. The ring is formed only after every rank has joined the step channel,
// so that nobody waits in it alone.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "mlx/mlx.h"
#include "runtime/engine/step_channel.h"
#include "runtime/engine/weight_needs.h"

namespace macrame::runtime::engine {

// Pure tensor or pure pipeline; rank == stage of a pipeline, rank == tp_rank of a tensor split.
// The launch spec's flags and ranges must agree: CONFIG_INVALID otherwise.
absl::StatusOr<ShardPlace> PlaceOf(const v1::LaunchSpec& spec);

// MLX's ring tries again only after a second when nobody listens yet: ranks get this head start to
// listen before they are connected to. Only speed hangs on it.
inline constexpr std::chrono::milliseconds kRingHeadStart{100};

class GangLink {
 public:
  // Forms the gang: blocks up to spec.connect_timeout_ms. `wire_type` counts on rank 0 only, which
  // tells the others. CONNECT_FAILED names who is missing, or a group smaller than asked for.
  static absl::StatusOr<std::unique_ptr<GangLink>> Form(const v1::LaunchSpec& spec,
                                                        WireType wire_type);

  bool single() const { return !group_.has_value(); }
  const mlx::core::distributed::Group& group() const { return *group_; }
  mlx::core::Dtype wire_type() const { return wire_type_; }
  // Set on rank 0 of a gang of several; the other on the other ranks.
  StepLeader* leader() const { return leader_.get(); }
  StepFollower* follower() const { return follower_.get(); }

  // Any thread: wakes whoever waits on the step channel.
  void ShutDown();

 private:
  GangLink() = default;
  absl::Status StartRing(const v1::LaunchSpec& spec, WireType wire_type);
  absl::Status FormRing(const v1::LaunchSpec& spec);

  std::unique_ptr<StepLeader> leader_;
  std::unique_ptr<StepFollower> follower_;
  std::optional<mlx::core::distributed::Group> group_;
  mlx::core::Dtype wire_type_ = mlx::core::float32;
};

WireType WireTypeOf(mlx::core::Dtype type);
mlx::core::Dtype DtypeOf(WireType type);

// The file that MLX's ring reads: a JSON list of each rank's addresses. Pure.
std::string RingHostfile(const v1::LaunchSpec& spec);

}  // namespace macrame::runtime::engine
