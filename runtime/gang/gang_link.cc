#include "runtime/gang/gang_link.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mlx/distributed/distributed_impl.h"
#include "mlx/scheduler.h"
#include "proto/reasons.h"
#include "runtime/gang/rendezvous.h"
#include "runtime/gang/timed_sums.h"
#include "transport/collectives/part_wire.h"
#include "transport/collectives/tcp_wire.h"
#include "transport/verbs/verbs_wire.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

using transport::GangChannel;
using transport::StreamSocket;
using transport::SystemRandomBytes;

absl::Status BadSpec(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kConfigInvalid,
                      absl::StrCat("launch spec: ", message));
}

// A file that only this user can read, gone when the object is.
class PrivateFile {
 public:
  explicit PrivateFile(const std::string& text) {
    std::error_code none;
    std::string path = (std::filesystem::temp_directory_path(none) / "macrame-devices-").string();
    path.append(6, 'X');  // what mkstemp replaces
    const int fd = mkstemp(path.data());
    if (fd < 0) return;
    const ssize_t written = write(fd, text.data(), text.size());
    close(fd);
    path_ = path;
    ok_ = written == static_cast<ssize_t>(text.size());
  }
  ~PrivateFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  bool ok() const { return ok_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool ok_ = false;
};

// A row for each rank, with a cell for each.
bool IsSquare(const google::protobuf::RepeatedPtrField<v1::DeviceRow>& matrix, uint32_t size) {
  return matrix.size() == static_cast<int>(size) &&
         std::ranges::all_of(matrix, [&](const v1::DeviceRow& row) {
           return row.cells_size() == static_cast<int>(size);
         });
}

std::vector<std::string> MemberIpsOf(const v1::LaunchSpec& spec) {
  std::vector<std::string> ips;
  for (const std::string& address : spec.ring_addresses()) {
    ips.push_back(address.substr(0, address.rfind(':')));
  }
  return ips;
}

GangPlace GangPlaceOf(const v1::LaunchSpec& spec) {
  return {spec.rank(), spec.world_size(), spec.epoch(), spec.gang_secret(), MemberIpsOf(spec)};
}

// The socket, when it is one that whoever calls `address` gets to.
int BoundTo(int fd, const std::string& address) {
  if (fd < 0) return -1;
  StreamSocket socket(fd);
  const std::string ip = socket.LocalIp();
  const bool is_there =
      ip == "0.0.0.0" || ip == "::" || address == absl::StrCat(ip, ":", socket.LocalPort());
  return is_there ? socket.Release() : -1;
}

}  // namespace

std::string DeviceMatrixOf(const v1::LaunchSpec& spec) {
  nlohmann::json matrix = nlohmann::json::array();
  for (const v1::DeviceRow& row : spec.device_matrix()) {
    nlohmann::json cells = nlohmann::json::array();
    for (const v1::DeviceCell& cell : row.cells()) {
      if (cell.devices().empty()) {
        cells.push_back(nullptr);
      } else if (cell.devices_size() == 1) {
        cells.push_back(cell.devices(0));
      } else {
        cells.push_back(std::vector<std::string>(cell.devices().begin(), cell.devices().end()));
      }
    }
    matrix.push_back(std::move(cells));
  }
  return matrix.dump();
}

WireType WireTypeOf(mx::Dtype type) {
  if (type == mx::bfloat16) return WireType::kBfloat16;
  return type == mx::float16 ? WireType::kFloat16 : WireType::kFloat32;
}

mx::Dtype DtypeOf(WireType type) {
  if (type == WireType::kBfloat16) return mx::bfloat16;
  return type == WireType::kFloat16 ? mx::float16 : mx::float32;
}

constexpr uint32_t kSlicesMax = 65536;
// For ranks that have met already to meet once more, and for each piece that one tells.
constexpr std::chrono::milliseconds kBesideLimit{5000};
// For what is queued on a group's stream, when nothing more is awaited of it.
constexpr std::chrono::milliseconds kLeaveLimit{300};

bool IsRing(const v1::LaunchSpec& spec) {
  return TopologyNamed(spec.backend_topology()) == Topology::kRing;
}

