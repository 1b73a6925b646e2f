#pragma once

// What ties this rank to its gang: the step channel and a collective group, or nothing at all when
// the gang is one rank. The group is formed only after every rank has joined the step channel, so
// that nobody waits in it alone, and proven by first collectives that hold every rank's share.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "mlx/mlx.h"
#include "proto/backends.h"
#include "runtime/gang/side_channel.h"
#include "runtime/gang/step_channel.h"
#include "runtime/model/weights/weight_needs.h"
#include "transport/collectives/observed_wire.h"
#include "transport/gang/sealed_socket.h"
#include "transport/mlx_group/mlx_group.h"

namespace macrame::runtime::engine {

// Tensor, pipeline, or stages that are tensor groups: rank == stage * tp + tp_rank. The launch
// spec's flags and ranges must agree: CONFIG_INVALID otherwise, and for stages of tensor groups
// over jaccl or a ring of cables, whose groups can't be divided.
absl::StatusOr<ShardPlace> PlaceOf(const v1::LaunchSpec& spec);

inline constexpr std::chrono::milliseconds kCollectiveTimeout{30'000};

// Sockets that the agent has bound at the spec's own addresses, so that nobody else gets there
// first: taken over. -1: there is none, and the address is bound here.
struct BoundSockets {
  int ring = -1;
  int step = -1;  // rank 0 only
};

// What this rank brings to its gang.
struct RankTraits {
  RankTraits(WireType type, bool chooses = false) : wire_type(type), chooses_tokens(chooses) {}
  WireType wire_type;           // counts on rank 0 only, which tells the others
  bool chooses_tokens = false;  // LayerStack::chooses_tokens
};

// What forms MLX's own group over RDMA, and lets go of it.
struct JacclLibrary {
  std::function<bool()> is_available;
  std::function<mlx::core::distributed::Group(mlx::core::distributed::AllGatherFactory)> form;
  std::function<void()> forget;
};
JacclLibrary JacclOfMlx();

class GangLink {
 public:
  // "rendezvous", "queue_pair", "first_collective".
  using PhaseCallback = std::function<void(const std::string& detail)>;

  // Forms the gang: blocks up to spec.connect_timeout_ms. CONNECT_FAILED names who is missing;
  // GROUP_MISMATCH: the group came up smaller than asked for, on another backend, or adds wrongly;
  // TRANSPORT_UNAVAILABLE: this rank process can't do the backend at all. `observer`, which may be
  // null and must outlive the link, hears of each exchange of our own groups.
  static absl::StatusOr<std::unique_ptr<GangLink>> Form(const v1::LaunchSpec& spec,
                                                        const RankTraits& traits,
                                                        const PhaseCallback& on_phase,
                                                        transport::WireObserver* observer = nullptr,
                                                        const BoundSockets& bound = {},
                                                        const JacclLibrary& jaccl = JacclOfMlx());
  ~GangLink();

  // The same without a group: the step channel alone, for an engine that sees to its own over
  // `backend`, which is told of as the gang's. The ring's address is the engine's to bind.
  static absl::StatusOr<std::unique_ptr<GangLink>> FormSteps(const v1::LaunchSpec& spec,
                                                             Backend backend,
                                                             const PhaseCallback& on_phase,
                                                             const BoundSockets& bound = {});

  // For a group that somebody else's library forms: all ranks meet where it will (rendezvous.h),
  // and what it binds is free afterwards. Over a ring of MLX's there is only that to do.
  absl::Status MeetForLibrary(const v1::LaunchSpec& spec);
  void FreeRingAddress();

  bool single() const { return !group_.has_value(); }
  const mlx::core::distributed::Group& group() const { return *group_; }
  // The ranks of this rank's stage, by tp_rank; all ranks when there is one stage.
  const mlx::core::distributed::Group& stage_group() const {
    return stage_group_.has_value() ? stage_group_->handle() : *group_;
  }
  // The same two as groups of ours, outside of MLX's graphs; null over jaccl and when single.
  transport::MlxGroup* own_group() { return own_group_.has_value() ? &*own_group_ : nullptr; }
  transport::MlxGroup* own_stage_group() {
    return stage_group_.has_value() ? &*stage_group_ : own_group();
  }
  // Some ranks have no way to each other but through their neighbours.
  bool neighbours_only() const { return neighbours_only_; }
  uint32_t rank() const { return rank_; }
  // Which slices of its stage each rank has, by rank.
  const std::vector<SliceRange>& slices() const { return slices_; }
  mlx::core::Dtype wire_type() const { return wire_type_; }
  // Whether all ranks said that they choose tokens.
  bool all_choose() const { return all_choose_; }
  // Set on rank 0 of a gang of several; the other on the other ranks.
  StepLeader* leader() const { return leader_.get(); }
  StepFollower* follower() const { return follower_.get(); }

  // The lines for a GangWatch, once: by rank, those that lead somewhere are open.
  std::vector<transport::SealedSocket> TakeWatchLines() { return std::move(watch_lines_); }
  // Whether `observer` hears of every collective: MLX's own backends tell nobody.
  bool tells_observer() const { return own_group_.has_value(); }

  // What the group says of itself. Any thread.
  Backend backend() const { return backend_; }
  uint32_t group_size() const { return group_size_; }
  uint64_t bytes_sent() const;
  uint64_t bytes_moved() const;  // sent and received
  transport::CollectiveTimes times() const;

  // ENGINE_LIMIT where the ranks sum without this: to be asked before they are told to.
  absl::Status CanVerify() const;
  // Timed rounds of collectives; every rank calls it with the same sizes. Engine thread.
  absl::StatusOr<v1::VerifyGroupResponse> Verify(const v1::VerifyGroupRequest& request);

  // Throws std::runtime_error where a collective of a graph that was evaluated has failed: MLX goes
  // on behind one, and says so to nobody who did not have to wait. Engine thread.
  void ThrowIfBroken() const;

  // Engine thread, when no collective will follow: gives back what jaccl's group holds of the RDMA
  // devices, unless one that is under way does not end. A Mac has 11 protection domains a device,
  // and keeps those of a process that ended without that.
  void LeaveGroup();

  // Any thread: wakes whoever waits on the step channel. A collective that is under way ends by its
  // own limit: an error in it would take the process with it.
  void ShutDown();

 private:
  GangLink() = default;
  transport::WireStats Stats() const;
  absl::Status FormGroup(const v1::LaunchSpec& spec, const PhaseCallback& on_phase,
                         const JacclLibrary& jaccl);
  absl::Status MeetRankZero(const v1::LaunchSpec& spec, const GangPlace& place);
  absl::Status MeetRanks(const v1::LaunchSpec& spec, const GangPlace& place, WireType wire_type);
  absl::StatusOr<std::unique_ptr<transport::Wire>> ConnectTcp(const v1::LaunchSpec& spec);
  absl::Status FormTcp(const v1::LaunchSpec& spec);
  void Adopt(const v1::LaunchSpec& spec, std::unique_ptr<transport::Wire> wire, Topology topology);
  absl::Status FormVerbs(const v1::LaunchSpec& spec, const PhaseCallback& on_phase);
  absl::Status FormJaccl(const v1::LaunchSpec& spec, const JacclLibrary& jaccl);
  absl::StatusOr<SideChannel> MeetBeside(const v1::LaunchSpec& spec);
  absl::Status Prove(const v1::LaunchSpec& spec, const SliceRange& own, bool chooses_tokens);
  absl::Status ProveSizes(const v1::LaunchSpec& spec);

  std::unique_ptr<StepLeader> leader_;
  std::unique_ptr<StepFollower> follower_;
  std::vector<transport::SealedSocket> watch_lines_;
  transport::StreamSocket step_listener_;  // rank 0, while the gang is being formed
  BoundSockets bound_;
  transport::WireObserver* observer_ = nullptr;
  std::optional<transport::MlxGroup> own_group_;
  std::optional<transport::MlxGroup> stage_group_;  // of several stages of several ranks
  std::optional<mlx::core::distributed::Group> group_;
  std::function<void()> forget_jaccl_;  // while there is a group of jaccl's
  mlx::core::Dtype wire_type_ = mlx::core::float32;
  std::vector<SliceRange> slices_{SliceRange()};
  uint32_t rank_ = 0;
  bool neighbours_only_ = false;
  bool all_choose_ = false;
  Backend backend_ = Backend::kSingle;
  uint32_t group_size_ = 1;
};

// jaccl's devices, row by row: null, the name of a device, or a list of several.
std::string DeviceMatrixOf(const v1::LaunchSpec& spec);

// How a verification crosses the step channel: sizes in whole KiB.
Step VerifyStepOf(const v1::VerifyGroupRequest& request);
v1::VerifyGroupRequest VerifyRequestOf(const Step& step);

WireType WireTypeOf(mlx::core::Dtype type);
mlx::core::Dtype DtypeOf(WireType type);

// The most that one verification may ask for.
inline constexpr int kVerifySizesMax = 16;
inline constexpr uint64_t kVerifyBytesMax = 256 << 20;
inline constexpr uint32_t kVerifyRoundsMax = 1000;

}  // namespace macrame::runtime::engine
