#include "runtime/gang/step_channel.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/gang/gang_listener.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kOutOfTurn[] = "it spoke out of turn";

absl::Status ConnectFailed(std::string message) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kConnectFailed, std::move(message));
}

absl::Status RankGone(uint32_t rank, const std::string& why) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited,
                      absl::StrCat("rank ", rank, " is gone: ", why));
}

transport::GangMember MemberOf(const GangPlace& place, transport::GangChannel channel) {
  return {channel, place.rank, place.world_size, place.epoch, place.secret};
}

}  // namespace

absl::StatusOr<std::vector<transport::SealedSocket>> GatherRanks(
    const transport::StreamSocket& listener, const GangPlace& place, transport::GangChannel channel,
    milliseconds limit, const RandomBytes& random_bytes) {
  std::vector<transport::SealedSocket> ranks(place.world_size);
  const auto end = steady_clock::now() + limit;
  transport::GangListener callers(listener, MemberOf(place, channel),
                                  {place.member_ips, {}, random_bytes});
  for (uint32_t joined = 1; joined < place.world_size;) {
    auto connection = callers.Accept(end);
    if (absl::IsDeadlineExceeded(connection.status())) {
      std::vector<uint32_t> missing;
      for (uint32_t rank = 1; rank < place.world_size; ++rank) {
        if (!ranks[rank].open()) missing.push_back(rank);
      }
      return ConnectFailed(absl::StrCat("rank ", absl::StrJoin(missing, ", "),
                                        " did not connect to rank 0 within ", limit.count(), " ms",
                                        callers.Refused()));
    }
    if (!connection.ok()) return ConnectFailed(std::string(connection.status().message()));
    const uint32_t rank = connection->rank;
    if (!ranks[rank].open()) ++joined;
    ranks[rank] = transport::SealedSocket(*std::move(connection));
  }
  return ranks;
}

absl::StatusOr<std::unique_ptr<StepLeader>> StepLeader::Gather(
    const transport::StreamSocket& listener, const GangPlace& place, milliseconds limit,
    const RandomBytes& random_bytes) {
  auto ranks = GatherRanks(listener, place, transport::GangChannel::kSteps, limit, random_bytes);
  if (!ranks.ok()) return ranks.status();
  std::unique_ptr<StepLeader> leader(new StepLeader);
  leader->followers_ = *std::move(ranks);
  return leader;
}

absl::Status StepLeader::Send(const Step& step) {
  for (uint32_t rank = 1; rank < followers_.size(); ++rank) {
    const absl::Status status = SendTo(rank, step);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StepLeader::SendTo(uint32_t rank, const Step& step) {
  const absl::Status status = followers_[rank].SendFrame(EncodeStep(step));
  return status.ok() ? status : RankGone(rank, std::string(status.message()));
}

absl::StatusOr<uint32_t> StepLeader::WaitForReport(const std::vector<bool>& awaited,
                                                   milliseconds limit) {
  std::vector<pollfd> polled;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 1; rank < followers_.size(); ++rank) {
    if (!awaited.empty() && !awaited[rank]) continue;
    polled.push_back({followers_[rank].fd(), POLLIN, 0});
    ranks.push_back(rank);
  }
  const int ready = poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
  if (ready < 0 && errno != EINTR) return absl::InternalError("poll failed");
  for (size_t i = 0; ready > 0 && i < polled.size(); ++i) {
    if (polled[i].revents != 0) return ranks[i];
  }
  return absl::DeadlineExceededError("no report");
}

absl::Status StepLeader::ReadReport(uint32_t rank, Report& report) {
  const auto frame = followers_[rank].ReceiveFrame();
  if (!frame.ok()) return RankGone(rank, std::string(frame.status().message()));
  auto decoded = DecodeReport(*frame);
  if (!decoded.ok()) return RankGone(rank, std::string(decoded.status().message()));
  report = *std::move(decoded);
  if (report.kind == ReportKind::kFailed) return RankGone(rank, report.text);
  return absl::OkStatus();
}

absl::Status StepLeader::AwaitLoaded() {
  // Every rank stays in the poll set, also those that have loaded: one may fail while others load.
  std::vector<bool> loaded(followers_.size(), false);
  size_t count = 1;
  while (count < followers_.size()) {
    const auto rank = WaitForReport({}, milliseconds(1000));
    if (absl::IsDeadlineExceeded(rank.status())) continue;
    if (!rank.ok()) return rank.status();
    Report report;
    const absl::Status status = ReadReport(*rank, report);
    if (!status.ok()) return status;
    if (report.kind != ReportKind::kLoaded) return RankGone(*rank, kOutOfTurn);
    if (!loaded[*rank]) ++count;
    loaded[*rank] = true;
  }
  return absl::OkStatus();
}

absl::Status StepLeader::WaitForLoss(milliseconds limit,
                                     const std::function<void(uint32_t, const Report&)>& on_cold) {
  const auto rank = WaitForReport({}, limit);
  if (shut_down_) return absl::CancelledError("the step channel is shut down");
  if (absl::IsDeadlineExceeded(rank.status())) return absl::OkStatus();
  if (!rank.ok()) return rank.status();
  Report report;
  const absl::Status status = ReadReport(*rank, report);
  if (status.ok() && report.kind != ReportKind::kLoaded && on_cold) {
    on_cold(*rank, report);
    return absl::OkStatus();
  }
  return status.ok() ? RankGone(*rank, kOutOfTurn) : status;
}

void StepLeader::ShutDown() {
  shut_down_ = true;
  for (const transport::SealedSocket& follower : followers_) follower.ShutDown();
}

absl::StatusOr<transport::SealedSocket> JoinRankZero(const std::string& address,
                                                     const GangPlace& place,
                                                     transport::GangChannel channel,
                                                     milliseconds limit,
                                                     const RandomBytes& random_bytes) {
  auto connection = transport::CallGang(MemberOf(place, channel), {address, /*rank=*/0},
                                        steady_clock::now() + limit, random_bytes);
  if (connection.ok()) return transport::SealedSocket(*std::move(connection));
  return ConnectFailed(absl::StrCat("rank ", place.rank, " can't reach rank 0 at ", address, ": ",
                                    connection.status().message()));
}

absl::StatusOr<std::unique_ptr<StepFollower>> StepFollower::Join(const std::string& address,
                                                                 const GangPlace& place,
                                                                 milliseconds limit,
                                                                 const RandomBytes& random_bytes) {
  auto socket = JoinRankZero(address, place, transport::GangChannel::kSteps, limit, random_bytes);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<StepFollower> follower(new StepFollower);
  follower->socket_ = *std::move(socket);
  return follower;
}

bool StepFollower::AwaitStep(milliseconds limit) const {
  pollfd watched{socket_.fd(), POLLIN, 0};
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    const int ready = poll(&watched, 1, std::max<int>(0, static_cast<int>(left.count())));
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

absl::StatusOr<Step> StepFollower::Receive() {
  const auto frame = socket_.ReceiveFrame();
  if (!frame.ok()) return RankGone(0, std::string(frame.status().message()));
  auto step = DecodeStep(*frame);
  if (!step.ok()) return step.status();
  if (step->number != next_number_) {
    return absl::InternalError(
        absl::StrCat("step ", step->number, " came where ", next_number_, " was due"));
  }
  ++next_number_;
  return step;
}

absl::Status StepFollower::Tell(const Report& report) {
  absl::MutexLock lock(&telling_);
  return socket_.SendFrame(EncodeReport(report));
}

}  // namespace macrame::runtime::engine