// How the gang as a whole is divided.
absl::Status CheckDivision(const v1::LaunchSpec& spec) {
  const uint32_t world = spec.world_size();
  if (world == 0 || spec.tp() == 0 || spec.pp() == 0 || spec.rank() >= world || spec.tp() > world ||
      spec.pp() > world || spec.tp() * spec.pp() != world) {
    return BadSpec(absl::StrCat("rank ", spec.rank(), " of ", world, " with tp ", spec.tp(),
                                " and pp ", spec.pp()));
  }
  const Backend backend = BackendNamed(spec.backend());
  const bool indivisible =
      backend == Backend::kJaccl || (backend == Backend::kVerbs && IsRing(spec));
  if (spec.tp() > 1 && spec.pp() > 1 && indivisible) {
    return BadSpec(absl::StrCat("stages of tensor groups need a group that can be divided; a ",
                                spec.backend(), " ", spec.backend_topology(), " can't"));
  }
  return absl::OkStatus();
}

// This rank's part of it.
absl::Status CheckPart(const v1::LaunchSpec& spec) {
  const v1::Assignment& part = spec.assignment();
  if (part.stage() != spec.rank() / spec.tp() || part.tp_rank() != spec.rank() % spec.tp()) {
    return BadSpec(absl::StrCat("rank ", spec.rank(), " is given stage ", part.stage(),
                                " and tensor part ", part.tp_rank()));
  }
  const uint32_t slices = part.slice_count();
  if (slices > 0 && (slices > kSlicesMax || part.slice_begin() >= part.slice_end() ||
                     part.slice_end() > slices || spec.tp() == 1)) {
    return BadSpec(absl::StrCat("rank ", spec.rank(), " is given slices [", part.slice_begin(),
                                ", ", part.slice_end(), ") of ", slices));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardPlace> PlaceOf(const v1::LaunchSpec& spec) {
  absl::Status status = CheckDivision(spec);
  if (status.ok()) status = CheckPart(spec);
  if (!status.ok()) return status;
  const uint32_t world = spec.world_size();
  if (world > 1 && static_cast<uint32_t>(spec.ring_addresses_size()) != world) {
    return BadSpec(
        absl::StrCat(spec.ring_addresses_size(), " ring addresses for ", world, " ranks"));
  }
  const v1::Assignment& part = spec.assignment();
  ShardPlace place;
  place.layer_begin = static_cast<int>(part.layer_begin());
  place.layer_end = static_cast<int>(part.layer_end());
  place.tp = static_cast<int>(spec.tp());
  place.tp_rank = static_cast<int>(part.tp_rank());
  // Without slices of its own a rank has the tp_rank-th of tp equal parts.
  const bool sliced = part.slice_count() > 0;
  place.slice_count = static_cast<int>(sliced ? part.slice_count() : spec.tp());
  place.slice_begin = static_cast<int>(sliced ? part.slice_begin() : part.tp_rank());
  place.slice_end = static_cast<int>(sliced ? part.slice_end() : part.tp_rank() + 1);
  place.whole_experts = part.whole_experts();
  place.embeds = part.stage() == 0;
  place.has_head = part.stage() + 1 == spec.pp();
  return place;
}

absl::Status GangLink::MeetRanks(const v1::LaunchSpec& spec, const GangPlace& place,
                                 WireType wire_type) {
  const std::chrono::milliseconds limit(spec.connect_timeout_ms());
  auto listener = bound_.step >= 0 ? StreamSocket::ListenAt(std::exchange(bound_.step, -1))
                                   : StreamSocket::Listen(spec.step_address());
  if (!listener.ok()) return listener.status();
  auto leader = StepLeader::Gather(*listener, place, limit, SystemRandomBytes);
  if (!leader.ok()) return leader.status();
  leader_ = *std::move(leader);
  Step connect;
  connect.kind = StepKind::kConnect;
  connect.wire_type = wire_type;
  const absl::Status told = leader_->Send(connect);
  if (!told.ok()) return told;
  auto lines = GatherRanks(*listener, place, GangChannel::kWatch, limit, SystemRandomBytes);
  if (!lines.ok()) return lines.status();
  watch_lines_ = *std::move(lines);
  step_listener_ = *std::move(listener);
  return absl::OkStatus();
}

absl::Status GangLink::MeetRankZero(const v1::LaunchSpec& spec, const GangPlace& place) {
  const std::chrono::milliseconds limit(spec.connect_timeout_ms());
  auto follower = StepFollower::Join(spec.step_address(), place, limit, SystemRandomBytes);
  if (!follower.ok()) return follower.status();
  follower_ = *std::move(follower);
  const auto step = follower_->Receive();
  if (!step.ok()) return step.status();
  if (step->kind != StepKind::kConnect) return absl::InternalError("no connect step came first");
  wire_type_ = DtypeOf(step->wire_type);
  auto line =
      JoinRankZero(spec.step_address(), place, GangChannel::kWatch, limit, SystemRandomBytes);
  if (!line.ok()) return line.status();
  watch_lines_.push_back(*std::move(line));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GangLink>> GangLink::Form(
    const v1::LaunchSpec& spec, const RankTraits& traits, const PhaseCallback& on_phase,
    transport::WireObserver* observer, const BoundSockets& bound, const JacclLibrary& jaccl) {
  std::unique_ptr<GangLink> link(new GangLink);
  link->bound_ = bound;
  link->wire_type_ = DtypeOf(traits.wire_type);
  link->observer_ = observer;
  if (spec.world_size() == 1) {
    link->FreeRingAddress();
    return link;
  }
  const auto own = PlaceOf(spec);
  if (!own.ok()) return own.status();
  link->rank_ = spec.rank();
  on_phase("rendezvous");
  const GangPlace place = GangPlaceOf(spec);
  absl::Status status = spec.rank() == 0 ? link->MeetRanks(spec, place, traits.wire_type)
                                         : link->MeetRankZero(spec, place);
  if (!status.ok()) return status;
  status = link->FormGroup(spec, on_phase, jaccl);
  link->step_listener_.Close();
  if (!status.ok()) return status;
  on_phase("first_collective");
  status = link->Prove(spec, own->slices(), traits.chooses_tokens);
  if (!status.ok()) return status;
  return link;
}

absl::StatusOr<std::unique_ptr<GangLink>> GangLink::FormSteps(const v1::LaunchSpec& spec,
                                                              Backend backend,
                                                              const PhaseCallback& on_phase,
                                                              const BoundSockets& bound) {
  std::unique_ptr<GangLink> link(new GangLink);
  link->bound_ = bound;
  if (spec.world_size() == 1) {
    link->FreeRingAddress();
    return link;
  }
  link->rank_ = spec.rank();
  link->backend_ = backend;
  link->group_size_ = spec.world_size();
  on_phase("rendezvous");
  const GangPlace place = GangPlaceOf(spec);
  const absl::Status met = spec.rank() == 0 ? link->MeetRanks(spec, place, WireType::kFloat32)
                                            : link->MeetRankZero(spec, place);
  link->step_listener_.Close();
  if (!met.ok()) return met;
  return link;
}

absl::Status GangLink::FormGroup(const v1::LaunchSpec& spec, const PhaseCallback& on_phase,
                                 const JacclLibrary& jaccl) {
  const Backend backend = BackendNamed(spec.backend());
  if (backend == Backend::kJaccl) {
    on_phase("queue_pair");
    return FormJaccl(spec, jaccl);
  }
  return backend == Backend::kVerbs ? FormVerbs(spec, on_phase) : FormTcp(spec);
}

absl::StatusOr<std::unique_ptr<transport::Wire>> GangLink::ConnectTcp(const v1::LaunchSpec& spec) {
  transport::TcpWireOptions options;
  options.rank = static_cast<int>(spec.rank());
  options.size = static_cast<int>(spec.world_size());
  options.addresses.assign(spec.ring_addresses().begin(), spec.ring_addresses().end());
  options.secret = spec.gang_secret();
  options.epoch = spec.epoch();
  options.listen_fd = std::exchange(bound_.ring, -1);
  options.private_links.assign(spec.private_links().begin(), spec.private_links().end());
  options.connect_timeout = std::chrono::milliseconds(spec.connect_timeout_ms());
  options.collective_timeout = kCollectiveTimeout;
  return transport::ConnectTcpWire(options);
}

void GangLink::Adopt(const v1::LaunchSpec& spec, std::unique_ptr<transport::Wire> wire,
                     Topology topology) {
  if (observer_ != nullptr) wire = transport::MakeObservedWire(std::move(wire), observer_);
  if (spec.tp() > 1 && spec.pp() > 1) {
    const std::shared_ptr<transport::Wire> shared = std::move(wire);
    const int tp = static_cast<int>(spec.tp());
    const int first = static_cast<int>(spec.rank()) / tp * tp;
    stage_group_.emplace(
        transport::MakeGroup(transport::MakePartWire(shared, first, tp), topology));
    wire = transport::MakePartWire(shared, 0, shared->size());
  }
  neighbours_only_ = topology == Topology::kRing && wire->size() > 2;
  own_group_.emplace(transport::MakeGroup(std::move(wire), topology));
  group_ = own_group_->handle();
  backend_ = own_group_->group().backend();
}

absl::Status GangLink::FormTcp(const v1::LaunchSpec& spec) {
  auto wire = ConnectTcp(spec);
  if (!wire.ok()) return wire.status();
  Adopt(spec, *std::move(wire), Topology::kMesh);
  return absl::OkStatus();
}

absl::Status GangLink::FormVerbs(const v1::LaunchSpec& spec, const PhaseCallback& on_phase) {
  const int rank = static_cast<int>(spec.rank());
  if (!IsSquare(spec.device_matrix(), spec.world_size())) {
    return BadSpec("the device matrix is not of the gang's size");
  }
  auto side = ConnectTcp(spec);
  if (!side.ok()) return side.status();
  on_phase("queue_pair");
  transport::VerbsWireOptions options;
  for (const v1::DeviceCell& cell : spec.device_matrix(rank).cells()) {
    options.devices.push_back(cell.devices().empty() ? "" : cell.devices(0));
  }
  options.neighbours_only = IsRing(spec);
  options.collective_timeout = kCollectiveTimeout;
  auto wire = transport::ConnectVerbsWire(options, *std::move(side));
  if (!wire.ok()) return wire.status();
  Adopt(spec, *std::move(wire), IsRing(spec) ? Topology::kRing : Topology::kMesh);
  return absl::OkStatus();
}

absl::Status GangLink::MeetForLibrary(const v1::LaunchSpec& spec) {
  if (spec.rendezvous_address().empty()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kCoordinator,
                        absl::StrCat("rank ", spec.rank(), " knows no address to meet rank 0 at"));
  }
  const int own = spec.rank() == 0 ? std::exchange(bound_.ring, -1) : -1;
  FreeRingAddress();
  return MeetAtRendezvous(
      {spec.rank(), spec.world_size(), spec.rendezvous_address(), spec.gang_secret(), spec.epoch(),
       MemberIpsOf(spec), BoundTo(own, spec.rendezvous_address())},
      std::chrono::milliseconds(spec.connect_timeout_ms()));
}

void GangLink::FreeRingAddress() { StreamSocket(std::exchange(bound_.ring, -1)).Close(); }

absl::StatusOr<SideChannel> GangLink::MeetBeside(const v1::LaunchSpec& spec) {
  // All ranks are there: none may take as long again.
  const std::chrono::milliseconds limit =
      std::min(kBesideLimit, std::chrono::milliseconds(spec.connect_timeout_ms()));
  const GangPlace place = GangPlaceOf(spec);
  if (spec.rank() == 0) {
    auto lines = GatherRanks(step_listener_, place, GangChannel::kSide, limit, SystemRandomBytes);
    if (!lines.ok()) return lines.status();
    return SideChannel(0, *std::move(lines), limit);
  }
  auto line =
      JoinRankZero(spec.step_address(), place, GangChannel::kSide, limit, SystemRandomBytes);
  if (!line.ok()) return line.status();
  std::vector<transport::SealedSocket> lines;
  lines.push_back(*std::move(line));
  return SideChannel(spec.rank(), std::move(lines), limit);
}

JacclLibrary JacclOfMlx() {
  return {[] { return mx::distributed::is_available(NameOf(Backend::kJaccl)); },
          [](mx::distributed::AllGatherFactory factory) {
            return mx::distributed::init(/*strict=*/true, NameOf(Backend::kJaccl),
                                         std::move(factory));
          },
          mx::distributed::clear_backends};
}

// MLX's own. What it reads of the environment is set here, so that nothing of a user's counts; its
// ranks meet over the gang's lines (AllGatherFactory) and at no port.
absl::Status GangLink::FormJaccl(const v1::LaunchSpec& spec, const JacclLibrary& jaccl) {
  const uint32_t world = spec.world_size();
  // jaccl makes its buffers as large as the matrix says.
  if (!IsSquare(spec.device_matrix(), world)) {
    return BadSpec("the device matrix is not of the gang's size");
  }
  if (!jaccl.is_available()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kTransportUnavailable,
                        absl::StrCat("rank ", spec.rank(), ": this machine's MLX has no jaccl"));
  }
  FreeRingAddress();
  auto beside = MeetBeside(spec);
  if (!beside.ok()) return beside.status();
  const auto side = std::make_shared<SideChannel>(*std::move(beside));
  const PrivateFile matrix(DeviceMatrixOf(spec));
  if (!matrix.ok()) return absl::InternalError("the device matrix can't be written");
  // jaccl looks for each under two names, for the first of them first.
  for (const std::string prefix : {"JACCL_", "MLX_"}) {
    setenv((prefix + "RANK").c_str(), std::to_string(spec.rank()).c_str(), 1);
    setenv((prefix + "IBV_DEVICES").c_str(), matrix.path().c_str(), 1);
  }
  for (const char* name : {"JACCL_COORDINATOR", "MLX_JACCL_COORDINATOR"}) unsetenv(name);
  for (const char* name : {"JACCL_RING", "MLX_JACCL_RING"}) {
    IsRing(spec) ? setenv(name, "1", 1) : unsetenv(name);
  }
  const auto all_gather = [side, world](const char* own, char* all, size_t bytes) {
    const absl::Status gathered = side->AllGather({own, bytes}, {all, bytes * world});
    if (!gathered.ok()) throw std::runtime_error(ReasonOf(gathered).message());
  };
  try {
    group_ = jaccl.form([&](int, int size) -> mx::distributed::AllGatherFn {
      if (size == static_cast<int>(world)) return all_gather;
      throw std::runtime_error(absl::StrCat("jaccl counts ", size, " ranks instead of ", world));
    });
  } catch (const std::exception& error) {
    return ReasonStatus(
        absl::StatusCode::kUnavailable, reasons::kConnectFailed,
        absl::StrCat("rank ", spec.rank(), " could not form the jaccl group: ", error.what()));
  }
  forget_jaccl_ = jaccl.forget;
  backend_ = Backend::kJaccl;
  return absl::OkStatus();
}

void GangLink::ThrowIfBroken() const {
  if (single()) return;
  for (const auto* own : {&own_group_, &stage_group_}) {
    const absl::Status status = own->has_value() ? (*own)->status() : absl::OkStatus();
    if (!status.ok()) throw std::runtime_error(ReasonOf(status).message());
  }
  if (!own_group_.has_value()) {
    mx::scheduler::check_error(group_->raw_group()->communication_stream({}));
  }
}

void GangLink::LeaveGroup() {
  if (!forget_jaccl_) return;
  // What is queued has the group's address. A stream that failed drops what is given to it.
  const mx::Stream stream = group_->raw_group()->communication_stream({});
  const auto last = std::make_shared<std::promise<void>>();
  std::future<void> done = last->get_future();
  try {
    mx::scheduler::enqueue(stream, [last] { last->set_value(); });
  } catch (const std::exception&) {
    return;
  }
  if (done.wait_for(kLeaveLimit) != std::future_status::ready) return;
  group_.reset();
  std::exchange(forget_jaccl_, nullptr)();
}

GangLink::~GangLink() { LeaveGroup(); }

// Every stage's slices, one rank's after the other's, from the first to the last.
bool MakeWholes(const std::vector<SliceRange>& slices, size_t tp) {
  for (size_t rank = 0; rank < slices.size(); ++rank) {
    const SliceRange& own = slices[rank];
    const bool first = rank % tp == 0, last = rank % tp == tp - 1;
    if (first ? own.begin != 0
              : own.begin != slices[rank - 1].end || own.count != slices[rank - 1].count) {
      return false;
    }
    if (own.whole_experts != slices[0].whole_experts) return false;
    if (last && own.end != own.count) return false;
  }
  return true;
}

// A group that came up alone, or lacks a rank's share, would answer with nonsense ever after. What
// each rank adds to the first sum also tells the others which slices it has.
absl::Status GangLink::Prove(const v1::LaunchSpec& spec, const SliceRange& own,
                             bool chooses_tokens) {
  const int world = static_cast<int>(spec.world_size());
  const auto wrong = [&](std::string what) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kGroupMismatch,
                        absl::StrCat("rank ", spec.rank(), ": ", what));
  };
  group_size_ = static_cast<uint32_t>(group_->size());
  if (group_->size() != world || group_->rank() != static_cast<int>(spec.rank())) {
    return wrong(absl::StrCat("the ", NameOf(backend_), " group came up as rank ", group_->rank(),
                              " of ", group_->size(), " instead of ", spec.rank(), " of ", world));
  }
  constexpr size_t kWidth = 4;  // of a rank's share
  std::vector<float> sum(static_cast<size_t>(world) * kWidth, 0);
  // Whole experts show by the sign, that a rank proves larger sums by a half, and that it chooses
  // tokens by a quarter, so that earlier versions read the whole number that they always read. Who
  // chooses tokens from other numbers than part_chooser.h does says so in another way.
  constexpr float kProvesSizes = 0.5F, kChooses = 0.25F;
  const float count =
      (static_cast<float>(own.count) + kProvesSizes + (chooses_tokens ? kChooses : 0)) *
      (own.whole_experts ? -1 : 1);
  const float share[kWidth] = {static_cast<float>(spec.rank() + 1), static_cast<float>(own.begin),
                               static_cast<float>(own.end), count};
  std::copy_n(share, kWidth, sum.begin() + spec.rank() * kWidth);
  try {
    mx::array all =
        mx::distributed::all_sum(mx::array(sum.data(), {static_cast<int>(sum.size())}), group());
    all.eval();
    std::copy_n(all.data<float>(), sum.size(), sum.begin());
  } catch (const std::exception& error) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kConnectFailed,
                        absl::StrCat("rank ", spec.rank(), ", first collective: ", error.what()));
  }
  slices_.clear();
  bool all_prove_sizes = true;
  all_choose_ = true;
  for (int rank = 0; rank < world; ++rank) {
    const float* of = sum.data() + static_cast<size_t>(rank) * kWidth;
    if (of[0] != static_cast<float>(rank + 1)) {
      return wrong(absl::StrCat("the share of rank ", rank, " is missing from a first sum"));
    }
    slices_.push_back({static_cast<int>(of[1]), static_cast<int>(of[2]),
                       std::abs(static_cast<int>(of[3])), of[3] < 0});
    const float means = std::abs(of[3]) - std::trunc(std::abs(of[3]));
    all_prove_sizes = all_prove_sizes && means > 0;
    all_choose_ = all_choose_ && means == kProvesSizes + kChooses;
  }
  if (!MakeWholes(slices_, spec.tp())) {
    return wrong("the slices that the launch specs of all ranks give do not make a whole");
  }
  return all_prove_sizes ? ProveSizes(spec) : absl::OkStatus();
}

