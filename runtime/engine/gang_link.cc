#include "runtime/engine/gang_link.h"

#include <openssl/rand.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

std::string RandomBytesOf(size_t count) {
  std::string bytes(count, '\0');
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count));
  MACRAME_CHECK(made == 1) << "the system gives no random bytes";
  return bytes;
}

absl::Status BadSpec(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, "CONFIG_INVALID",
                      absl::StrCat("launch spec: ", message));
}

// A file that only this user can read, gone when the object is.
class PrivateFile {
 public:
  explicit PrivateFile(const std::string& text) {
    std::string path = (std::filesystem::temp_directory_path() / "macrame-ring-").string();
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

}  // namespace

WireType WireTypeOf(mx::Dtype type) {
  if (type == mx::bfloat16) return WireType::kBfloat16;
  return type == mx::float16 ? WireType::kFloat16 : WireType::kFloat32;
}

mx::Dtype DtypeOf(WireType type) {
  if (type == WireType::kBfloat16) return mx::bfloat16;
  return type == WireType::kFloat16 ? mx::float16 : mx::float32;
}

std::string RingHostfile(const v1::LaunchSpec& spec) {
  nlohmann::json hosts = nlohmann::json::array();
  for (const std::string& address : spec.ring_addresses()) hosts.push_back({address});
  return hosts.dump();
}

absl::StatusOr<ShardPlace> PlaceOf(const v1::LaunchSpec& spec) {
  const v1::Assignment& part = spec.assignment();
  const uint32_t world = spec.world_size();
  if (world == 0 || spec.tp() == 0 || spec.pp() == 0 || spec.rank() >= world || spec.tp() > world ||
      spec.pp() > world || spec.tp() * spec.pp() != world) {
    return BadSpec(absl::StrCat("rank ", spec.rank(), " of ", world, " with tp ", spec.tp(),
                                " and pp ", spec.pp()));
  }
  if (spec.tp() > 1 && spec.pp() > 1) return BadSpec("tensor and pipeline can't be mixed yet");
  if (part.stage() != (spec.pp() > 1 ? spec.rank() : 0) ||
      part.tp_rank() != (spec.tp() > 1 ? spec.rank() : 0)) {
    return BadSpec(absl::StrCat("rank ", spec.rank(), " is given stage ", part.stage(),
                                " and tensor part ", part.tp_rank()));
  }
  if (world > 1 && static_cast<uint32_t>(spec.ring_addresses_size()) != world) {
    return BadSpec(
        absl::StrCat(spec.ring_addresses_size(), " ring addresses for ", world, " ranks"));
  }
  ShardPlace place;
  place.layer_begin = static_cast<int>(part.layer_begin());
  place.layer_end = static_cast<int>(part.layer_end());
  place.tp = static_cast<int>(spec.tp());
  place.tp_rank = static_cast<int>(part.tp_rank());
  place.embeds = part.stage() == 0;
  place.normalizes = part.stage() + 1 == spec.pp();
  place.has_head = place.normalizes && part.tp_rank() == 0;
  return place;
}

absl::StatusOr<std::unique_ptr<GangLink>> GangLink::Form(const v1::LaunchSpec& spec,
                                                         WireType wire_type) {
  std::unique_ptr<GangLink> link(new GangLink);
  link->wire_type_ = DtypeOf(wire_type);
  if (spec.world_size() == 1) return link;
  const GangPlace place{spec.rank(), spec.world_size(), spec.epoch(), spec.gang_secret()};
  const std::chrono::milliseconds limit(spec.connect_timeout_ms());
  if (spec.rank() == 0) {
    const auto listener = transport::StreamSocket::Listen(spec.step_address());
    if (!listener.ok()) return listener.status();
    auto leader = StepLeader::Gather(*listener, place, limit, RandomBytesOf);
    if (!leader.ok()) return leader.status();
    link->leader_ = *std::move(leader);
    const absl::Status status = link->StartRing(spec, wire_type);
    if (!status.ok()) return status;
    return link;
  }
  auto follower = StepFollower::Join(spec.step_address(), place, limit, RandomBytesOf);
  if (!follower.ok()) return follower.status();
  link->follower_ = *std::move(follower);
  const auto step = link->follower_->Receive();
  if (!step.ok()) return step.status();
  if (step->kind != StepKind::kConnect) return absl::InternalError("no connect step came first");
  link->wire_type_ = DtypeOf(step->wire_type);
  const absl::Status status = link->FormRing(spec);
  if (!status.ok()) return status;
  return link;
}

absl::Status GangLink::StartRing(const v1::LaunchSpec& spec, WireType wire_type) {
  Step connect;
  connect.kind = StepKind::kConnect;
  connect.wire_type = wire_type;
  const uint32_t last = spec.world_size() - 1;
  for (uint32_t rank = 1; rank < last; ++rank) {
    const absl::Status status = leader_->SendTo(rank, connect);
    if (!status.ok()) return status;
  }
  // The last rank closes the ring by connecting to this one, which must listen by then.
  absl::Status told;
  std::thread teller([&] {
    std::this_thread::sleep_for(kRingHeadStart);
    told = leader_->SendTo(last, connect);
  });
  const absl::Status formed = FormRing(spec);
  teller.join();
  return told.ok() ? formed : told;
}

absl::Status GangLink::FormRing(const v1::LaunchSpec& spec) {
  const PrivateFile hostfile(RingHostfile(spec));
  if (!hostfile.ok()) return absl::InternalError("the ring's host file can't be written");
  setenv("MLX_HOSTFILE", hostfile.path().c_str(), 1);
  setenv("MLX_RANK", std::to_string(spec.rank()).c_str(), 1);
  const auto failed = [&](const std::string& why) {
    return ReasonStatus(absl::StatusCode::kUnavailable, "CONNECT_FAILED",
                        absl::StrCat("rank ", spec.rank(), " could not form the ring: ", why));
  };
  try {
    group_ = mx::distributed::init(/*strict=*/true, "ring");
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  if (group_->size() != static_cast<int>(spec.world_size()) ||
      group_->rank() != static_cast<int>(spec.rank())) {
    return failed(absl::StrCat("it came up as rank ", group_->rank(), " of ", group_->size(),
                               " instead of ", spec.world_size()));
  }
  return absl::OkStatus();
}

void GangLink::ShutDown() {
  if (leader_ != nullptr) leader_->ShutDown();
  if (follower_ != nullptr) follower_->ShutDown();
}

}  // namespace macrame::runtime::engine