// Larger sums go other ways than small ones: in larger frames, which two releases of macOS cut
// differently, or scattered over the ranks and gathered again. Over jaccl logits are gathered,
// which is code of its own: that of MLX 0.32.2 fills less than half of each part in a ring.
absl::Status GangLink::ProveSizes(const v1::LaunchSpec& spec) {
  constexpr int kPeriod = 251;  // of what is sent; prime, so that it fits no frame
  constexpr int kGathered = 64 << 10;
  const auto ranks = static_cast<float>(spec.world_size());
  const auto prove = [&](const std::string& what, const auto& collective, const auto& expected) {
    size_t wrong = 0, count = 0;
    try {
      mx::array result = collective();
      result.eval();
      count = result.size();
      for (size_t i = 0; i < count; ++i) wrong += result.data<float>()[i] != expected(i) ? 1 : 0;
    } catch (const std::exception& error) {
      return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kConnectFailed,
                          absl::StrCat("rank ", spec.rank(), ", ", what, ": ", error.what()));
    }
    if (wrong == 0) return absl::OkStatus();
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kGroupMismatch,
                        absl::StrCat("rank ", spec.rank(), ": ", what, " over ", NameOf(backend_),
                                     " has ", wrong, " of ", count, " numbers wrong"));
  };
  const auto own = [](int bytes, const auto& value) {
    std::vector<float> share(static_cast<size_t>(bytes) / sizeof(float));
    for (size_t i = 0; i < share.size(); ++i) share[i] = value(static_cast<int>(i % kPeriod));
    return mx::array(share.data(), {1, static_cast<int>(share.size())});
  };
  for (const int bytes : {64 << 10, 1 << 20}) {
    const auto add = [&] {
      const auto share = [&](int i) { return static_cast<float>(i * (rank_ + 1)); };
      return mx::distributed::all_sum(own(bytes, share), group());
    };
    const auto summed = [&](size_t i) {
      return static_cast<float>(i % kPeriod) * ranks * (ranks + 1) / 2;
    };
    const absl::Status proven = prove(absl::StrCat("a sum of ", bytes >> 10, " KiB"), add, summed);
    if (!proven.ok()) return proven;
  }
  if (backend_ != Backend::kJaccl) return absl::OkStatus();
  const auto gather = [&] {
    const auto share = [&](int i) { return static_cast<float>(i + kPeriod * rank_); };
    return mx::distributed::all_gather(own(kGathered, share), group());
  };
  const auto gathered = [](size_t i) {
    constexpr size_t kPart = kGathered / sizeof(float);
    const size_t rank = i / kPart;
    return static_cast<float>(i % kPart % kPeriod + kPeriod * rank);
  };
  return prove(absl::StrCat("a gather of ", kGathered >> 10, " KiB of each rank"), gather,
               gathered);
}

transport::WireStats GangLink::Stats() const {
  if (!own_group_.has_value()) return {};
  return const_cast<transport::MlxGroup&>(*own_group_).group().stats();
}

uint64_t GangLink::bytes_sent() const { return Stats().bytes_sent; }

uint64_t GangLink::bytes_moved() const {
  const transport::WireStats stats = Stats();
  return stats.bytes_sent + stats.bytes_received;
}

transport::CollectiveTimes GangLink::times() const {
  return own_group_.has_value() ? own_group_->times() : transport::CollectiveTimes{};
}

absl::Status GangLink::CanVerify() const {
  if (!single() || group_size_ <= 1) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kUnimplemented, reasons::kEngineLimit,
                      "the second engine's ranks sum by themselves: rankd can't time that");
}

absl::StatusOr<v1::VerifyGroupResponse> GangLink::Verify(const v1::VerifyGroupRequest& request) {
  const absl::Status can = CanVerify();
  if (!can.ok()) return can;
  v1::VerifyGroupResponse response;
  response.set_backend(NameOf(backend_));
  response.set_group_size(group_size_);
  response.set_sum_correct(true);
  if (single()) return response;
  try {
    for (const uint64_t size : request.sizes_bytes()) {
      const int count = static_cast<int>(std::max<uint64_t>(1, size / sizeof(float)));
      std::vector<double> times;
      for (uint32_t round = 0; round < request.rounds(); ++round) {
        mx::array own = mx::full({count}, static_cast<float>(group_->rank() + 1));
        own.eval();
        const auto begun = std::chrono::steady_clock::now();
        mx::array sum = mx::distributed::all_sum(own, group());
        sum.eval();
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begun;
        times.push_back(took.count());
        const float wanted = static_cast<float>(group_size_ * (group_size_ + 1)) / 2;
        if (sum.data<float>()[0] != wanted || sum.data<float>()[count - 1] != wanted) {
          response.set_sum_correct(false);
        }
      }
      if (!times.empty()) *response.add_timings() = TimingOf(size, std::move(times));
    }
  } catch (const std::exception& error) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited,
                        absl::StrCat("a collective failed: ", error.what()));
  }
  return response;
}

Step VerifyStepOf(const v1::VerifyGroupRequest& request) {
  Step step;
  step.kind = StepKind::kVerify;
  step.verify_rounds = request.rounds();
  for (const uint64_t size : request.sizes_bytes()) {
    step.verify_kib.push_back(static_cast<uint32_t>((size + 1023) / 1024));
  }
  return step;
}

v1::VerifyGroupRequest VerifyRequestOf(const Step& step) {
  v1::VerifyGroupRequest request;
  request.set_rounds(std::min(step.verify_rounds, kVerifyRoundsMax));
  for (const uint32_t kib : step.verify_kib) {
    const uint64_t size = uint64_t{std::max(kib, 1U)} * 1024;
    request.add_sizes_bytes(std::min(size, kVerifyBytesMax));
  }
  return request;
}

void GangLink::ShutDown() {
  if (leader_ != nullptr) leader_->ShutDown();
  if (follower_ != nullptr) follower_->ShutDown();
}

}  // namespace macrame::runtime::engine
